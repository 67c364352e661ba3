"""The timeline of an analysed run, as documents for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpprof.analysis.breakdown import timeline as lanes_
from mpprof.analysis.breakdown.timeline import COLOURS_BY, ColourBy, Colouring, colouring
from mpprof.analysis.layers.attribution import Ownership
from mpprof.api.workflows import Analysis
from mpprof.model.arrays import Bool, Int64
from mpprof.model.kernels import MATMUL_FAMILIES, Placements
from mpprof.model.trace import Trace

if TYPE_CHECKING:
    from mpprof.model import timeline as shown
    from mpprof.model.timeline import KernelDetails, TimelineLane

MOST_WIDE = 4000
"""Pixels: wider windows are merged as if they were so wide."""
NAMED_PIXELS = 24
"""An event of the host that is narrower has no room for a name."""
_MOST_NS = 1 << 60


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lanes of an analysis with a trace, and the colourings that were asked for so far."""

    trace: Trace
    placements: Placements
    ownership: Ownership
    lanes: lanes_.Lanes
    colourings: dict[str, Colouring]

    @property
    def origin_ns(self) -> int:
        return int(self.lanes.start_ns[0])

    @property
    def work(self) -> Int64:
        """The device's rows of the kernel table, in the order of their starts."""
        rows = self.lanes.lanes[0].row
        return rows[rows >= 0]


def timeline_of(mine: Analysis) -> Timeline | None:
    """Return the timeline of the main device's steps; None without a trace, or where no step can be told
    apart."""
    if mine.trace is None or mine.placements is None or mine.ownership is None or mine.account is None:
        return None
    plane = mine.account.main.device
    device = next((row for row, each in enumerate(mine.trace.devices) if each.plane == plane), 0)
    found = lanes_.lanes(mine.trace, mine.placements, mine.ownership, mine.run, device)
    return None if found is None else Timeline(mine.trace, mine.placements, mine.ownership, found, {})


def window(
    known: Timeline,
    *,
    step: int | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    width: int = 1400,
    colour: str = "placement",
    search: str = "",
    device_only: bool = False,
) -> shown.Timeline:
    """Return a window of the lanes, or of the device's alone: of one step (None: the one of median length),
    or between two times from the first step's start. What lies outside the steps is cut off; where nothing is
    left, the window is the step's."""
    lanes, origin = known.lanes, known.origin_ns
    at = lanes.median if step is None or not 0 <= step < len(lanes.start_ns) else step
    begin, end = _extent(known, at, from_ns, to_ns)
    width = min(max(width, 1), MOST_WIDE)
    colours, searched = _colouring(known, colour), _searched(known, search)
    chosen = lanes.lanes[:1] if device_only else lanes.lanes
    views = [lanes_.view(lane, begin, end, width, colours, searched) for lane in chosen]
    names: dict[int, int] = {}
    least_ns = NAMED_PIXELS * (end - begin) / width
    made: shown.Timeline = {
        "steps": [
            {"number": number if number >= 0 else None, "start_ns": start - origin, "end_ns": end_ - origin}
            for number, start, end_ in zip(
                lanes.number.tolist(), lanes.start_ns.tolist(), lanes.end_ns.tolist(), strict=True
            )
        ],
        "step": at,
        "median": lanes.median,
        "slowest": lanes.slowest,
        "from_ns": begin - origin,
        "to_ns": end - origin,
        "colour": colour if colours else "placement",
        "keys": [*lanes_.KEYS, *(colours.keys if colours else ())],
        "lanes": [
            _lane(
                view,
                known.trace,
                origin,
                names,
                lanes_.calls(known.trace, lane, lanes.shift_ns, begin, end, least_ns),
                tell=searched is not None,
            )
            for view, lane in zip(views, chosen, strict=True)
        ],
        "names": [known.trace.strings[row] for row in names],
        "waits": [
            {
                "key": wait.key,
                "total_ns": wait.total_ns,
                "count": wait.count,
                "start_ns": wait.start_ns - origin,
                "end_ns": wait.end_ns - origin,
            }
            for wait in lanes_.waits(lanes.lanes[0], begin, end)
        ],
    }
    if searched is not None:
        made["found"] = int(searched[known.work].sum())
    return made


def _extent(known: Timeline, step: int, from_ns: int | None, to_ns: int | None) -> tuple[int, int]:
    """Return the beginning and the end of a window, in the trace's own time."""
    lanes, origin = known.lanes, known.origin_ns
    whole = int(lanes.start_ns[step]), int(lanes.end_ns[step])
    begin = whole[0] if from_ns is None else max(origin + from_ns, origin)
    end = whole[1] if to_ns is None else min(origin + to_ns, int(lanes.end_ns[-1]))
    return (begin, end) if begin < end else whole


