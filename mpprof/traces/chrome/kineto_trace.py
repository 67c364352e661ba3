"""A trace from what was collected of a Kineto file: devices, kernels, launches, steps, memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from mpprof.model import limits
from mpprof.model.arrays import Bool, Int32, Int64
from mpprof.model.device import DeviceFacts
from mpprof.model.trace import (
    CopyKind,
    HostKind,
    HostTable,
    KernelTable,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
    WorkKind,
)  # fmt: skip
from mpprof.traces.chrome import kineto_host as hosts
from mpprof.traces.chrome.kineto import (
    ARROWS,
    COUNTER_RANGES,
    Collected,
    clean,
    device_facts,
    is_rocm,
    number_threads,
    whole,
)
from mpprof.traces.common import columns
from mpprof.traces.common.columns import constant
from mpprof.traces.common.launches import join_launches, take
from mpprof.traces.common.names import copy_kind


def assemble(found: Collected, header: dict[str, Any], source: TraceSource) -> Trace:
    """Return the trace, its times counted from its first event. Without a device, its kernels are the host's
    ops that do the work (basis "host"). The trace has no events where the file had none that a profiler
    writes."""
    number_threads(found)
    zero = min((*found.work.start_ns, *found.host.start_ns), default=0)
    ops = hosts.Ops()
    nested = hosts.nest(found.host, ops, found.strings)
    host = hosts.host_table(found, nested)
    host = replace(host, start_ns=host.start_ns - zero)
    side = _device_side(found, header, zero)
    on_cpu = not found.work.kind and _ran_on_cpu(found, host)
    devices, streams, kernels = () if on_cpu else side.devices, side.streams, side.kernels
    basis = "device" if devices else "host"
    unjoined: tuple[str, ...] = ()
    if devices:
        joined = join_launches(side.kernels, host, found.strings)
        host, unjoined = replace(host, kind=joined.kinds), joined.warnings
        kernels = _with_shapes(_with_ops(joined.kernels, side.external, found, nested), host)
    else:
        devices = (TraceDevice("/host:CPU", 0, DeviceFacts(kind="cpu")),)
        kernels, streams = _host_side(host, found.strings.texts())
    marks = hosts.markers(found, host, devices, zero)
    memory = hosts.allocations(found, nested, zero)
    return Trace(
        source=source,
        origin_unix_ns=_origin(header, zero),
        devices=devices,
        streams=streams,
        threads=tuple(found.thread_names.get(key) or clean(f"thread {key[1]}") for key in found.threads),
        ops=ops.table(),
        kernels=kernels,
        host=host,
        markers=marks,
        allocations=memory,
        basis=basis,
        strings=found.strings.texts(),
        warnings=(*_warnings(found, kernels, basis), *unjoined),
        missing=_missing(found, nested, basis, len(marks), len(memory)),
        notes=_of_idle_cards(side.devices) if on_cpu else (),
    )


_OF_CPU = re.compile(r"^aten::_?(mkldnn|nnpack|slow_conv|thnn_conv|onednn)")
"""Ops that PyTorch runs on a CPU alone."""


def _ran_on_cpu(found: Collected, host: HostTable) -> bool:
    """Return whether ops ran and nothing was launched: the trace has other calls of the driver's runtime, or
    ops that only a CPU has. Without either the calls themselves may not have been recorded."""
    if not (host.kind == HostKind.OP).any() or np.isin(host.kind, (HostKind.LAUNCH, HostKind.COPY)).any():
        return False
    texts = found.strings.texts()
    called = "call" in found.host.what
    return called or any(
        what == "op" and _OF_CPU.match(texts[row])
        for what, row in zip(found.host.what, found.host.name, strict=True)
    )


def _of_idle_cards(devices: tuple[TraceDevice, ...]) -> tuple[str, ...]:
    """Return what is to be said of cards that are in the machine and were given no work."""
    names = sorted({device.facts.name or "a GPU" for device in devices})
    if not names:
        return ()
    return (
        f"the machine has {' and '.join(names)}, but nothing was launched there: the ops ran on the CPU "
        '(.to("cuda") is missing, or this build of PyTorch has no CUDA)',
    )


def _origin(header: dict[str, Any], zero: int) -> int | None:
    base = whole(header.get("baseTimeNanoseconds"))
    if base > 0:
        return limits.unix_ns(base + zero)
    return limits.unix_ns(zero)


@dataclass(frozen=True, slots=True)
class _Devices:
    devices: tuple[TraceDevice, ...]
    streams: tuple[Stream, ...]
    kernels: KernelTable
    external: Int64  # per kernel: its external id


def _cards(header: dict[str, Any], used: list[int], found: Collected) -> tuple[TraceDevice, ...]:
    """Return the cards that were used, all that are listed where none was; one that is unknown where arrows
    lead to a device whose events are not read (seen: MTIA).

    Where one was used and another one alone is listed, they are the same: a process sees its card as 0.
    """
    facts = device_facts(header)
    unlisted = DeviceFacts(kind="gpu", vendor="amd" if is_rocm(header) else "unknown")
    if len(used) == len(facts) == 1:
        unlisted = next(iter(facts.values()))
    foreign = [0] if found.launches and _others(found) else []
    return tuple(
        TraceDevice(f"/device:GPU:{one}", one, facts.get(one, unlisted))
        for one in used or sorted(facts) or foreign
    )


def _device_side(found: Collected, header: dict[str, Any], zero: int) -> _Devices:
    """Return the cards, their streams, and what ran there."""
    rows = found.work
    number = np.array(rows.device, np.int64)
    devices = _cards(header, np.unique(number).tolist(), found)
    shown = [card.ordinal for card in devices]
    device = np.searchsorted(np.array(shown, np.int64), number).astype(np.int32)
    of_file = np.array(rows.stream, np.int64)
    pairs = sorted(set(zip(device.tolist(), of_file.tolist(), strict=True)))
    streams = tuple(Stream(at, stream, f"stream {stream}") for at, stream in pairs)
    row_of = {pair: row for row, pair in enumerate(pairs)}
    n = len(number)
    texts = found.strings.texts()
    copies = {row: copy_kind(texts[row].replace(" ", "")) for row in set(rows.name)}
    kind = np.array(rows.kind, np.int8)
    copy = np.array([copies[row] for row in rows.name], np.int8)
    table = KernelTable(
        device=device,
        stream=np.array(
            [row_of[pair] for pair in zip(device.tolist(), of_file.tolist(), strict=True)], np.int32
        ),
        start_ns=np.array(rows.start_ns, np.int64) - zero,
        duration_ns=np.array(rows.duration_ns, np.int64),
        kind=kind,
        name=np.array(rows.name, np.int32),
        op=np.full(n, -1, np.int32),
        correlation=np.array(rows.correlation, np.int64),
        launch=np.full(n, -1, np.int32),
        shapes=np.full(n, -1, np.int32),
        details=np.array(rows.details, np.int32),
        copy=np.where(kind == WorkKind.MEMCPY, copy, np.int8(CopyKind.NONE)),
        bytes=np.array(rows.bytes, np.int64),
        graph=np.array(rows.graph, np.int64),
        group=np.full(n, -1, np.int64),
    )
    order = np.lexsort((table.correlation, table.start_ns, table.device))
    return _Devices(devices, streams, take(table, order), np.array(rows.external, np.int64)[order])


def _with_ops(kernels: KernelTable, external: Int64, found: Collected, nested: hosts.Nest) -> KernelTable:
    """Return the kernels, where those without a known launch take the op that their external id names.

    Old versions write the correlation id there, which says nothing of the op, and an id of several ops names
    none. Kernels with a launch have the op around it, which is the innermost one.
    """
    rows = np.flatnonzero(np.array([what == "op" for what in found.host.what], np.bool_))
    ids, first, count = np.unique(
        np.array(found.host.external, np.int64)[rows], return_index=True, return_counts=True
    )
    by_id = columns.join(external, np.where(count == 1, ids, -1))
    usable = (by_id >= 0) & (kernels.launch < 0) & (external != kernels.correlation)
    op = kernels.op.copy()
    op[usable] = nested.op[rows[first[by_id[usable]]]]
    return replace(kernels, op=op)


def _with_shapes(kernels: KernelTable, host: HostTable) -> KernelTable:
    """Return the kernels with the shapes of the op around each kernel's launch."""
    of_host = np.append(_shapes(host), np.int32(-1))
    return replace(kernels, shapes=of_host[kernels.launch])  # launch -1 finds the last, which is -1


