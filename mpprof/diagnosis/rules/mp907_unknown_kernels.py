"""A part of the device's time is in kernels that are not recognised.

What it means
    Kernel names change with every library and card. If a kernel's name, op and types say nothing, mpprof
    answers *unknown* and not "no Tensor Core", so every share is uncertain by the unknown part.

How we know
    The time of kernels whose placement is unknown, as a share of the device's kernel time.

What it costs
    Certainty, not time.

When to ignore
    When the Tensor Core share would be good enough even if none of them used Tensor Cores.

Sources
    kineto#1041, xprof#1704 (H100 at 400 TFLOP/s shown as not eligible), tf#51826, NVIDIA/apex#530: tools
    whose name lists had grown old.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP907", "unknown-kernels", "Kernels that are not recognised"
ABOUT = "unknown kernels"
OF_ACCELERATOR = True
LEADS = INVALID

INFO_RATIO, WARNING_RATIO, ERROR_RATIO = 0.02, 0.10, 0.50
LEAST_OF_THE_STEP = 0.05
"""Two percent cannot change a verdict; a tenth is as much as a typical cause; at one half no verdict is
possible."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    ratio = need(signals.tensor_core).unknown_ratio
    if ratio < INFO_RATIO:
        return Clear(f"{format_ratio(ratio)} of the kernel time is not recognised")
    rows = signals.select(lambda cell: cell.placement == "unknown" and cell.kernel is not None)
    heaviest = sorted(rows, key=lambda row: -signals.cells[row].ns_per_step)[:3]
    names = [signals.cells[row].kernel or "" for row in heaviest]
    return Found(
        summary=f"{format_ratio(ratio)} of the kernel time is in kernels that are not recognised",
        evidence=(
            evidence.ratio("kernel time not recognised", ratio, INFO_RATIO),
            *(evidence.text("kernel", name) for name in names),
        ),
        severity=_severity(ratio, ratio * _of_kernels(signals)),
    )


def _of_kernels(signals: Signals) -> float:
    """Return the share of the step in which the device works and does not only copy."""
    rows = [row for row in signals.work if signals.cells[row].category != "copy"]
    return signals.time(rows) / signals.whole_ns if signals.whole_ns > 0 else 0.0


def _severity(ratio: float, of_the_step: float) -> Severity:
    """Return the severity of this share of the kernel time: if the device mostly idles, it is little of the
    step."""
    if ratio >= ERROR_RATIO and of_the_step >= WARNING_RATIO:
        return "error"
    return "warning" if ratio >= WARNING_RATIO and of_the_step >= LEAST_OF_THE_STEP else "info"
