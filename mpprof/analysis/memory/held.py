"""The variables of a training, from what its trace tells of them: they are older than the trace itself.

No event states what a block was allocated for before the profiler started. But a step reads and updates its
variables: the op that applies an update lets go of the variable's gradient, which has the variable's type and
shape, and its kind tells how many slots it updates beside it. Where the window ends before the updates, the
16-bit copies of weights have their shapes. PyTorch's profiler states the tensors that each op was given, and
the module that called it: a module's weights are among them. Memory that none of these shows is left out
(variables that are not trained, embedding tables that are not cast, weights that a module multiplies itself),
so the sums are too low rather than too high.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.memory.block_kinds import BACKWARD, FORWARD, OTHER, phases_of
from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.model.arrays import Bool, Int64, distinct
from mpprof.model.frozen import frozen
from mpprof.model.memory import Course, Kind, StatesFrom
from mpprof.model.run import Run
from mpprof.model.trace import Trace
from mpprof.tensors import HALF, SLOTS, WIDE, WIDTHS, tensor_bytes

# Bytes that a training keeps from step to step; of a recorded run by its model and optimizer.


@frozen
class States:
    """In bytes. `trained`: of the parameters that the optimizer updates, as much as their gradients take.
    `slots` is None where it is not known what the optimizer keeps for them. `told_by` says where the figures
    come from."""

    parameters: int
    trained: int
    slots: int | None
    optimizer: str | None
    told_by: StatesFrom = "records"

    @property
    def kinds(self) -> tuple[tuple[Kind, int], ...]:
        """What of memory from before the window is theirs, the parameters first."""
        return ("parameters", self.parameters), ("optimizer slots", self.slots or 0)


def recorded(run: Run | None) -> States | None:
    """Return what the run's records say; None where they hold no model."""
    if run is None or run.facts is None or run.facts.model is None or run.facts.model.parameters is None:
        return None
    model = run.facts.model
    by_layer = [(layer.parameters or 0, layer.variable_dtype) for layer in model.layers]
    counted = sum(count for count, _ in by_layer)
    rest = max(0, (model.parameters or 0) - counted)  # of what is no layer
    size = sum(count * WIDTHS.get(dtype or "float32", 4) for count, dtype in by_layer) + 4 * rest
    if counted > (model.parameters or 0):  # shared layers stand several times
        size = 4 * (model.parameters or 0)
    trained = size
    stored = sum(
        layer.parameter_bytes - (layer.parameters or 0) * WIDTHS.get(layer.variable_dtype or "float32", 4)
        for layer in model.layers
        if layer.parameter_bytes is not None
    )
    if model.trainable_parameters is not None and model.parameters:
        trained = size * min(model.trainable_parameters, model.parameters) // model.parameters
    fit = run.last_fit
    optimizer = (fit.optimizer.inner or fit.optimizer.class_name) if fit else None
    stated = fit.optimizer.slots if fit else None
    each = SLOTS.get(optimizer or "") if stated is None else stated
    return States(max(0, size + stored), trained, None if each is None else each * trained, optimizer)


