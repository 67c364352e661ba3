"""The tables of a trace: kernels, products, ops and layers, with their time and where they ran.

Rows are plain JSON types. Times are whole nanoseconds over the whole file, unless `steps` are given; `ratio`
is of all time that the rows of the same device hold, copies and memsets included, so that a device's ratios
sum to 1. Concurrent kernels count in full: these are sums of durations, not the account of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import cross, longest_first, lookup, ratios, sums
from mpprof.analysis.arrays.intervals import row_around
from mpprof.analysis.breakdown.products import Multiplied, by_layer, multiplied
from mpprof.analysis.breakdown.rates import NO_RATE, Part, Setting, eligibility, part, setting, summed
from mpprof.analysis.breakdown.roofline import peak_rate
from mpprof.analysis.layers.attribution import Ownership, joined
from mpprof.errors import UsageError
from mpprof.model.account import PHASES
from mpprof.model.arrays import Bool, Float64, Int32, Int64, groups
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import (
    ACCELERATED,
    MATMUL_FAMILIES,
    PLACEMENTS,
    PRECISIONS,
    Placement,
    Placements,
    Precision,
)
from mpprof.model.run import LayerFacts, Run
from mpprof.model.trace import CopyKind, Trace, WorkKind

if TYPE_CHECKING:
    from mpprof.model.rows import Eligibility, KernelRow, LayerRow, OpRow, ProductRow

_Name = TypeVar("_Name", bound=str)

COPY_NAMES = {
    CopyKind.HOST_TO_DEVICE: "MemcpyH2D",
    CopyKind.DEVICE_TO_HOST: "MemcpyD2H",
    CopyKind.DEVICE_TO_DEVICE: "MemcpyD2D",
    CopyKind.PEER: "MemcpyP2P",
}


@frozen
class _Work:
    """The intervals that a table is made of, and the rows of the table that they go to."""

    trace: Trace
    placements: Placements
    ownership: Ownership
    by_stream: bool
    rows: Int64  # of each interval: its row of Trace.kernels
    duration_ns: Int64
    verdict: Int64  # its row of Placements.verdicts
    group: Int64  # its row of the table
    first: Int64  # of each row of the table: the row of Trace.kernels of its first interval

    def __len__(self) -> int:
        return len(self.first)

    @property
    def device(self) -> Int32:
        """The device of each row of the table."""
        return self.trace.kernels.device[self.first]

    def totals(self) -> tuple[Int64, Int64, Float64]:
        """Return of each row of the table its calls, its time in ns, and the share of its device's time."""
        total = sums(self.group, self.duration_ns, len(self))
        calls = np.bincount(self.group, minlength=len(self))
        return calls, total, ratios(total, self.device, len(self.trace.devices))

    def plane(self, at: int) -> str:
        return self.trace.devices[int(self.trace.kernels.device[self.first[at]])].plane

    def stream(self, at: int) -> str:
        return self.trace.streams[int(self.trace.kernels.stream[self.first[at]])].name


def kernels(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
    known: Setting | None = None,
) -> list[KernelRow]:
    """Return one row per device, kernel name, op and verdict (and stream), by device, longest first.

    Copies and memsets are rows named by their kind. `op` and `layer` are None where they are not known.
    The rates (`rates.summed`) are None where shapes do not tell, and for the helpers of a product, whose
    shapes are not theirs; `known` is what the run adds to the trace for them.
    `steps`: first and last step, inclusive. Raises UsageError where the trace holds none of them.
    """
    table = trace.kernels
    copy = np.where(table.kind == WorkKind.KERNEL, 0, 2 + table.copy.astype(np.int64))
    copy[table.kind == WorkKind.MEMSET] = 1
    name = np.where(copy == 0, table.name, 0)
    columns = [table.device, copy, name, table.op, placements.index]
    work = _work(trace, placements, ownership, columns, by_stream=by_stream, steps=steps)
    calls, total, ratio = work.totals()
    parts = _parts(work, known or setting(trace))
    return [
        _kernel_row(work, at, int(calls[at]), int(total[at]), float(ratio[at]), parts.get(at, ()))
        for at in map(int, longest_first(work.device, total))
    ]


