"""The account of a step: every instant of a device belongs to exactly one class.

One sweep over all streams of a device: where several kernels run at once, the instant goes to the first of
matmul, other compute, unknown, comm, copy; several of one rank share it. The rest is idle and goes to what
the host did meanwhile (`idle`). All numbers are means over the whole, steady steps of the profiler window.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis import idle, timeline
from mpprof.analysis import steps as stepping
from mpprof.analysis.grouping import pick
from mpprof.analysis.intervals import Intervals, crowded, gaps, sweep, union
from mpprof.analysis.layers import Ownership
from mpprof.analysis.roofline import weighed
from mpprof.analysis.tensor_cores import share_of
from mpprof.analysis.window import Window, window_of
from mpprof.errors import UnableError
from mpprof.model.account import (
    CLASSES,
    PHASES,
    Account,
    Cell,
    Class,
    DeviceAccount,
    MatmulShare,
    Phase,
    Slice,
    TensorCoreShare,
)
from mpprof.model.frozen import frozen
from mpprof.model.grouping import groups
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Placements, Verdict
from mpprof.model.run import Run
from mpprof.model.trace import Trace, WorkKind

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


_ROLES: dict[Family, Class] = {
    "norm": "norm", "softmax": "elementwise", "pool": "elementwise", "elementwise": "elementwise",
    "random": "elementwise", "fusion": "elementwise", "reduce": "reduce", "gather_scatter": "gather_scatter",
    "cast": "cast", "layout": "layout", "optimizer": "optimizer", "loss_scale": "loss_scale",
    "memset": "copy", "copy": "copy", "comm": "comm", "mpprof": "profiling", "other": "other",
}  # fmt: skip
_OF_PHASE: dict[Phase, Class] = {"optimizer": "optimizer", "loss_scale": "loss_scale"}
_ANYWHERE: frozenset[Class] = frozenset(("matmul", "comm", "copy", "profiling"))
"""Roles that the phase does not change: a matmul of the optimizer is matrix work."""
_LAST_RANKS: dict[Class, int] = {"matmul": 0, "unknown": 2, "comm": 3, "copy": 4, "profiling": 5}
_COMPUTE_RANK = 1


def role_of(verdict: Verdict, phase: Phase) -> Class:
    """The class of a kernel: the role of its work in the step.

    By family, but work of the optimizer and of loss scaling by its phase. `unknown` is what neither name,
    op nor phase tells anything about. A fusion whose parts are not known counts as elementwise; clearing
    memory counts as a copy."""
    if verdict.family in MATMUL_FAMILIES:
        return "matmul"
    role = _ROLES[verdict.family]
    if role in _ANYWHERE:
        return role
    if phase in _OF_PHASE:
        return _OF_PHASE[phase]
    if verdict.family in ("other", "fusion") and verdict.placement == "unknown":
        return "unknown"
    return role


def account(trace: Trace, placements: Placements, ownership: Ownership, run: Run | None) -> Account:
    """The account of the trace's whole, steady steps, against the wall time of the run's records.

    Raises UnableError where no device has a whole step, or where the collector lost more than 1 % of the
    kernels of those steps.
    """
    summary = stepping.summarise(run.steps, run.facts) if run is not None else None
    windows: list[Window] = []
    refused: dict[str, str] = {}
    for device in range(len(trace.devices)):
        found = window_of(trace, device, run, summary)
        if isinstance(found, Window):
            windows.append(found)
        elif (trace.kernels.device == device).any():
            refused[trace.devices[device].plane] = found
    if not windows:
        raise UnableError(
            trace.lacks.get("kernels") or _together(refused) or "no kernel is in the trace",
            where=trace.source.path.name,
            next='record a window of some steps: MPProfilerCallback(logdir, profile_steps="auto")',
        )
    devices = [_device_account(trace, placements, ownership, window) for window in windows]
    order = sorted(range(len(devices)), key=lambda row: -devices[row].busy_ns)
    main, window = devices[order[0]], windows[order[0]]
    wall_ns = summary.median_ns if summary is not None else None
    window_ns = main.step_ns
    main = _against_the_wall(main, wall_ns)
    result = Account(
        basis="window" if wall_ns is None else "wall",
        trace_basis="host" if trace.basis == "host" else "device",
        step_ns=main.step_ns,
        wall_ns=wall_ns,
        window_ns=window_ns,
        device_ns=main.busy_ns,
        main=main,
        devices=(main, *(devices[row] for row in order[1:])),
        steps=tuple(window.periods.number.tolist()),
        step_source=window.periods.source,
        notes=(*window.periods.notes, *window.notes(trace), *(f"{p}: {why}" for p, why in refused.items())),
    )
    return weighed(result, trace, ownership, run)


def _together(refused: dict[str, str]) -> str:
    """Each reason once; the devices are named where there is more than one reason."""
    reasons = dict.fromkeys(refused.values())
    if len(reasons) < 2:
        return next(iter(reasons), "")
    return "; ".join(f"{', '.join(p for p in refused if refused[p] == why)}: {why}" for why in reasons)


# --- one device --------------------------------------------------------------------------------------------


@frozen
class _Work:
    """What ran in a window, in the window's own clock, which stands still between its periods."""

    rows: Int64  # of the kernel table
    start_ns: Int64
    end_ns: Int64
    begins: Bool  # it started inside the window
    verdict: Int64
    phase: NDArray[np.int8]
    role: NDArray[np.int8]  # row of CLASSES


