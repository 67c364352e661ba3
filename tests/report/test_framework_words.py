"""A run of PyTorch is told nothing in Keras' words: its first screen, its report, and a comparison of two traces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.api.ladder import compare
from mpprof.diagnosis.rules import ALL
from mpprof.report import brief
from mpprof.report import json as documents
from tests.builders import unmarked
from tests.builders.read_back import text
from tests.diagnosis.test_remedies import FOREIGN, JAX, KERAS_3_ONLY, TENSORFLOW, TORCH

OF_CAUSES = re.compile(
    r"slow callbacks|norms and elementwise work that XLA would fuse|(?:but not|only) Keras|not TensorFlow's"
)
"""Names of causes that do not apply, and why they do not."""
TRACES = {
    "training": unmarked.trained(12),
    "accumulating": unmarked.trained(14, micro_batches=2),
    "inference": unmarked.layers(4),
    "on a CPU": unmarked.on_the_cpu(),
}


def foreign(said: str) -> list[str]:
    return re.findall(rf".{{0,40}}(?:{FOREIGN['torch']}).{{0,40}}", OF_CAUSES.sub("", " ".join(said.split())))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    found = {name: folder / f"{name.replace(' ', '-')}.pt.trace.json" for name in TRACES}
    for name, path in found.items():
        path.write_bytes(TRACES[name].text())
    return found


@pytest.mark.parametrize("name", TRACES)
def test_a_report(name: str, paths: dict[str, Path]) -> None:
    found = workflows.diagnose(paths[name])
    assert foreign(brief.render(documents.report(found))) == []
    assert foreign(text.render(documents.document(found))) == []


def test_a_comparison(paths: dict[str, Path]) -> None:
    compared = compare([workflows.load(paths[name]) for name in ("training", "accumulating")])
    assert foreign(text.render_comparison(documents.compare_document(compared))) == []


def test_what_causes_are_called_holds_for_every_framework() -> None:
    words = re.compile("|".join((TORCH, JAX, TENSORFLOW, KERAS_3_ONLY, r"\bKeras\b")))
    named = [
        (rule.CODE, found[0])
        for rule in ALL
        for name in ("TITLE", "ABOUT", "SAYS", "ONCE")
        if (found := words.search(getattr(rule, name, "")))
    ]
    assert named == []
