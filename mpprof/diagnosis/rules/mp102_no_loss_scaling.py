"""Layers compute in float16, and nothing scales the loss.

What it means
    Gradients below 3e-8 are zero in float16. `compile` wraps the optimizer in a LossScaleOptimizer only when
    the model's own policy is mixed_float16: with the policy given layer by layer
    (`Dense(..., dtype="mixed_float16")`) it does not, and small gradients silently vanish.

How we know
    At least one layer with parameters computes in float16; the optimizer recorded for the last `fit` is not a
    LossScaleOptimizer and has no `loss_scale_factor`.

What it costs
    No time: layers that learn slowly or not at all.

When to ignore
    When a custom `train_step` scales the loss by hand. bfloat16 needs no scaling.

Sources
    Executed with Keras 3.15.1: a Sequential model with one mixed layer keeps a plain Adam. Read in its
    `trainer.py`: it wraps only if `self.dtype_policy.name == "mixed_float16"`. TensorFlow guide "Mixed
    precision" (underflow below 2^-24).
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP102", "no-loss-scaling", "float16 without loss scaling"
ABOUT = "missing loss scaling"
SPECIFICITY = NAMED
OF_TRAINING = True
ON_RECORDS = True
LEADS = LEARNING


def judge(signals: Signals) -> Outcome:
    half = [
        f.name for f in need(signals.layers_in_16_bits) if f.compute_dtype == "float16" and f.parameters != 0
    ]
    if not half:
        return NotApplicable("no layer with parameters computes in float16")
    optimizer = need(signals.optimizer)
    if optimizer.class_name == "LossScaleOptimizer" or optimizer.inner or optimizer.fixed_scale:
        return Clear(f"{optimizer.class_name} scales the loss")
    return Found(
        summary=(
            f"{len(half)} layers compute in float16 ({evidence.listed(half)}), but "
            f"{optimizer.class_name} does "
            "not scale the loss: small gradients become zero"
        ),
        said="the loss is not scaled: small float16 gradients become zero",
        proof=f"layers in float16: {len(half)}; the optimizer is {optimizer.class_name}",
        evidence=(
            evidence.count("layers in float16", len(half), 0),
            evidence.text("optimizer", optimizer.class_name, "LossScaleOptimizer"),
        ),
        severity="warning",
        layers=tuple(half),
    )


def check_model(model: Untrained) -> Iterator[Note]:
    if CODE in model.found:
        yield model.note(model.found[CODE])
