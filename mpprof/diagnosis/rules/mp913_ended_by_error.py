"""The training ended by an error.

What it means
    An exception left `fit` (or the recorded loop), or the device ran out of memory. What was recorded until
    then is shown; it is not the whole training, and nothing beside the error is worth mending before it.

How we know
    The recorder notes which exception left `fit`, with its text. An interrupt from the keyboard and
    `sys.exit` are not errors. Where nobody could see how the training ended, this cause is not judged.

What it costs
    The rest of the training.

What to do
    Mend what raised: the training's own output has the traceback. After an out-of-memory error
    `mpprof memory` says what did not fit, and what to try:

        mpprof memory logs/run

When to ignore
    When the error was raised on purpose, to end the training.

Sources
    mpprof's own records. Python: an exception leaves its traceback in `sys.last_exc`.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import ERROR, GENERAL, Clear, Found, NotApplicable, Outcome, Unable
from mpprof.diagnosis.signals import Signals
from mpprof.model.run import Ended, Run

CODE, SLUG, TITLE = "MP913", "ended-by-error", "Training ended by an error"
ABOUT = "trainings that an error ended"
SPECIFICITY = GENERAL
BOUND = "host"
LEADS = ERROR

LONGEST = 160
"""Letters of an error's first line that a sentence holds."""
NOT_KNOWN = "how the training ended is not known: nobody could see what left it"
_NO_ERRORS = {"interrupted": "the keyboard interrupted the training", "exit": "sys.exit ended the training"}


def judge(signals: Signals) -> Outcome:
    run = signals.case.run
    if run.facts is None:
        return NotApplicable("a trace without records does not show how the training ended")
    ended = run.facts.ended
    if ended is None:
        if run.broken_off is not None:
            return Unable(NOT_KNOWN)
        if run.finished:
            return Clear("the training ran to its end")
        return Unable("no end of the training is on record: it goes on, or its process was killed")
    if ended.reason in _NO_ERRORS:
        return Clear(_NO_ERRORS[ended.reason])
    if not ended.by_error:
        return Unable(NOT_KNOWN)
    out_of_memory = ended.reason == "out_of_memory"
    return Found(
        summary=_sentence(run, ended),
        evidence=(evidence.text("error", ended.first_line),),
        cases=("out of memory",) if out_of_memory else ("",),
        severity="error",
        remedy=_advice(run) if out_of_memory else "",
    )


def _sentence(run: Run, ended: Ended) -> str:
    """Return how the training ended, after which recorded step and with which words."""
    table = run.steps
    at = f"after step {int(table.step[-1])}" if table is not None and len(table) else "before its first step"
    line = ended.first_line
    said = line if len(line) <= LONGEST else f"{line[:LONGEST].rsplit(' ', 1)[0]} …"
    if ended.reason == "out_of_memory":
        return f"training ran out of memory {at}{f': {said}' if said else ''}"
    return f"training stopped {at} with {said or 'an error'}"


def _advice(run: Run) -> str:
    """Return what to try first of what did not fit; "" where the error does not tell."""
    from mpprof.diagnosis.out_of_memory.failure import failure  # seldom needed

    failed = failure(run)
    return failed.advice[0].text if failed is not None and failed.advice else ""
