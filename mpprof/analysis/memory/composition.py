"""What held an allocator's memory at its peak, and when: from the allocator's own events."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from mpprof.analysis.arrays.intervals import latest
from mpprof.analysis.layers.attribution import Ownership, joined
from mpprof.analysis.memory import assigned, block_kinds, held, remedies
from mpprof.analysis.memory import blocks as blocks_of
from mpprof.analysis.memory.assigned import ROUNDING, Labels, split
from mpprof.analysis.memory.block_kinds import BACKWARD, FORWARD, batch_of, phases_of
from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.analysis.steps.calls import Calls, calls
from mpprof.model.account import PHASES
from mpprof.model.arrays import Bool, Int32, Int64, distinct, groups
from mpprof.model.frozen import frozen
from mpprof.model.memory import (
    KINDS,
    UPDATE,
    By,
    HeldAcross,
    Kind,
    MemoryAccount,
    MemoryItem,
    PeakParts,
    Program,
    Tensor,
)
from mpprof.model.run import Run
from mpprof.model.trace import AllocationTable, Trace
from mpprof.tensors import HALF, WIDE, axes

# Which blocks are activations that nothing keeps, or gradients of activations: they hold a value for each
# example.
#
# A weight's gradient may have the batch as its first axis, too. It waits for the update: the op that lets go
# of it is the optimizer's. A gradient of an activation is used up in the backward pass.

_GRADIENTS, _PASSING = KINDS.index("gradients"), KINDS.index("other activations")
_UPDATE = [PHASES.index(name) for name in UPDATE]


@frozen
class Flowing:
    """`is_flow`: which blocks are activations that nothing keeps or their gradients. `is_open`: gradients
    that may be an activation's or a weight's, as far as the trace shows."""

    is_flow: Bool
    is_open: Bool


def flowing(
    trace: Trace, ownership: Ownership, blocks: Blocks, kind: Int64, batch: int | None, run: Run | None
) -> Flowing:
    """Return which blocks are activations or gradients of activations that pass; `kind` is each block's place
    in KINDS.

    What an op of the forward or backward pass lets go of is an activation's gradient. The result of another
    op (a sum, a reduction over devices) is one if it has more values than a recorded layer has parameters, or
    if no weight's gradient has its shape (where the trace shows these)."""
    shapes = trace.allocations.shapes[blocks.row]
    sizes = {row: axes(trace.strings[row]) for row in distinct(shapes).tolist() if row >= 0}
    of_batch = np.isin(shapes, [row for row, each in sizes.items() if each[:1] == (batch,)])
    most = _most_parameters(run)
    small = np.isin(shapes, [row for row, each in sizes.items() if most is None or math.prod(each) <= most])
    gradient = kind == _GRADIENTS
    phase = phases_of(ownership, _let_go_by(trace, blocks, gradient))
    of_weight = gradient & np.isin(phase, _UPDATE)
    passes = np.isin(phase, [FORWARD, BACKWARD])
    of_weights = distinct(shapes[of_weight])
    like_a_weight = np.isin(shapes, of_weights) if len(of_weights) else np.ones(len(blocks), np.bool_)
    is_open = gradient & of_batch & ~of_weight & ~passes & like_a_weight & small
    return Flowing(of_batch & ((kind == _PASSING) | (gradient & ~of_weight & ~is_open)), is_open)


def _most_parameters(run: Run | None) -> int | None:
    """Return the most values that a weight can have; None where no model is recorded."""
    model = run.model if run else None
    counts = [layer.parameters for layer in model.layers if layer.parameters] if model else []
    return max(counts, default=None)


def _let_go_by(trace: Trace, blocks: Blocks, which: Bool) -> Int32:
    """Return of the blocks in `which` the row of the op that let go of each, else -1.

    Where a free does not state its op it is the last that the freeing thread ran: TensorFlow's executor frees
    an op's inputs once the op ran."""
    table = trace.allocations
    found = np.full(len(blocks), -1, np.int32)
    ended = np.flatnonzero(which & (blocks.died != NEVER))
    row = blocks.rows[blocks.died[ended]]
    found[ended] = table.op[row]
    if table.thread is None or not len(ended):
        return found
    op = _ops_of_host(trace)
    begun, allocating = np.flatnonzero(op >= 0), np.flatnonzero(table.op >= 0)
    for thread in (each for each in distinct(table.thread[row]).tolist() if each >= 0):
        asked = ended[(table.thread[row] == thread) & (table.op[row] < 0)]
        when = table.time_ns[blocks.rows[blocks.died[asked]]]
        mine = begun[trace.host.thread[begun] == thread]
        ran_ns, ran = _last(trace.host.start_ns[mine], op[mine], when)
        mine = allocating[table.thread[allocating] == thread]
        took_ns, took = _last(table.time_ns[mine], table.op[mine], when)
        found[asked] = np.where(took_ns > ran_ns, took, ran)
    return found


