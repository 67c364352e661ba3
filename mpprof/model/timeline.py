"""The timeline and the roofline, for the page."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.account import Phase
from mpprof.model.kernels import Placement, Precision
from mpprof.model.rows import Reason


class Roofs(TypedDict):
    """What a card can do at its peaks, for the roofline. Rates by precision; "fp32_cuda" and the like are of
    ordinary arithmetic."""

    card: str
    flops_per_s: dict[str, float]
    bandwidth_bytes_per_s: float | None
    source: str


class Timeline(TypedDict):
    """A window of what ran when, merged to the width of a drawing. Times are from the first step's start."""

    steps: list[TimelineStep]
    step: Annotated[int, "Row of `steps` that is shown; the window may be wider or narrower."]
    median: int
    slowest: int
    from_ns: int
    to_ns: int
    keys: Annotated[list[str], "What an instant was spent on."]
    names: Annotated[list[str], "Names of kernels and of events of the host."]
    lanes: list[TimelineLane]
    colour: NotRequired[Annotated[str, "placement, precision, layer or class"]]
    found: NotRequired[Annotated[int, "Events of the device in all steps that were searched for."]]
    waits: NotRequired[Annotated[list[TimelineWait], "What the device waited for in the window, most first."]]


class TimelineWait(TypedDict):
    key: str
    total_ns: Annotated[int, "Within the window."]
    count: Annotated[int, "How many waits that is."]
    start_ns: Annotated[int, "Of the longest wait, which may begin before the window."]
    end_ns: int


class TimelineStep(TypedDict):
    number: Annotated[int | None, "The step's number, where the trace gives one."]
    start_ns: int
    end_ns: int


class TimelineCalls(TypedDict):
    """Columns of a thread's events by name, a parent before its children."""

    start_ns: list[int]
    length_ns: list[int]
    label: Annotated[list[int], "Row of `names`."]
    depth: Annotated[list[int], "How many of the others it lies in."]


class TimelineLane(TypedDict):
    """Columns of intervals. A merged one begins at its pixel."""

    name: str
    kind: Literal["device", "host", "stream", "thread"]
    start_ns: list[int]
    length_ns: list[int]
    key: Annotated[list[int], "Row of `keys`."]
    label: Annotated[list[int], "Row of `names`; -1: no kernel."]
    row: Annotated[list[int], "Of the kernel, for `kernel`; -1: no kernel."]
    count: Annotated[list[int], "How many events it stands for."]
    found: NotRequired[Annotated[list[int], "How many of them were searched for."]]
    mixed: NotRequired[
        Annotated[
            dict[str, list[tuple[int, float]]],
            "Shares by key of an interval that stands for several kinds, by its place in the columns.",
        ]
    ]
    calls: NotRequired[Annotated[TimelineCalls, "Of a thread, where an event has room for its name."]]


class KernelDetails(TypedDict):
    """One kernel as it ran once."""

    row: NotRequired[Annotated[int, "Of the trace's kernel table."]]
    name: str
    start_ns: Annotated[int, "From the first step's start."]
    duration_ns: int
    stream: str | None
    op: str | None
    layer: str | None
    phase: Phase
    shapes: str | None
    details: Annotated[str | None, "Grid, block, registers, as the trace states them."]
    placement: Placement
    precision: Precision
    reason: Reason
    launched_by: str | None
    launch_to_start_ns: Annotated[int | None, "From the launch's begin to the kernel's start."]
    matrix: Annotated[bool, "Whether it is matrix work."]