def _shapes(host: HostTable) -> Int32:
    assert host.shapes is not None  # Kineto's has them
    return host.shapes


def _host_side(host: HostTable, texts: tuple[str, ...]) -> tuple[KernelTable, tuple[Stream, ...]]:
    """Return the ops of each thread that do the work as kernels: this trace has no card."""
    rows = np.flatnonzero(host.kind == HostKind.OP)
    work = np.zeros(len(rows), np.bool_)
    thread = host.thread[rows]
    used = np.unique(thread)
    starts = np.flatnonzero(np.diff(thread, prepend=-1)).tolist()  # rows stand thread by thread
    for first, last in pairwise([*starts, len(rows)]):
        at = rows[first:last]
        names = [texts[name] for name in host.name[at].tolist()]
        work[first:last] = working(host.start_ns[at], host.duration_ns[at], names)
    rows = rows[work]
    n = len(rows)
    table = KernelTable(
        device=np.zeros(n, np.int32),
        stream=np.searchsorted(used, host.thread[rows]).astype(np.int32),
        start_ns=host.start_ns[rows],
        duration_ns=host.duration_ns[rows],
        kind=np.full(n, WorkKind.KERNEL, np.int8),
        name=host.name[rows],
        op=host.op[rows],
        correlation=constant(-1, n),
        launch=rows.astype(np.int32),
        shapes=_shapes(host)[rows],
        details=constant(-1, n, np.int32),
        copy=constant(CopyKind.NONE, n, np.int8),
        bytes=constant(-1, n),
        graph=constant(-1, n),
        group=constant(-1, n),
    )
    streams = tuple(Stream(0, one, f"thread {one}") for one in used.tolist())
    return take(table, np.argsort(table.start_ns, kind="stable")), streams