def _ops_of_host(trace: Trace) -> Int32:
    """Return the op of each host event, of a launch that of its kernel; -1: of none."""
    op, kernels = trace.host.op.copy(), trace.kernels
    launched = np.flatnonzero((kernels.launch >= 0) & (kernels.op >= 0))
    op[kernels.launch[launched]] = kernels.op[launched]
    return op


def _last(time_ns: Int64, op: Int32, when: Int64) -> tuple[Int64, Int32]:
    """Return the time and op of the last of these at or before each moment; -1 where there is none."""
    at = latest(time_ns, when)
    return np.append(time_ns, -1)[at], np.append(op, np.int32(-1))[at]


UNKNOWN, BEFORE = held.UNKNOWN, held.BEFORE
_MOST_NAMES = 200
_MOST_TENSORS = 40
_MOST_HELD = 20


def at_peak(
    trace: Trace, ownership: Ownership, run: Run | None = None, programs: Sequence[Program] = ()
) -> MemoryAccount | None:
    """Return what was live when the fullest allocator held most, within the trace, and the course until then.

    A device's allocator goes before the host's. None where there are no events (`blocks.why_none` says
    which). The items of each `by` sum to `peak_bytes`. What no event tells is `unknown`. What is older than
    the trace is, in every division alike, the parameters and slots that `run` recorded or the trace tells of,
    marked as estimated, and the rest `held before the window`. What XLA took for one of `programs` is divided
    as its buffer assignment states, marked as assigned.
    """
    found = () if "allocations" in trace.missing else blocks_of.allocators(trace)
    if not found:
        return None
    mine, rows = found[0]
    table = trace.allocations
    blocks = blocks_of.blocks(table, rows)
    place = int(np.argmax(blocks.live_bytes))
    total = int(blocks.live_bytes[place])
    steps = calls(trace)
    labels = _labels(trace, ownership, blocks, steps, run)
    copies = labels.codes["kind"] == KINDS.index("16-bit weight copies")
    told = held.recorded(run) or held.variables(trace, ownership, blocks, copies)
    batch = batch_of(trace, ownership, blocks, run)
    inside = assigned.contents(trace, blocks, programs, run.model if run else None, batch)
    why_unassigned = _why(inside.why_not, blocks, blocks.live(place))
    blocks, labels = split(blocks, labels, inside.parts)
    live, before, lost = _live(blocks, place, total)
    estimated = _estimated(before, told)
    return MemoryAccount(
        peak_bytes=total,
        at_peak=_items(labels, blocks, live, total, before, estimated),
        allocator=mine.name,
        allocators=tuple(each for each, _ in found),
        peak_ns=int(table.time_ns[rows[place]]),
        rounding_bytes=_rounding(blocks, live),
        fragmentation_ratio=_fragmentation(table, int(rows[place])),
        tensors=_tensors(trace, labels, blocks, live),
        parts=None
        if lost
        else _parts(trace, ownership, labels, blocks, live, int(rows[place]), before, estimated, run),
        across_steps=_across(trace, labels, blocks, steps),
        course=held.course(
            blocks,
            table.time_ns[rows],
            {by: labels.marked(by) for by in ("kind", "dtype")},
            told.kinds if told else (),
        ),
        states_from=told.told_by if told and estimated else None,
        why_unassigned=why_unassigned,
    )


def _rounding(blocks: Blocks, live: Int64) -> int | None:
    """Return the bytes that these blocks hold beyond what was requested; None where that is not stated."""
    asked = blocks.asked[live]
    return int((blocks.bytes[live] - asked).sum()) if len(asked) and (asked >= 0).all() else None


def _fragmentation(table: AllocationTable, row: int) -> float | None:
    """Return what the allocator states at this event; None where it states nothing."""
    ratios = table.fragmentation_ratio
    ratio = float(ratios[row]) if ratios is not None else float("nan")
    return ratio if np.isfinite(ratio) else None


