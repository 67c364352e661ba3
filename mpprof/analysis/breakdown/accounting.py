"""The account of a step: every instant of a device belongs to exactly one class.

One sweep over all streams of a device: where several kernels run at once, the instant goes to the first of
matmul, other compute, unknown, comm, copy; several of one rank share it. The rest is idle and goes to what
the host did meanwhile (`idle`). All numbers are means over the whole, steady steps of the profiler window.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import Intervals, are_among, crowded, gaps_before, sweep, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.breakdown.roofline import weighed
from mpprof.analysis.kernels.placement import inputs_precision
from mpprof.analysis.layers.attribution import Ownership, candidates
from mpprof.analysis.steps import idle
from mpprof.analysis.steps import statistics as stepping
from mpprof.analysis.steps.accounted_steps import Window, window_of
from mpprof.analysis.steps.between import listed
from mpprof.analysis.steps.boundaries import Periods
from mpprof.analysis.steps.calls import FUNCTIONS, calls, threads_of
from mpprof.analysis.steps.stalls import Stalls, stalls
from mpprof.errors import UnableError
from mpprof.model.account import (
    CLASSES,
    PHASES,
    Account,
    Cell,
    Class,
    DeviceAccount,
    HiddenWork,
    IdleCause,
    KernelCalls,
    MatmulShare,
    Phase,
    ProfiledStalls,
    Slice,
    class_of,
)
from mpprof.model.arrays import Bool, Float64, Int8, Int32, Int64, groups
from mpprof.model.frozen import frozen
from mpprof.model.kernels import (
    TRANSFORMS,
    Placement,
    Placements,
    Precision,
    Verdict,
)
from mpprof.model.quantities import format_ns
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.model.trace import KernelTable, Trace, WorkKind

_OF_A_PRODUCT = r"/(?:MatMul|BatchMatMul\w*|Conv[123]D|einsum|Einsum)/"
"""The scope of a product's own inputs, as Keras and TensorFlow name them."""
NOTABLE_RATIO = 0.05
"""What held a step up is said from a twentieth of it on."""
LIKE_RATIO = 0.5
"""A profiled step counts as a stall from half the length of the stalls on record (our judgement)."""
_LAST_RANKS: dict[Class, int] = {"matmul": 0, "unknown": 2, "comm": 3, "copy": 4, "profiling": 5}
_COMPUTE_RANK = 1


def category_of(verdict: Verdict, phase: Phase) -> Class:
    """Return the class of a kernel with this verdict in this phase."""
    return class_of(verdict.family, verdict.placement, phase)


def account(trace: Trace, placements: Placements, ownership: Ownership, run: Run | None) -> Account:
    """Return the account of the trace's whole, steady steps, against the wall time of the run's records.

    Raises UnableError where no device has a whole step, or where the collector lost more than 1 % of the
    kernels of those steps.
    """
    summary = stepping.summarise(run.steps, run.facts, spans=run.spans) if run is not None else None
    windows, refused = _windows(trace, run, summary)
    devices = list(map(partial(device_account, trace, placements, ownership), windows))
    order = sorted(range(len(devices)), key=lambda row: -devices[row].busy_ns)
    main, window = devices[order[0]], windows[order[0]]
    wall_ns = summary.mean_ns if summary is not None else None
    if (why := _no_whole_step(main, window)) is not None:
        raise UnableError(
            why,
            where=trace.source.path.name,
            next="Profile a later, whole step",
        )
    window_ns = main.step_ns
    usual_ns = summary.median_ns if summary is not None and summary.median_ns is not None else wall_ns
    grouped = run is not None and run.steps is not None and stepping.asynchronous(run.steps, run.facts)
    lengths = _lengths(window, window_ns, None if grouped else usual_ns, run)
    seen = _profiled_stalls(trace, placements, ownership, window, run)
    told = stalls(run, seen) if run else None
    profiled, main = (
        main,
        _against_the_wall(main, wall_ns, None if grouped else usual_ns, lengths.between_ns, told),
    )
    between, why = listed(trace, window)
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
        unit=window.periods.unit,
        unit_name=window.periods.of,
        tuned_steps=window.periods.tuned,
        notes=(
            *window.periods.notes,
            *window.notes(trace),
            *_of_blocked_calls(trace, window, main),
            *(f"{p}: {why}" for p, why in refused.items()),
        ),
        function_ns=lengths.function_ns,
        between_ns=lengths.between_ns,
        between=between,
        numbered=window.periods.numbered,
        absent=lengths.absent | ({} if why is None else {"between_steps": why}),
        lengths_ns=window.lengths_ns,
        profiled=replace(profiled, cells=()),
        usual_ns=usual_ns,
        grouped=grouped and wall_ns is not None,
        stalled=seen,
    )
    return weighed(result, ownership, run)


