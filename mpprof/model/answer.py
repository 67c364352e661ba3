"""The one answer of a run, in fields that every place prints as they are; and what to do about a cause."""

from __future__ import annotations

from typing import Annotated, Literal

from mpprof.model.frozen import frozen
from mpprof.model.written import HIDDEN, LATER, LEFT_OUT, NULL, Code

Kind = Literal["measured", "estimated", "float32", "window", "cpu", "records", "incomparable"]
Leading = Literal["error", "learning", "inactive", "invalid", "time", "memory", "nothing"]
"""What leads a report, in this order."""


@frozen
class Answer:
    """One figure, one sentence, what proves and limits it, and the first thing to do. "" and (): there is
    none. `figure` and `label` are empty where no figure counts: an error, no learning, precision that is not
    in effect, a measurement that is not valid."""

    kind: Annotated[
        Kind,
        "What there is to judge from: a measured baseline; a 16-bit run alone; a float32 run alone; a window "
        "without steps; a run on a CPU; records without a trace; a baseline it cannot be compared with.",
    ]
    leads: Annotated[
        Leading,
        "The first of: the training ended by an error; it does not learn; mixed precision is not in effect; "
        "the measurement is not valid, where that could change the first cause or its sign; the largest gain "
        "in time; the largest in memory; nothing.",
    ]
    figure: Annotated[
        str, "At most 12 characters; empty for the first four of `leads`, where no figure counts yet."
    ]
    label: Annotated[str, "What the figure is of, and what the first remedy makes of it."]
    sentence: Annotated[str, "At most 150 characters: what, and why."]
    because: Annotated[tuple[str, ...], "At most two sentences: what proves it, and what limits it."]
    do: Annotated[str, "The first remedy, in one line; empty where there is nothing to do."]
    code: Annotated[Code | None, "Of the first cause; null where nothing leads."]
    floor: Annotated[
        str,
        LATER,
        "Why no more is to be gained: the step after all changes, by its parts, and what each is limited by; "
        "empty where nothing is known of it.",
    ] = ""
    limits: Annotated[tuple[tuple[str, str], ...], HIDDEN] = ()
    """Of each larger part of that step: its segment in a picture, and why it becomes no shorter."""

    @property
    def head(self) -> str:
        """The figure with its label, in one line; "" where there is none."""
        return " · ".join(filter(None, (self.figure, self.label)))


@frozen
class Remedy:
    """One thing to do about a cause. `snippet` "": there is no code to copy."""

    text: str
    snippet: Annotated[str, NULL, "Code to copy, Python or shell."] = ""
    larger_batch: Annotated[
        bool,
        LEFT_OUT,
        "It raises the batch: more examples a second, no shorter step. Left out where not.",
    ] = False
    other_type: Annotated[
        bool,
        LEFT_OUT,
        "It changes the type to compute in. What other remedies gain is known for this run's type only.",
    ] = False