def _kernel_row(
    work: _Work, at: int, calls: int, total_ns: int, ratio: float, parts: Sequence[Part]
) -> KernelRow:
    trace, kernel = work.trace, int(work.first[at])
    verdict = work.placements.verdicts[work.placements.index[kernel]]
    op, rates = int(trace.kernels.op[kernel]), summed(parts)
    row: KernelRow = {
        "device": work.plane(at),
        "name": _name(trace, kernel),
        "op": trace.ops[op].name if op >= 0 else None,
        "layer": joined(work.ownership.layers_of(op)),
        "placement": verdict.placement,
        "precision": verdict.precision,
        "family": verdict.family,
        "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
        "calls": calls,
        "total_ns": total_ns,
        "ratio": ratio,
        "strength": verdict.strength,
        "flops_per_s": rates["flops_per_s"],
        "bytes_per_s": rates["bytes_per_s"],
        "roofline_ratio": rates["roofline_ratio"],
        "bound": rates["bound"],
        "line": _line(trace, op),
    }
    if work.by_stream:
        row["stream"] = work.stream(at)
    return row


def products(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
    known: Setting | None = None,
    run: Run | None = None,
) -> list[ProductRow]:
    """Return one row per device and product (`products.Multiplied`: its shape, and how it ran), longest
    first; empty for a trace without matrix work. Helpers of a product are in no row.

    `calls_per_step` is over the steps that the account is of, None where none can be told apart; `run` is
    what the trace is of. `layer` names the layers that the product is of, "a, b (+1)" with all of them in
    `layers`. `peak_ratio` is the rate over the card's peak in the row's precision, on the units that it ran
    on. Where the trace states no tensors, a dense layer's product is known from its recorded
    shapes. Products of a shape that is not known stand in one row for each way of running.
    """
    table, known = trace.kernels, known or setting(trace)
    matrix = (table.kind == WorkKind.KERNEL) & _is_matmul(placements)[placements.index]
    rows = np.flatnonzero(matrix)
    same, first = groups([table.op[rows], table.shapes[rows], placements.index[rows]], len(rows))
    found: dict[Multiplied, int] = {}
    kind = [
        found.setdefault(_multiplied(trace, placements, ownership, known.batch, int(rows[row])), len(found))
        for row in first
    ]
    product = np.full(len(table), -1, np.int64)
    product[rows] = np.array(kind, np.int64)[same] if kind else 0
    work = _work(trace, placements, ownership, [table.device, product], by_stream=by_stream, steps=steps)
    calls, total, ratio = work.totals()
    parts, layers, per_step = _parts(work, known), _layers_of_rows(work), _calls_per_step(work, run)
    shown = list(found)
    return [
        _product_row(
            work, at, shown[of], int(calls[at]), per_step[at], int(total[at]), float(ratio[at]),
            layers[at], parts.get(at, ()), known.of(int(work.device[at]))[0],
        )
        for at in map(int, longest_first(work.device, total))
        if (of := int(product[work.first[at]])) >= 0
    ]  # fmt: skip


def _multiplied(
    trace: Trace, placements: Placements, ownership: Ownership, batch: int | None, kernel: int
) -> Multiplied:
    op, shapes = int(trace.kernels.op[kernel]), int(trace.kernels.shapes[kernel])
    verdict = placements.verdicts[placements.index[kernel]]
    stated = trace.strings[shapes] if shapes >= 0 else ""
    found = multiplied(trace.ops[op] if op >= 0 else None, stated, verdict)
    layer = _layer_facts(ownership, op)
    if found.shape is not None or stated or layer is None or not batch:
        return found
    return by_layer(found, layer, batch, forward=ownership.phase_of(op) == "forward")


def _layers_of_rows(work: _Work) -> list[list[str]]:
    """Return for each row of the table the layers of its ops, by name: a file numbers its ops as it likes."""
    layers: list[set[str]] = [set() for _ in range(len(work))]
    op = work.trace.kernels.op[work.rows]
    _, first = groups([work.group, op], len(work.rows))
    for row in first.tolist():
        layers[work.group[row]].update(work.ownership.layers_of(int(op[row])))
    return [sorted(each) for each in layers]


def _calls_per_step(work: _Work, run: Run | None) -> list[float | None]:
    """Return for each row of the table its calls per step; None where the steps of its device are not
    known."""
    from mpprof.analysis.steps.accounted_steps import window_of

    trace, kernels = work.trace, work.trace.kernels
    within, steps = np.zeros(len(kernels), np.bool_), [0] * len(trace.devices)
    for device in range(len(trace.devices)):
        window = window_of(trace, device, run, None)
        if isinstance(window, str) or window.periods.unit != "step":
            continue
        steps[device] = window.steps
        rows = window.rows
        if window.periods.work is None:
            rows = rows[
                row_around(window.periods.start_ns, window.periods.end_ns, kernels.start_ns[rows]) >= 0
            ]
        within[rows] = True
    calls = np.bincount(work.group[within[work.rows]], minlength=len(work)).tolist()
    return [
        calls[at] / steps[device] if steps[device] else None for at, device in enumerate(work.device.tolist())
    ]