def _live(blocks: Blocks, place: int, total: int) -> tuple[Int64, int, bool]:
    """Return which blocks are live at this event, how many bytes are older than the trace, and whether frees
    were lost: then neither is known."""
    live = np.flatnonzero(blocks.live(place))
    known = int(blocks.bytes[live].sum())
    if known > total:
        return live[:0], 0, True
    return live, min(max(0, blocks.older(place)), total - known), False


def _labels(
    trace: Trace, ownership: Ownership, blocks: Blocks, steps: Calls | None, run: Run | None
) -> Labels:
    table = trace.allocations
    op, dtype = table.op[blocks.row], table.dtype[blocks.row]
    (op_code, of_ops), (dtype_code, of_dtypes) = (groups([column], len(blocks)) for column in (op, dtype))
    ops, dtypes = op[of_ops], dtype[of_dtypes]
    of_op = {at: joined(ownership.layers_of(at)) or UNKNOWN for at in ops.tolist()}
    layers = sorted(set(of_op.values()))
    place = {name: code for code, name in enumerate(layers)}
    layer_code = np.array([place[of_op[at]] for at in ops.tolist()], np.int64)
    return Labels(
        {
            "kind": block_kinds.kinds(trace, ownership, blocks, steps, run).astype(np.int64),
            "dtype": dtype_code,
            "layer": layer_code[op_code] if len(op_code) else op_code,
            "op": op_code,
        },
        {
            "kind": list(KINDS),
            "dtype": [_text(trace, at) for at in dtypes.tolist()],
            "layer": layers,
            "op": [trace.ops[at].name if at >= 0 else UNKNOWN for at in ops.tolist()],
        },
        np.zeros(len(blocks), np.bool_),
    )


def _why(why_not: dict[int, str], blocks: Blocks, live: Bool) -> str | None:
    """Return why it is not known what XLA took, for most of the bytes; None where nothing of what it took is
    live."""
    sums: defaultdict[str, int] = defaultdict(int)
    for block, why in why_not.items():
        sums[why] += int(blocks.bytes[block]) if live[block] else 0
    most = max(sums, key=lambda why: (sums[why], why), default=None)
    return most if most is not None and sums[most] else None


def _items(
    labels: Labels,
    blocks: Blocks,
    live: Int64,
    total: int,
    before: int,
    estimated: dict[Kind, int],
) -> tuple[MemoryItem, ...]:
    items: list[MemoryItem] = []
    bys: tuple[By, ...] = ("kind", "dtype", "layer", "op")
    for by in bys:
        group, first = groups([labels.codes[by][live], labels.assigned[live]], len(live))
        size = np.bincount(group, weights=blocks.bytes[live], minlength=len(first)).astype(np.int64)
        sums: defaultdict[str, int] = defaultdict(int)
        by_xla: defaultdict[str, int] = defaultdict(int)
        one_of_each = live[first]
        names = zip(labels.of(by, one_of_each), labels.assigned[one_of_each].tolist(), strict=True)
        for (name, of_xla), held_bytes in zip(names, size.tolist(), strict=True):
            (by_xla if of_xla and name != UNKNOWN else sums)[name] += held_bytes
        sums[UNKNOWN] += total - before - sum(sums.values()) - sum(by_xla.values())
        sums[BEFORE] += before - sum(estimated.values())
        more = [MemoryItem(by, kind, part, estimated=True) for kind, part in estimated.items()]
        more += [MemoryItem(by, name, part, assigned=True) for name, part in by_xla.items()]
        items += _largest(by, sums, more)
    return tuple(items)


def _estimated(before: int, told: held.States | None) -> dict[Kind, int]:
    """Return how much of the bytes older than the trace are parameters and slots."""
    found: dict[Kind, int] = {}
    for kind, size in told.kinds if told else ():
        if mine := min(before - sum(found.values()), size):
            found[kind] = mine
    return found


def _largest(by: By, sums: dict[str, int], more: list[MemoryItem]) -> list[MemoryItem]:
    ordered = [MemoryItem(by, name, size) for name, size in sums.items() if size] + more
    ordered.sort(key=lambda item: (-item.bytes, item.name))
    small = ordered[_MOST_NAMES:]
    if small:
        rest = MemoryItem(by, f"{len(small)} smaller ones", sum(item.bytes for item in small))
        return [*ordered[:_MOST_NAMES], rest]
    return ordered


