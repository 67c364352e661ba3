"""All of a run's wall time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.run_time import RunTime

if TYPE_CHECKING:
    from mpprof.model import document as doc


def run_time_of(found: RunTime | None) -> doc.RunTime | None:
    if found is None:
        return None
    return {
        "wall_ns": found.wall_ns,
        "parts": [
            {
                "name": part.name,
                "ns": part.ns,
                "ratio": part.ratio,
                "basis": part.basis,
                "by": [{"name": each.name, "ns": each.ns} for each in part.by],
            }
            for part in found.parts
        ],
        "unknown_ns": found.unknown_ns,
    }