def _product_row(
    work: _Work,
    at: int,
    product: Multiplied,
    calls: int,
    per_step: float | None,
    total_ns: int,
    ratio: float,
    layers: Sequence[str],
    parts: Sequence[Part],
    peaks: DevicePeaks | None,
) -> ProductRow:
    rates, peak = summed(parts), peak_rate(product.placement, product.precision, peaks)
    row: ProductRow = {
        "device": work.plane(at),
        "shape": product.shape,
        "batch": product.batch,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "operands": product.operands,
        "family": product.family,
        "layer": joined(layers),
        "placement": product.placement,
        "precision": product.precision,
        "calls": calls,
        "calls_per_step": per_step,
        "total_ns": total_ns,
        "ratio": ratio,
        "flops_per_call": rates["flops_per_call"],
        "flops_per_s": rates["flops_per_s"],
        "peak_ratio": rates["flops_per_s"] / peak if rates["flops_per_s"] and peak else None,
        "roofline_ratio": rates["roofline_ratio"],
        "bound": rates["bound"],
    }
    if len(layers) > 1:
        row["layers"] = list(layers)
    if work.by_stream:
        row["stream"] = work.stream(at)
    return row


def _line(trace: Trace, op: int) -> str | None:
    """Return the line of the user's code that an op comes from; None where the trace does not state it."""
    hlo = trace.ops[op].hlo if op >= 0 else None
    return (hlo.line or None) if hlo else None


def ops(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
    known: Setting | None = None,
) -> list[OpRow]:
    """Return one row per device and op, longest first.

    `placement` and `precision` are those of most of its time (of its matrix time, where it has any);
    `tensor_core_ratio` is of its matrix time, None where it has none, where it could not be told and for ops
    that ran on the host.
    `eligible` says of its matrix work whether it "did", "could", "could_never" use Tensor Cores or "unknown",
    and `eligible_reason` {code, text} why; both None for an op without any. The rates (`rates.summed`) are of
    its matrix kernels, where it has any. Kernels of no known op stand in one row with `op` None. With
    `by_stream` there is a row per stream. `known` is what the run adds to the trace.
    """
    table, known = trace.kernels, known or setting(trace)
    work = _work(trace, placements, ownership, [table.device, table.op], by_stream=by_stream, steps=steps)
    mix, parts, main = _mix(work), _parts(work, known), _main_matrix_rows(work)
    ratio = ratios(mix.total, work.device, len(trace.devices))
    return [
        _op_row(work, at, mix, float(ratio[at]), parts.get(at, ()), _eligibility(work, known, int(main[at])))
        for at in map(int, longest_first(work.device, mix.total))
    ]


def _op_row(
    work: _Work, at: int, mix: _Mix, ratio: float, parts: Sequence[Part], eligible: Eligibility
) -> OpRow:
    trace, ownership = work.trace, work.ownership
    op = int(trace.kernels.op[work.first[at]])
    rates = summed(parts) if op >= 0 else NO_RATE
    row: OpRow = {
        "device": work.plane(at),
        "op": trace.ops[op].name if op >= 0 else None,
        "type": (trace.ops[op].type or None) if op >= 0 else None,
        "layer": joined(ownership.layers_of(op)),
        "phase": ownership.phase_of(op),
        "calls": int(mix.calls[at]),
        "total_ns": int(mix.total[at]),
        "ratio": ratio,
        "matmul_ns": int(mix.matmul[at]),
        "tensor_core_ratio": mix.tensor_core_ratio(at),
        "placement": mix.main_placement(at),
        "precision": mix.main_precision(at),
        "placement_ns": _named(PLACEMENTS, mix.placement[at]),
        "precision_ns": _named(PRECISIONS, mix.precision[at]),
        **eligible,
        **rates,  # type: ignore[typeddict-item]  # might hold optional keys of a row, for all mypy knows
        "line": _line(trace, op),
    }
    if span := ownership.spans.get(op):
        row["spans"] = [{"layer": part.layer or None, "ratio": part.ratio} for part in span]
    if work.by_stream:
        row["stream"] = work.stream(at)
    return row


