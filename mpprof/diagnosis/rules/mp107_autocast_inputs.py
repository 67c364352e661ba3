"""Layers are fed tensors of another type, and cast them each step.

What it means
    Ops outside layers (`a + b`, raw TensorFlow ops, a custom step) do not follow the policy. Where their
    result is float32, the next layer casts it down in each step, forward and backward; a raw op whose inputs
    differ in type fails.

How we know
    Cast kernels in the scope of a 16-bit layer, over another number of values than any of its weights has.
    The first layer is left out (it casts the data), and so are layers behind a float32 layer (MP104).

What it costs
    The time of those casts.

When to ignore
    When it is a small part of the step.

Sources
    tf#41614 (Embedding gave float32 in old tf.keras). Executed with Keras 3.15.1: Embedding gives float16
    from a float32 table.
"""

from __future__ import annotations

from mpprof.diagnosis.cells import activation_casts, gives_float32
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP107", "autocast-inputs", "Layers are fed tensors of another type"
ABOUT = "casts of layers' inputs"
SAYS = "the inputs of {layers} are cast in each step[: {time}]"
SPECIFICITY = NAMED
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.25)
"""As for input: a twentieth of the step is worth a line of code."""


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers_in_16_bits)
    need(signals.gpu_activity)
    behind = {layer.name for layer, before in zip(facts[1:], facts, strict=False) if gives_float32(before)}
    rows = tuple(row for row in activation_casts(signals) if signals.cells[row].layer not in behind)
    claims = attainable.whole(rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("no layer casts its inputs, or the casts cost next to nothing")
    names = sorted({name for row in rows if (name := signals.cells[row].layer)})
    return Found(
        summary=f"{evidence.listed(names)}: their inputs are cast in each step, " + "{cost} ({share})",
        evidence=(
            evidence.text("layers", evidence.listed(names)),
            evidence.count("casts {per}", signals.calls(rows)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
        layers=tuple(names),
    )
