"""Histograms of the weights take a noticeable part of the step.

What it means
    A summary writer counts the values of every weight into bins in each step.

How we know
    The kernels of ops whose scope is `histogram_summary` take a noticeable part of the step.

What it costs
    Their time.

When to ignore
    When each step's histogram is looked at.

Sources
    ...
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP599", "histograms", "Histograms of the weights take a noticeable part of the step"
ABOUT = "histograms of weights"
SAYS = "histograms of the weights take[ {time}]"
ONCE = "without them"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.10, error_ratio=0.25)
"""A histogram now and then is worth its time; a tenth of every step is not."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    rows = signals.select(_is_of_histogram)
    claims = attainable.whole(rows)  # without its cause, all of this time is gone
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return Clear(f"histograms take {format_ratio(ratio)} of the step")
    return Found(
        summary="histograms of the weights take {cost} {each} ({share})",
        evidence=(evidence.count("kernels of histograms {per}", signals.calls(rows)),),
        scale=SCALE,
        claims=claims,
    )


def _is_of_histogram(cell: Cell) -> bool:
    return "/histogram_summary/" in (cell.op or "")