def layers(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
) -> list[LayerRow]:
    """Return one row per device and layer, longest first.

    Kernels that work for several layers stand in a row of these layers, "a, b (+1)" with all of them in
    `layers`, because nothing measures the part of each. `shared_ns` is the time of the rows of several that
    this layer has a part in: it is in no sum. `other_ns` is the layer's time in neither pass; `fused_ns` the
    part of `total_ns` in fused kernels that work for more than this layer. What no layer owns (the optimizer,
    the loss, copies, what is unknown) stands in one row with `layer` None.
    """
    table = trace.kernels
    names, owner_of_op = _owners(ownership)
    owner = np.where(table.op >= 0, lookup(owner_of_op, table.op), -1)
    work = _work(trace, placements, ownership, [table.device, owner], by_stream=by_stream, steps=steps)
    mix, times = _mix(work), _layer_times(work)
    ratio = ratios(mix.total, work.device, len(trace.devices))
    owners = owner[work.first].tolist()
    own = [names[index] if index >= 0 else () for index in owners]
    shared = _shared_ns(work, own, mix.total)
    facts = [ownership.facts[index] if 0 <= index < len(ownership.facts) else None for index in owners]
    return [
        _layer_row(work, at, own[at], facts[at], mix, float(ratio[at]), times, shared[at])
        for at in map(int, longest_first(work.device, mix.total))
    ]


def _layer_row(
    work: _Work,
    at: int,
    own: tuple[str, ...],
    facts: LayerFacts | None,
    mix: _Mix,
    ratio: float,
    times: _LayerTimes,
    shared_ns: int,
) -> LayerRow:
    forward, backward = int(times.forward[at]), int(times.backward[at])
    row: LayerRow = {
        "device": work.plane(at),
        "layer": joined(own),
        "class": facts.class_name if facts else None,
        "compute_dtype": facts.compute_dtype if facts else None,
        "calls": int(mix.calls[at]),
        "total_ns": int(mix.total[at]),
        "ratio": ratio,
        "forward_ns": forward,
        "backward_ns": backward,
        "other_ns": int(mix.total[at]) - forward - backward,
        "matmul_ns": int(mix.matmul[at]),
        "tensor_core_ratio": mix.tensor_core_ratio(at),
        "fused_ns": int(times.fused[at]),
        "shared_ns": shared_ns,
    }
    if len(own) > 1:
        row["layers"] = list(own)
    if work.by_stream:
        row["stream"] = work.stream(at)
    return row


@frozen
class _LayerTimes:
    """Of each row of the table of layers: its time by pass, and that of fused kernels of several layers."""

    forward: Int64
    backward: Int64
    fused: Int64


def _layer_times(work: _Work) -> _LayerTimes:
    op = work.trace.kernels.op[work.rows]
    phase = np.where(op >= 0, lookup(work.ownership.phase, op), PHASES.index("other"))
    spanning = np.zeros(len(work.trace.ops) + 1, np.bool_)  # op -1 finds the last
    spanning[list(work.ownership.spans)] = True
    by_phase = cross(work.group, phase, work.duration_ns, len(work), len(PHASES))
    fused = sums(work.group, np.where(spanning[op], work.duration_ns, 0), len(work))
    return _LayerTimes(by_phase[:, PHASES.index("forward")], by_phase[:, PHASES.index("backward")], fused)


def _shared_ns(work: _Work, own: Sequence[tuple[str, ...]], total: Int64) -> list[int]:
    """Return for each row of one layer the time of the rows of several, of its device and stream, that the
    layer has a part in."""
    lines = work.trace.kernels.stream[work.first] if work.by_stream else np.zeros(len(work), np.int32)
    places = list(zip(work.device.tolist(), lines.tolist(), strict=True))
    shared: dict[tuple[tuple[int, int], str], int] = defaultdict(int)
    for place, names, ns in zip(places, own, total.tolist(), strict=True):
        for name in names if len(names) > 1 else ():
            shared[place, name] += ns
    return [
        shared.get((place, names[0]), 0) if len(names) == 1 else 0
        for place, names in zip(places, own, strict=True)
    ]


def _owners(ownership: Ownership) -> tuple[list[tuple[str, ...]], Int32]:
    """Return the owners that rows are made of (each layer and each set of several), and the owner of every op
    (-1: none)."""
    names = [(layer,) for layer in ownership.layers]
    owner = ownership.layer.copy()
    several: dict[tuple[str, ...], int] = {}
    for op in ownership.spans:
        if len(layers := ownership.layers_of(op)) > 1:
            owner[op] = several.setdefault(layers, len(names) + len(several))
    return [*names, *several], owner


