"""Words that several sentences share: what a class of time is called, and what profiled steps show."""

from __future__ import annotations

from mpprof.model.account import Class
from mpprof.model.quantities import format_speedup

CLASS_WORDS: dict[Class, str] = {
    "matmul": "matrix work", "norm": "normalisation", "elementwise": "elementwise work",
    "reduce": "reductions",
    "gather_scatter": "gathers and scatters", "cast": "casts", "layout": "transposes and concatenations",
    "optimizer": "the optimizer",
    "loss_scale": "loss scaling", "other": "other work", "unknown": "unidentified work",
    "comm": "communication", "copy": "copies", "idle_input": "waiting for input",
    "idle_launch": "waiting for launches", "idle_sync": "waits of the host", "idle_compile": "compiling",
    "idle_between_steps": "the loop between steps", "idle_stall": "stalls", "idle_other": "other idling",
    "profiling": "the profiler",
}  # fmt: skip
WORTH_RECORDING = 1.05
"""Below it nothing is gained by recording the run in 16 bits."""


def as_profiled(ratio: float, *, per_example: bool = False) -> str:
    """Return what the profiled steps show, where the timings do not show which run
    is faster."""
    each = " per example" if per_example else ""
    return f"the profiled steps were {format_speedup(ratio)} as fast{each}"
