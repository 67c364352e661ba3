"""The model's output is 16-bit, so the loss sees rounded values.

What it means
    Keras leaves a last `Dense(..., activation="softmax")` in float16 under a mixed policy, without a
    warning. Probabilities below 6e-8 become zero and the loss is computed from rounded values.

How we know
    The output dtype of the last recorded layer is float16 or bfloat16. For a model with several outputs only
    the last one is seen, hence the medium confidence.

What it costs
    No time: accuracy, and at times a loss that is not finite.

What to do
    Give the last activation its own policy, or hand the loss logits:

        x = keras.layers.Dense(classes)(x)
        outputs = keras.layers.Activation("softmax", dtype="float32")(x)

When to ignore
    Where the output is logits and the loss (`from_logits=True`) casts to float32 first, as Keras' own losses
    do: then only the logits are rounded.

Sources
    TensorFlow guide "Mixed precision" (outputs in float32). Executed with Keras 3.15.1: Dense(softmax) output
    is float16. qubvel/segmentation_models#536.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NAMED, Clear, Found, Outcome, Unable, need
from mpprof.diagnosis.signals import HALF_DTYPES, RECORD_RUN, Signals

CODE, SLUG, TITLE = "MP106", "float16-output", "The model's output is 16-bit"
SPECIFICITY = NAMED


def judge(signals: Signals) -> Outcome:
    last = need(signals.layers)[-1]
    if last.output_dtype is None:
        return Unable(f"the output dtype of {last.name} was not recorded; {RECORD_RUN}")
    if last.output_dtype not in HALF_DTYPES:
        return Clear(f"the output of {last.name} is {last.output_dtype}")
    return Found(
        summary=(
            f"the last layer, {last.name}, gives {last.output_dtype}: the loss is computed from "
            "rounded values"
        ),
        remedy=(
            'end with keras.layers.Activation("softmax", dtype="float32"), or give that layer dtype="float32"'
        ),
        evidence=(
            evidence.text("last layer", last.name),
            evidence.text("output dtype", last.output_dtype, "float32"),
        ),
        confidence="medium",
        severity="warning",
        layers=(last.name,),
    )
