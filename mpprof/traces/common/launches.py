"""Launches: which host event enqueued a kernel, by correlation id."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Bool, Int8, Int32, Int64, distinct, groups
from mpprof.model.frozen import frozen
from mpprof.model.trace import CopyKind, HostKind, HostTable, KernelTable, WorkKind
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.names import copy_kind


def take(table: KernelTable, rows: NDArray[np.integer]) -> KernelTable:
    """Return these rows of a table."""
    return KernelTable(*(getattr(table, name)[rows] for name in columns.names(KernelTable)))


@frozen
class Hosts:
    """Which of several hosts in one file a device or a thread is of, -1 none: per row of `Trace.devices` and
    of `Trace.threads`. Correlation ids are a process' own: two hosts use the same."""

    of_device: Int64
    of_thread: Int64

    def keys(self, kernels: KernelTable, host: HostTable) -> tuple[Int64, Int64]:
        """Return correlation ids of kernels and host events that match only within a host."""
        if not self.of_device.any() and not self.of_thread.any():
            return kernels.correlation, host.correlation
        return (
            _apart(kernels.correlation, self.of_device[kernels.device]),
            _apart(host.correlation, self.of_thread[host.thread]),
        )


def _apart(correlation: Int64, number: Int64) -> Int64:
    small = correlation < 1 << 48  # a larger one is no id that CUPTI or a profiler gave
    apart = np.where((correlation >= 0) & small, correlation + (number << 48), correlation)
    return np.where(number >= 0, apart, -1)


@frozen
class Joined:
    """Kernels with their launches; `HostTable.kind` with the launches put right; and what was not joined."""

    kernels: KernelTable
    kinds: Int8
    warnings: tuple[str, ...] = ()


def join_launches(
    kernels: KernelTable, host: HostTable, strings: Interner, hosts: Hosts | None = None
) -> Joined:
    """Find the host event that enqueued each kernel, by correlation id.

    Newer collectors give the launch the kernel's own name, so a host event with a kernel's correlation id
    is a launch (or the enqueuing of a copy) whatever it is called. A kernel that names no op takes that of
    its launch or of the op event around it; a copy that does not state its direction takes it from the call
    that enqueued it; and what the launch of a graph enqueued ran in a graph. An id that several launches
    share tells nothing: which of them enqueued a kernel is not known then, and a warning says so.
    """
    keys, to = hosts.keys(kernels, host) if hosts else (kernels.correlation, host.correlation)
    texts = strings.texts()
    launch, shared = _calls(keys, to, host)
    launch[shared] = -1
    crowded = _crowded(kernels, launch, host.name, texts)
    launch[crowded] = -1
    warnings = _warnings(kernels.correlation, shared | crowded)
    rows = np.flatnonzero(launch >= 0)
    kinds = host.kind.copy()
    if not len(rows):
        return Joined(replace(kernels, launch=launch), kinds, warnings)
    at = launch[rows]
    copies = kernels.kind[rows] != WorkKind.KERNEL
    was = kinds.take(at)
    blocking = (was == HostKind.SYNC) | (was == HostKind.COPY)
    kinds[at] = np.where(blocking, was, np.where(copies, np.int8(HostKind.COPY), np.int8(HostKind.LAUNCH)))
    copy = kernels.copy
    unstated = rows[(copy[rows] == CopyKind.OTHER)]
    if len(unstated):
        copy = copy.copy()
        names = host.name[launch[unstated]]
        values = distinct(names)
        copy[unstated] = columns.replace(names, values, [copy_kind(texts[r]) for r in values], np.int8)
    op = kernels.op
    nameless = rows[op[rows] < 0]
    if len(nameless):
        op = op.copy()
        op[nameless] = _op_around(host, launch[nameless])
    graph = _graphs(kernels.graph, host.name, launch, rows, texts)
    return Joined(replace(kernels, launch=launch, copy=copy, op=op, graph=graph), kinds, warnings)


