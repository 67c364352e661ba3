"""The timeline of an analysed run, as documents for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpprof.analysis.breakdown import timeline
from mpprof.api.workflows import Analysis
from mpprof.model.kernels import MATMUL_FAMILIES
from mpprof.model.trace import Trace

if TYPE_CHECKING:
    from mpprof.model import document as doc

MOST_WIDE = 4000
"""Pixels: wider windows are merged as if they were so wide."""


def lanes_of(mine: Analysis) -> timeline.Lanes | None:
    """The lanes of the main device's steps; None without a trace, or where no step can be told apart."""
    if mine.trace is None or mine.placements is None or mine.ownership is None or mine.account is None:
        return None
    plane = mine.account.main.device
    device = next((row for row, each in enumerate(mine.trace.devices) if each.plane == plane), 0)
    return timeline.lanes(mine.trace, mine.placements, mine.ownership, mine.run, device)


def window(
    mine: Analysis,
    known: timeline.Lanes,
    *,
    step: int | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    width: int = 1400,
) -> doc.Timeline:
    """A window of the lanes: of one step (None: the one of median length), or between two times from the
    first step's start. What lies outside the steps is cut off."""
    origin, until = int(known.start_ns[0]), int(known.end_ns[-1])
    at = known.median if step is None or not 0 <= step < len(known.start_ns) else step
    begin = int(known.start_ns[at]) if from_ns is None else origin + from_ns
    end = int(known.end_ns[at]) if to_ns is None else origin + to_ns
    begin = min(max(begin, origin), until - 1)
    end = min(max(end, begin + 1), until)
    width = min(max(width, 1), MOST_WIDE)
    views = [timeline.view(lane, begin, end, width) for lane in known.lanes]
    names: dict[int, int] = {}
    return {
        "steps": [
            {"number": number if number >= 0 else None, "start_ns": start - origin, "end_ns": end_ - origin}
            for number, start, end_ in zip(
                known.number.tolist(), known.start_ns.tolist(), known.end_ns.tolist(), strict=True
            )
        ],
        "step": at,
        "median": known.median,
        "slowest": known.slowest,
        "from_ns": begin - origin,
        "to_ns": end - origin,
        "keys": list(timeline.KEYS),
        "lanes": [_lane(view, mine.trace, origin, names) for view in views],
        "names": [mine.trace.strings[row] if mine.trace else "" for row in names],
    }


def _lane(view: timeline.Shown, trace: Trace | None, origin: int, names: dict[int, int]) -> doc.TimelineLane:
    assert trace is not None
    name = np.where(view.row >= 0, trace.kernels.name[view.row], -1) if len(trace.kernels) else view.row
    return {
        "name": view.name,
        "kind": view.kind,
        "start_ns": (view.start_ns - origin).tolist(),
        "length_ns": (view.end_ns - view.start_ns).tolist(),
        "key": view.key.tolist(),
        "label": [names.setdefault(row, len(names)) if row >= 0 else -1 for row in name.tolist()],
        "row": view.row.tolist(),
        "count": view.count.tolist(),
    }


def kernel(mine: Analysis, known: timeline.Lanes, row: int) -> doc.KernelDetails | None:
    """One row of the trace's kernel table in words; None where there is no such row."""
    trace, placements, ownership = mine.trace, mine.placements, mine.ownership
    if trace is None or placements is None or ownership is None or not 0 <= row < len(trace.kernels):
        return None
    table, verdict = trace.kernels, placements.verdicts[placements.index[row]]
    op, launch, stream = int(table.op[row]), int(table.launch[row]), int(table.stream[row])
    host = trace.host

    def text(column: int) -> str | None:
        return trace.strings[column] if column >= 0 else None

    return {
        "name": trace.strings[table.name[row]],
        "start_ns": int(table.start_ns[row] - known.start_ns[0]),
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
        "launch_to_start_ns": int(table.start_ns[row] - host.start_ns[launch]) if launch >= 0 else None,
        "matrix": verdict.family in MATMUL_FAMILIES,
    }