def _windows(
    trace: Trace, run: Run | None, summary: StepSummary | None
) -> tuple[list[Window], dict[str, str]]:
    """Return the whole, steady steps of each device, and by device why one with kernels has none. Raises
    UnableError where no device has any."""
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
            trace.missing.get("kernels") or _together(refused) or "no kernel is in the trace",
            where=trace.source.path.name,
            next='Record a window of some steps: MPProfilerCallback(logdir, profile_steps="auto")',
        )
    return windows, refused


def _no_whole_step(main: DeviceAccount, window: Window) -> str | None:
    """Return why the one step that a converter marked on the device is no step: it prepares products that
    never run."""
    if window.periods.source != "steps_line" or len(window.periods) > 1:
        return None
    prepares = any(re.search(_OF_A_PRODUCT, cell.op or "") for cell in main.cells if cell.category == "cast")
    if not prepares or any(cell.category == "matmul" for cell in main.cells):
        return None
    return (
        "the only step marked on the device casts the inputs of matrix products, but runs no product: "
        "it holds only the work that needs no input"
    )


@frozen
class _Lengths:
    """Of a step: the training function's time and the time between two; None with the reason in `absent`."""

    function_ns: float | None
    between_ns: float | None
    absent: dict[str, str]


def _lengths(window: Window, window_ns: float, usual_ns: float | None, run: Run | None) -> _Lengths:
    """Return the lengths by the records where they tell how long an unprofiled call takes, else as the window
    shows them. `usual_ns`: the median unprofiled step; None where none was timed by itself."""
    if window.periods.pause_ns is None:
        why = "the trace holds no call of the training function: steps were found by other means"
        return _Lengths(None, None, {"function_ns": why, "idle_between_steps_ns": why})
    step_ns = window_ns if usual_ns is None else usual_ns
    recorded_ns = None
    if usual_ns is not None and run is not None and run.steps is not None:
        recorded_ns = stepping.function_ns(run.steps, run.facts)
    if recorded_ns is not None and window.periods.source in FUNCTIONS:
        function_ns = min(recorded_ns, step_ns)
        return _Lengths(function_ns, step_ns - function_ns, {})
    if window.between_ns is None:
        why = "no two steps follow one another in the trace, so the time between them is not known"
        absent = {"idle_between_steps_ns": why}
        return (
            _Lengths(step_ns, None, absent)
            if usual_ns is None
            else _Lengths(None, None, absent | {"function_ns": why})
        )
    if window.between_ns >= step_ns:
        why = "the time between profiled steps is longer than an unprofiled step"
        return _Lengths(None, None, {"function_ns": why, "idle_between_steps_ns": why})
    return _Lengths(step_ns - window.between_ns, window.between_ns, {})


def _of_blocked_calls(trace: Trace, window: Window, main: DeviceAccount) -> tuple[str, ...]:
    """Return a note on driver calls that delayed the device for a notable part of the step."""
    waited_ns = math.fsum(cell.ns_per_step for cell in main.cells if cell.cause == idle.BLOCKED[1])
    if waited_ns < NOTABLE_RATIO * main.step_ns:
        return ()
    periods, shift_ns = window.periods, window.shift.ns
    rows = idle.held_up_in(trace, Intervals(periods.start_ns + shift_ns, periods.end_ns + shift_ns))
    if not len(rows):
        return ()
    taken = trace.host.duration_ns[rows]
    names, counts = np.unique(trace.host.name[rows], return_counts=True)
    often = [trace.strings[name] for name in names[np.argsort(-counts, kind="stable")][:2].tolist()]
    calls = f"{len(taken)} calls of" if len(taken) > 1 else "a call of"
    to = f" to {format_ns(taken.max())}" if len(taken) > 1 else ""
    return (
        f"the device waited {format_ns(waited_ns)} a step for driver calls that did not return ({calls} "
        f"{format_ns(taken.min())}{to}, {' and '.join(often)}); the trace does not show what held them up",
    )


def _together(refused: dict[str, str]) -> str:
    """Return each reason once; the devices are named where there is more than one reason."""
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
    verdict: Int32  # row of the verdicts
    phase: Int8
    category: Int8  # row of CLASSES


