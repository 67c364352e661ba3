"""The host intervals of a trace's steps: when the host was in each call of the training function.

The train function's own events come first. Where a trace has none (`run_eagerly`, a loop of the user's own, a
torch loop) the body of a step marker takes their place.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.intervals import EMPTY, Intervals, latest, row_around
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.layers import scopes
from mpprof.analysis.steps import unmarked
from mpprof.analysis.steps.unmarked import measured
from mpprof.model.arrays import Bool, Int64, distinct
from mpprof.model.frozen import frozen
from mpprof.model.trace import XLA_MODULE, HostKind, Trace

FUNCTIONS = ("function", "call")
"""Families of calls of the training function: Keras' own and JAX' jitted step; a `tf.function` of a
user's."""
FAMILIES = ("function", "mpprof", "call", "keras", "tensorflow", "jax")
"""Whose intervals are believed first. `steps_line` is no host interval: a converter derived it."""
OPTIMIZER = "optimizer"
"""From the end of an optimizer's update to the end of the next: PyTorch marks each update by itself."""
MODULE = "module"
"""Calls of the outermost module of a model that does not train."""
RANGE = "range"
"""Ranges that name the steps, as the user said or by their own words: then they are the only markers."""
NUMBERED = ("mpprof", "keras", "tensorflow", "jax")
"""Markers that number the calls in them."""

OF_TRAINING = ("mpprof", "keras")
"""Markers that stand round batches of a training alone, never of a validation."""
TRAINING_PHASES = frozenset(("backward", "optimizer", "loss_scale"))
"""Phases of ops that a validation does not have."""

_NEVER = np.iinfo(np.int64).min
_ROUNDING = 100
"""Markers that follow one another may overlap by a hundredth of the shorter one."""
_AMBIGUOUS = r"__inference_((?:one|multi)_step_on_iterator_\d+)$"
"""Keras 3 gives its compiled training and validation one name; the number tells that they are two functions
(`make_train_function` and `make_test_function` of keras/src/backend/tensorflow/trainer.py)."""


@frozen
class Calls:
    """Calls that follow one another on one thread; each is one step, or several of one execution.

    `number` is the step's number as `numbered` markers (a family) give it, -1 where none does. `marker_ns` is
    when that marker was entered; the call's own start where there is none. `validation`: when the host was in
    calls that only validate, which are not among the others. `notes`: what was left out or could not be
    told."""

    number: Int64
    start_ns: Int64
    end_ns: Int64
    family: str
    thread: int
    numbered: str
    marker_ns: Int64
    validation: Intervals = EMPTY
    notes: tuple[str, ...] = ()
    of: str = ""  # of what does not train: whose passes they are

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, time_ns: Int64) -> Int64:
        """Return the call around each time, -1 outside all of them."""
        return row_around(self.start_ns, self.end_ns, time_ns)


def threads_of(trace: Trace, device: int) -> Bool | None:
    """Return which threads are of the host that launches the work of this device; None where all are."""
    hosts = np.array(trace.thread_hosts or (0,) * len(trace.threads), np.int64)
    own = hosts == trace.devices[device].host if device < len(trace.devices) else hosts == 0
    return None if own.all() else own


def calls(trace: Trace, device: int = 0) -> Calls | None:
    """Return the calls by the thread that trains with this device: of the first family that has any, on the
    thread of its host that has most, the outermost where they nest; without any marker, the passes that
    ranges name measured, else the updates of PyTorch's optimizers, else the calls of the outermost module of
    a model that does not train. None without host intervals."""
    table = trace.markers
    own = threads_of(trace, device)
    families = np.array([trace.strings[row] if row >= 0 else "" for row in table.family.tolist()], object)
    families[np.array([family.startswith(XLA_MODULE) for family in families.tolist()], np.bool_)] = ""
    others = sorted({f for f in families.tolist() if f not in (*FAMILIES, "steps_line", "")})
    for family in (*FAMILIES, *others):
        rows = np.flatnonzero(families == family)
        if own is not None:
            rows = rows[(table.thread[rows] >= 0) & own[table.thread[rows]]]
        if not len(rows):
            continue
        thread = _training_thread(trace, device, rows, by_launches=family == RANGE)
        rows = rows[table.thread[rows] == thread]
        kept, end = in_turn(table.start_ns[rows], table.end_ns[rows])
        rows = rows[kept]
        start = table.start_ns[rows]
        if family not in FUNCTIONS:
            return Calls(table.number[rows], start, end, family, thread, family, start)
        found = Calls(table.number[rows], start, end, family, thread, "", start)
        return _with_fetch(trace, _without_validation(trace, _numbered(trace, families, found)))
    if (families != "").any():
        return None
    return _measured(trace, own) or _updates(trace, own) or _passes(trace, own)


