"""The optimizer's update takes a noticeable part of the step.

What it means
    The update reads and writes float32 weights, slots and gradients: mixed precision makes none of it
    cheaper. Without fusion each arithmetic step of Adam is a kernel and a pass over memory of its own.

How we know
    The time of the optimizer's kernels in the account.

What it costs
    Their time above one pass over memory: 28 bytes per parameter (read weight, two slots and gradient, write
    weight and two slots, 4 bytes each) at the device's bandwidth. If the number of parameters is not known,
    one pass is derived from the kernels of an unfused PyTorch update, each of which reads and writes 8 to 16
    bytes a parameter.

When to ignore
    When the batch can grow: the update's cost per step stays the same.

Sources
    The bytes are counted from Adam's definition. deepmodeling/deepmd-kit#4463 (22 -> 8 ms when fused),
    apache/mxnet#17665 (36.5 % of the GPU time).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpprof.analysis.attainable.work import streaming_ns
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP504", "optimizer-float32", "The optimizer's update takes a noticeable part of the step"
ABOUT = "the optimizer's update"
SAYS = "the optimizer's update is slower than one pass over memory[, by {time}]"
ONCE = "with a fused update"
OF_TRAINING = True
OF_ACCELERATOR = True

BYTES_PER_PARAMETER = 28
SCALE = Scale(info_ratio=0.05, warning_ratio=0.30, error_ratio=0.50, normal=True)
"""Keras' unfused Adam takes 5 to 25 % of a healthy step, most on a fast card: a note; more is a warning."""


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_account)
    rows = signals.of("optimizer")
    total = signals.time(rows)
    if total / account.step_ns < SCALE.info_ratio:
        return Clear(f"the update takes {format_ratio(total / account.step_ns)} of the step")
    ratio = _one_of_passes(signals, rows) if isinstance(signals.parameters, Absent) else None
    if ratio is not None:
        least = total * ratio
    else:
        parameters, bandwidth = need(signals.parameters), need(signals.peaks).bandwidth_bytes_per_s
        if not bandwidth:
            return Unable(
                "the device's memory bandwidth is not known, so the least time of the update is not known"
            )
        least = min(total, streaming_ns(parameters * BYTES_PER_PARAMETER, bandwidth))
    claims = tuple(Claim(row, signals.cells[row].ns_per_step * least / total) for row in rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("the update runs near the memory's bandwidth")
    return Found(
        summary=(
            "the optimizer's update takes {cost} a step longer than one pass over memory ({share} of {whole})"
        ),
        evidence=(
            evidence.ns("optimizer kernels", total),
            evidence.ns("one pass over memory", least),
            evidence.count("kernels per step", signals.calls(rows)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
    )


_BYTES = {
    "lerp": 12, "mul": 8, "addcmul": 16, "sqrt": 8, "div": 8, "add": 8, "addcdiv": 16, "sub": 8, "neg": 8,
    "pow": 8, "rsqrt": 8,
}  # fmt: skip
"""What such an op of PyTorch's reads and writes for each parameter in float32, at least."""
_OP = r"aten::(?:_foreach_)?([a-z]+)_?$"
_OF_ADAM = frozenset(("addcmul", "addcdiv"))
_OF_MOMENTUM = 20
"""Bytes per parameter: weight, momentum and gradient read, weight and momentum written."""
_MOST, _SOME, _FEWEST_OPS = 0.8, 0.02, 3


def _one_of_passes(signals: Signals, rows: Sequence[int]) -> float | None:
    """Return the share of one fused pass in the time of an unfused update of PyTorch's, by the ops that it
    consists of: the one that moves its bytes fastest runs once for every parameter. None where the update is
    fused, or where other work takes more of its time."""
    took: dict[str, float] = {}
    for row in rows:
        found = re.search(_OP, signals.cells[row].op or "")
        if found and found[1] in _BYTES:
            took[found[1]] = took.get(found[1], 0.0) + signals.cells[row].ns_per_step
    total = signals.time(rows)
    if len(took) < _FEWEST_OPS or sum(took.values()) < _MOST * total:
        return None
    ns_per_byte = min(ns / _BYTES[op] for op, ns in took.items() if ns >= _SOME * total)
    moved = BYTES_PER_PARAMETER if took.keys() & _OF_ADAM else _OF_MOMENTUM
    return min(1.0, moved * ns_per_byte / total)
