"""A trace of PyTorch on AMD's cards: the card is AMD's though it has no name, or is listed under another id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.analysis.kernels import device_peaks
from mpprof.report import json as documents
from tests.builders.read_back import text
from tests.traces.kineto import Kineto

PRODUCT = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN"
MI300X = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304}
HIP = {"hip_runtime_version": 70051831}
OF_NVIDIA = r"(?i)nvidia|geforce|gtx|tensor cores?|nsight|nsys|cudnn|compute capability"


def traced(path: Path, cards: list[dict[str, Any]], header: dict[str, Any], device: int = 0) -> Path:
    """A window of products on one card."""
    kineto = Kineto(header={"deviceProperties": cards, **header})
    for n in range(60):
        kineto.op("aten::mm", 220 * n, 8)
        kineto.launch(PRODUCT, 220 * n + 2, 220 * n + 12, 200)
    for event in kineto.events:
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = device
    return kineto.write(path / "amd.pt.trace.json.gz")


@pytest.mark.parametrize(
    "header", [HIP, {"roctracer_version": 4.1}, {**HIP, "roctracer_version": 4.1}], ids=str
)
@pytest.mark.parametrize(
    ("numbers", "described"),
    [
        ({"computeMajor": 9, "computeMinor": 4}, "AMD GPU, gfx94x"),
        ({"computeMajor": 10, "computeMinor": 3}, "AMD GPU, gfx103x"),
        ({}, "AMD GPU"),
    ],
    ids=str,
)
def test_a_card_without_a_name_is_amds_where_rocm_wrote_the_file(
    numbers: dict[str, int], described: str, header: dict[str, Any], tmp_path: Path
) -> None:
    card = {"id": 0, "name": "", "warpSize": 64, "numSms": 108, **numbers}
    diagnosis = mpprof.diagnose(traced(tmp_path, [card], header))
    document = documents.document(diagnosis)
    assert document["run"]["device"] == described
    assert document["tensor_core"] is not None
    assert document["tensor_core"]["ratio"] == 1.0
    said = text.render(document)
    assert "Matrix cores" in said
    assert re.findall(OF_NVIDIA, said) == []


def test_gfx94x_has_matrix_cores(tmp_path: Path) -> None:
    card = {"id": 0, "name": "", "computeMajor": 9, "computeMinor": 4}
    diagnosis = mpprof.diagnose(traced(tmp_path, [card], HIP))
    assert diagnosis.device is not None
    assert device_peaks.has_matrix_units(diagnosis.device) is True


@pytest.mark.parametrize(
    ("listed", "described"),
    [
        ([MI300X], "AMD Instinct MI300X"),
        ([MI300X, {**MI300X, "id": 1, "name": "AMD Instinct MI210"}], "AMD GPU"),
        ([], "AMD GPU"),
    ],
    ids=("one", "two", "none"),
)
def test_the_one_card_that_is_listed_is_the_one_that_was_used(
    listed: list[dict[str, Any]], described: str, tmp_path: Path
) -> None:
    document = documents.document(mpprof.diagnose(traced(tmp_path, listed, HIP, device=2)))
    assert document["run"]["device"] == described
    assert re.findall(OF_NVIDIA, text.render(document)) == []


def test_without_a_word_of_rocm_a_capability_is_nvidias(tmp_path: Path) -> None:
    card = {"id": 0, "name": "", "computeMajor": 9, "computeMinor": 0}
    document = documents.document(mpprof.diagnose(traced(tmp_path, [card], {})))
    assert document["run"]["device"] == "NVIDIA GPU, compute capability 9.0"