def device_account(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window
) -> DeviceAccount:
    """Return the account of one device over the periods of its window, per step of the window."""
    instants = window.periods.instants()
    function_ns = instants.length_ns / window.steps
    work = _work(trace, placements, ownership, window, instants)
    busy_ns, cells, hidden = _busy(trace, placements, ownership, window, work)
    cells += [
        Cell(category, ns / window.steps, cause=cause)
        for (category, cause), ns in _idle(trace, placements, ownership, window, instants).items()
    ]
    cells = _closed(cells, function_ns)
    step_ns = function_ns + (window.between_ns or 0.0)
    if window.between_ns:
        cells.append(Cell("idle_between_steps", window.between_ns))
    slices = _slices(cells, hidden)
    plane = trace.devices[window.device].plane
    counted = _calls(trace, work, window.steps)
    return DeviceAccount(plane, step_ns, busy_ns, window.steps, slices, tuple(cells), counted)


def _busy(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, work: _Work
) -> tuple[float, list[Cell], dict[Class, float]]:
    """Return three things per step: how long the device was busy, the cells of what ran, and what was hidden
    behind other work."""
    ranks = np.array([_LAST_RANKS.get(category, _COMPUTE_RANK) for category in CLASSES], np.int8)
    among = crowded(work.start_ns, work.end_ns)
    own = sweep(work.start_ns, work.end_ns, ranks[work.category], among)
    busy_ns = union(work.start_ns, work.end_ns).length_ns if len(among) else int(own.sum())
    held = _held(work, own, among)
    cells = _cells(trace, placements, ownership, work, own, held, window.steps)
    return busy_ns / window.steps, cells, _hidden(work, own, among, window.steps)


def _calls(trace: Trace, work: _Work, steps: int) -> KernelCalls | None:
    """Return the kernels that start in the window, copies and fills apart; None where no kernel starts
    there."""
    rows = work.rows[work.begins & (work.category != CLASSES.index("profiling"))]
    kernels = rows[trace.kernels.kind[rows] == WorkKind.KERNEL]
    if not len(kernels):
        return None
    others = len(rows) - len(kernels)
    took_ns = trace.kernels.duration_ns[kernels]
    return KernelCalls(len(kernels) / steps, median(took_ns), int(took_ns.sum()) / steps, others / steps)


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
    phase, category = roles(trace, placements, ownership, rows)
    return _Work(rows, begin, finish, begins, pick(placements.index, rows), phase, category)


def roles(trace: Trace, placements: Placements, ownership: Ownership, rows: Int64) -> tuple[Int8, Int8]:
    """Return (row of PHASES, row of CLASSES) of each of these rows of the kernel table."""
    table = trace.kernels
    other = PHASES.index("other")
    phases = np.concatenate([ownership.phase, [other]]).astype(np.int8)  # op -1 finds the last
    phase = phases.take(pick(table.op, rows))
    of_verdict = np.array(
        [CLASSES.index(category_of(v, p)) for v in placements.verdicts for p in PHASES], np.int8
    )
    category = of_verdict.take(pick(placements.index, rows) * len(PHASES) + phase)
    moved = np.flatnonzero(pick(table.kind, rows) != WorkKind.KERNEL)
    moved = moved[category[moved] != CLASSES.index("profiling")]
    category[moved] = CLASSES.index("copy")
    return phase, category


def _idle(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, instants: Intervals
) -> dict[idle.Part, int]:
    """Return the idle time of all periods by class, and by cause where that is known."""
    pauses = _pauses(trace, placements, ownership, window, instants)
    device = window.device
    return idle.classify(trace, pauses, calls(trace, device), window.shift, threads_of(trace, device))


def _profiled_stalls(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, run: Run | None
) -> ProfiledStalls | None:
    """Return what the profiled steps waited for that were left out as stalls. Only those count that take at
    least `LIKE_RATIO` of a stall on record; None where none does, or where no stall is on record."""
    usual = stalls(run) if run is not None else None
    if usual is None or not usual.length_ns or window.stalled is None:
        return None
    each = len(window.periods) / window.steps  # of a step
    periods = window.stalled
    periods = periods.keep((periods.end_ns - periods.start_ns) * each >= usual.length_ns * LIKE_RATIO)
    if not len(periods):
        return None

    def waited(of: Periods) -> tuple[int, int]:
        instants = of.instants()
        parts = _idle(trace, placements, ownership, replace(window, periods=of), instants)
        return instants.length_ns, sum(ns for (category, _), ns in parts.items() if category == "idle_input")

    (long_ns, long_input_ns), (ns, input_ns) = waited(periods), waited(window.periods)
    number = len(periods) / len(window.periods)
    above_ns = long_ns - number * ns
    if above_ns <= 0:
        return None
    return ProfiledStalls(len(periods), min(1.0, max(0.0, long_input_ns - number * input_ns) / above_ns))


