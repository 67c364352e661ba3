"""A step line of `steps.jsonl` while it is made."""

from __future__ import annotations

import math
from typing import Any

from mpprof.record.backends.base import Facts, Snapshot
from mpprof.store import formats

_TIMES = ("interval_ns", "duration_ns", "dispatch_ns", "gap_ns")
_SELDOM = ("interval_calls", "input_wait_ns", "loss_scale", "skipped", "memory")


class Line:
    """Of one call. Names and units are those of the file; None is not known, and not written.

    Made and filled in the training's own thread at every call, and so given only what is known; written out
    in another thread (`text`), and not to be changed from then on."""

    interval_ns: int | None = None
    interval_calls: int | None = None
    duration_ns: int | None = None
    dispatch_ns: int | None = None
    gap_ns: int | None = None
    input_wait_ns: int | None = None
    loss: float | None = None
    loss_scale: float | None = None
    skipped: int | None = None
    memory: list[Facts] | None = None
    values: dict[str, float] | None = None  # by names of the user's own
    synced = False
    profiled = False
    snapshot: Snapshot | None = None  # a reading for this line that has been asked for

    def __init__(self, step: int, fit: int, epoch: int, batch: int, covers: int, t_ns: int = 0) -> None:
        self.step, self.fit, self.epoch, self.batch, self.covers = step, fit, epoch, batch, covers
        self.t_ns = t_ns

    def record(self) -> dict[str, Any]:
        """Return the line as the file has it."""
        loss = {} if self.loss is None else {"loss": self.loss}
        return {
            "kind": "step",
            "step": self.step,
            "fit": self.fit,
            "epoch": self.epoch,
            "batch": self.batch,
            "covers": self.covers,
            "t_ns": self.t_ns,
            "synced": self.synced,
            "profiled": self.profiled,
            **self._known(_TIMES),
            **loss,
            **self._known(_SELDOM),
            **(self.values or {}),
        }

    def text(self) -> str:
        """Return `record` as JSON. Python runs one thread at a time, so the training may wait for whoever
        writes. What most lines hold is therefore put together by hand, in a third of the encoder's time."""
        if type(self.t_ns) is not int:  # the user's own clock
            return formats.line(self.record())
        text = (
            f'{{"kind":"step","step":{self.step},"fit":{self.fit},"epoch":{self.epoch},"batch":{self.batch},'
            f'"covers":{self.covers},"t_ns":{self.t_ns},"synced":{_JSON[self.synced]},'
            f'"profiled":{_JSON[self.profiled]}'
        )
        if self.interval_ns is not None:
            text += f',"interval_ns":{self.interval_ns}'
        if self.duration_ns is not None:
            text += f',"duration_ns":{self.duration_ns}'
        if self.dispatch_ns is not None:
            text += f',"dispatch_ns":{self.dispatch_ns}'
        if self.gap_ns is not None:
            text += f',"gap_ns":{self.gap_ns}'
        seldom = self._known(_SELDOM)
        if self.values:
            seldom |= self.values
        if self.loss is not None:
            if math.isfinite(self.loss):
                text += f',"loss":{self.loss!r}'
            else:
                seldom = {"loss": self.loss, **seldom}
        return f"{text},{formats.line(seldom)[1:]}" if seldom else text + "}"

    def _known(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that were given to this line: the others have only the class's None."""
        given = self.__dict__
        return {name: given[name] for name in names if given.get(name) is not None}


PlainLine = (
    tuple[int, int, int, int, int, int, int, int | None, float | None] | tuple[int, int, int, int, int, int]
)
"""Of a call of one step of which nothing but its times is known, as nearly every one: `step`, `fit`, `epoch`,
`batch`, `t_ns`, then `interval_ns`, `duration_ns`, `gap_ns` and `loss`, or where only begins are seen
`dispatch_ns`. The least that can be made in the training's thread."""


def whole(record: Recorded) -> Line | dict[str, Any]:
    """Return the line of a `PlainLine`; any other record as it is."""
    if not isinstance(record, tuple):
        return record
    line = Line(*record[:4], 1, record[4])
    if len(record) == 6:
        line.dispatch_ns = record[5]
    else:
        line.interval_ns, line.duration_ns, line.gap_ns, line.loss = record[5:]
    return line


def text_of(record: Recorded) -> str:
    """Return the record as the file has it, in JSON."""
    line = whole(record)
    return line.text() if isinstance(line, Line) else formats.line(line)


def record_of(record: Recorded) -> dict[str, Any]:
    """Return the record as the file has it."""
    line = whole(record)
    return line.record() if isinstance(line, Line) else line


Recorded = Line | PlainLine | dict[str, Any]
"""A step line as it is handed to the writer."""

_JSON = {False: "false", True: "true"}
