"""A run in float8: its title, what of it is not in 8 bits, its ceiling, and its comparison with 16 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpprof.model.finding import Diagnosis
from mpprof.report import brief, text
from mpprof.report import json as documents
from tests.builders.gpus import A100, H100, Gpu
from tests.builders.numerics import FLOAT8, MIXED_BFLOAT16, TF32, Numerics
from tests.builders.simulate import Training
from tests.planted import generator as g
from tests.planted.matrix import diagnosed

WIDE = {"batch": 8192, "features": 1024, "widths": (4096, 4096, 4096), "classes": 1024}
HEAD = "dense_3"


def mlp(name: str, gpu: Gpu, n: Numerics, *, float8: bool = False) -> Training:
    """Four Dense layers, under float8 all but the last."""
    kept = {HEAD: MIXED_BFLOAT16} if n is FLOAT8 else {}
    model = g.xla_mlp(gpu, n, overrides=kept, **WIDE)
    if float8:
        model = g.layer_changed(g.in_float8(model), HEAD, dtype_policy="mixed_bfloat16")
    return g.run(name, gpu, n, model, facts=g.JAX, fit={"jit_compile": True})


@pytest.fixture(scope="module")
def over_tf32(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    mine, baseline = mlp("mine", H100, FLOAT8, float8=True), mlp("tf32", H100, TF32)
    return diagnosed(mine, baseline, tmp_path_factory.mktemp("tf32"))


def test_the_title_and_what_is_not_in_8_bits(over_tf32: Diagnosis) -> None:
    document = documents.report(over_tf32)
    title = brief.render(document).splitlines()[0]
    assert "mixed_bfloat16, float8 in " in title
    assert "of the matrix time" in title
    assert document.run.computes_in is not None
    assert document.run.computes_in.kind == "16-bit"  # its policy is as it was
    assert "; not in 8 bits " in text.render(document)


def test_the_ceiling_is_that_of_float8(over_tf32: Diagnosis, tmp_path: Path) -> None:
    halved = diagnosed(mlp("half", H100, MIXED_BFLOAT16), mlp("tf32", H100, TF32), tmp_path)
    assert over_tf32.speedup is not None
    assert halved.speedup is not None
    eight, sixteen = over_tf32.speedup.ceiling, halved.speedup.ceiling
    assert eight is not None
    assert sixteen is not None
    assert 1.2 * sixteen < eight < 2 * sixteen


def test_float8_is_compared_with_16_bits(tmp_path: Path) -> None:
    found = diagnosed(mlp("mine", H100, FLOAT8, float8=True), mlp("bf16", H100, MIXED_BFLOAT16), tmp_path)
    assert "MP906" not in {each.code for each in found.findings}
    assert found.speedup is not None
    assert found.speedup.observed is not None
    assert found.speedup.expected is not None
    assert found.speedup.ceiling is not None
    assert 1.3 < found.speedup.observed <= found.speedup.ceiling < 2.0


def test_on_a_card_without_float8_that_is_what_leads(tmp_path: Path) -> None:
    found = diagnosed(mlp("mine", A100, MIXED_BFLOAT16, float8=True), None, tmp_path)
    lines = brief.render(documents.report(found)).splitlines()
    assert "no product in float8" in lines[0]
    assert "The float8 layers multiply in bfloat16, with the rounding on top" in " ".join(lines[:4])


def test_what_a_card_of_unknown_rates_could_do_at_best_is_not_known(tmp_path: Path) -> None:
    gpu = replace(H100, name="NVIDIA Next", capability=(13, 0))
    found = diagnosed(mlp("mine", gpu, FLOAT8, float8=True), mlp("bf16", gpu, MIXED_BFLOAT16), tmp_path)
    assert found.speedup is not None
    assert found.speedup.ceiling is None