def waits(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, instants: Intervals
) -> tuple[Intervals, list[idle.Part]]:
    """Return every idle gap of the device in these instants, and what most of it was spent waiting for."""
    pauses = _pauses(trace, placements, ownership, window, instants)
    device = window.device
    parts = idle.mainly(trace, pauses, calls(trace, device), window.shift, threads_of(trace, device))
    return pauses.gaps, parts


def _pauses(
    trace: Trace, placements: Placements, ownership: Ownership, window: Window, instants: Intervals
) -> idle.Pauses:
    table, rows = trace.kernels, window.rows
    start = pick(table.start_ns, rows)
    end = start + pick(table.duration_ns, rows)
    busy = union(start, end)
    pauses, following = gaps_before(busy, instants)
    if len(busy) < len(rows):  # some work overlaps other work, or takes no time
        following = np.searchsorted(start, pauses.end, side="left")
    followed = following < len(rows)
    following[~followed] = 0
    last = np.zeros(len(pauses), np.bool_)
    if window.periods.source in FUNCTIONS:
        # A call's last gap is ended by its return, not by the next one's work.
        last = are_among(instants.end, pauses.end) & ~(followed & (start[following] == pauses.end))
    next_row = np.where(followed & ~last, rows[following], -1)
    checking = np.zeros(len(pauses), np.bool_)
    ended = np.flatnonzero(next_row >= 0)
    _, category = roles(trace, placements, ownership, next_row[ended])
    checking[ended] = category == CLASSES.index("loss_scale")
    return idle.Pauses(pauses, next_row, last, checking)


def _cells(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    work: _Work,
    own: Float64,
    held: Float64,
    steps: int,
) -> list[Cell]:
    """Return one cell per (role, op, kernel name, shapes) and verdict; what the profiler itself ran is one
    cell. Copies in one cell differ in size by less than a factor of two.

    By class, and within one the longest first: the order of a file's tables of names says nothing, and rules
    list their layers and kernels in that of the cells."""
    strings = (*trace.strings, "")  # row -1 finds the last
    cells = []
    for own_ns, busy_ns, called, shares, size, held_ns, code, row, phase, kernel, owner, shape in _merged(
        trace.kernels, work, own, held, steps
    ):
        category = CLASSES[code]
        if category == "profiling":
            cells.append(Cell(category, own_ns, busy_ns, called))
            continue
        verdict, its = placements.verdicts[row], trace.ops[owner] if owner >= 0 else None
        inputs = _inputs(trace, owner, strings[shape]) if category == "matmul" and its else None
        cells.append(
            Cell(
                category,
                own_ns,
                busy_ns,
                called,
                kernel=strings[kernel],
                op=its.name if its else None,
                op_type=(its.type or None) if its else None,
                layer=ownership.layer_of(owner),
                phase=PHASES[phase],
                family=verdict.family,
                placement=verdict.placement,
                precision=verdict.precision,
                reason_code=verdict.reason.code,
                shapes=strings[shape] or None,
                inputs=inputs,
                hlo=its.hlo if its else None,
                candidates=_candidates(trace, ownership, owner, strings[kernel], category, verdict.precision),
                bytes_per_step=size if category == "copy" and size > 0 else None,
                shares_per_step=None if math.isclose(shares, called) else shares,
                held_ns_per_step=held_ns,
            )
        )
    return sorted(cells, key=_order)


def _candidates(
    trace: Trace, ownership: Ownership, op: int, kernel: str, category: Class, precision: Precision
) -> tuple[str, ...]:
    """Return the layers one of which ran a kernel; for kernels that name no instruction, only for matrix
    work."""
    if op < 0 or not trace.ops[op].candidates or (trace.ops[op].hlo is None and category != "matmul"):
        return ()
    return candidates(trace.ops, ownership, op, kernel, precision)


