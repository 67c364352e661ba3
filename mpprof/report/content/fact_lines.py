"""What a report states beside the breakdown: in which order, and under which label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.report import several_devices, whole_window
from mpprof.report.content.breakdown import between, outside_the_step
from mpprof.report.content.memory_lines import memory
from mpprof.report.content.remedies import plan
from mpprof.report.content.run import steps
from mpprof.report.content.speedup_lines import bounds, matrix_units, speedup, tensor_core

if TYPE_CHECKING:
    from mpprof.model.report import Report


def facts(document: Report) -> list[tuple[str, list[str]]]:
    """Return labels with their lines; what a run has no line of is left out."""
    found = (
        ("Window", whole_window.lines(document.window) if document.window is not None else []),
        (outside_the_step(document.time), between(document.time)),
        (matrix_units(document), [tensor_core(document)]),
        ("Speedup", speedup(document)),
        ("What if", plan(document)),
        ("Steps", [steps(document)]),
        ("Devices", several_devices.lines(document)),
        ("Memory", memory(document)),
        ("Proved", bounds(document)),
    )
    return [(label, lines) for label, lines in found if lines]