def _measured(trace: Trace, threads: Bool | None) -> Calls | None:
    """Return the passes that ranges name measured, where others are named warm-up; None where none are."""
    host, rows = trace.host, measured(trace, threads)
    if not len(rows):
        return None
    start = host.start_ns[rows]
    name = trace.strings[host.name[rows[0]]]
    note = f"no step markers: steps are the ranges that say measured ({name}), not those that say warm-up"
    return Calls(
        np.full(len(rows), -1, np.int64), start, start + host.duration_ns[rows], RANGE,
        int(host.thread[rows[0]]), "", start, notes=(note,), of="" if unmarked.trains(trace) else name,
    )  # fmt: skip


def _updates(trace: Trace, threads: Bool | None) -> Calls | None:
    """Return the steps from the end of an optimizer's update to the end of the next; None for fewer than two
    updates. What comes before the first belongs to a step whose beginning nothing shows."""
    rows, each = unmarked.updates(trace, threads)
    host, rows = trace.host, rows[::each]
    if len(rows) < 2:
        return None
    end = host.start_ns[rows] + host.duration_ns[rows]
    name = trace.strings[host.name[rows[0]]]
    note = f"no step markers: a step is from the end of an update ({name}) to the end of the next"
    if each > 1:
        note = f"no step markers: a step has {each} updates ({name}), after which its work is the same again"
    return Calls(
        np.full(len(rows) - 1, -1, np.int64), end[:-1], end[1:], OPTIMIZER, int(host.thread[rows[0]]), "",
        end[:-1], notes=(f"{note}; what comes before the first is left out",),
    )  # fmt: skip


def _passes(trace: Trace, threads: Bool | None) -> Calls | None:
    """Return the calls of the outermost module in which most was launched; None for a training, where such a
    call is only the forward part, and if no module is in the trace."""
    rows = unmarked.module_calls(trace, threads)
    if not len(rows) or unmarked.trains(trace):
        return None
    host, start = trace.host, trace.host.start_ns[rows]
    name = trace.strings[host.name[rows[0]]].removeprefix(unmarked.MODULE_CALL)
    return Calls(
        np.full(len(rows), -1, np.int64), start, start + host.duration_ns[rows], MODULE,
        int(host.thread[rows[0]]), "", start, of=name,
    )  # fmt: skip


def _training_thread(trace: Trace, device: int, rows: Int64, *, by_launches: bool) -> int:
    """Return the thread with most of these markers, for ranges the one that launches most of the device's
    work; where several threads are equal, the other count decides, then the first thread to mark."""
    of_thread = trace.markers.thread[rows]
    threads, first, counts = np.unique(of_thread, return_index=True, return_counts=True)
    if len(threads) == 1:
        return int(threads[0])
    launch = trace.kernels.launch[(trace.kernels.device == device) & (trace.kernels.launch >= 0)]
    launched = np.zeros(len(threads), np.int64)
    if threads[0] >= 0:
        launched = np.bincount(trace.host.thread[launch], minlength=len(trace.threads))[threads]
    order = (launched, counts) if by_launches else (counts, launched)
    start, end = trace.markers.start_ns[rows[first]], trace.markers.end_ns[rows[first]]
    return int(threads[np.lexsort((end, start, -order[1], -order[0]))[0]])


def outermost(start: Int64, end: Int64) -> Bool:
    """Return which of these intervals, sorted by start, lie in no other one."""
    reach = np.maximum.accumulate(end)
    return np.concatenate([[True], start[1:] >= reach[:-1]]) if len(start) else np.empty(0, np.bool_)


def in_turn(start: Int64, end: Int64) -> tuple[Bool, Int64]:
    """Return which of these intervals, sorted by start, lie in no other one, and where each of those ends:
    where the next begins, if that is a rounding earlier than it says."""
    if not len(start):
        return np.empty(0, np.bool_), end
    rounding = np.minimum((end - start)[1:], (end - start)[:-1]) // _ROUNDING
    kept = np.concatenate([[True], start[1:] >= np.maximum.accumulate(end)[:-1] - rounding])
    return kept, np.minimum(end[kept], np.append(start[kept][1:], np.iinfo(np.int64).max))


def _numbered(trace: Trace, families: NDArray[np.object_], found: Calls) -> Calls:
    """Return the calls with the numbers of the step markers that they lie in."""
    table = trace.markers
    for family in NUMBERED:
        rows = np.flatnonzero((families == family) & (table.thread == found.thread) & (table.number >= 0))
        rows = rows[outermost(table.start_ns[rows], table.end_ns[rows])]
        if not len(rows):
            continue
        at = row_around(table.start_ns[rows], table.end_ns[rows], found.start_ns)
        row, inside = rows[at], at >= 0
        if inside.any():
            number = np.where(inside, table.number[row], -1)
            marker_ns = np.where(inside, table.start_ns[row], found.start_ns)
            return replace(found, number=number, numbered=family, marker_ns=marker_ns)
    return found