def _merged(
    table: KernelTable, work: _Work, own: Float64, held: Float64, steps: int
) -> Iterable[tuple[Any, ...]]:
    """Return for each cell its own time, busy time, calls, shares of calls, bytes and `held` time, and
    its rows: of CLASSES, the verdicts, PHASES, the strings (its name), the ops, and the strings (its
    shapes)."""
    ours = work.category == CLASSES.index("profiling")
    named = [pick(column, work.rows) for column in (table.op, table.name, table.shapes)]
    if ours.any():
        named = [np.where(ours, -1, column) for column in named]
    size = pick(table.bytes, work.rows)
    copied = (work.category == CLASSES.index("copy")) & (size > 0)
    scale = np.where(copied, np.log2(np.maximum(size, 1)).astype(np.int64), -1)  # labels are no batch
    group, first = groups([work.category, work.verdict, scale, *named], len(work.rows))
    n = len(first)
    exclusive = np.bincount(group, own, n) / steps
    busy = np.bincount(group, work.end_ns - work.start_ns, n) / steps
    calls = np.bincount(group, work.begins, n) / steps
    took = pick(table.duration_ns, work.rows)
    share = np.where(took > 0, (work.end_ns - work.start_ns) / np.maximum(took, 1), work.begins)
    shares = np.bincount(group, share, n) / steps
    moved = np.bincount(group, share * np.maximum(0, size), n) / steps
    rows = work.rows[first]
    of_work = (work.category[first], work.verdict[first], work.phase[first])
    of_table = (table.name[rows], table.op[rows], table.shapes[rows])
    behind = np.bincount(group, held, n) / steps
    columns = (exclusive, busy, calls, shares, moved, behind, *of_work, *of_table)
    return zip(*(column.tolist() for column in columns), strict=True)


def _order(cell: Cell) -> tuple[object, ...]:
    """Return the sort key of a cell. The last digits of a time are rounding: names decide between equal
    times."""
    names = (cell.op, cell.kernel, cell.placement, cell.precision, cell.reason_code, cell.shapes)
    its = (cell.hlo.module, cell.hlo.name, cell.hlo.dtype, cell.hlo.shape) if cell.hlo else ()
    return CLASSES.index(cell.category), -round(cell.ns_per_step, 3), *(name or "" for name in names), its


def _inputs(trace: Trace, op: int, shapes: str) -> Precision | None:
    """Return the type of a matrix op's inputs; None where it is not stated.

    XLA widens 16-bit products to float32 before it compiles them for a CPU: float32 says nothing there.
    """
    found = inputs_precision(trace.ops[op], shapes)
    widened = found == "fp32" and trace.basis == "host" and trace.ops[op].hlo is not None
    return None if found == "unknown" or widened else found


def _held(work: _Work, own: Float64, among: Int64) -> Float64:
    """Return how much of the time of each row lies over communication that goes on when all work over it has
    ended: the communication ends no earlier without that work."""
    held = np.zeros(len(own))
    comm = work.category == CLASSES.index("comm")
    before = [
        CLASSES.index(each) for each in CLASSES if _LAST_RANKS.get(each, _COMPUTE_RANK) < _LAST_RANKS["comm"]
    ]
    over = among[np.isin(work.category[among], before) & (own[among] > 0)]
    if not len(over) or not comm.any():
        return held
    sent, busy = union(work.start_ns[comm], work.end_ns[comm]), union(work.start_ns[over], work.end_ns[over])
    goes_on = busy.overlap(sent.end - 1, sent.end) == 0
    sent = Intervals(sent.start[goes_on], sent.end[goes_on])
    start, end = work.start_ns[over], work.end_ns[over]
    held[over] = own[over] * sent.overlap(start, end) / (end - start)
    return held


def _hidden(work: _Work, own: Float64, among: Int64, steps: int) -> dict[Class, float]:
    """Return how long some work of each class ran while the instant went to another class."""
    hidden: dict[Class, float] = {}
    for code in np.flatnonzero(np.bincount(work.category[among])).tolist():
        rows = among[work.category[among] == code]
        ns = union(work.start_ns[rows], work.end_ns[rows]).length_ns - float(own[rows].sum())
        if ns > 1e-3:  # less is the rounding of the sweep
            hidden[CLASSES[code]] = ns / steps
    return hidden


# --- sums that close ---------------------------------------------------------------------------------------