_UPDATE = r"(?:Resource)?(Apply[A-Z]\w*?)(?:_\d+)?$"
_SLOTS_OF_OP = {
    "ApplyGradientDescent": 0, "ApplyProximalGradientDescent": 0, "ApplyMomentum": 1, "ApplyKerasMomentum": 1,
    "ApplyAdam": 2, "ApplyAdamWithAmsgrad": 3, "ApplyAdaMax": 2, "ApplyRMSProp": 2, "ApplyCenteredRMSProp": 3,
    "ApplyAdagrad": 1, "ApplyAdagradV2": 1, "ApplyProximalAdagrad": 1, "ApplyAdadelta": 2, "ApplyFtrl": 2,
    "ApplyFtrlV2": 2, "ApplyAddSign": 1, "ApplyPowerSign": 1,
}  # fmt: skip
"""Of TensorFlow's ops that update a variable, how many slots each takes beside it
(tensorflow/core/ops/training_ops.cc). Those of sparse gradients do not tell the variable's shape."""
_OPTIMIZERS = {name.lower(): slots for name, slots in SLOTS.items()} | {
    "adamweightdecay": SLOTS["AdamW"],
    "lamboptimizer": SLOTS["Lamb"],
}
"""Slots by the name of an optimizer's scope: Keras' own optimizers and those of TensorFlow's model garden."""
_WEIGHTS_AFTER_INPUT = tuple(
    f"aten::{name}"
    for name in (
        "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "prelu", "bilinear",
    )
)  # fmt: skip
_TABLES = ("aten::embedding", "aten::embedding_bag")
"""PyTorch's ops that a module calls with its weights. The weights come after the input (`bilinear` has two
inputs); an embedding's table comes before it (torch/nn/functional.py)."""
_MODULE = re.compile(r"_\d+$")
"""Kineto numbers the modules of each class: `Linear_166` is one module wherever it is called."""
_OF_TORCH = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "Adagrad": 1, "Rprop": 2,
}  # fmt: skip
"""How many values each of PyTorch's optimizers keeps for every value of a weight. SGD's and RMSprop's depend
on their arguments (torch/optim)."""
_TORCH_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_FLOATS = HALF | WIDE
_GRAIN = 256
"""TensorFlow's allocator gives out multiples of that many bytes."""
_GRADIENTS = (BACKWARD, OTHER)
"""Gradients that several devices add up belong to no pass."""


def variables(trace: Trace, ownership: Ownership, blocks: Blocks, copies: Bool) -> States | None:
    """Return what a training's trained variables and their slots take; None where the trace does not show it.

    `copies` says which blocks are 16-bit copies of weights."""
    return (
        _by_updates(trace, ownership, blocks)
        or _by_copies(trace, ownership, blocks, copies)
        or _by_modules(trace)
    )


def _by_updates(trace: Trace, ownership: Ownership, blocks: Blocks) -> States | None:
    """Return each update's variable, by the gradient that is freed once the update is launched and before the
    same thread launches another op."""
    slots_of = _updates(trace)
    if not slots_of:
        return None
    kernels, host = trace.kernels, trace.host
    rows = np.flatnonzero((kernels.launch >= 0) & _of_device(trace, blocks))
    launch_ns, thread = host.start_ns[kernels.launch[rows]], host.thread[kernels.launch[rows]]
    order = np.lexsort((launch_ns, thread))
    launch_ns, thread, op = launch_ns[order], thread[order], kernels.op[rows][order]
    update = np.flatnonzero(np.isin(op, list(slots_of)))
    if not len(update):
        return None
    runs = np.flatnonzero(np.append(True, (op[1:] != op[:-1]) | (thread[1:] != thread[:-1])))
    after = np.append(runs, len(op))[np.searchsorted(runs, update, side="right")]
    same = (after < len(op)) & (thread[np.minimum(after, len(op) - 1)] == thread[update])
    until_ns = np.where(same, launch_ns[np.minimum(after, len(op) - 1)], NEVER)
    freed, freed_ns = _freed_gradients(trace, ownership, blocks)
    found = np.searchsorted(freed_ns, launch_ns[update])
    told = np.flatnonzero(found < len(freed_ns))
    told = told[freed_ns[found[told]] < until_ns[told]]
    _, once = np.unique(op[update[told]], return_index=True)  # of several steps one
    size = _asked(trace, blocks, freed[found[told[once]]])
    slots = np.array([slots_of[at] for at in op[update[told[once]]].tolist()], np.int64)
    total = int(size.sum())
    return States(total, total, int((size * slots).sum()), None, "updates") if total else None


def _updates(trace: Trace) -> dict[int, int]:
    """Return the rows of `Trace.ops` that update a variable, with the number of its slots."""
    found = {}
    for at, op in enumerate(trace.ops):
        named = re.search(_UPDATE, op.type or op.name)
        if named and named[1] in _SLOTS_OF_OP:
            found[at] = _SLOTS_OF_OP[named[1]]
    return found


def _of_device(trace: Trace, blocks: Blocks) -> Bool:
    """Return which kernels run on the allocator's device, where its name tells one of several."""
    name = trace.strings[int(trace.allocations.allocator[blocks.rows[0]])]
    ordinal = re.search(r"\d{1,9}", name)
    mine = np.array([ordinal is None or each.ordinal == int(ordinal[0]) for each in trace.devices], bool)
    return mine[trace.kernels.device] if mine.any() else np.ones(len(trace.kernels), bool)