def _warnings(found: Collected, kernels: KernelTable, basis: str) -> list[str]:
    said = []
    if found.timeless:
        said.append(f"{found.timeless} events have no usable time or device and were left out")
    if found.negative:
        said.append(f"{found.negative} events have a negative duration, taken as 0")
    if found.unpaired:
        said.append(f"{found.unpaired} events state only a begin or an end (ph B, E) and were left out")
    if basis == "device":
        said += warnings(kernels)
    return said


_OF_NO_DEVICE = ARROWS | {"trace", "fwdbwd", "python_function", "gpu_user_annotation", ""}


def _others(found: Collected) -> list[str]:
    return sorted(set(found.unread) - _OF_NO_DEVICE)


def _other_events(found: Collected) -> str:
    """Return what a trace without kernels holds of a device's instead; empty where it holds nothing."""
    if COUNTER_RANGES in found.unread:
        return (
            f"the trace holds ranges of hardware counters ({COUNTER_RANGES}) and no kernels: profile once "
            "more without profiler metrics in experimental_config"
        )
    others = _others(found)
    return f"the trace holds no kernels, but events that are not read ({', '.join(others)})" if others else ""


def _missing(found: Collected, nested: hosts.Nest, basis: str, marks: int, memory: int) -> dict[str, str]:
    missing = {
        "hlo": "Kineto records no compiled programs",
        "clock": "Kineto states neither the card's clock nor its memory bandwidth",
    }
    if basis == "host":
        missing["device"] = "no accelerator in this trace: kernels are the host's ops"
    if basis == "device" and not found.work.kind and (other := _other_events(found)):
        missing["kernels"] = other
    if not memory:
        missing["allocations"] = "the trace holds no allocator events (profile with profile_memory=True)"
    if not marks:
        missing["markers"] = "no ProfilerStep marker (call profiler.step() after each step)"
    if not any(row >= 0 for row in found.host.shapes):
        missing["shapes"] = "no shapes and types of the ops' inputs (profile with record_shapes=True)"
    if not nested.modules:
        missing["layers"] = "no module frames (profile with with_stack=True)"
    return missing


# --- Which ops of a Kineto trace without a card are the work: what stands for kernels there.
#
# The innermost op is not always it. A product of matrices on the CPU contains views of its operands and the
# copy of its bias, a convolution the allocation of its result: the work is the outer op's own time. And the
# outer op is not it either where it only hands on, as `aten::linear` does to `aten::addmm`.