def _without_validation(trace: Trace, found: Calls) -> Calls:
    """Return the calls that train. A compiled function only validates where another one trains and it does
    not: the markers of a training show this, else ops of gradients and of the optimizer."""
    names, function = _functions(trace, found)
    if not names:
        return found
    trains = _marked(found, function, len(names))
    if trains is None:
        trains = _with_gradients(trace, found, function, len(names))
    if trains is None:
        said = (
            "nothing shows whether calls of these functions train or validate, and all were taken as steps: "
        )
        return replace(found, notes=(said + ", ".join(names),))
    validates = (function >= 0) & ~trains[np.maximum(function, 0)]
    if not validates.any():
        return found
    which = ", ".join(name for row, name in enumerate(names) if not trains[row])
    note = f"{int(validates.sum())} of {len(found)} calls left out: validation ({which})"
    kept = ~validates
    return replace(
        found, number=found.number[kept], start_ns=found.start_ns[kept], end_ns=found.end_ns[kept],
        marker_ns=found.marker_ns[kept], notes=(note,),
        validation=Intervals(found.start_ns[validates], found.end_ns[validates]),
    )  # fmt: skip


def _functions(trace: Trace, found: Calls) -> tuple[tuple[str, ...], Int64]:
    """Return the compiled functions of Keras 3 that the calls run, and each call's row among them, -1: not
    known."""
    host = trace.host
    row_of: dict[str, int] = {}
    of_text = np.full(len(trace.strings), -1, np.int64)
    for row, text in enumerate(trace.strings):
        match = re.search(_AMBIGUOUS, text) if "_step_on_iterator_" in text else None
        if match:
            of_text[row] = row_of.setdefault(match[1], len(row_of))
    function = np.full(len(found), -1, np.int64)
    if row_of:
        first, last = np.searchsorted(host.thread, [found.thread, found.thread + 1])
        rows = first + np.flatnonzero(of_text[host.name[first:last]] >= 0)
        call = found.at(host.start_ns[rows])
        function[call[call >= 0]] = of_text[host.name[rows[call >= 0]]]
    called = distinct(function[function >= 0])
    names = tuple(row_of)
    return tuple(names[row] for row in called.tolist()), np.where(
        function >= 0, np.searchsorted(called, function), -1
    )


def _marked(found: Calls, function: Int64, functions: int) -> Bool | None:
    """Return which functions ran under markers of a training; None where no call did."""
    if found.numbered not in OF_TRAINING:
        return None
    marked = np.bincount(function[(function >= 0) & (found.number >= 0)], minlength=functions)
    return np.asarray(marked > 0) if marked.any() else None


def _with_gradients(trace: Trace, found: Calls, function: Int64, functions: int) -> Bool | None:
    """Return which functions run ops of gradients or of the optimizer in at least half of their calls,
    counting calls that have named ops; a function without any named op may train. None where no function has
    such ops in so many calls."""
    kernels = trace.kernels
    rows = np.flatnonzero(kernels.op >= 0)
    launch = kernels.launch[rows]
    time_ns = kernels.start_ns[rows].copy()
    time_ns[launch >= 0] = trace.host.start_ns[launch[launch >= 0]]
    call = found.at(time_ns)
    rows, call = rows[call >= 0], call[call >= 0]
    training = np.array(
        [scopes.parse(op.name, op.type).phase in TRAINING_PHASES for op in trace.ops], np.bool_
    )
    named, updates = np.zeros(len(found), np.bool_), np.zeros(len(found), np.bool_)
    named[call] = True
    updates[call[training[kernels.op[rows]]]] = True
    known = named & (function >= 0)
    calls_of = np.bincount(function[known], minlength=functions)
    updating = np.bincount(function[known & updates], minlength=functions)
    trains = np.asarray(2 * updating >= calls_of)
    return trains if (trains & (updating > 0)).any() else None


def _with_fetch(trace: Trace, found: Calls) -> Calls:
    """Return the calls with the fetch of their batch, where that stands right before them on their thread
    (JAX)."""
    host = trace.host
    first, last = np.searchsorted(host.thread, [found.thread, found.thread + 1])
    rows = first + np.flatnonzero(host.kind[first:last] == HostKind.INPUT)
    rows = rows[found.at(host.start_ns[rows]) < 0]
    rows = rows[outermost(host.start_ns[rows], host.start_ns[rows] + host.duration_ns[rows])]
    if not len(rows):
        return found
    at = latest(host.start_ns[rows], found.start_ns)
    fetched = host.start_ns[rows[np.maximum(at, 0)]]
    own = (at >= 0) & (fetched >= np.concatenate([[_NEVER], found.end_ns[:-1]]))
    return replace(found, start_ns=np.where(own, fetched, found.start_ns))


_FETCHES = frozenset(("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute"))


def steps_per_call(trace: Trace, found: Calls, devices: int = 1) -> int:
    """Return how many steps a call runs: one for each batch it fetches for each of the devices; at least
    1."""
    steps, rest = divmod(fetches_per_call(trace, found), max(1, devices))
    return steps if steps and not rest else 1


def fetches_per_call(trace: Trace, found: Calls) -> int:
    """Return how many batches a call fetches from its iterator, in the median; 0 where none is seen to."""
    fetching = np.array([text in _FETCHES for text in trace.strings], np.bool_)
    if not fetching.any():
        return 0
    call = found.at(trace.host.start_ns[fetching[trace.host.name]])
    return round(median(np.bincount(call[call >= 0], minlength=len(found))))
