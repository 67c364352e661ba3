"""A trace without an accelerator: the executor's op events stand for kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mpprof.model.arrays import Int32, Int64, distinct
from mpprof.model.trace import CopyKind, HostKind, KernelTable, Op, Stream, WorkKind
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner, constant
from mpprof.traces.common.launches import take
from mpprof.traces.common.names import CALLS
from mpprof.traces.common.ops import Ops
from mpprof.traces.xspace.host_planes import Host

_HLO_CALLS = frozenset(("call", "while", "conditional", "fusion-call", "async-start", "async-done"))
"""HLO opcodes that only run other instructions."""


def kernels(
    host: Host, ops: Ops, strings: Interner, *, numbers: Sequence[int] = ()
) -> tuple[KernelTable, tuple[Stream, ...]]:
    """Return the leaf ops of the executor's threads as kernels, each such thread as a stream of its host.
    `numbers` has the host by thread; where it is empty, the device is 0.

    An op that holds another op on its thread is a call and is left out, so that nothing counts twice; so
    are ops that only call, hand over a value or wait for input. A thunk of XLA that ends on another
    thread (`end: …`) lasts until it ends there.
    """
    table = host.table
    listed = ops.table()
    works = np.array(
        [not re.match(CALLS, op.type) if op.hlo is None else op.type not in _HLO_CALLS for op in listed]
        + [False]
    )
    by_hlo = np.array([op.hlo is not None for op in listed] + [False])
    is_op = (table.op >= 0) & ((table.kind == HostKind.OP) | by_hlo[table.op])
    rows = np.flatnonzero(is_op)
    leaf = columns.leaves(table.start_ns[rows], table.duration_ns[rows], table.thread[rows])
    rows = rows[leaf & works[table.op[rows]]]
    used = distinct(table.thread[rows])
    device = np.array(numbers or [0] * len(host.threads), np.int32)
    streams = tuple(Stream(int(device[t]), host.thread_ids[t], host.threads[t]) for t in used.tolist())
    n = len(rows)
    kernel = KernelTable(
        device=device[table.thread[rows]],
        stream=np.searchsorted(used, table.thread[rows]).astype(np.int32),
        start_ns=table.start_ns[rows],
        duration_ns=_until_end(host, rows),
        kind=constant(WorkKind.KERNEL, n, np.int8),
        name=table.name[rows],
        op=table.op[rows],
        correlation=constant(-1, n),
        launch=_launches(host, rows, listed, strings),
        shapes=constant(-1, n, np.int32),
        details=constant(-1, n, np.int32),
        copy=constant(CopyKind.NONE, n, np.int8),
        bytes=constant(-1, n),
        graph=constant(-1, n),
        group=constant(-1, n),
    )
    return take(kernel, np.lexsort((kernel.start_ns, kernel.device))), streams


def _launches(host: Host, rows: Int64, ops: Sequence[Op], strings: Interner) -> Int32:
    """Return the host event that dispatched each kernel: the kernel's own event, except for JAX, which runs
    modules after the call.

    JAX's CPU client runs the calls of a function in the order they were made, and notes no link between
    the two. Where every instruction of a module ran exactly as often as its function was called, and none
    before its call, the k-th run belongs to the k-th call.
    """
    launch = rows.astype(np.int32)
    table, row_of = host.table, {text: row for row, text in enumerate(strings.texts())}
    modules = sorted({op.hlo.module for op in ops if op.hlo is not None})
    number = {module: i for i, module in enumerate(modules)}
    module_of = np.array([number[op.hlo.module] if op.hlo else -1 for op in ops] + [-1])[table.op[rows]]
    for module in modules:
        name = f"PjitFunction({module.removeprefix('jit_')})"
        if name not in row_of:
            continue
        calls = _outermost(host, np.flatnonzero(table.name == row_of[name]))
        calls = calls[np.argsort(table.start_ns[calls], kind="stable")]
        mine = np.flatnonzero(module_of == number[module])
        mine = mine[np.lexsort((table.start_ns[rows[mine]], table.op[rows[mine]]))]
        _, counts = np.unique(table.op[rows[mine]], return_counts=True)
        if not len(mine) or (counts != len(calls)).any():
            continue
        called = np.tile(calls, len(counts))
        if (table.start_ns[rows[mine]] >= table.start_ns[called]).all():
            launch[mine] = called
    return launch


def _outermost(host: Host, rows: Int64) -> Int64:
    """Return the events of one name that lie in no other event of that name; a call and its fast path have
    one name."""
    keep, last_thread, last_end = [], -1, -1
    table = host.table
    for row in rows.tolist():
        start, thread = int(table.start_ns[row]), int(table.thread[row])
        if thread != last_thread or start >= last_end:
            keep.append(row)
            last_thread, last_end = thread, start + int(table.duration_ns[row])
    return np.array(keep, np.int64)


def _until_end(host: Host, rows: Int64) -> Int64:
    """Return durations; asynchronous thunks last until the event that ends them."""
    duration = host.table.duration_ns[rows]
    if host.twins is None or not len(host.twins[1]):
        return duration
    producer, consumer, end = host.twins
    twin = columns.join(producer[rows], consumer)
    start = host.table.start_ns[rows]
    until = np.where(twin >= 0, end[twin] - start, 0)
    return np.maximum(duration, until)