def _parts(
    trace: Trace,
    ownership: Ownership,
    labels: Labels,
    blocks: Blocks,
    live: Int64,
    top: int,
    before: int,
    estimated: dict[Kind, int],
    run: Run | None,
) -> PeakParts:
    """Return the parts of the peak that are compared with another run's; `top` is the row of the event that
    made the peak."""
    table = trace.allocations
    asked = np.where(blocks.asked >= 0, blocks.asked, blocks.bytes)
    size = asked[live]
    kind = labels.codes["kind"][live]
    by_kind = np.bincount(kind, weights=size, minlength=len(KINDS)).astype(np.int64)
    asked_of: dict[Kind, int] = {
        name: int(total) for name, total in zip(KINDS, by_kind.tolist(), strict=True) if total
    }
    for older, part in estimated.items():
        asked_of[older] = asked_of.get(older, 0) + part
    asked_of["held before the window"] = before - sum(estimated.values())
    copies = np.flatnonzero(kind == KINDS.index("16-bit weight copies"))
    narrow = distinct(labels.codes["layer"][labels.coded("dtype", HALF)]).tolist()
    half_layers = frozenset(labels.texts["layer"][code] for code in narrow) - {UNKNOWN}
    wide = labels.coded("layer", half_layers) & labels.coded("dtype", WIDE)
    batch = batch_of(trace, ownership, blocks, run)
    flow = flowing(trace, ownership, blocks, labels.codes["kind"], batch, run)
    keeps = labels.codes["kind"] == KINDS.index("activations kept for backward")
    return PeakParts(
        phase=ownership.phase_of(int(table.op[top])),
        asked=asked_of,
        kept=_by_layer(labels, asked, live[keeps[live]]),
        flowing=_by_layer(labels, asked, live[flow.is_flow[live]]),
        undecided_bytes=int(asked[live[(wide & flow.is_open)[live]]].sum()),
        copies_once_bytes=_once(labels, table.shapes[blocks.row[live]], live, size, copies, run),
        copies_bytes=int(size[copies].sum()),
        half_layers=half_layers,
        moments=_moments(trace, ownership, labels, blocks, asked, wide & (keeps | flow.is_flow)),
    )


def _by_layer(labels: Labels, asked: Int64, rows: Int64) -> dict[tuple[str, str], int]:
    """Return the bytes of these blocks by layer and type."""
    group, first = groups([labels.codes["layer"][rows], labels.codes["dtype"][rows]], len(rows))
    sums = np.bincount(group, weights=asked[rows], minlength=len(first)).astype(np.int64).tolist()
    names = zip(labels.of("layer", rows[first]), labels.of("dtype", rows[first]), strict=True)
    return dict(zip(names, sums, strict=True))


def _moments(
    trace: Trace, ownership: Ownership, labels: Labels, blocks: Blocks, asked: Int64, wide: Bool
) -> dict[str, remedies.Moments]:
    """Return by cause the moments that may hold most once the cause's bytes are gone. `wide`: float32
    activations, and gradients of such, of layers that compute in 16 bits."""
    kind = labels.codes["kind"]
    phase = phases_of(ownership, trace.allocations.op[blocks.row])
    update = np.isin(phase, [PHASES.index(name) for name in UPDATE])
    states = np.isin(kind, [KINDS.index("parameters"), KINDS.index("optimizer slots")])
    of = {
        remedies.STATES: np.where(states, asked, 0),
        remedies.WEIGHT_COPIES: np.where(kind == KINDS.index("16-bit weight copies"), asked, 0),
        remedies.WIDE_ACTIVATIONS: np.where(wide, asked, 0),
        remedies.WORKSPACES: np.where(kind == KINDS.index("workspaces"), asked, 0),
        remedies.UPDATE_WORK: np.where(update & ~states, asked, 0),
        remedies.FRAGMENTS: blocks.bytes - asked,
    }
    held_bytes = {code: remedies.held(blocks, size) for code, size in of.items() if size.any()}
    if blocks.older_bytes:
        held_bytes[remedies.STATES] = remedies.older(blocks) + held_bytes.get(remedies.STATES, 0)
    return {code: remedies.moments(blocks.live_bytes, size) for code, size in held_bytes.items()}


def _once(labels: Labels, shape: Int32, live: Int64, size: Int64, copies: Int64, run: Run | None) -> int:
    """Return the bytes of one copy of each weight among `copies`: of a recorded layer its parameters in 16
    bits at most, else one block of each shape (or op, where no shape is stated) in a layer."""
    model = run.model if run else None
    recorded = {fact.name: fact.parameters for fact in model.layers if fact.parameters} if model else {}
    total, layer = 0, labels.codes["layer"][live]
    shape = np.where(shape < 0, -2 - labels.codes["op"][live], shape)  # no event states that of a part
    for code in distinct(layer[copies]).tolist():
        rows = copies[layer[copies] == code]
        _, first = np.unique(shape[rows], return_index=True)
        parameters = recorded.get(labels.texts["layer"][code])
        once = int(size[rows][first].sum()) if parameters is None else 2 * parameters
        total += min(once, int(size[rows].sum()))
    return total


