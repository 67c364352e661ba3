"""What a report calls the "step" of its account: a step, a pass of a module or a program, or a part that
repeats.

Rules and sentences are written of steps. Where the account is of something else, its name takes the place of
the word here and nowhere else: a pass without a training must never be called a step.
"""

from __future__ import annotations

import re
from typing import Any

from mpprof.model.finding import Evidence
from mpprof.model.frozen import mapped
from mpprof.model.report import Report, Time
from mpprof.report import words

_NOUNS = {"pass": ("pass", "passes"), "part": ("repeating part", "repeating parts")}
_WORD = re.compile(
    r"(?<![\w'\"`#/.|=\-])(?<!names a )(?<!after each )(?P<word>steps?)"
    r"(?![\w'\"`#/|=(\[-]| log\b| marker| times\b|\.\w)"
)
"""The word by itself: not in names, options, quotes or paths, and not of a step log or step markers."""
_TAKES = re.compile(r"\bA step takes\b")
_SENTENCES = frozenset(
    (
        "verdict", "explanation", "summary", "text", "reason", "assumptions", "statement", "sentence",
        "label", "because", "do", "remedy", "warnings", "notes", "absent",
    )
)  # fmt: skip
"""Keys of the report's document whose texts are sentences of ours."""
_LONGEST_NAME = 60


def one(time: Time | None) -> str:
    """Return what the account is of, in a few words: "step", "pass of Net_0", "repeating part"."""
    unit = _unit(time)
    if unit == "step":
        return unit
    return f"{_NOUNS[unit][0]}{_of(time)}"


def worded(text: str, time: Time | None) -> str:
    """Return a sentence about steps as one about what the account is of."""
    unit = _unit(time)
    if unit == "step":
        return text
    single, several = _NOUNS[unit]
    text = _TAKES.sub(lambda _: f"One {one(time)} takes", text)
    return _WORD.sub(lambda match: several if match["word"].endswith("s") else single, text)


def document(report: Report) -> Report:
    """Return the report with its sentences worded so."""
    if _unit(report.time) == "step":
        return report
    worded: Report = _walked(report, report.time, inside=False)
    return worded


def _walked(value: Any, time: Time | None, *, inside: bool) -> Any:
    if isinstance(value, str):
        return worded(value, time) if inside else value
    named = isinstance(value, Evidence)  # its name is in words

    def walked(name: str, each: Any) -> Any:
        within = inside or name in _SENTENCES or (named and name == "name")
        return _walked(each, time, inside=within)

    return mapped(value, walked)


def _unit(time: Time | None) -> str:
    return time.unit if time is not None else "step"


def _of(time: Time | None) -> str:
    name = time.unit_name if time is not None else None
    return f" of {words.shorten(words.plain(name), _LONGEST_NAME)}" if name else ""
