"""Gradients of biases are summed by 16-bit atomics.

What it means
    The gradient of a bias is the sum of its layer's gradient over all examples and positions. TensorFlow's
    kernels without XLA sum by atomic additions to one value a unit. In 16 bits they took up to 42
    times as long on an H200 as in float32 for the same layer: longest for the logits of a large vocabulary.

How we know
    Kernels of the op BiasAddGrad in float16 or bfloat16, compared with the same op of the float32 baseline,
    or, without a baseline, with the op that adds the same layer's bias in the forward pass, which reads and
    writes a tensor of that size.

What it costs
    Their time beyond that of the op they are compared with.

When to ignore
    When the kernels take little of the step.

Sources
    Recorded for mpprof (H200, TensorFlow 2.20): 33.8 ms a step for the bias of 33,709 logits, and 0.80 in
    float32.
    tf#41715 supposes the same of the gradient of depthwise convolutions.
"""

from __future__ import annotations

from collections import defaultdict

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP508", "bias-gradient", "Gradients of biases are summed by 16-bit atomics"
ABOUT = "gradients of biases"
SAYS = "the gradients of biases are summed by slow 16-bit atomics[: {time}]"
ONCE = "once biases are summed by other kernels"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

SLOWER_RATIO = 1.5
"""Two kernels of one size differ by less than 1.5 times."""
SCALE = OF_A_LAYER


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_account)
    rows = signals.select(lambda cell: cell.op_type == "BiasAddGrad" and cell.precision in ("fp16", "bf16"))
    if not rows:
        return (
            NOT_IN_16_BITS if signals.wide else NotApplicable("no bias has a 16-bit gradient op of its own")
        )
    baseline = known(signals.baseline)
    before = _by_layer(baseline, "BiasAddGrad", "fp32") if baseline else {}
    fair_ns = before or _by_layer(signals, "BiasAdd")
    mine = fair = open_ns = 0.0
    claims: list[Claim] = []
    for layer in dict.fromkeys(signals.cells[row].layer for row in rows):
        of_it = [row for row in rows if signals.cells[row].layer == layer]
        took, needs = signals.time(of_it), fair_ns.get(layer)
        if not needs:
            open_ns += took
        elif took > SLOWER_RATIO * needs:
            mine, fair = mine + took, fair + needs
            claims += [Claim(row, signals.cells[row].ns_per_step * needs / took) for row in of_it]
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        if open_ns / account.step_ns < SCALE.warning_ratio:
            return Clear(f"they take {format_ratio(signals.time(rows) / account.step_ns)} of the step")
        return Unable(
            f"they take {format_ratio(open_ns / account.step_ns)} of the step, and whether they were faster "
            f"in float32 is not known{signals.hint('record other precision')}"
        )
    against = "in float32" if before else "the kernels that add the same biases"
    return Found(
        summary=f"16-bit atomics sum the gradients of biases, {format_speedup(mine / fair)} as long as "
        f"{against}: {{cost}} {{each}} ({{share}})",
        evidence=(
            evidence.ns("kernels of BiasAddGrad", mine, SLOWER_RATIO * fair),
            evidence.ns("the same in the baseline" if before else "adding these biases", fair),
        ),
        confidence="high" if before else "medium",
        scale=SCALE,
        claims=tuple(claims),
        layers=signals.layers_of([claim.cell for claim in claims]),
    )


def _by_layer(signals: Signals, op_type: str, precision: str | None = None) -> dict[str | None, float]:
    """Return how long ops of this type take in a step by layer, in ns, of this precision alone if one is
    given; a layer that has none is left out."""
    found: dict[str | None, float] = defaultdict(float)
    for cell in signals.cells:
        if cell.op_type == op_type and precision in (None, cell.precision) and cell.ns_per_step > 0:
            found[cell.layer] += cell.ns_per_step
    return dict(found)
