"""A custom training loop divides gradients by a loss scale that it never applied.

What it means
    `LossScaleOptimizer.apply` divides every gradient by the loss scale. A loop (or an overridden
    `train_step`) that does not multiply the loss by the scale before it takes the gradients, or that
    un-scales them itself as Keras 2 asked for, ends up with gradients that are 2^15 times too small, and
    twice as small again after each growth of the scale. The weights hardly move.

How we know
    Whether `scale_loss` was called while the step was traced, where that was recorded (`scale_loss_called`).
    Elsewhere: the steps came from a custom loop or `train_step`; the recorded scale has only grown, and no
    step overflowed; and the loss has not fallen. Where the loss has fallen, nothing is claimed: the records
    hold no gradients, so a loop that scales its loss and has small gradients looks the same.

What it costs
    No time, but the training itself: the model does not learn, or hardly learns.

When to ignore
    When the loss cannot fall any further, as in fine-tuning that has converged.

Sources
    Read in Keras 3.15.1, `LossScaleOptimizer`: `apply` un-scales, `scale_loss` is for the caller; the scale
    starts at 2^15 and doubles after `dynamic_growth_steps` steps without overflow. keras#19479, keras#20894
    and keras#19244 (the old calls raise, or the model "doesn't improve"). TensorFlow's mixed precision guide,
    custom training loops: the first steps of a scaled loss usually overflow.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import never_scaled, scale_loss_called, what_is_lost
from mpprof.diagnosis.shared.skips import scale_words
from mpprof.model.steps import StepTable

CODE, SLUG, TITLE = (
    "MP103",
    "custom-loop-scaling",
    "The loop does not scale the loss that the optimizer un-scales",
)
ABOUT = "loss scaling in a loop of your own"
OF_TRAINING = True
LEADS = LEARNING

FEWEST_GROWTHS = 2
"""One doubling above the default happens in healthy runs of small gradients; after two any element above 1/2
would have overflowed (65504 / 2^17)."""
CERTAIN_SCALE = 2.0**20
"""At this scale any gradient element above 1/16 is infinite: few models train without one for so many
steps."""
FALLEN_RATIO = 0.02
"""A loss has fallen if it is lower than at the start by a fiftieth: medians over a tenth of the run vary by
less (our judgement)."""
_PART = 10  # the loss is compared between the first and the last tenth of its readings


def judge(signals: Signals) -> Outcome:
    if need(signals.compute_dtype) != "float16":
        return signals.not_in("float16")
    optimizer = need(signals.optimizer)
    if never_scaled(signals):
        lost = what_is_lost(signals.case.run)
        return Found(
            summary=lost.after(
                f"the loss is never scaled, and {optimizer.class_name} divides its gradients by the scale: "
                "float16 gradients below 2^-24 are lost"
            ),
            said="the loss is never scaled in the training step: float16 gradients below 2^-24 are lost",
            proof="scale_loss was not called while the step was traced",
            evidence=(
                evidence.text("scale_loss called while the step was traced", value=False),
                *lost.evidence,
            ),
            layers=lost.layers,
            severity="error",
        )
    if not optimizer.dynamic:
        return NotApplicable("there is no dynamic loss scale to undo (MP102, MP202)")
    if not _own_step(signals):
        return NotApplicable("Keras' own training step scales the loss")
    if scale_loss_called(signals):
        return Clear("the training step calls scale_loss")
    scales, skips = need(signals.scales), need(signals.skips)
    if int(skips.skipped.sum()) or bool((scales[1:] < scales[:-1]).any()):
        return Clear("gradients overflowed and the scale fell, so the loss is scaled")
    initial = optimizer.initial_scale or float(scales[0])
    growths = float(np.log2(scales[-1] / initial)) if scales[-1] > 0 and initial > 0 else 0.0
    if growths < FEWEST_GROWTHS:
        return Unable(
            f"no gradient overflowed, and the scale has grown {growths:.0f} times: too few to tell small "
            f"gradients from a loss that was not scaled; record {FEWEST_GROWTHS} growths or more"
        )
    fallen = _fallen(need(signals.table))
    if fallen is None:
        return Unable(
            f"no gradient overflowed, and whether the loss falls was not recorded{signals.hint('record run')}"
        )
    if fallen >= FALLEN_RATIO:
        return Unable(
            f"no gradient overflowed in {growths:.0f} growths of the scale, but the loss fell by "
            f"{format_ratio(fallen)}: either the gradients are small or the optimizer compensates for "
            "it; check that the loop calls optimizer.scale_loss"
        )
    confidence: Confidence = "medium" if scales[-1] >= CERTAIN_SCALE else "low"
    return Found(
        summary=(
            f"the scale grew {growths:.0f} times, to {scales[-1]:g}, without one overflow, and the loss has "
            "not fallen: gradients that were never scaled are divided by it"
        ),
        said=(
            f"the loss scale grew to {scale_words(scales[-1])} without one overflow: the loss is probably "
            "never scaled"
        ),
        proof="the loss has not fallen",
        evidence=(
            evidence.count("growths of the scale without overflow", growths, FEWEST_GROWTHS),
            evidence.count("last loss scale", float(scales[-1]), CERTAIN_SCALE),
            evidence.ratio("loss fallen by", fallen, FALLEN_RATIO),
            evidence.text("steps recorded", format_count(len(need(signals.table)))),
        ),
        confidence=confidence,
        severity="warning",
    )


def _own_step(signals: Signals) -> bool:
    """Return whether the steps are a recorded loop's, or those of a model that overrides `train_step`."""
    facts = need(signals.facts)
    if facts.framework.get("loop") == "custom":
        return True
    need(signals.layers)  # without the model it is not known whose training step it has
    return facts.model is not None and facts.model.train_step is not None


def _fallen(table: StepTable) -> float | None:
    """Return by what ratio the loss is lower at the end than at the start; None where it was not recorded."""
    losses = table.loss[table.loss_known & np.isfinite(table.loss)]
    if len(losses) < 2 * _PART:
        return None
    part = max(1, len(losses) // _PART)
    first, last = median(losses[:part]), median(losses[-part:])
    return (first - last) / abs(first) if first else 0.0