def _device_account(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window
) -> DeviceAccount:
    instants = window.periods.instants()
    step_ns = instants.length_ns / window.steps
    busy_ns, cells, hidden = _busy(trace, placements, ownership, window, instants)
    cells += [Cell(role, ns / window.steps) for role, ns in _idle(trace, window, instants).items() if ns > 0]
    cells = _closed(cells, step_ns)
    slices = _slices(cells, step_ns, hidden)
    plane = trace.devices[window.device].plane
    return DeviceAccount(plane, step_ns, busy_ns, window.steps, slices, tuple(cells))


def _busy(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, instants: Intervals
) -> tuple[float, list[Cell], dict[Class, float]]:
    """Per step: how long the device was busy, the cells of what ran, what was hidden behind other work."""
    work = _work(trace, placements, ownership, window, instants)
    ranks = np.array([_LAST_RANKS.get(role, _COMPUTE_RANK) for role in CLASSES], np.int8)
    among = crowded(work.start_ns, work.end_ns)
    own = sweep(work.start_ns, work.end_ns, ranks[work.role], among)
    busy_ns = union(work.start_ns, work.end_ns).length_ns if len(among) else int(own.sum())
    cells = _cells(trace, placements, ownership, work, own, window.steps)
    return busy_ns / window.steps, cells, _hidden(work, own, among, window.steps)


def _work(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, instants: Intervals
) -> _Work:
    table, rows = trace.kernels, window.rows
    start = pick(table.start_ns, rows)
    end = start + pick(table.duration_ns, rows)
    near = np.flatnonzero((end >= instants.start[0]) & (start < instants.end[-1]))
    if len(near) < len(rows):
        rows, start, end = rows[near], start[near], end[near]
    begins = instants.contains(start)
    begin, finish = instants.before(start), instants.before(end)
    inside = np.flatnonzero((finish > begin) | begins)
    if len(inside) < len(rows):
        rows, begin, finish, begins = rows[inside], begin[inside], finish[inside], begins[inside]
    other = PHASES.index("other")
    phases = np.concatenate([ownership.phase, [other]]).astype(np.int8)  # op -1 finds the last
    phase = phases[table.op[rows]]
    verdict = placements.index[rows].astype(np.int64)
    roles = np.array(
        [[CLASSES.index(role_of(v, p)) for p in PHASES] for v in placements.verdicts], np.int8
    ).reshape(-1, len(PHASES))
    role = roles[verdict, phase]
    moved = table.kind[rows] != WorkKind.KERNEL
    role = np.where(moved & (role != CLASSES.index("profiling")), np.int8(CLASSES.index("copy")), role)
    return _Work(rows, begin, finish, begins, verdict, phase, role)


def _idle(trace: Trace, window: Window, instants: Intervals) -> dict[Class, int]:
    """Idle time of all periods by class."""
    table, rows = trace.kernels, window.rows
    start = pick(table.start_ns, rows)
    end = start + pick(table.duration_ns, rows)
    pauses = gaps(union(start, end), instants)
    following = np.searchsorted(start, pauses.end, side="left")
    real = following < len(rows)
    next_row = np.where(real, rows[np.minimum(following, len(rows) - 1)], -1)
    return idle.classify(
        trace, pauses, next_row, timeline.marks(trace, window.device), window.shift,
        threads=timeline.threads_of(trace, window.device),
    )  # fmt: skip


def _cells(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    work: _Work,
    own: Float64,
    steps: int,
) -> list[Cell]:
    """One cell per (role, op, kernel name) and verdict; what the profiler itself ran is one cell."""
    table = trace.kernels
    ours = work.role == CLASSES.index("profiling")
    op = np.where(ours, -1, table.op[work.rows])
    name = np.where(ours, -1, table.name[work.rows])
    group, first = groups([work.role, work.verdict, op, name], len(work.rows))
    n = len(first)
    exclusive = np.bincount(group, own, n) / steps
    busy = np.bincount(group, work.end_ns - work.start_ns, n) / steps
    calls = np.bincount(group, work.begins, n) / steps
    cells = []
    for i, at in enumerate(first.tolist()):
        row, role = int(work.rows[at]), CLASSES[work.role[at]]
        if role == "profiling":
            cells.append(Cell(role, float(exclusive[i]), float(busy[i]), float(calls[i])))
            continue
        verdict = placements.verdicts[work.verdict[at]]
        owner = int(table.op[row])
        cells.append(
            Cell(
                role,
                float(exclusive[i]),
                float(busy[i]),
                float(calls[i]),
                kernel=trace.strings[table.name[row]],
                op=trace.ops[owner].name if owner >= 0 else None,
                op_type=(trace.ops[owner].type or None) if owner >= 0 else None,
                layer=ownership.layers[ownership.layer[owner]]
                if owner >= 0 and ownership.layer[owner] >= 0
                else None,
                phase=PHASES[work.phase[at]],
                family=verdict.family,
                placement=verdict.placement,
                precision=verdict.precision,
                reason_code=verdict.reason.code,
                shapes=trace.strings[table.shapes[row]] if table.shapes[row] >= 0 else None,
            )
        )
    return cells


