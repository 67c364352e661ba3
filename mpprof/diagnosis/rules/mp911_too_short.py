"""There are too few steady steps to say.

What it means
    A mean of a handful of steps has no error bar worth having, and a difference of a few percent between
    two such runs is noise.

How we know
    The number of steady steps: neither warm-up, nor profiled, nor at an epoch's edge.

What it costs
    Certainty.

When to ignore
    When only the trace's shares are of interest.

Sources
    Our own: fewer than 30 steps make at most three blocks, of which the interval of the mean is wide.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.steps.statistics import epochs_of_one_call
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP911", "too-short", "Too few steady steps to say"
ABOUT = "too few steps"
OF_TRAINING = True
LEADS = INVALID

ENOUGH_STEPS = 30
FEW_STEPS = 10
"""Below ten the interval of the median is the whole range."""


def judge(signals: Signals) -> Outcome:
    account = signals.case.account
    if known(signals.summary) is None and account is not None and 0 < len(account.steps) < ENOUGH_STEPS:
        # What follows from so few is said where it stands; whether the run had more, records would tell.
        return Unable(f"{format_count(len(account.steps))} in the window, and no step log was recorded")
    steady = need(signals.summary).steady
    if steady >= ENOUGH_STEPS:
        return Clear(f"{steady} steady steps")
    if ended := signals.ended_by_error:
        return ended
    table = known(signals.table)
    if table is not None and (epochs := epochs_of_one_call(table)) is not None:
        return Found(
            summary=(
                f"no step has a time: each of the {format_count(epochs)} epochs is a single call of the "
                "training function, and a step's time goes from one call to the next of the same epoch"
            ),
            evidence=(
                evidence.count("epochs with a single call of the training function", epochs),
                evidence.count("steady steps", steady),
            ),
            cases=("epochs of one call",),
            values={"enough": ENOUGH_STEPS},
            severity="warning",
        )
    ran, fits = need(signals.summary).count, len(np.unique(table.fit)) if table is not None else 1
    if fits > 1 and ran >= 2 * ENOUGH_STEPS:
        return Found(
            summary=(
                f"of {format_count(ran)} steps in {format_count(fits)} fits {steady or 'none'} "
                f"{'is a steady one' if steady < 2 else 'are steady ones'}: each fit begins with a warm-up"
            ),
            evidence=(evidence.count("steady steps", steady, ENOUGH_STEPS), evidence.count("fits", fits)),
            cases=("short fits",),
            values={"twice": 2 * ENOUGH_STEPS},
            severity="warning" if steady < FEW_STEPS else "info",
        )
    few = (
        f"only {steady} steady {'step was' if steady == 1 else 'steps were'}"
        if steady
        else "no steady step was"
    )
    return Found(
        summary=f"{few} recorded: step times are uncertain",
        evidence=(evidence.count("steady steps", steady, ENOUGH_STEPS),),
        values={"enough": ENOUGH_STEPS, "twice": 2 * ENOUGH_STEPS},
        severity="warning" if steady < FEW_STEPS else "info",
    )
