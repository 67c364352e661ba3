"""All of a run's wall time."""

from __future__ import annotations

from typing import Annotated, TypedDict

from mpprof.model.document.values import Count, Number
from mpprof.model.run_time import PartBasis, PartName


class RunTime(TypedDict):
    """The parts and `unknown_ns` sum to `wall_ns`. A part that could not be told apart is left out; `absent`
    has the reason under `run_time.<part>`."""

    wall_ns: Annotated[
        Count,
        "Of all `fit` calls: each from its first hook to its end, or to its last line where it broke off.",
    ]
    parts: Annotated[list[RunPart], "In a fixed order."]
    unknown_ns: Annotated[Count, "Of steps whose lines were not read."]


class RunPart(TypedDict):
    name: Annotated[
        PartName,
        "`steps`: calls of the train function; on a backend that tells only their begins, with the loop "
        "between them. `input`: the host was blocked for the next batch. `callbacks`: hooks in the "
        "training's thread. `compile`: tracing and compiling. `profiler`: opening and closing windows. "
        "`between_epochs`: what remains before the first, between and after the last call of epochs. `loop`: "
        "what remains between two calls. `setup`: before the first hook.",
    ]
    ns: Count
    ratio: Annotated[Number, "Of wall_ns."]
    basis: PartBasis
    by: Annotated[
        list[NamedTime],
        "The part by the callback's class, by what makes the batches, by compiler or by kind of steps, the "
        "longest first. It sums to the part. A part that holds what was not told apart says so here.",
    ]


class NamedTime(TypedDict):
    name: str
    ns: Count
