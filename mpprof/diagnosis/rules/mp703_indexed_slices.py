"""Sparse gradients are collected from all devices instead of summed.

What it means
    The gradient of an embedding is a set of rows (`IndexedSlices`). TensorFlow's strategies cannot sum such
    sets: they collect the rows of every device on every device, which grows with their number.

How we know
    The records name a strategy of TensorFlow, and collectives of the step collect (AllGather) instead of
    summing.

What it costs
    The exposed time of these collectives.

When to ignore
    Where a large table is touched in few rows: the dense gradient would be larger.

Sources
    tensorflow#53160, tensorflow#41898 ("Efficient allreduce is not supported for n IndexedSlices").
"""

from __future__ import annotations

from mpprof.analysis.breakdown import communication
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP703", "indexed-slices", "Sparse gradients are collected from all devices"
ABOUT = "sparse gradients collected from all devices"
SAYS = "collecting sparse gradients from all devices takes[ {time}]"
SPECIFICITY = NAMED
OF_TRAINING = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.10, error_ratio=0.25)


def judge(signals: Signals) -> Outcome:
    refused = several_devices.no_strategy(signals, "no strategy of TensorFlow exchanges the gradients")
    if refused is not None:
        return refused
    need(signals.gpu_activity)
    rows = signals.select(lambda cell: cell.category == "comm" and communication.kind_of(cell) == "gather")
    claims = attainable.whole(rows)
    share = signals.cost_ratio(claims)
    if share < SCALE.info_ratio:
        return Clear(f"collecting from all devices takes {format_ratio(share)} of the step")
    return Found(
        summary="collecting sparse gradients from all devices takes {cost} {each} ({share})",
        evidence=(
            evidence.ratio("exposed gathers in {whole}", share, SCALE.crossed(share)),
            evidence.count("gathers {per}", signals.calls(rows)),
            evidence.count("devices", signals.replicas),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
    )
