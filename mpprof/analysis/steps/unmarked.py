"""What tells steps where nothing marks them: whether a trace shows a training, and PyTorch's own ranges.

PyTorch puts a range `Optimizer.step#SGD.step` round each update of an optimizer, and, with `with_stack=True`,
a frame `nn.Module: Net_0` round each call of a module. Benchmarks name what is warm-up and what is measured:
`model|warmup|forward`, `model|measure|forward`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from mpprof.analysis.arrays.intervals import Intervals, row_around, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.model.arrays import Bool, Int64
from mpprof.model.trace import HostKind, Trace

UPDATE, MODULE_CALL = "Optimizer.step#", "nn.Module: "
_SAME_WORK = 0.9
"""Share of kernels that two steps have in common, in the median: a step that logs or saves has some more."""
_MOST_UPDATES = 4
"""A GAN updates two networks in a step; we know of no training that updates more than four."""
WORDS = (
    "ackward", "gradient", "transpose(jvp", "ptimizer", "ResourceApply", "dgrad", "wgrad", "bprop", "Adam",
    "SGD", "multi_tensor_apply",
)  # fmt: skip
"""What the names of a training's kernels and their ops hold at least one of: of its backward pass or of its
optimizer."""
WARM_UP = re.compile(r"(?<![a-z])warm(?:ing)?[-_ ]?up(?![a-z])", re.IGNORECASE)
_MEASURED = re.compile(r"(?<![a-z])measur(?:e|ed|ement|ing)(?![a-z])", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_LONGEST = 512
_OF_A_FRAMEWORK = (
    HostKind.OP,
    HostKind.EXECUTOR,
    HostKind.LAUNCH,
    HostKind.COPY,
    HostKind.SYNC,
    HostKind.CODE,
)
"""Events of a framework's or the driver's own."""
_NO_RANGE = (HostKind.OP, HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC, HostKind.CODE)


def trains(trace: Trace) -> bool:
    """Return whether a kernel, or the op that launched it, has a name of backward or optimizer work. Names of
    the host alone say less: compilers have passes called so, and a forward pass may prepare for a backward
    one."""
    names = (trace.strings[row] for row in np.unique(trace.kernels.name).tolist())
    ops = (trace.ops[row].name for row in np.unique(trace.kernels.op).tolist() if row >= 0)
    return any(word in text for text in (*names, *ops) for word in WORDS)


def updates(trace: Trace, threads: Bool | None) -> tuple[Int64, int]:
    """Return the rows of the host's events that are an optimizer's update, in order, on the thread that has
    most of them; and how many of them a step has. `threads`: which threads count; None: all."""
    rows = _on_one_thread(trace, _named(trace, UPDATE, threads))
    rows = _outermost(trace, rows)
    return rows, _updates_per_step(trace, rows) if len(rows) > 2 else 1


def module_calls(trace: Trace, threads: Bool | None) -> Int64:
    """Return the rows of the host's events that are calls of the one module which launched most of the work
    that has a known launch, of those that lie in no other module; empty where none launched half of it."""
    rows = _outermost(trace, _on_one_thread(trace, _named(trace, MODULE_CALL, threads)))
    kernels = np.flatnonzero(trace.kernels.launch >= 0)
    if not len(rows) or not len(kernels):
        return np.empty(0, np.int64)
    start, worked_ns = trace.host.start_ns[rows], trace.kernels.duration_ns[kernels]
    launched_ns = trace.host.start_ns[trace.kernels.launch[kernels]]
    call = row_around(start, start + trace.host.duration_ns[rows], launched_ns)
    name = trace.host.name[rows].astype(np.int64)
    held_ns = np.bincount(name[call[call >= 0]], worked_ns[call >= 0], int(name.max()) + 1)
    most = int(np.argmax(held_ns))
    return rows[name == most] if 2 * held_ns[most] >= worked_ns.sum() else np.empty(0, np.int64)


def _named(trace: Trace, begins: str, threads: Bool | None) -> Int64:
    named = np.array([text.startswith(begins) for text in trace.strings], np.bool_)
    rows = np.flatnonzero(named[trace.host.name]) if named.any() else np.empty(0, np.int64)
    rows = rows[~np.isin(trace.host.kind[rows], _NO_RANGE)]
    return rows if threads is None else rows[threads[trace.host.thread[rows]]]


def _on_one_thread(trace: Trace, rows: Int64) -> Int64:
    if not len(rows):
        return rows
    return np.asarray(rows[trace.host.thread[rows] == np.bincount(trace.host.thread[rows]).argmax()])


def _outermost(trace: Trace, rows: Int64) -> Int64:
    """Return which of these rows of one thread lie in no other one."""
    start = trace.host.start_ns[rows]
    reach = np.maximum.accumulate(start + trace.host.duration_ns[rows])
    return np.asarray(rows[np.append(True, start[1:] >= reach[:-1])]) if len(rows) else rows


def _updates_per_step(trace: Trace, rows: Int64) -> int:
    """Return after how many updates the work between them is the same again: two where two networks train in
    turn, or two optimizers share one; 1 where that is not clear. Several batches to an update are one
    step."""
    ends = trace.host.start_ns[rows] + trace.host.duration_ns[rows]
    kernels = np.flatnonzero(trace.kernels.launch >= 0)
    if not len(kernels):
        return 1
    step = np.searchsorted(ends, trace.host.start_ns[trace.kernels.launch[kernels]]) - 1
    kernels, step = kernels[(step >= 0) & (step < len(rows) - 1)], step[(step >= 0) & (step < len(rows) - 1)]
    names, name = np.unique(trace.kernels.name[kernels], return_inverse=True)
    if not len(names):
        return 1
    counts = np.bincount(step * len(names) + name, minlength=(len(rows) - 1) * len(names))
    counts = counts.reshape(-1, len(names))
    alike = [_in_common(counts, each) for each in range(1, min(_MOST_UPDATES, (len(rows) - 1) // 2) + 1)]
    enough = [each + 1 for each, common in enumerate(alike) if common >= _SAME_WORK]
    return enough[0] if enough else 1


def _in_common(counts: Int64, apart: int) -> float:
    """Return the median share of kernels that two updates at this distance have in common."""
    one, other = counts[:-apart], counts[apart:]
    whole = np.maximum(np.maximum(one, other).sum(axis=1), 1)
    return median(np.minimum(one, other).sum(axis=1) / whole)


# --- ranges that say warm-up and measured -----------------------------------------------------------------


def warm_up(trace: Trace) -> Intervals:
    """Return when any thread of the host was in a range that says warm-up; empty where no range does."""
    rows = _ranges_of_hosts(trace, lambda text: bool(WARM_UP.search(text)))
    start = trace.host.start_ns[rows]
    return union(start, start + trace.host.duration_ns[rows])


def measured(trace: Trace, threads: Bool | None) -> Int64:
    """Return the rows of the host's events that are the measured passes, by start: the innermost ranges that
    say so, on the thread that has most of them. Empty where no range says warm-up, so that nothing shows that
    the names tell passes apart, and where the innermost have several names (forward, backward), which are
    parts of a pass. `threads`: which threads count; None: all."""
    none = np.empty(0, np.int64)
    if not len(warm_up(trace)):
        return none
    host = trace.host
    rows = _ranges_of_hosts(trace, lambda text: bool(_MEASURED.search(text)) and not WARM_UP.search(text))
    if threads is not None:
        rows = rows[threads[host.thread[rows]]]
    if not len(rows):
        return none
    rows = rows[host.thread[rows] == np.bincount(host.thread[rows]).argmax()]
    start, end = host.start_ns[rows], host.start_ns[rows] + host.duration_ns[rows]
    order = np.lexsort((-end, start))
    innermost = np.append(start[order][1:] >= end[order][:-1], True)
    rows = rows[order[innermost]]
    names = {_DIGITS.sub("", trace.strings[name]) for name in np.unique(host.name[rows]).tolist()}
    return rows if len(names) == 1 else none


def _ranges_of_hosts(trace: Trace, named: Callable[[str], bool]) -> Int64:
    """Return the rows of the host's ranges whose name is `named` so; a Python tracer's frames (`$`) are no
    ranges."""
    texts = [not text.startswith("$") and named(text[:_LONGEST]) for text in trace.strings]
    rows = np.flatnonzero(np.array(texts, np.bool_)[trace.host.name]) if any(texts) else np.empty(0, np.int64)
    return rows[~np.isin(trace.host.kind[rows], _OF_A_FRAMEWORK)]
