"""The tables of a trace: kernels, ops and layers, with their time and where they ran.

Rows are plain JSON types. Times are whole nanoseconds over the whole file, unless `steps` are given; `ratio`
is of all time that the rows of the same device hold, copies and memsets included, so that a device's ratios
sum to 1. Concurrent kernels count in full: these are sums of durations, not the account of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import cross, longest_first, lookup, ratios, sums
from mpprof.analysis.breakdown.rates import NO_RATE, Part, Setting, eligibility, part, setting, summed
from mpprof.analysis.layers.attribution import Ownership, joined
from mpprof.errors import UsageError
from mpprof.model.account import PHASES
from mpprof.model.frozen import frozen
from mpprof.model.grouping import groups
from mpprof.model.kernels import (
    ACCELERATED,
    MATMUL_FAMILIES,
    PLACEMENTS,
    PRECISIONS,
    Placement,
    Placements,
    Precision,
)
from mpprof.model.run import LayerFacts
from mpprof.model.trace import CopyKind, Trace, WorkKind

if TYPE_CHECKING:
    from mpprof.model.document import Eligibility, KernelRow, LayerRow, OpRow

_Name = TypeVar("_Name", bound=str)
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

COPY_NAMES = {
    CopyKind.HOST_TO_DEVICE: "MemcpyH2D",
    CopyKind.DEVICE_TO_HOST: "MemcpyD2H",
    CopyKind.DEVICE_TO_DEVICE: "MemcpyD2D",
    CopyKind.PEER: "MemcpyP2P",
}


@frozen
class _Work:
    """The intervals that a table is made of, one row each."""

    rows: Int64  # rows of Trace.kernels
    duration_ns: Int64
    verdict: Int64  # rows of Placements.verdicts


def kernels(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
    known: Setting | None = None,
) -> list[KernelRow]:
    """Return one row per device, kernel name, op and verdict (and stream): `{device, name, op, layer,
    placement, precision, family, reason: {code, text}, calls, total_ns, ratio, strength, flops_per_s}`, by
    device, longest first.

    Copies and memsets are rows named by their kind. `op` and `layer` are None where they are not known.
    `flops_per_s` is None where shapes do not tell; `known` is what the run adds to the trace for it.
    `steps`: first and last step, inclusive. Raises UsageError where the trace holds none of them.
    """
    table, work = trace.kernels, _work(trace, placements, steps)
    known = known or setting(trace)
    copy = np.where(table.kind == WorkKind.KERNEL, 0, 2 + table.copy.astype(np.int64))
    copy[table.kind == WorkKind.MEMSET] = 1
    name = np.where(copy == 0, table.name, 0)
    columns = [table.device, copy, name, table.op, placements.index]
    if by_stream:
        columns.append(table.stream)
    group, first = groups([column[work.rows] for column in columns], len(work.rows))
    calls = np.bincount(group, minlength=len(first))
    total = sums(group, work.duration_ns, len(first))
    device = table.device[work.rows[first]]
    ratio = ratios(total, device, len(trace.devices))
    parts = _parts(trace, placements, ownership, work, group, known)
    result: list[KernelRow] = []
    for at in longest_first(device, total):
        kernel = int(work.rows[first[at]])
        verdict = placements.verdicts[placements.index[kernel]]
        op = int(table.op[kernel])
        row: KernelRow = {
            "device": trace.devices[table.device[kernel]].plane,
            "name": _name(trace, kernel),
            "op": trace.ops[op].name if op >= 0 else None,
            "layer": joined(ownership.layers_of(op)),
            "placement": verdict.placement,
            "precision": verdict.precision,
            "family": verdict.family,
            "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
            "calls": int(calls[at]),
            "total_ns": int(total[at]),
            "ratio": float(ratio[at]),
            "strength": verdict.strength,
            "flops_per_s": summed(parts.get(int(at), ()))["flops_per_s"],
        }
        if by_stream:
            row["stream"] = trace.streams[table.stream[kernel]].name
        result.append(row)
    return result


def ops(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
    known: Setting | None = None,
) -> list[OpRow]:
    """Return one row per device and op: `{device, op, type, layer, phase, calls, total_ns, ratio, matmul_ns,
    tensor_core_ratio, placement, precision, placement_ns, precision_ns, eligible, eligible_reason,
    flops_per_call, bytes_per_call, flops_per_s, bytes_per_s, roofline_ratio, bound}`, longest first.

    `placement` and `precision` are those of most of its time (of its matrix time, where it has any);
    `tensor_core_ratio` is of its matrix time, None where it has none, where it could not be told and for ops
    that ran on the host.
    `eligible` says of its matrix work whether it "did", "could", "could_never" use Tensor Cores or "unknown",
    and `eligible_reason` {code, text} why; both None for an op without any. The rates (`rates.summed`) are of
    its matrix kernels, where it has any. Kernels of no known op stand in one row with `op` None. With
    `by_stream` there is a row per stream. `known` is what the run adds to the trace.
    """
    table, work = trace.kernels, _work(trace, placements, steps)
    known = known or setting(trace)
    columns = [table.device, table.op] + ([table.stream] if by_stream else [])
    group, first = groups([column[work.rows] for column in columns], len(work.rows))
    mix = _mix(trace, placements, work, group, len(first))
    device = table.device[work.rows[first]]
    ratio = ratios(mix.total, device, len(trace.devices))
    parts = _parts(trace, placements, ownership, work, group, known)
    main = _main_matrix_rows(placements, work, group, len(first))
    result: list[OpRow] = []
    for at in longest_first(device, mix.total):
        kernel = int(work.rows[first[at]])
        op = int(table.op[kernel])
        rates = summed(parts.get(int(at), ())) if op >= 0 else NO_RATE
        row: OpRow = {
            "device": trace.devices[table.device[kernel]].plane,
            "op": trace.ops[op].name if op >= 0 else None,
            "type": (trace.ops[op].type or None) if op >= 0 else None,
            "layer": joined(ownership.layers_of(op)),
            "phase": ownership.phase_of(op),
            "calls": int(mix.calls[at]),
            "total_ns": int(mix.total[at]),
            "ratio": float(ratio[at]),
            "matmul_ns": int(mix.matmul[at]),
            "tensor_core_ratio": mix.tensor_core_ratio(at),
            "placement": mix.main_placement(at),
            "precision": mix.main_precision(at),
            "placement_ns": _named(PLACEMENTS, mix.placement[at]),
            "precision_ns": _named(PRECISIONS, mix.precision[at]),
            **_eligibility(trace, placements, ownership, known, int(main[at])),
            **rates,  # type: ignore[typeddict-item]  # might hold optional keys of a row, for all mypy knows
        }
        if span := ownership.spans.get(op):
            row["spans"] = [{"layer": part.layer or None, "ratio": part.ratio} for part in span]
        if by_stream:
            row["stream"] = trace.streams[table.stream[kernel]].name
        result.append(row)
    return result


def layers(
    trace: Trace,
    placements: Placements,
    ownership: Ownership,
    *,
    by_stream: bool = False,
    steps: tuple[int, int] | None = None,
) -> list[LayerRow]:
    """Return one row per device and layer: `{device, layer, class, compute_dtype, calls, total_ns, ratio,
    forward_ns, backward_ns, other_ns, matmul_ns, tensor_core_ratio, fused_ns, shared_ns, layers}`, longest
    first.

    Kernels that work for several layers stand in a row of these layers, "a, b (+1)" with all of them in
    `layers`, because nothing measures the part of each. `shared_ns` is the time of the rows of several that
    this layer has a part in: it is in no sum. `other_ns` is the layer's time in neither pass; `fused_ns` the
    part of `total_ns` in fused kernels that work for more than this layer. What no layer owns (the optimizer,
    the loss, copies, what is unknown) stands in one row with `layer` None.
    """
    table, work = trace.kernels, _work(trace, placements, steps)
    op = table.op[work.rows]
    names, owner = _owners(ownership)
    layer = np.where(op >= 0, lookup(owner, op), -1)
    phase = np.where(op >= 0, lookup(ownership.phase, op), PHASES.index("other"))
    spanning = np.zeros(len(trace.ops) + 1, np.bool_)
    spanning[list(ownership.spans)] = True
    columns = [table.device[work.rows], layer] + ([table.stream[work.rows]] if by_stream else [])
    group, first = groups(columns, len(columns[0]))
    mix = _mix(trace, placements, work, group, len(first))
    by_phase = cross(group, phase, work.duration_ns, len(first), len(PHASES))
    fused = sums(group, np.where(spanning[op], work.duration_ns, 0), len(first))
    device = table.device[work.rows[first]]
    ratio = ratios(mix.total, device, len(trace.devices))
    shared: dict[tuple[int, int, str], int] = defaultdict(int)
    lines = table.stream[work.rows[first]] if by_stream else np.zeros(len(first), np.int32)
    for at, index in enumerate(layer[first].tolist()):
        for name in names[index] if index >= 0 and len(names[index]) > 1 else ():
            shared[int(device[at]), int(lines[at]), name] += int(mix.total[at])
    result: list[LayerRow] = []
    for at in longest_first(device, mix.total):
        kernel, index = int(work.rows[first[at]]), int(layer[first[at]])
        own = names[index] if index >= 0 else ()
        facts = ownership.facts[index] if 0 <= index < len(ownership.facts) else None
        forward, backward = (int(by_phase[at, PHASES.index(p)]) for p in ("forward", "backward"))
        row: LayerRow = {
            "device": trace.devices[table.device[kernel]].plane,
            "layer": joined(own),
            "class": facts.class_name if facts else None,
            "compute_dtype": facts.compute_dtype if facts else None,
            "calls": int(mix.calls[at]),
            "total_ns": int(mix.total[at]),
            "ratio": float(ratio[at]),
            "forward_ns": forward,
            "backward_ns": backward,
            "other_ns": int(mix.total[at]) - forward - backward,
            "matmul_ns": int(mix.matmul[at]),
            "tensor_core_ratio": mix.tensor_core_ratio(at),
            "fused_ns": int(fused[at]),
            "shared_ns": shared[int(device[at]), int(lines[at]), own[0]] if len(own) == 1 else 0,
        }
        if len(own) > 1:
            row["layers"] = list(own)
        if by_stream:
            row["stream"] = trace.streams[table.stream[kernel]].name
        result.append(row)
    return result


def _owners(ownership: Ownership) -> tuple[list[tuple[str, ...]], NDArray[np.int32]]:
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


def _work(trace: Trace, placements: Placements, steps: tuple[int, int] | None) -> _Work:
    rows = np.arange(len(trace.kernels)) if steps is None else _rows_of_steps(trace, *steps)
    return _Work(rows, trace.kernels.duration_ns[rows], placements.index[rows].astype(np.int64))


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


def _is_matmul(placements: Placements) -> NDArray[np.bool_]:
    """Return for each verdict whether it is of a matrix kernel itself, not of a helper."""
    return np.array(
        [v.family in MATMUL_FAMILIES and v.placement != "not_matmul" for v in placements.verdicts], np.bool_
    )


def _parts(
    trace: Trace, placements: Placements, ownership: Ownership, work: _Work, group: Int64, known: Setting
) -> dict[int, list[Part]]:
    """Return the kernels of each group by verdict and shapes: its matrix kernels, if it has any, else all of
    them."""
    table = trace.kernels
    pair, first = groups([group, work.verdict, table.op[work.rows], table.shapes[work.rows]], len(work.rows))
    calls, total = np.bincount(pair, minlength=len(first)), sums(pair, work.duration_ns, len(first))
    matrix = _is_matmul(placements)[work.verdict[first]] if len(first) else np.zeros(0, np.bool_)
    with_matrix = set(group[first[matrix]].tolist())
    found: dict[int, list[Part]] = {}
    for at, row in enumerate(first.tolist()):
        owner, kernel = int(group[row]), int(work.rows[row])
        if table.kind[kernel] != WorkKind.KERNEL or (owner in with_matrix and not matrix[at]):
            continue
        op, shapes = int(table.op[kernel]), int(table.shapes[kernel])
        made = part(
            trace.ops[op] if op >= 0 else None,
            trace.strings[shapes] if shapes >= 0 else "",
            placements.verdicts[work.verdict[row]],
            calls=int(calls[at]),
            total_ns=int(total[at]),
            layer=_layer_facts(ownership, op),
            batch=known.batch,
            peaks=known.of(int(table.device[kernel]))[0],
        )
        found.setdefault(owner, []).append(made)
    return found


def _layer_facts(ownership: Ownership, op: int) -> LayerFacts | None:
    layer = int(ownership.layer[op]) if 0 <= op < len(ownership.layer) else -1
    return ownership.facts[layer] if 0 <= layer < len(ownership.facts) else None


def _main_matrix_rows(placements: Placements, work: _Work, group: Int64, count: int) -> Int64:
    """Return for each group the row of `Trace.kernels` whose verdict has most of its matrix time, the first
    by its words where several have; -1 for a group without matrix kernels."""
    main = np.full(count, -1, np.int64)
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


def _eligibility(
    trace: Trace, placements: Placements, ownership: Ownership, known: Setting, kernel: int
) -> Eligibility:
    if kernel < 0:
        return {"eligible": None, "eligible_reason": None}
    table = trace.kernels
    op, shapes = int(table.op[kernel]), int(table.shapes[kernel])
    return eligibility(
        trace.ops[op] if op >= 0 else None,
        trace.strings[shapes] if shapes >= 0 else "",
        placements.verdicts[placements.index[kernel]],
        _layer_facts(ownership, op),
        known.of(int(table.device[kernel]))[1],
        known,
    )


# --- what ran where, per group -----------------------------------------------------------------------------


@frozen
class _Mix:
    """Per group: calls and time; the second axis of the tables is that of PLACEMENTS or PRECISIONS."""

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


def _mix(trace: Trace, placements: Placements, work: _Work, group: Int64, count: int) -> _Mix:
    verdicts = placements.verdicts
    placement = np.array([PLACEMENTS.index(v.placement) for v in verdicts], np.int64)
    precision = np.array([PRECISIONS.index(v.precision) for v in verdicts], np.int64)
    is_matmul = _is_matmul(placements)
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
        on_host=trace.basis == "host",
    )


def _named(names: Sequence[_Name], values: Int64) -> dict[_Name, int]:
    return {name: int(value) for name, value in zip(names, values, strict=True) if value}