# --- which intervals ---------------------------------------------------------------------------------------


ALL_STEPS = (-1, 1 << 62)
"""Every whole step, with or without a number."""


def _work(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    columns: Sequence[NDArray[np.integer[Any]]],
    *,
    by_stream: bool,
    steps: tuple[int, int] | None,
) -> _Work:
    """Return the intervals of these steps, with a row of the table for each combination of values in
    `columns`, which have an entry for each of `Trace.kernels`."""
    table = trace.kernels
    rows = np.arange(len(table)) if steps is None else _rows_of_steps(trace, *steps)
    by = [*columns, *([table.stream] if by_stream else [])]
    group, first = groups([column[rows] for column in by], len(rows))
    verdict = placements.index[rows].astype(np.int64)
    return _Work(
        trace, placements, ownership, by_stream, rows, table.duration_ns[rows], verdict, group, rows[first]
    )


def _rows_of_steps(trace: Trace, first: int, last: int) -> Int64:
    from mpprof.analysis.steps.boundaries import periods

    kernels, chosen = trace.kernels, np.zeros(len(trace.kernels), np.bool_)
    found: set[int] = set()
    for device in range(len(trace.devices)):
        whole = periods(trace, device)
        found |= {int(number) for number in whole.number}
        wanted = (whole.number >= first) & (whole.number <= last)
        if whole.work is not None:
            chosen[whole.work.of(wanted).row] = True
            continue
        for start, end in zip(whole.start_ns[wanted], whole.end_ns[wanted], strict=True):
            chosen |= (kernels.device == device) & (kernels.start_ns >= start) & (kernels.start_ns < end)
    if not chosen.any():
        if (first, last) == ALL_STEPS:
            raise UsageError(
                "no work was launched in the ranges that make the steps",
                where=str(trace.source.path),
                next="Choose ranges around launches, or leave --step-range out",
            )
        held = f"whole steps {min(found)} to {max(found)}" if found - {-1} else "no numbered whole step"
        raise UsageError(
            f"no work in steps {first} to {last}: the trace holds {held}",
            where=str(trace.source.path),
            next="Choose steps within the profile window, or leave them out",
        )
    return np.flatnonzero(chosen)


def _name(trace: Trace, kernel: int) -> str:
    kind = trace.kernels.kind[kernel]
    if kind == WorkKind.MEMCPY:
        return COPY_NAMES.get(CopyKind(int(trace.kernels.copy[kernel])), "Memcpy")
    return "Memset" if kind == WorkKind.MEMSET else trace.strings[trace.kernels.name[kernel]]


# --- eligibility and rates ---------------------------------------------------------------------------------


def _is_matmul(placements: Placements) -> Bool:
    """Return for each verdict whether it is of a matrix kernel itself, not of a helper."""
    return np.array(
        [v.family in MATMUL_FAMILIES and v.placement != "not_matmul" for v in placements.verdicts], np.bool_
    )


def _parts(work: _Work, known: Setting) -> dict[int, list[Part]]:
    """Return the kernels of each row of the table by verdict and shapes: of an op with matrix kernels these
    alone, because its shapes are theirs."""
    trace, table, group = work.trace, work.trace.kernels, work.group
    pair, first = groups([group, work.verdict, table.op[work.rows], table.shapes[work.rows]], len(work.rows))
    calls, total = np.bincount(pair, minlength=len(first)), sums(pair, work.duration_ns, len(first))
    matrix = _is_matmul(work.placements)[work.verdict[first]] if len(first) else np.zeros(0, np.bool_)
    with_matrix = set(table.op[work.rows[first[matrix]]].tolist()) - {-1}
    found: dict[int, list[Part]] = {}
    for at, row in enumerate(first.tolist()):
        owner, kernel = int(group[row]), int(work.rows[row])
        op, shapes = int(table.op[kernel]), int(table.shapes[kernel])
        if table.kind[kernel] != WorkKind.KERNEL or (op in with_matrix and not matrix[at]):
            continue
        made = part(
            trace.ops[op] if op >= 0 else None,
            trace.strings[shapes] if shapes >= 0 else "",
            work.placements.verdicts[work.verdict[row]],
            calls=int(calls[at]),
            total_ns=int(total[at]),
            layer=_layer_facts(work.ownership, op),
            batch=known.batch,
            peaks=known.of(int(table.device[kernel]))[0],
        )
        found.setdefault(owner, []).append(made)
    return found