def _calls(keys: Int64, to: Int64, host: HostTable) -> tuple[Int32, Bool]:
    """Return for each key the row of the earliest event that has it, -1 where there is none, and whether
    several calls share it. A driver call within a runtime call is the same one.

    Of several events with one key, the order of the file's lines must not choose."""
    rows = np.flatnonzero(to >= 0)
    if not len(rows):
        return np.full(len(keys), -1, np.int32), np.zeros(len(keys), np.bool_)
    start = host.start_ns[rows]
    if (start[1:] < start[:-1]).any():
        rows = rows[np.argsort(start, kind="stable")]
    ids = to[rows]
    found = columns.join(keys, ids)
    launch = np.where(found >= 0, rows.take(found), -1).astype(np.int32)
    if (ids[1:] > ids[:-1]).all():  # given in the order of time: none comes twice
        return launch, np.zeros(len(keys), np.bool_)
    first = columns.join(ids, ids)
    again = np.flatnonzero(first != np.arange(len(ids)))
    outer, inner = rows[first[again]], rows[again]
    apart = host.start_ns[inner] > host.start_ns[outer] + host.duration_ns[outer]
    apart |= host.thread[inner] != host.thread[outer]
    several = np.zeros(len(ids), np.bool_)
    several[first[again[apart]]] = True
    return launch, (found >= 0) & several.take(found)


_MOST_OF_CALL = 4
"""Kernels that a call enqueues on one device: one with CUDA, two were seen with HIP (an MI300)."""


def _crowded(kernels: KernelTable, launch: Int32, names: Int32, texts: tuple[str, ...]) -> Bool:
    """Return which rows share their call with more kernels than one call enqueues, where no graph ran."""
    single = np.flatnonzero((launch >= 0) & (kernels.graph < 0) & (kernels.kind == WorkKind.KERNEL))
    enqueued = np.bincount(launch[single])
    if not (enqueued > _MOST_OF_CALL).any():
        return np.zeros(len(launch), np.bool_)
    many = single[enqueued[launch[single]] > _MOST_OF_CALL]
    many = many[~np.isin(names[launch[many]], _graph_launches(texts))]
    pair, first = groups([launch[many], kernels.device[many]], len(many))
    crowds = np.flatnonzero(np.bincount(pair, minlength=len(first)) > _MOST_OF_CALL)
    crowded = np.zeros(len(names) + 1, np.bool_)  # launch -1 finds the last
    crowded[launch[many[first[crowds]]]] = True
    return crowded[launch]


def _warnings(ids: Int64, shared: Bool) -> tuple[str, ...]:
    """Return what is said of kernels and copies whose correlation ids several launches share."""
    count = int(np.count_nonzero(shared))
    if not count:
        return ()
    _, first = groups([ids[shared]], count)
    return (
        f"{count} of {len(ids)} kernels and copies have a correlation id that several launches share "
        f"(ids: {len(first)}): which call launched them is not known, and steps count them by the time at "
        "which they ran. Record the trace again, or read the profiler's own file if this one was merged or "
        "rewritten",
    )


_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


def _graph_launches(texts: tuple[str, ...]) -> list[int]:
    """Return the rows of texts that name the launch of a graph."""
    return [row for row, text in enumerate(texts) if text.startswith(_GRAPH_LAUNCHES)]


def _graphs(graph: Int64, names: Int32, launch: Int32, rows: Int64, texts: tuple[str, ...]) -> Int64:
    """Return the graph of each kernel; 0, a graph of unknown number, where the launch alone tells that the
    kernel ran in one (Kineto before torch 2.0, TensorFlow before it wrote `cuda_graph_id`)."""
    telling = _graph_launches(texts)
    if not telling:
        return graph
    unstated = rows[graph[rows] < 0]
    graph = graph.copy()
    graph[unstated[np.isin(names[launch[unstated]], telling)]] = 0
    return graph


_DEPTH = 8
"""How many op events back the one around a launch is looked for."""


def _op_around(host: HostTable, rows: Int32) -> Int32:
    """Return the op of these host events, or of the innermost op event around them on the same thread."""
    found = host.op[rows].copy()
    candidates = np.flatnonzero((host.op >= 0) & np.isin(host.kind, (HostKind.OP, HostKind.EXECUTOR)))
    if not len(candidates):
        return found
    at = np.searchsorted(candidates, rows) - 1
    for _ in range(_DEPTH):
        row = candidates[np.maximum(at, 0)]
        around = (
            (found < 0)
            & (at >= 0)
            & (host.thread[row] == host.thread[rows])
            & (host.start_ns[row] + host.duration_ns[row] >= host.start_ns[rows])
        )
        found = np.where(around, host.op[row], found)
        at = at - 1
    return found.astype(np.int32)