def _closed(cells: list[Cell], step_ns: float) -> list[Cell]:
    """Return the cells with the rounding of the sweep (far below a nanosecond) put into the largest of
    them."""
    rest = step_ns - math.fsum(cell.ns_per_step for cell in cells)
    if abs(rest) > 1.0 + 1e-9 * step_ns:
        raise AssertionError(f"the account does not close: {rest} ns of a step of {step_ns} ns are left")
    largest = max(range(len(cells)), key=lambda row: cells[row].ns_per_step)
    cells[largest] = replace(cells[largest], ns_per_step=cells[largest].ns_per_step + rest)
    return cells


def _slices(cells: list[Cell], hidden: dict[Class, float]) -> tuple[Slice, ...]:
    by_class = dict.fromkeys(CLASSES, 0.0)
    for cell in cells:
        by_class[cell.category] += cell.ns_per_step
    whole = math.fsum(ns for ns in by_class.values() if ns > 0)
    slices = []
    for category in CLASSES:
        own = [cell for cell in cells if cell.category == category]
        ns = math.fsum(cell.ns_per_step for cell in own)
        if ns or category in hidden:
            by = _shares(own) if category == "matmul" else ()
            causes = tuple(IdleCause(cell.cause, cell.ns_per_step) for cell in own if cell.cause is not None)
            ratio = ns / whole if whole else 0.0
            behind = hidden.get(category, 0.0)
            pooling = math.fsum(cell.ns_per_step for cell in own if cell.family == "pool")
            longest = _longest_hidden(own) if behind else None
            slices.append(Slice(category, ns, ratio, behind, by, causes, pooling, longest))
    return tuple(slices)


def _longest_hidden(cells: list[Cell]) -> HiddenWork | None:
    """Return the op, else the kernel, that ran longest while instants went to other work."""
    hidden: dict[str, float] = {}
    for cell in cells:
        if name := cell.op or cell.kernel:
            hidden[name] = hidden.get(name, 0.0) + max(0.0, cell.busy_ns_per_step - cell.ns_per_step)
    longest = max(hidden.items(), key=lambda item: item[1], default=("", 0.0))
    return HiddenWork(*longest) if longest[1] > 1e-3 else None


def _shares(cells: list[Cell]) -> tuple[MatmulShare, ...]:
    parts: dict[tuple[Placement, Precision], list[Cell]] = {}
    for cell in cells:
        parts.setdefault((cell.placement or "unknown", cell.precision or "unknown"), []).append(cell)
    shares = [
        MatmulShare(
            placement,
            precision,
            math.fsum(cell.ns_per_step for cell in part),
            math.fsum(cell.ns_per_step for cell in part if cell.reason_code in TRANSFORMS),
        )
        for (placement, precision), part in parts.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.ns_per_step))


def _against_the_wall(
    main: DeviceAccount,
    wall_ns: float | None,
    usual_ns: float | None,
    between_ns: float | None,
    stalled: Stalls | None,
) -> DeviceAccount:
    """Return the account of the main device against the recorded steps, of which `wall_ns` is the mean and
    `usual_ns` the median (None where none is timed by itself): `idle_between_steps` as recorded, `profiling`
    the unprofiled function less the profiled one, plus what the profiler ran, `idle_stall` the rest."""
    if wall_ns is None:
        return main
    ours = [cell for cell in main.cells if cell.category == "profiling"]
    cells = [cell for cell in main.cells if cell.category != "profiling"]
    if between_ns is not None:
        cells = [cell for cell in cells if cell.category != "idle_between_steps"]
        cells += [Cell("idle_between_steps", between_ns)] if between_ns else []
    if usual_ns is None:
        cells += ours
    elif rest := usual_ns - math.fsum(cell.ns_per_step for cell in cells):
        busy = math.fsum(cell.busy_ns_per_step for cell in ours)
        called = math.fsum(cell.calls_per_step for cell in ours)
        cells.append(Cell("profiling", rest, busy, called))
    rest = wall_ns - math.fsum(cell.ns_per_step for cell in cells)
    known_ns = 0.0 if stalled is None else max(0.0, min(rest, stalled.cause_ns))
    if stalled is not None and known_ns > 0:
        cells.append(Cell("idle_stall", known_ns, cause=stalled.cause))
    if rest - known_ns:
        cells.append(Cell("idle_stall", rest - known_ns))
    hidden: dict[Class, float] = {
        part.category: part.hidden_ns_per_step
        for part in main.slices
        if part.hidden_ns_per_step and part.category != "profiling"
    }
    return replace(main, step_ns=wall_ns, slices=_slices(cells, hidden), cells=tuple(cells))