_OWN_RATIO = 0.5
"""An op does the work itself if at least so much of its time lies in none of the ops that it calls."""
_HELPER_NAMES = """
    aten::empty aten::empty_strided aten::empty_like aten::new_empty aten::new_empty_strided aten::resize_
    aten::resize_as_ aten::set_ aten::as_strided aten::as_strided_ aten::view aten::_unsafe_view
    aten::_reshape_alias aten::reshape aten::t aten::transpose aten::permute aten::expand aten::squeeze
    aten::unsqueeze aten::select aten::slice aten::narrow aten::detach detach aten::alias aten::lift_fresh
    aten::resolve_conj aten::resolve_neg aten::result_type aten::_nnpack_available aten::to
"""
_HELPERS = frozenset(_HELPER_NAMES.split())
"""Views, allocations and questions: they belong to the op that calls them."""
_HANDS_ON = ("autograd::engine::", "aten::to", "aten::_to_copy")
"""How the names of ops begin that leave all work to those they call, however little that is."""


def working(start_ns: Int64, duration_ns: Int64, names: Sequence[str]) -> Bool:
    """Return which ops of one thread, given by start and longest first, are the work. Of ops that are nested
    exactly one is, so their times do not overlap."""
    parent, called_ns = _nested(start_ns.tolist(), duration_ns.tolist(), names)
    covered = np.zeros(len(names), np.bool_)
    work = np.zeros(len(names), np.bool_)
    for row, name in enumerate(names):
        around = parent[row]
        covered[row] = around >= 0 and (covered[around] or work[around])
        if not covered[row]:
            own_ns = int(duration_ns[row]) - called_ns[row]
            alone = called_ns[row] == 0
            work[row] = alone or (own_ns >= _OWN_RATIO * int(duration_ns[row]) and not _hands_on(name))
    return work


def _hands_on(name: str) -> bool:
    return name.startswith(_HANDS_ON) or name.rstrip("0123456789").endswith("Backward")


def _nested(starts: list[int], durations: list[int], names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return for each op the row of the op around it (-1: none), and the time of the ops that it calls,
    without helpers that call nothing themselves."""
    parent, called_ns, calls = [-1] * len(names), [0] * len(names), [False] * len(names)
    stack: list[int] = []

    def leave(row: int) -> None:
        around = parent[row]
        if around >= 0 and (calls[row] or names[row] not in _HELPERS):
            called_ns[around] += durations[row]
            calls[around] = True

    for row, start in enumerate(starts):
        while stack and starts[stack[-1]] + durations[stack[-1]] <= start:
            leave(stack.pop())
        if stack:
            parent[row] = stack[-1]
        stack.append(row)
    while stack:
        leave(stack.pop())
    return parent, called_ns


# --- Kernels of one stream at the same time, which no card does: the file's times are wrong.

_ROUNDING_NS = 2_000
"""Old versions of Kineto write whole microseconds, so that two kernels may seem to meet by that much."""
_USUAL_RATIO = 0.01
"""A kernel may be launched to begin while the one before it ends (CUDA's programmatic dependent launch)."""


def warnings(kernels: KernelTable) -> list[str]:
    """Return a warning where more than 1 % of the kernels overlap the one before them on their stream by more
    than half of the shorter of the two, and an empty list otherwise. Graphs are not counted, because their
    branches run side by side."""
    rows = np.flatnonzero((kernels.kind == WorkKind.KERNEL) & (kernels.graph < 0))
    order = rows[np.lexsort((kernels.start_ns[rows], kernels.stream[rows]))]
    stream, start, duration = kernels.stream[order], kernels.start_ns[order], kernels.duration_ns[order]
    common = np.minimum(start[:-1] + duration[:-1] - start[1:], duration[1:])
    shorter = np.minimum(duration[:-1], duration[1:])
    beside = (stream[1:] == stream[:-1]) & (common > _ROUNDING_NS) & (2 * common > shorter)
    count = int(np.count_nonzero(beside))
    if count <= _USUAL_RATIO * len(rows):
        return []
    return [
        f"{count} of {len(rows)} kernels overlap the kernel before them on the same stream, which runs one "
        "at a time: their times cannot be right, and the time of overlapping kernels is shared among them"
    ]
