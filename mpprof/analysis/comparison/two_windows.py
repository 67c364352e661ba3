"""Two whole windows of one workload side by side, where not both have steps: what changed, and what decides.

Nothing here is per step, and no speedup follows: a window holds whatever its profiler saw. Only where both
ran as many matrix kernels of every kind are they taken for the same amount of work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

from mpprof.model.account import IDLE_CLASSES, Account, Cell, Class
from mpprof.model.finding import MatrixKernels, WindowPart, WindowsOfTwo
from mpprof.model.kernels import MATMUL_FAMILIES, Family

MOSTLY_RATIO = 0.5
"""What takes half of a window or more decides how long it is."""


def windows(start: Account, end: Account) -> WindowsOfTwo:
    """Return both windows side by side; each is the account of a whole window (`Account.of`)."""
    kernels = _kernels(start), _kernels(end)
    counts = _matrix_calls(kernels[0]), _matrix_calls(kernels[1])
    parts = [
        *_parts("idle", _idle(start), _idle(end)),
        *_parts("placement", _sums(kernels[0], _placed), _sums(kernels[1], _placed)),
        *_parts("family", _sums(kernels[0], _family), _sums(kernels[1], _family)),
        *(
            part
            for what in ("comm", "copy")
            for part in _parts("exposed", _exposed(start, what), _exposed(end, what))
        ),
    ]
    return WindowsOfTwo(
        span_ns=(start.window_ns, end.window_ns),
        busy_ns=(start.device_ns, end.device_ns),
        kernel_ns=(_busy(kernels[0]), _busy(kernels[1])),
        kernels=(_count(kernels[0]), _count(kernels[1])),
        parts=tuple(parts),
        matrix_kernels=tuple(
            MatrixKernels(family, counts[0].get(family, 0), counts[1].get(family, 0))
            for family in sorted({*counts[0], *counts[1]})
        ),
        same_work=counts[0] == counts[1] if counts[0] or counts[1] else None,
        decides=_decides(start, end),
        waits_for=_waits_for(end),
    )


def _kernels(account: Account) -> list[Cell]:
    return [cell for cell in account.main.cells if cell.kernel is not None and cell.category != "copy"]


def _busy(cells: list[Cell]) -> float:
    return math.fsum(cell.busy_ns_per_step for cell in cells)


def _count(cells: list[Cell]) -> int:
    return round(math.fsum(cell.calls_per_step for cell in cells))


def _matrix_calls(cells: list[Cell]) -> dict[Family, int]:
    """Return the launches of matrix kernels by family, helpers left out: how much was multiplied, in whatever
    type."""
    found: dict[Family, float] = {}
    for cell in cells:
        if cell.family in MATMUL_FAMILIES and cell.placement != "not_matmul":
            found[cell.family] = found.get(cell.family, 0.0) + cell.calls_per_step
    return {family: round(count) for family, count in sorted(found.items())}


def _placed(cell: Cell) -> str | None:
    return f"{cell.placement} {cell.precision}" if cell.category == "matmul" else None


def _family(cell: Cell) -> str | None:
    return cell.family


def _sums(cells: list[Cell], name: Callable[[Cell], str | None]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for cell in cells:
        if (key := name(cell)) is not None:
            sums[key] = sums.get(key, 0.0) + cell.busy_ns_per_step
    return sums


def _idle(account: Account) -> dict[str, float]:
    return {part.category: part.ns_per_step for part in account.main.slices if part.category in IDLE_CLASSES}


def _exposed(account: Account, category: str) -> dict[str, float]:
    return {part.category: part.ns_per_step for part in account.main.slices if part.category == category}


def _parts(
    by: Literal["idle", "placement", "family", "exposed"],
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> list[WindowPart]:
    """Return the parts of both windows, the largest first; a part that one window does not have is 0
    there."""
    names = sorted({*before, *after}, key=lambda name: -max(before.get(name, 0.0), after.get(name, 0.0)))
    return [WindowPart(by, name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]


def _decides(start: Account, end: Account) -> Literal["waiting", "device", "both"]:
    """Return what most of both windows is: waiting, or the device's work."""
    idle = [1.0 - each.device_ns / each.window_ns for each in (start, end)]
    if min(idle) >= MOSTLY_RATIO:
        return "waiting"
    return "device" if max(idle) < MOSTLY_RATIO else "both"


def _waits_for(account: Account) -> Class | None:
    """Return the class of most of the idle time; None where no class has most of it, or where the trace does
    not show what the device waited for in that time."""
    idle = _idle(account)
    whole = sum(idle.values())
    largest = max(idle, key=lambda name: idle[name], default=None)
    if largest is None or largest == "idle_other" or idle[largest] < MOSTLY_RATIO * whole:
        return None
    return next(category for category in IDLE_CLASSES if category == largest)
