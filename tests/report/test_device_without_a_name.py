"""A trace of TensorFlow names no card: its figures tell which it is, through to the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import mpprof
from mpprof.report import json as documents
from tests.builders.gpus import T4, Gpu
from tests.builders.numerics import FLOAT32
from tests.builders.simulate import Training, train
from tests.builders.workloads import mlp

# Bandwidth is what the driver states: the memory clock times the width of the bus.
RTX_2060_MAX_Q = replace(
    T4, name="", cores=30, clock_khz=1_185_000, memory_bytes=6_222_839_808, bandwidth_gb_s=264.048
)
GTX_1660_TI = replace(
    T4, name="", cores=24, clock_khz=1_770_000, memory_bytes=6_222_839_808, bandwidth_gb_s=288.048
)


@pytest.mark.parametrize(
    ("gpu", "name", "without"),
    [
        (T4, "Tesla T4", False),
        (RTX_2060_MAX_Q, "NVIDIA GeForce RTX 2060 with Max-Q Design", False),
        (GTX_1660_TI, "NVIDIA GeForce GTX 1660 Ti", True),
    ],
)
def test_turing_without_a_name(gpu: Gpu, name: str, without: bool, tmp_path: Path) -> None:
    _, _, _, space = train(Training("run", gpu, FLOAT32, mlp(gpu, FLOAT32), steps=80))
    (tmp_path / "lone.xplane.pb").write_bytes(space.to_bytes())
    diagnosis = mpprof.diagnose(tmp_path / "lone.xplane.pb")
    assert documents.document(diagnosis)["run"]["device"] == f"{name} (by its figures, not its name)"
    assert "MP801" in diagnosis.clear
    assert ("MP802" in diagnosis.clear) is not without
    assert ("MP802" in {finding.code for finding in diagnosis.findings}) is without
