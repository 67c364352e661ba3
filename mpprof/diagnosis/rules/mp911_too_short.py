"""There are too few steady steps to say.

What it means
    A median of a handful of steps has no error bar worth having, and a difference of a few percent between
    two such runs is noise.

How we know
    The number of steady steps: neither warm-up, nor profiled, nor at an epoch's edge.

What it costs
    Certainty.

What to do
    Train for at least 30 steady steps; with the callback's window that is about 60 in all.

        model.fit(data, steps_per_epoch=100, epochs=1, callbacks=[MPProfilerCallback("logs/run")])

When to ignore
    When only the trace's shares are of interest.

Sources
    Our own: with 30 samples the 95 % interval of a median spans the 10th to the 21st value.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, need
from mpprof.diagnosis.signals import Signals

CODE, SLUG, TITLE = "MP911", "too-short", "Too few steady steps to say"
SPECIFICITY = GENERAL

ENOUGH_STEPS = 30
FEW_STEPS = 10
"""Below ten the interval of the median is the whole range."""


def judge(signals: Signals) -> Outcome:
    steady = need(signals.summary).steady
    if steady >= ENOUGH_STEPS:
        return Clear(f"{steady} steady steps")
    return Found(
        summary=(
            f"only {steady} steady {'step was' if steady == 1 else 'steps were'} recorded: "
            "step times are uncertain"
        ),
        remedy=f"train for at least {ENOUGH_STEPS} steady steps (about {2 * ENOUGH_STEPS} in all)",
        evidence=(evidence.count("steady steps", steady, ENOUGH_STEPS),),
        severity="warning" if steady < FEW_STEPS else "info",
    )