def _freed_gradients(trace: Trace, ownership: Ownership, blocks: Blocks) -> tuple[Int64, Int64]:
    """Return the blocks that may be gradients of variables, in the order in which they are freed, and
    when."""
    table = trace.allocations
    ended = np.flatnonzero(blocks.died != NEVER)
    row = blocks.row[ended]
    floats = [at for at, text in enumerate(trace.strings) if text in _FLOATS]
    of_none = [at for at, text in enumerate(trace.strings) if text in ("temp", "[]")]
    mine = np.isin(table.dtype[row], floats) & np.isin(phases_of(ownership, table.op[row]), _GRADIENTS)
    mine &= ~np.isin(table.region[row], of_none) & ~np.isin(table.shapes[row], of_none)
    found = ended[mine]
    found = found[np.argsort(blocks.died[found], kind="stable")]
    return found, table.time_ns[blocks.rows[blocks.died[found]]]


def _by_copies(trace: Trace, ownership: Ownership, blocks: Blocks, copies: Bool) -> States | None:
    """Return each weight once, by the op of the forward pass that casts it, and the slots of the optimizer,
    where the ops name the scope of one only."""
    op = trace.allocations.op[blocks.row]
    cast = np.flatnonzero(copies)
    cast = cast[phases_of(ownership, op[cast]) == FORWARD]
    if not len(cast):
        return None
    _, once = np.unique(op[cast], return_index=True)
    half = _asked(trace, blocks, cast[once])
    total = int((-(-2 * half // _GRAIN) * _GRAIN).sum())
    named = {
        _OPTIMIZERS[part]
        for each in trace.ops
        for part in re.split(r"[/:]", each.name.lower())
        if part in _OPTIMIZERS
    }
    return States(total, total, total * named.pop() if len(named) == 1 else None, None, "weight_copies")


def _by_modules(trace: Trace) -> States | None:
    """Return each module's weights once, of a trace of one card whose ops state their tensors. A table and a
    product of the same shape share one weight, as far as can be told: an output layer often uses the
    embedding's weight. Where more products than tables have the shape, the shape is the width of the model's
    layers, and no product shares the table's weight."""
    given = _given(trace)
    sizes: Counter[str] = Counter()
    for name, weights in given.values():
        sizes.update(weights if name not in _TABLES else ())
    tables = Counter(weight for name, weights in given.values() if name in _TABLES for weight in weights)
    sizes.update({weight: count for weight, count in tables.items() if sizes[weight] > count})
    sizes |= tables
    total = sum(tensor_bytes(weight) * count for weight, count in sizes.items())
    if not total:
        return None
    named = {found[1] for text in trace.strings if (found := _TORCH_STEP.search(text))}
    slots = _OF_TORCH.get(named.pop()) if len(named) == 1 else None
    return States(total, total, None if slots is None else total * slots, None, "modules")


def _given(trace: Trace) -> dict[tuple[str, str, str], tuple[str, list[str]]]:
    """Return the weights that each module was called with first, by module, op and shapes. Under autocast an
    op calls itself again, with cast weights of the same shapes."""
    host = trace.host
    if host.shapes is None or len({each.ordinal for each in trace.devices}) > 1:
        return {}
    names = [at for at, text in enumerate(trace.strings) if text in _WEIGHTS_AFTER_INPUT + _TABLES]
    rows = np.flatnonzero(np.isin(host.name, names) & (host.shapes >= 0) & (host.op >= 0))
    found: dict[tuple[str, str, str], tuple[str, list[str]]] = {}
    for row in rows.tolist():
        module = trace.ops[int(host.op[row])].name.rpartition("/")[0].rpartition("/")[2]
        name = trace.strings[int(host.name[row])]
        tensors = trace.strings[int(host.shapes[row])].strip("()").split(";")
        weights = tensors[:1] if name in _TABLES else tensors[2 if name == "aten::bilinear" else 1 :]
        if _MODULE.search(module):
            shapes = ";".join(weight.partition("[")[2] for weight in weights)
            found.setdefault((module, name, shapes), (name, weights))
    return found


def _asked(trace: Trace, blocks: Blocks, which: Int64) -> Int64:
    """Return the bytes that were requested for these blocks, in whole grains; the bytes that they hold where
    that is not stated."""
    asked = trace.allocations.requested_bytes
    size = blocks.bytes[which] if asked is None else asked[blocks.row[which]]
    return -(-np.where(size >= 0, size, blocks.bytes[which]) // _GRAIN) * _GRAIN


# Live bytes over the trace, by kind and by type, in few enough points to draw.

POINTS = 240
"""A line of a terminal or a figure shows no more."""
MOST_NAMES = 8
UNKNOWN, BEFORE, REST = "unknown", "held before the window", "others"


def course(
    blocks: Blocks,
    time_ns: Int64,
    names: dict[str, tuple[Int64, Sequence[str]]],
    held: Sequence[tuple[str, int]],
) -> Course:
    """Return the course of an allocator's live bytes. `time_ns` has its events' times.

    `names[by]` are a code for each block and the name of each code. The fullest moment of each of POINTS
    stretches with events is kept, so the peak is among them. What is older than the trace is `held`, names
    and bytes that are marked as estimated, and "held before the window"; what no block accounts for is
    "unknown".
    """
    places = fullest(time_ns, blocks.live_bytes)
    total = blocks.live_bytes[places]
    parts = {}
    older = blocks.older_bytes - _passed(blocks.older_died, blocks.older_sizes, places)
    for by, (codes, texts) in names.items():
        rows = {texts[code]: _live(blocks, codes == code, places) for code in distinct(codes).tolist()}
        named = np.sum(list(rows.values()), axis=0) if rows else np.zeros(len(places), np.int64)
        room = np.clip(total - named, 0, None)
        rest = np.clip(older, 0, room)
        for name, size in held:
            rows[f"{name} (estimated)"] = np.minimum(rest, size)
            rest = rest - rows[f"{name} (estimated)"]
        rows[BEFORE] = rest
        lost = named > total  # frees were lost: nothing can be said of what was live there
        rows = {name: np.where(lost, 0, values) for name, values in rows.items()}
        known = np.sum(list(rows.values()), axis=0)
        rows[UNKNOWN] = rows.get(UNKNOWN, 0) + total - known
        parts[by] = _largest(rows)
    return Course(tuple(time_ns[places].tolist()), tuple(total.tolist()), parts)


def fullest(time_ns: Int64, live: Int64) -> Int64:
    """Return the places of the events with most bytes in each of POINTS equal stretches of time that has any
    event."""
    since = time_ns.astype(np.float64) - float(time_ns[0])  # as whole numbers far clocks would overflow
    stretch = np.minimum(since * POINTS // max(1.0, since[-1]), POINTS - 1)
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    most = np.maximum.reduceat(live, starts)
    counts = np.diff(np.append(starts, len(live)))
    top = np.flatnonzero(live == np.repeat(most, counts))
    _, first = np.unique(stretch[top], return_index=True)
    return top[first]


def _live(blocks: Blocks, mine: Bool, places: Int64) -> Int64:
    born, died, size = blocks.born[mine], blocks.died[mine], blocks.bytes[mine]
    ended = died != NEVER
    return _passed(born, size, places) - _passed(died[ended], size[ended], places)


def _passed(at: Int64, size: Int64, places: Int64) -> Int64:
    """Return the bytes of the events up to and at each place."""
    order = np.argsort(at, kind="stable")
    sums = np.append(0, np.cumsum(size[order]))
    return sums[np.searchsorted(at[order], places, side="right")]


def _largest(rows: dict[str, Int64]) -> dict[str, tuple[int, ...]]:
    """Return the MOST_NAMES parts with the highest peaks, the rest as one part."""
    ordered = sorted((name for name in rows if rows[name].any()), key=lambda n: (-int(rows[n].max()), n))
    found = {name: rows[name] for name in ordered[:MOST_NAMES]}
    if len(ordered) > MOST_NAMES:
        found[REST] = np.sum([rows[name] for name in ordered[MOST_NAMES:]], axis=0)
    return {name: tuple(values.tolist()) for name, values in found.items()}
