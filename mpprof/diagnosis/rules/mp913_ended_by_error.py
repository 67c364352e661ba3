"""The training ended by an error.

What it means
    An exception left `fit` (or the recorded loop), or the device ran out of memory. What was recorded until
    then is shown; it is not the whole training. Fix the error before anything else.

How we know
    The recorder notes which exception left `fit`, with its text. An interrupt from the keyboard and
    `sys.exit` are not errors. If the end of the training was not observed, this cause is not judged.

What it costs
    The rest of the training.

When to ignore
    When the error was raised on purpose, to end the training.

Sources
    mpprof's own records.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.wording import LONGEST as MOST_OF_A_SENTENCE
from mpprof.model.memory import OutOfMemory

CODE, SLUG, TITLE = "MP913", "ended-by-error", "Training ended by an error"
ABOUT = "trainings that an error ended"
BOUND = "host"
LEADS = ERROR

LONGEST = 160
"""How many letters of an error's first line a sentence holds."""
NOT_KNOWN = "how the training ended is not known: the recorder could not see the exception"
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
        return Unable("no end of the training was recorded: it still runs, or its process was killed")
    if ended.reason in _NO_ERRORS:
        return Clear(_NO_ERRORS[ended.reason])
    if not ended.by_error:
        return Unable(NOT_KNOWN)
    out_of_memory = ended.reason == "out_of_memory"
    failed = _failure(run) if out_of_memory else None
    return Found(
        summary=_sentence(run, ended),
        said=f"training ran out of memory {_at(run)}{_sizes(failed) if failed else ''}"
        if out_of_memory
        else _cut(_sentence(run, ended), MOST_OF_A_SENTENCE - 1),
        proof=(_filled(failed) or _held(failed, run)) if failed else "",
        evidence=(evidence.text("error", ended.first_line),),
        cases=("out of memory",) if out_of_memory else ("",),
        severity="error",
        remedy=failed.advice[0].text if failed and failed.advice else "",
    )


def _sentence(run: Run, ended: Ended) -> str:
    """Return how the training ended, after which recorded step and with which words."""
    said = _cut(ended.first_line, LONGEST)
    if ended.reason == "out_of_memory":
        return f"training ran out of memory {_at(run)}{f': {said}' if said else ''}"
    return f"training stopped {_at(run)} with {said or 'an error'}"


def _cut(text: str, most: int) -> str:
    """Return the text in about this many characters. The words of an error are cut after any of them: what
    stands before a colon is often its type alone."""
    return text if len(text) <= most else f"{text[: most - 2].rsplit(' ', 1)[0]} …"


def _at(run: Run) -> str:
    """Return after which recorded step."""
    table = run.steps
    return (
        f"after step {int(table.step[-1])}" if table is not None and len(table) else "before its first step"
    )


def _failure(run: Run) -> OutOfMemory | None:
    """Return what the error states and what to try; None where its text is not recognised."""
    from mpprof.diagnosis.out_of_memory.failure import failure  # seldom needed

    return failure(run)


def _sizes(failed: OutOfMemory) -> str:
    """Return how much was asked for, and how much there was."""
    free = failed.free_bytes
    if free is None and failed.limit_bytes is not None and failed.used_bytes is not None:
        free = max(0, failed.limit_bytes - failed.used_bytes)
    parts = [f"{format_bytes(failed.asked_bytes)} asked" if failed.asked_bytes else ""]
    of = f" of {format_bytes(failed.limit_bytes)}" if failed.limit_bytes else ""
    parts.append(f"{format_bytes(free)} free{of}" if free is not None else "")
    if free is None and (room := failed.limit_bytes or failed.card_bytes):
        parts.append(f"the card has {format_bytes(room)}")
    said = ", ".join(filter(None, parts))
    return f": {said}" if said else ""


def _held(failed: OutOfMemory, run: Run) -> str:
    """Return what the recorded steps held at most, where the error does not state what was in use: what it
    leaves of the card was held by something that no record shows; "" where that is not known."""
    held, card = _peak_bytes(run), failed.limit_bytes or failed.card_bytes
    if failed.used_bytes is not None or not held or not card:
        return ""
    said = f"the recorded steps held {format_bytes(held)} at most"
    enough = held + (failed.asked_bytes or 0) <= card
    return f"{said}: what filled the rest of the card is not recorded" if enough else said


def _peak_bytes(run: Run) -> int:
    """Return the most that any recorded step held; 0: not recorded."""
    return 0 if run.steps is None else int(run.steps.peak_bytes.max(initial=0))


def _filled(failed: OutOfMemory) -> str:
    """Return what took most of the memory; "" where the error does not list it."""
    if not failed.filled:
        return ""
    largest = max(failed.filled, key=lambda each: each.bytes)
    return f"most of it was taken by {largest.name}, {format_bytes(largest.bytes)}"
