"""What a run's wall time was spent on: as lines of the step log beside the steps say, and by parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np

from mpprof.columnar import Columnar
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.steps import ABSENT
from mpprof.model.written import HIDDEN, Count

WHOLE = ("finished", "stopped")
"""The reasons of a fit that ran to its end, or was stopped by a callback."""
OURS = "mpprof"
"""The name of our own callback among those whose hooks are timed."""
THE_RUN = "the run without mpprof"
"""What `RunTime.share` is of, in words."""
RECORDING_ENDED = "recording ended"
"""The reason of a fit whose recording ended before it did."""


@frozen
class FitSpan:
    """One `fit` by its own lines; times count as `t_ns` of a step. None: no line states it."""

    fit: int
    begin_ns: int | None
    end_ns: int | None = None
    reason: str | None = None  # of its end: "finished", "stopped", or why it broke off


@frozen
class EpochTable(Columnar):
    """One row per epoch that has ended: from its first hook to its last."""

    fit: Int64
    epoch: Int64
    begin_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.fit)

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: getattr(self, name).tolist() for name in ("fit", "epoch", "begin_ns", "end_ns")}


@frozen
class SpentKey:
    """What time was spent on: `part` is "callbacks", "input", "compile" or "profiler"; `name` the callback's
    class, what makes the batches, what compiled, or what mpprof did; `at` where: "batch", "first" (of an
    epoch), "epoch begin", "epoch" (its end; in an older log both), "train", "validation", "end" (behind the
    record of the `fit`)."""

    part: str
    name: str
    at: str


@frozen
class SpentTable(Columnar):
    """One row per `spent` line: sums over steps `first_step` to `last_step`. `key` is a row of `keys`."""

    keys: tuple[SpentKey, ...]
    key: Int64
    fit: Int64
    first_step: Int64
    last_step: Int64
    calls: Int64
    ns: Int64  # ABSENT where only the calls were counted

    def __len__(self) -> int:
        return len(self.key)

    def rows(self, part: str, at: Collection[str] | None = None) -> Bool:
        """Return which rows are of this part, and of these places where some are named."""
        wanted = [key.part == part and (at is None or key.at in at) for key in self.keys]
        return np.array([*wanted, False], np.bool_)[self.key]

    def to_dict(self) -> dict[str, list[Any]]:
        keys = [self.keys[row] for row in self.key.tolist()]
        named: dict[str, list[Any]] = {
            name: [getattr(key, name) for key in keys] for name in ("part", "name", "at")
        }
        columns = {name: getattr(self, name).tolist() for name in ("fit", "first_step", "last_step", "calls")}
        return named | columns | {"ns": [None if ns == ABSENT else ns for ns in self.ns.tolist()]}


@frozen
class Spans:
    """The lines of a step log that are no steps. A log of an older mpprof has no lines of what was spent, nor
    has one that ended before the first of them."""

    fits: tuple[FitSpan, ...]
    epochs: EpochTable
    spent: SpentTable

    @property
    def told(self) -> bool:
        """Whether the log says what was spent: a recorder that times parts counts its own hooks, at the
        latest as an epoch ends. Where it does, a part without a line took no time."""
        return bool(len(self.spent))


PartName = Literal[
    "setup", "steps", "input", "callbacks", "validation", "compile", "profiler", "between_epochs", "loop"
]
PartBasis = Literal["records", "trace", "wrapper"]


@frozen
class NamedTime:
    """A piece of a part: a callback's class, a source of compiles, a kind of steps."""

    name: str
    ns: Count


@frozen
class RunPart:
    """One part of the wall time."""

    name: Annotated[
        PartName,
        "`steps`: calls of the train function; on a backend that tells only their begins, with the loop "
        "between them. `input`: the host was blocked for the next batch. `callbacks`: hooks in the "
        "training's thread. `compile`: tracing and compiling. `profiler`: opening and closing windows, "
        "looks at the numbers by layer, and what is done at the end of `fit`: the verdict. "
        "`between_epochs`: what remains before the first, between and after the last call of epochs. `loop`: "
        "what remains between two calls. `setup`: before the first hook.",
    ]
    ns: Count
    ratio: Annotated[float, "Of wall_ns."]
    basis: PartBasis = "records"
    by: Annotated[
        tuple[NamedTime, ...],
        "The part by the callback's class, by what makes the batches, by compiler or by kind of steps, the "
        "longest first. It sums to the part. A part that holds what was not told apart says so here.",
    ] = ()


@frozen
class RunTime:
    """The parts and `unknown_ns` sum to `wall_ns`. A part that could not be told apart is left out; `absent`
    has the reason under `run_time.<part>`."""

    wall_ns: Annotated[
        Count,
        "Of all `fit` calls: each from its first hook to its end, with mpprof's own work there, or to its "
        "last line where it broke off.",
    ]
    parts: Annotated[tuple[RunPart, ...], "In a fixed order."]
    unknown_ns: Annotated[Count, "Of steps whose lines were not read."]
    absent: Annotated[dict[str, str], HIDDEN] = field(default_factory=dict)  # part -> reason

    def part(self, name: PartName) -> RunPart | None:
        """Return this part; None where it was not told apart."""
        return next((part for part in self.parts if part.name == name), None)

    def share(self, ns: float) -> float:
        """Return what this time is of the wall time without mpprof's own part, which profiles, verdicts and
        hooks make long in a short run and which no training without mpprof has."""
        own_ns = sum(
            each.ns for part in self.parts for each in part.by if part.name == "profiler" or each.name == OURS
        )
        return min(1.0, ns / max(1, self.wall_ns - own_ns))
