"""What a report says first: the one answer of a run, in fields that every place prints as they are."""

from __future__ import annotations

from typing import Literal

from mpprof.model.frozen import frozen

Kind = Literal["measured", "estimated", "float32", "window", "cpu", "records", "incomparable"]
"""What there is to judge from: a measured baseline; a 16-bit run alone; a float32 run alone; a window without
steps; a run on a CPU; records without a trace; a baseline that the run cannot be compared with."""
Leading = Literal["error", "learning", "inactive", "invalid", "time", "memory", "nothing"]
"""What leads a report, in this order."""


@frozen
class Answer:
    """One figure, one sentence, what proves and limits it, and the first thing to do. "" and (): there is
    none. `figure` and `label` are empty where no figure counts: an error, no learning, precision that is not
    in effect, a measurement that is not valid."""

    kind: Kind
    leads: Leading
    figure: str  # at most 12 characters: "1.21x"
    label: str  # what the figure is of, and what the first remedy makes of it
    sentence: str  # at most 150 characters: what, and why
    because: tuple[str, ...]  # two more sentences at most
    do: str  # the first remedy, in one line
    code: str | None  # of the first cause; None where nothing leads

    @property
    def head(self) -> str:
        """The figure with its label, in one line; "" where there is none."""
        return " · ".join(filter(None, (self.figure, self.label)))
