"""The calibration table: every row from a source that can be looked up, none above what its card can do."""

from __future__ import annotations

import re

import pytest

from mpprof.analysis.attainable import calibration
from mpprof.analysis.attainable.calibration import ROWS, Calibration
from mpprof.analysis.kernels import device_peaks

CARDS = {"V100": "Tesla V100-SXM2-16GB", "A100": "NVIDIA A100-SXM4-40GB"}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.chip}-{'-'.join(row.families)}-{row.start}-{row.to}"
)
def test_a_row_names_its_source_and_stays_below_the_peaks(row: Calibration) -> None:
    assert re.search(r"arXiv:\d{4}\.\d{5}|github\.com/|doi\.org/", row.source)
    assert re.search(r"\b20\d\d\b", row.source)
    facts = device_peaks.find(CARDS[row.chip])
    assert facts is not None
    peaks = device_peaks.peaks(facts)
    rates = peaks.flops_per_s
    ran = rates["fp32_cuda" if row.start == "fp32" else row.start]
    assert 1.0 < row.ratio <= rates[row.to] / ran


def test_rows_of_one_card_agree_with_each_other() -> None:
    found = {
        (row.start, row.to): row.ratio for row in ROWS if row.chip == "A100" and row.families == ("conv_",)
    }
    assert found[("fp32", "tf32")] * found[("tf32", "fp16")] == pytest.approx(
        found[("fp32", "fp16")], rel=0.05
    )


@pytest.mark.parametrize(
    ("card", "family", "start", "to", "ratio"),
    [
        ("Tesla V100-SXM2-16GB", "gemm", "fp32", "fp16", 7.0),
        ("NVIDIA A100-SXM4-40GB", "conv_dgrad", "tf32", "bf16", 1.31),  # the rate of fp16
        ("Tesla V100-SXM2-16GB", "conv_fprop", "fp32", "fp16", None),  # measured for products alone
        ("Tesla T4", "gemm", "fp32", "fp16", None),
        ("NVIDIA A1000", "gemm", "fp32", "tf32", None),  # another card, whose name begins alike
    ],
)
def test_what_was_not_measured_is_not_known(card, family, start, to, ratio) -> None:  # type: ignore[no-untyped-def]
    found = calibration.find(card, family, start, to)
    assert (found.ratio if found else None) == ratio