def _colouring(known: Timeline, colour: str) -> Colouring | None:
    """Return how to colour by anything but the placement, which is in the lanes; worked out once."""
    by: ColourBy = next((by for by in COLOURS_BY if by == colour), "placement")
    if by == "placement":
        return None
    if by not in known.colourings:
        known.colourings[by] = colouring(known.trace, known.placements, known.ownership, by)
    return known.colourings[by]


def _searched(known: Timeline, search: str) -> Bool | None:
    """Return which kernels have `search` in their name, op or layer; None where nothing is sought."""
    wanted, trace, table = search.strip().lower(), known.trace, known.trace.kernels
    if not wanted:
        return None
    named = np.zeros(len(trace.strings) + 1, bool)
    for row in np.flatnonzero(np.bincount(table.name[table.name >= 0], minlength=1)).tolist():
        named[row] = wanted in trace.strings[row].lower()
    of_op = np.zeros(len(trace.ops) + 1, bool)  # op -1 finds the last
    for row in np.flatnonzero(np.bincount(table.op[table.op >= 0], minlength=1)).tolist():
        layer = known.ownership.layer_of(row) or ""
        of_op[row] = wanted in trace.ops[row].name.lower() or wanted in layer.lower()
    return named[table.name] | of_op[table.op]


def _lane(
    view: lanes_.Shown,
    trace: Trace,
    origin: int,
    names: dict[int, int],
    calls: lanes_.Calls,
    *,
    tell: bool,
) -> TimelineLane:
    name = np.where(view.row >= 0, trace.kernels.name[view.row], -1) if len(trace.kernels) else view.row
    made: TimelineLane = {
        "name": view.name,
        "kind": view.kind,
        "start_ns": (view.start_ns - origin).tolist(),
        "length_ns": (view.end_ns - view.start_ns).tolist(),
        "key": view.key.tolist(),
        "label": [names.setdefault(row, len(names)) if row >= 0 else -1 for row in name.tolist()],
        "row": view.row.tolist(),
        "count": view.count.tolist(),
    }
    if tell:
        made["found"] = view.found.tolist()
    if view.mixed:
        made["mixed"] = {
            str(at): [(key, round(share, 3)) for key, share in shares] for at, shares in view.mixed.items()
        }
    if len(calls.start_ns):
        made["calls"] = {
            "start_ns": (calls.start_ns - origin).tolist(),
            "length_ns": (calls.end_ns - calls.start_ns).tolist(),
            "label": [names.setdefault(row, len(names)) for row in calls.name.tolist()],
            "depth": calls.depth.tolist(),
        }
    return made


def next_kernel(
    known: Timeline, *, row: int | None, from_ns: int, search: str, back: bool
) -> KernelDetails | None:
    """Return the next kernel that `search` finds after (`back`: before) `row`, or after the time `from_ns`
    where that is None; after the last comes the first."""
    rows, searched = known.work, _searched(known, search)
    if searched is not None:
        rows = rows[searched[rows]]
    if not len(rows):
        return None
    if row is None:
        sought = min(max(from_ns, 0), _MOST_NS) + known.origin_ns
        at = int(np.searchsorted(known.trace.kernels.start_ns[rows], sought, side="left"))
    else:  # the rows of one device are in the order of their starts
        at = int(np.searchsorted(rows, row, side="left" if back else "right"))
    at -= back
    return kernel(known, int(rows[at % len(rows)]))


def kernel(known: Timeline, row: int) -> KernelDetails | None:
    """Return one row of the trace's kernel table in words; None where there is no such row."""
    trace, placements, ownership = known.trace, known.placements, known.ownership
    if not 0 <= row < len(trace.kernels):
        return None
    table, verdict = trace.kernels, placements.verdicts[placements.index[row]]
    op, launch, stream = int(table.op[row]), int(table.launch[row]), int(table.stream[row])
    host = trace.host

    def text(column: int) -> str | None:
        return trace.strings[column] if column >= 0 else None

    launched_ns = int(host.start_ns[launch]) - known.lanes.shift_ns if launch >= 0 else None
    return {
        "row": row,
        "name": trace.strings[table.name[row]],
        "start_ns": int(table.start_ns[row]) - known.origin_ns,
        "duration_ns": int(table.duration_ns[row]),
        "stream": trace.streams[stream].name if 0 <= stream < len(trace.streams) else None,
        "op": trace.ops[op].name if op >= 0 else None,
        "layer": ownership.layer_of(op),
        "phase": ownership.phase_of(op),
        "shapes": text(int(table.shapes[row])),
        "details": text(int(table.details[row])),
        "placement": verdict.placement,
        "precision": verdict.precision,
        "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
        "launched_by": trace.strings[host.name[launch]] if launch >= 0 else None,
        "launch_to_start_ns": None if launched_ns is None else int(table.start_ns[row]) - launched_ns,
        "matrix": verdict.family in MATMUL_FAMILIES,
    }