def _tensors(trace: Trace, labels: Labels, blocks: Blocks, live: Int64) -> tuple[Tensor, ...]:
    """Return the largest groups of blocks that were live, alike in kind, op, type and shape, without
    rounding."""
    table = trace.allocations
    live = live[labels.codes["kind"][live] != KINDS.index(ROUNDING)]
    shape = table.shapes[blocks.row[live]]
    columns = [*(labels.codes[by][live] for by in ("kind", "op", "dtype")), labels.assigned[live]]
    group, first = groups([*columns, shape], len(live))
    size = np.bincount(group, weights=blocks.bytes[live], minlength=len(first)).astype(np.int64)
    found, timed = [], "times" not in trace.missing

    def words(at: int) -> tuple[str, ...]:
        return *labels.words(live[first[at]]), _text(trace, int(shape[first[at]]))

    for at in _largest_groups(size, _MOST_TENSORS, words):
        rows = live[group == at]
        ended = blocks.died[rows] != NEVER
        born_ns = table.time_ns[blocks.row[rows]]
        last = table.time_ns[blocks.rows[blocks.died[rows][ended]]]
        one = rows[:1]
        found.append(
            Tensor(
                kind=KINDS[int(labels.codes["kind"][one[0]])],
                op=labels.of("op", one)[0],
                layer=labels.of("layer", one)[0],
                dtype=labels.of("dtype", one)[0],
                shape=_text(trace, int(table.shapes[blocks.row[one[0]]])),
                count=len(rows),
                bytes=int(size[at]),
                born_ns=int(born_ns.min()),
                life_ns=int(last.max() - born_ns.min()) if ended.all() and timed else None,
                assigned=bool(labels.assigned[one[0]]),
            )
        )
    return tuple(found)


def _across(
    trace: Trace, labels: Labels, blocks: Blocks, steps: Calls | None
) -> tuple[HeldAcross, ...] | None:
    """Return what is allocated in one step and outlives the next whole one, largest first, without the input,
    which is made ahead of its step. None where the trace does not hold two steps.

    What is allocated between two calls (by a callback, a metric) is of the step before them. It may be what
    the next call works on, which the loop replaces once that call is over: so it has to outlive that gap
    too."""
    if steps is None or len(steps) < 2:
        return None
    time_ns = trace.allocations.time_ns
    born_ns = time_ns[blocks.row]
    step = latest(steps.start_ns, born_ns)
    between = steps.at(born_ns) < 0
    ended = blocks.died != NEVER
    death_ns = np.full(len(blocks), NEVER)
    death_ns[ended] = time_ns[blocks.rows[blocks.died[ended]]]
    follows = (step >= 0) & (step + 1 + between < len(steps))
    last = len(steps) - 1
    until_ns = np.where(
        between, steps.start_ns[np.minimum(step + 2, last)], steps.end_ns[np.minimum(step + 1, last)]
    )
    of_step = labels.codes["kind"] != KINDS.index("input")
    rows = np.flatnonzero(of_step & follows & (death_ns >= until_ns))
    group, first = groups([labels.codes["op"][rows], labels.codes["dtype"][rows]], len(rows))
    size = np.bincount(group, weights=blocks.bytes[rows], minlength=len(first)).astype(np.int64)
    found = []
    for at in _largest_groups(size, _MOST_HELD, lambda at: labels.words(rows[first[at]])):
        op, layer, dtype = (labels.of(by, rows[first[at : at + 1]])[0] for by in ("op", "layer", "dtype"))
        found.append(HeldAcross(op, layer, dtype, int((group == at).sum()), int(size[at])))
    return tuple(found)


def _largest_groups(size: Int64, most: int, words: Callable[[int], tuple[str, ...]]) -> list[int]:
    """Return the first `most` groups by size, equal ones by their words: the order of a file's tables says
    nothing."""
    least = np.partition(size, -most)[-most] if len(size) > most else 0
    found = np.flatnonzero(size >= least).tolist()
    return sorted(found, key=lambda at: (-int(size[at]), *words(at)))[:most]


def _text(trace: Trace, row: int) -> str:
    return trace.strings[row] if row >= 0 else UNKNOWN
