"""Depthwise convolution is slower in 16 bits than it was in float32.

What it means
    Depthwise convolution cannot use Tensor Cores, and some of its 16-bit kernels (the filter gradient above
    all, on older stacks) are many times slower than their float32 twins.

How we know
    The depthwise kernels' time in this run against that in the float32 baseline. Without a baseline, their
    time against the time that moving their float32 tensors takes. A kernel that takes three times as long is
    not merely memory-bound; below that, memory-bound and slow kernels cannot be told apart.

What it costs
    The difference from the baseline, or from that estimate.

When to ignore
    When the layer is as fast as in float32: it cannot be faster by much.

Sources
    tf#41715 (V100: 120 ms float32, 2000 ms mixed, 38 ms with depthwise kept in float32), google/automl#351
    (1.8 -> 0.2 steps/s), tf#37130. TensorFlow's auto_mixed_precision_lists.h lists depthwise from cuDNN 8 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mpprof.analysis.attainable.work import streaming_ns
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import in_place, written

CODE, SLUG, TITLE = "MP406", "depthwise-convolution", "Depthwise convolution is slower than in float32"
ABOUT = "depthwise convolutions"
SPECIFICITY = NAMED
OF_ACCELERATOR = True

SLOWER_RATIO = 1.10
"""A tenth is outside the noise between two runs."""
NOTABLE_RATIO = 0.05
"""Without a baseline, the share from which it is worth recording one."""
PASSES = 2.0
"""Input and output are moved so often by a float32 kernel of this kind, at the rate of streaming kernels: it
reuses little of what it reads (our judgement)."""
FAR_RATIO = 3.0
"""Three times that estimate is beyond what a fair kernel of any stack takes (our judgement)."""
SCALE = OF_A_LAYER


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_account)
    rows = signals.select(lambda cell: cell.family == "depthwise")
    mine = signals.time(rows)
    if not rows or signals.half is None:
        return NOT_IN_16_BITS if signals.wide else NotApplicable("no depthwise convolution in 16 bits")
    baseline = known(signals.baseline)
    measured = baseline.time(baseline.select(lambda cell: cell.family == "depthwise")) if baseline else 0.0
    theirs = measured or _estimated(signals, rows)
    if not measured and mine < FAR_RATIO * (theirs or mine):
        if mine / account.step_ns < NOTABLE_RATIO:
            return Clear(f"depthwise convolution takes {format_ratio(mine / account.step_ns)} of the step")
        return Unable(
            f"depthwise convolution takes {format_ratio(mine / account.step_ns)} of the step, and "
            "whether it was faster in "
            f"float32 is not known{signals.hint('record other precision')}"
        )
    if mine < theirs * SLOWER_RATIO:
        return Clear("depthwise convolution is no slower than in the baseline")
    claims = tuple(Claim(row, signals.cells[row].ns_per_step * theirs / mine) for row in rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("the difference is next to nothing")
    return Found(
        summary=f"depthwise convolution takes {format_speedup(mine / theirs)} as long as "
        f"{'in float32' if measured else 'moving its float32 tensors'}: " + "{cost} a step ({share})",
        said=f"depthwise convolution takes {format_speedup(mine / theirs)} as long as "
        f"{'in float32' if measured else 'moving its float32 tensors'}[: {{time}} more]",
        evidence=(
            evidence.ns("depthwise kernels", mine, theirs),
            evidence.ns("the same in the baseline" if measured else "moving their float32 tensors", theirs),
        ),
        confidence="high" if measured else "medium",
        scale=SCALE,
        claims=claims,
        layers=signals.layers_of(rows),
    )


def _estimated(signals: Signals, rows: tuple[int, ...]) -> float:
    """Return the time of these cells' float32 twins, in ns per step, by the largest tensor of each; 0: not
    known."""
    peaks = known(signals.peaks)
    if peaks is None or not peaks.bandwidth_bytes_per_s:
        return 0.0
    total = 0.0
    for row in rows:
        cell = signals.cells[row]
        values = shapes.largest(cell.shapes)
        if not values:
            return 0.0
        moved = 2 * 4 * values * PASSES * cell.calls_per_step  # in and out, four bytes each
        total += streaming_ns(moved, peaks.bandwidth_bytes_per_s)
    return total


def check_model(model: Untrained) -> Iterator[Note]:
    title, units = "Depthwise convolution gains nothing", model.signals.matrix_units
    for layer in model.half:
        if kinds.is_depthwise(layer):
            name, code = model.placed(layer, lambda one: written(one, dtype="float32"))
            reason = f"depthwise convolution has no kernel for {units}"
        elif kinds.is_separable(layer):
            name, code = model.placed(layer, lambda one: _separated(model, one))
            reason = f"its depthwise part has no kernel for {units}, its pointwise part has"
        else:
            continue
        yield Note("info", name, reason, f"{code}  # at times the faster one", title)


def _separated(model: Untrained, layer: LayerFacts) -> str:
    """Return a separable convolution as the two that it is made of, the first in float32."""
    after = ("filters", "use_bias", "activation", "activity_regularizer")
    first, second = {}, {}
    for key, text in layer.arguments.items():
        if key == "name":
            continue
        if key in after or key.startswith(("bias_", "pointwise_")):
            second[key.replace("pointwise_", "kernel_")] = text
        else:
            first[key] = text
            if key == "data_format":
                second[key] = text
    dimension = layer.kind[-2:]
    deep, wide = (
        replace(layer, class_name=kind, module=model.keras, arguments=taken)
        for kind, taken in ((f"DepthwiseConv{dimension}", first), (f"Conv{dimension}", second))
    )
    name = f", name={layer.arguments['name']}" if "name" in layer.arguments else ""
    parts = f"{written(deep, use_bias=False, dtype='float32')}, {in_place(wide, model.policy, kernel_size=1)}"
    return f"{model.keras}.Sequential([{parts}]{name})"