def _layer_facts(ownership: Ownership, op: int) -> LayerFacts | None:
    layer = int(ownership.layer[op]) if 0 <= op < len(ownership.layer) else -1
    return ownership.facts[layer] if 0 <= layer < len(ownership.facts) else None


def _main_matrix_rows(work: _Work) -> Int64:
    """Return for each row of the table the row of `Trace.kernels` whose verdict has most of its matrix time,
    the first by its words where several have; -1 for one without matrix kernels."""
    placements, group = work.placements, work.group
    main = np.full(len(work), -1, np.int64)
    pair, first = groups([group, work.verdict], len(group))
    if not len(first):
        return main
    total = sums(pair, work.duration_ns, len(first))
    matrix = np.flatnonzero(_is_matmul(placements)[work.verdict[first]])
    said = [(v.placement, v.precision, v.reason.code, v.reason.text) for v in placements.verdicts]
    later = np.empty(len(said), np.int64)  # what is written last stays
    later[sorted(range(len(said)), key=said.__getitem__, reverse=True)] = np.arange(len(said))
    for at in matrix[np.lexsort((later[work.verdict[first[matrix]]], total[matrix]))].tolist():
        main[group[first[at]]] = work.rows[first[at]]
    return main


def _eligibility(work: _Work, known: Setting, kernel: int) -> Eligibility:
    """Return whether the matrix work of `kernel` could use Tensor Cores (-1: there is no such work)."""
    if kernel < 0:
        return {"eligible": None, "eligible_reason": None}
    trace, table = work.trace, work.trace.kernels
    op, shapes = int(table.op[kernel]), int(table.shapes[kernel])
    return eligibility(
        trace.ops[op] if op >= 0 else None,
        trace.strings[shapes] if shapes >= 0 else "",
        work.placements.verdicts[work.placements.index[kernel]],
        _layer_facts(work.ownership, op),
        known.of(int(table.device[kernel]))[1],
        known,
    )


# --- what ran where, per row -------------------------------------------------------------------------------


@frozen
class _Mix:
    """Per row of the table: calls and time. A second axis is that of PLACEMENTS or PRECISIONS."""

    calls: Int64
    total: Int64
    matmul: Int64
    placement: Int64
    precision: Int64
    matmul_placement: Int64
    matmul_precision: Int64
    on_host: bool  # ops of the host's threads: no device that could have matrix units was traced

    def tensor_core_ratio(self, at: int) -> float | None:
        if self.on_host:
            return None
        told = int(self.matmul[at] - self.matmul_placement[at, PLACEMENTS.index("unknown")])
        if told <= 0:
            return None
        return sum(int(self.matmul_placement[at, PLACEMENTS.index(p)]) for p in ACCELERATED) / int(
            self.matmul[at]
        )

    def main_placement(self, at: int) -> Placement:
        times = self.matmul_placement if self.matmul[at] else self.placement
        return PLACEMENTS[int(times[at].argmax())]

    def main_precision(self, at: int) -> Precision:
        times = self.matmul_precision if self.matmul[at] else self.precision
        return PRECISIONS[int(times[at].argmax())]


def _mix(work: _Work) -> _Mix:
    verdicts, group, count = work.placements.verdicts, work.group, len(work)
    placement = np.array([PLACEMENTS.index(v.placement) for v in verdicts], np.int64)
    precision = np.array([PRECISIONS.index(v.precision) for v in verdicts], np.int64)
    is_matmul = _is_matmul(work.placements)
    matmul_ns = np.where(is_matmul[work.verdict], work.duration_ns, 0)
    sizes = (len(PLACEMENTS), len(PRECISIONS))
    keys = (placement[work.verdict], precision[work.verdict])
    by = [cross(group, key, work.duration_ns, count, size) for key, size in zip(keys, sizes, strict=True)]
    matmul_by = [cross(group, key, matmul_ns, count, size) for key, size in zip(keys, sizes, strict=True)]
    return _Mix(
        calls=np.bincount(group, minlength=count),
        total=sums(group, work.duration_ns, count),
        matmul=sums(group, matmul_ns, count),
        placement=by[0],
        precision=by[1],
        matmul_placement=matmul_by[0],
        matmul_precision=matmul_by[1],
        on_host=work.trace.basis == "host",
    )


def _named(names: Sequence[_Name], values: Int64) -> dict[_Name, int]:
    return {name: int(value) for name, value in zip(names, values, strict=True) if value}