def _hidden(work: _Work, own: Float64, among: Int64, steps: int) -> dict[Class, float]:
    """Per class, how long something of it ran while the instant went to another class."""
    hidden: dict[Class, float] = {}
    for code in np.flatnonzero(np.bincount(work.role[among])).tolist():
        rows = among[work.role[among] == code]
        ns = union(work.start_ns[rows], work.end_ns[rows]).length_ns - float(own[rows].sum())
        if ns > 1e-3:  # less is the rounding of the sweep
            hidden[CLASSES[code]] = ns / steps
    return hidden


# --- sums that close ---------------------------------------------------------------------------------------


def _closed(cells: list[Cell], step_ns: float) -> list[Cell]:
    """The cells with the rounding of the sweep (far below a nanosecond) put into the largest of them."""
    rest = step_ns - math.fsum(cell.ns_per_step for cell in cells)
    if abs(rest) > 1.0 + 1e-9 * step_ns:
        raise AssertionError(f"the account does not close: {rest} ns of a step of {step_ns} ns are left")
    largest = max(range(len(cells)), key=lambda row: cells[row].ns_per_step)
    cells[largest] = replace(cells[largest], ns_per_step=cells[largest].ns_per_step + rest)
    return cells


def _slices(cells: list[Cell], step_ns: float, hidden: dict[Class, float]) -> tuple[Slice, ...]:
    slices = []
    for role in CLASSES:
        own = [cell for cell in cells if cell.role == role]
        ns = math.fsum(cell.ns_per_step for cell in own)
        if ns or role in hidden:
            by = _shares(own) if role == "matmul" else ()
            slices.append(Slice(role, ns, ns / step_ns if step_ns else 0.0, hidden.get(role, 0.0), by))
    return tuple(slices)


def _shares(cells: list[Cell]) -> tuple[MatmulShare, ...]:
    parts: dict[tuple[str, str], list[float]] = {}
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        key = (cell.placement or "unknown", cell.precision or "unknown")
        parts.setdefault(key, []).append(cell.ns_per_step)
        first.setdefault(key, cell)
    shares = [
        MatmulShare(first[key].placement or "unknown", first[key].precision or "unknown", math.fsum(ns))
        for key, ns in parts.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.ns_per_step))


def _against_the_wall(main: DeviceAccount, wall_ns: float | None) -> DeviceAccount:
    """The account of the main device with `profiling` = wall minus window, plus what the profiler ran."""
    if wall_ns is None:
        return main
    ours = [cell for cell in main.cells if cell.role == "profiling"]
    others = [cell for cell in main.cells if cell.role != "profiling"]
    rest = wall_ns - math.fsum(cell.ns_per_step for cell in others)
    busy = math.fsum(cell.busy_ns_per_step for cell in ours)
    calls = math.fsum(cell.calls_per_step for cell in ours)
    cells = (*others, Cell("profiling", rest, busy, calls)) if rest else tuple(others)
    kept = [slice for slice in main.slices if slice.role != "profiling"]
    slices = [replace(slice, ratio=slice.ns_per_step / wall_ns) for slice in kept]
    if rest:
        slices.append(Slice("profiling", rest, rest / wall_ns))
    return replace(main, step_ns=wall_ns, slices=tuple(slices), cells=cells)


# --- Tensor Cores ------------------------------------------------------------------------------------------


def tensor_core_share_of_window(
    trace: Trace, placements: Placements, ownership: Ownership
) -> TensorCoreShare | None:
    """The share over everything that the busiest device ran: for a trace of which no step can be told apart.
    None without an accelerator, or where it ran no kernel."""
    table = trace.kernels
    work = np.where(table.kind == WorkKind.KERNEL, table.duration_ns, 0)
    busy = np.bincount(table.device, work, len(trace.devices))
    if trace.basis == "host" or not busy.any():
        return None
    device = int(np.argmax(busy))
    rows = np.flatnonzero(table.device == device)
    start, end = table.start_ns[rows], table.start_ns[rows] + table.duration_ns[rows]
    whole = timeline.Periods(start[:1], end.max(keepdims=True), np.full(1, -1, np.int64), "window")
    window = Window(device, whole, 1, rows, idle.ClockShift(0, rows[:0]))
    _, cells, _ = _busy(trace, placements, ownership, window, whole.instants())
    return replace(share_of(cells, on_host=False), of="window")
