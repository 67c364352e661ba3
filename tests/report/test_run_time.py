"""Where the run's time went, in JSON, text and markdown."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from mpprof.api import workflows
from mpprof.report import json as documents
from mpprof.report.json import schema
from mpprof.runs.loading import load
from tests.builders.played_fit import MS, Hook, Play, play
from tests.builders.read_back import content, markdown, text
from tests.paths import SAMPLES


def document(folder: Path, given: Play | None = None):
    given = given or Play(backend="jax", batch=5, validation=70, callbacks=(Hook("Slow|*", batch_end=30),))
    return documents.document(workflows.diagnose(load(play(given, folder).root)))


def test_the_document_holds_the_parts_and_they_sum_to_the_wall_time(tmp_path: Path) -> None:
    made = document(tmp_path)
    jsonschema.validate(made, schema("report"))
    found = made["run_time"]
    assert sum(part["ns"] for part in found["parts"]) + found["unknown_ns"] == found["wall_ns"]
    assert {part["name"]: part["ns"] / MS for part in found["parts"]}["callbacks"] == 1200
    assert "begins" in made["absent"]["run_time.loop"]
    assert "run_time.input" not in made["absent"]


def test_a_lone_trace_has_none_and_the_reason(tmp_path: Path) -> None:
    trace = next((SAMPLES / "v100-convnet-float32").rglob("*.xplane.pb"))
    (tmp_path / "lone.xplane.pb").write_bytes(trace.read_bytes())
    made = documents.document(workflows.diagnose(load(tmp_path / "lone.xplane.pb")))
    assert made["run_time"] is None
    assert made["absent"]["run_time"] == "there is no step log"
    assert content.RUN_TIME_HEADING not in text.render(made)


@pytest.mark.parametrize("width", [80, 120])
def test_text_has_one_compact_table(width: int, tmp_path: Path) -> None:
    lines = text.render(document(tmp_path), width=width).splitlines()
    at = lines.index(content.RUN_TIME_HEADING)
    rows = lines[at + 1 : lines.index("", at)]
    assert [row.split("  ")[1].strip() for row in rows if row[2] != " "] == [
        "steps", "input", "callbacks", "validation", "between epochs",
    ]  # fmt: skip
    assert any("callbacks" in row and "1.200 s" in row and "Slow|*" in row for row in rows)
    assert max(map(len, lines)) <= width


def test_markdown_escapes_the_names_of_callbacks(tmp_path: Path) -> None:
    said = markdown.render(document(tmp_path))
    (row,) = [line for line in said.splitlines() if line.startswith("| callbacks | 1.200 s | ")]
    assert row.endswith(" % | Slow\\|\\* |")
