"""The first steps were skipped while the loss scale was being found.

What it means
    The dynamic loss scale starts at 2^15 and halves itself on every overflow, and a step that overflows does
    not update the weights. A handful of skipped steps at the start is normal: the scale falls until gradients
    fit.

How we know
    Updates were skipped within the first 20 steps, the skips ended, and the loss scale stayed at 1 or above
    (MP201 is the other case). Where all updates were skipped, the scale had not settled yet: a warning, with
    what a look at the numbers by layer shows.

What it costs
    The time of those steps, once.

When to ignore
    Always, unless a training is only a few dozen steps long, or no update was made.

Sources
    TensorFlow guide "Mixed precision": it "will likely skip the first few steps". Read in Keras 3.15.1: from
    2^15, growth every 2000 steps, times two, divided by two.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import what_overflows
from mpprof.diagnosis.shared.skips import skips_of, without_loss_scale

CODE, SLUG, TITLE = "MP204", "startup-skips", "Steps skipped while the loss scale settled"
ABOUT = "skips at the start"
OF_TRAINING = True
LEADS = LEARNING


def judge(signals: Signals) -> Outcome:
    if (clear := without_loss_scale(signals)) is not None:
        return clear
    skips = skips_of(signals)
    if not skips.early:
        return Clear("no update was skipped at the start")
    if skips.endless:
        return Clear("the skips did not end with the start (MP201)")
    if skips.too_few and skips.late:
        return Unable(skips.too_few)
    if skips.total == skips.all_steps:
        breaks = what_overflows(signals.case.run)
        unsettled = f"{format_count(skips.total)} of {format_count(skips.total)} updates were skipped"
        return Found(
            summary=f"{breaks.after(unsettled)}, and the loss scale has not settled",
            said=breaks.after(unsettled),
            title="No update was made, and the loss scale has not settled",
            evidence=(evidence.count("skipped updates", skips.total), *breaks.evidence),
            layers=breaks.layers,
            first=breaks.first,
            cases=("unsettled",),
            severity="warning",
        )
    return Found(
        summary=(
            f"{format_count(skips.early)} of the first {skips.early_steps} updates were skipped while the "
            "loss scale settled: normal"
        ),
        evidence=(
            evidence.count("skipped updates at the start", skips.early),
            evidence.count("skipped updates later", skips.late),
        ),
        severity="info",
    )
