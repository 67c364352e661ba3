"""The fixed loss scale is too small to save small gradients.

What it means
    float16 has no values between 0 and 6e-8, and rounds what is below 3e-8 to 0. A loss scale lifts small
    gradients above that gap. A fixed scale of 1 or a little more does not, so small gradients become zero and
    parts of the model stop learning, without a warning.

How we know
    The recorded optimizer: float16 with a fixed scale below 128. A dynamic scale adjusts itself.

    Where a look at the numbers by layer (`mpprof numerics`) shows what no loss scale brings back, it is the
    evidence, whatever the scale: an output that is 0 and is not in float32 (an infinity within a layer that a
    division hides, or a probability below 2^-25), and updates that round away when they are added to weights
    of 16 bits. A gradient that rounds to 0 at a dynamic scale does so until the scale has doubled often
    enough: a warning where that takes more than a tenth of the recorded steps, else a mention.

What it costs
    No time: it costs quality. Compare the loss with that of the float32 run.

When to ignore
    When the loss follows that of the float32 run.

Sources
    Read in Keras 3.15.1: LossScaleOptimizer sets its inner optimizer's `loss_scale_factor` to None.
    TensorFlow's mixed precision guide (the limit of 2^-24, and a first scale of 2^15); Micikevicius et al.,
    Mixed Precision Training, arXiv:1710.03740 (factors of 8 to 32K; 8 was enough for one network, others
    needed 128 and more).
"""

from __future__ import annotations

from dataclasses import replace

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import Named, never_scaled, what_is_lost

CODE, SLUG, TITLE = "MP202", "loss-scale-underflow", "The fixed loss scale is small"
ABOUT = "a loss scale that is too small"
OF_TRAINING = True
LEADS = LEARNING

LEAST = 128.0
"""What the networks of the paper needed, except the most tolerant one (Micikevicius et al.)."""

LARGE_PART = 0.1
"""Of a run: for so many of its steps, at most, small gradients may be lost at its start."""
_STILL = "The loss scale is still small"


def judge(signals: Signals) -> Outcome:
    lost = what_is_lost(signals.case.run)
    if lost.no_scale_helps:
        seen = _seen(lost, "which no loss scale changes", "Small values are lost in 16 bits", "warning")
        return replace(seen, said=lost.words)
    if need(signals.compute_dtype) != "float16":
        return signals.not_in("float16")
    optimizer = need(signals.optimizer)
    if optimizer.dynamic and lost.words and not never_scaled(signals):
        return _until_it_has_grown(signals, lost, optimizer.growth_steps)
    if optimizer.dynamic:
        return NotApplicable("the loss scale is dynamic")
    if optimizer.fixed_scale is None:
        return NotApplicable("there is no loss scale (MP102)")
    if optimizer.fixed_scale >= LEAST:
        return Clear(f"the fixed loss scale is {format_count(optimizer.fixed_scale)}")
    return Found(
        summary=lost.after(
            f"the loss scale is fixed at {format_count(optimizer.fixed_scale)}, too small to keep small "
            "gradients from becoming zero"
        ),
        evidence=(evidence.count("fixed loss scale", optimizer.fixed_scale, LEAST), *lost.evidence),
        layers=lost.layers,
        first=lost.first,
        confidence="high" if lost.words else "medium",
        severity="warning",
    )


def _until_it_has_grown(signals: Signals, lost: Named, growth_steps: int | None) -> Found:
    """Return the finding of what is lost while a dynamic scale is still small."""
    table = known(signals.table)
    ran = int(table.step[-1]) if table is not None and len(table) else 0
    if not lost.doublings or not growth_steps:
        return _seen(lost, "which a dynamic scale leaves as it grows", _STILL, "info")
    steps = lost.doublings * growth_steps
    times = "once" if lost.doublings == 1 else f"{lost.doublings} times"
    here = f"; this run has {format_count(ran)}" if ran else ""
    which = f"until the scale has doubled {times} (about {format_count(steps)} steps{here})"
    return _seen(lost, which, _STILL, "warning" if ran and steps > LARGE_PART * ran else "info")


def _seen(lost: Named, which: str, title: str, severity: Severity) -> Found:
    """Return the finding of what a look at the numbers shows to be lost, with the look's own remedy."""
    return Found(
        summary=f"{lost.words}, {which}",
        title=title,
        evidence=lost.evidence,
        layers=lost.layers,
        first=lost.first,
        cases=("lost",),
        severity=severity,
    )
