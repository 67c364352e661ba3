"""Measured ratios of kernel rates between precisions, each from a named source.

Used only where a trace holds no kernels of its own to go by. A row holds for one chip and kind of kernel;
what is not listed is not known, and then there is a ceiling and no expectation.
"""

from __future__ import annotations

import re

from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision


@frozen
class Calibration:
    """`ratio`: how much faster the kernels ran in precision `to` than in `start`. `families`: the kinds of
    kernel that it was measured on, as prefixes of a family's name."""

    chip: str  # a word of the device's name
    families: tuple[str, ...]
    start: Precision
    to: Precision
    ratio: float
    source: str


_KERNELBENCH = "KernelBench level 1 on an A100, 2026, github.com/BytedTsinghua-SIA/CUDA-Agent/issues/16"
_CONVOLUTIONS = f"{_KERNELBENCH}: median of its five 2-D convolutions"
ROWS: tuple[Calibration, ...] = (
    Calibration(
        "V100", ("gemm", "attention"), "fp32", "fp16", 7.0,
        "Markidis et al., NVIDIA Tensor Core Programmability, Performance & Precision, 2018, "
        "arXiv:1803.04014: 83 TFLOP/s, seven times single precision",
    ),
    Calibration("A100", ("conv_",), "fp32", "fp16", 4.21, _CONVOLUTIONS),
    Calibration("A100", ("conv_",), "tf32", "fp16", 1.31, _CONVOLUTIONS),
    Calibration("A100", ("conv_",), "fp32", "tf32", 3.31, _CONVOLUTIONS),
    Calibration(
        "A100", ("gemm",), "fp32", "tf32", 6.97, f"{_KERNELBENCH}: square matrix product",
    ),
)  # fmt: skip


def find(device: str, family: str, start: Precision, to: Precision) -> Calibration | None:
    """Return the row for a kernel of `family` on the device of that name; None: nothing was measured."""
    wanted = "fp16" if to == "bf16" else to  # the same rate on every chip that has both
    for row in ROWS:
        if (
            re.search(rf"\b{row.chip}\b", device)
            and family.startswith(row.families)
            and (row.start, row.to) == (start, wanted)
        ):
            return row
    return None
