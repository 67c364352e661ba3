"""Who owns an op: the layer of the model, and the phase of the step.

An op goes where its name's scopes say (`matching`). An XLA fusion is named after one of its instructions and
may hold those of several layers, and one product may be several that XLA merged: tables name all of them,
"a, b (+1)", and keep their time in rows of their own (`Ownership.layers_of`). Where one layer must be had, to
lay two runs side by side, it is the one of its matrix work, else of most of its work. An instruction that the
compiler made without a name goes where its result is used.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from mpprof.analysis.layers.matching import Matcher, matcher
from mpprof.analysis.layers.modules import Path, Sizes, module_path, sizes_of
from mpprof.analysis.layers.scopes import Scope, parse
from mpprof.model.account import PHASES, Phase
from mpprof.model.arrays import Int8, Int32
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision
from mpprof.model.run import LayerFacts, ModelFacts
from mpprof.model.trace import HloInstruction, Op, Trace

UNKNOWN = -1
_MATMUL_CALLS = r"(?i)gemm|conv|matmul|attention|fmha"
_PRODUCT = r"/(?:dot_general|conv_general_dilated|(?:Batch)?MatMul|Conv\dD|Einsum)[^/]*$"
"""Ends of the names of ops that multiply matrices, in JAX and TensorFlow."""
_PLUMBING = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast"))
_FLOW = frozenset(("while", "conditional", "call"))  # their bodies are ops of their own
# A fused kernel runs when the last of its inputs is there, and gradients come after activations.
_ORDER: tuple[Phase, ...] = ("other", "input", "forward", "backward", "loss_scale", "optimizer")
_MOST_INSTRUCTIONS = 10_000  # of one fusion that are looked at
_PASSES = 8  # how far a name travels along unnamed instructions


@frozen
class Span:
    """A layer's share of the work of one fused op; `layer` "" for work of no layer (optimizer, loss)."""

    layer: str
    ratio: float


@frozen
class Ownership:
    """Layer and phase of every row of `Trace.ops`.

    `layer` holds rows of `layers` (-1: of no layer, or not known), `phase` rows of `PHASES`. `spans` has an
    entry for each fused op that works for more than one owner, largest share first; shares sum to 1.
    `facts` is what the run recorded of each of `layers`; None where a layer is known by its scope alone.
    """

    layers: tuple[str, ...]
    layer: Int32
    phase: Int8
    spans: dict[int, tuple[Span, ...]] = field(default_factory=dict)
    facts: tuple[LayerFacts | None, ...] = ()

    def layer_of(self, op: int) -> str | None:
        """Return the layer that owns the op in row `op`; None for row -1, for no layer and for an unknown
        one."""
        row = int(self.layer[op]) if 0 <= op < len(self.layer) else UNKNOWN
        return self.layers[row] if row >= 0 else None

    def layers_of(self, op: int) -> tuple[str, ...]:
        """Return the layers that the op in row `op` works for, `layer_of` first, then by their share; empty
        where `layer_of` is None."""
        own = self.layer_of(op)
        shares = (span.layer for span in self.spans.get(op, ()) if span.layer)
        return tuple(dict.fromkeys((own, *shares))) if own else ()

    def phase_of(self, op: int) -> Phase:
        """Return the phase of the op in row `op`; "other" for row -1."""
        return PHASES[int(self.phase[op])] if 0 <= op < len(self.phase) else "other"


_OPERANDS: dict[Precision, str] = {"fp32": "f32", "tf32": "f32", "fp16": "f16", "bf16": "bf16"}


def candidates(
    ops: Sequence[Op], ownership: Ownership, at: int, kernel: str, precision: Precision
) -> tuple[str, ...]:
    """Return the layers one of which ran this kernel of the op in row `at`; empty if the layer is known, or
    the kernel may belong to none.

    A product is one of the program's library calls whose operands have its type. Their
    kernels have names of the libraries' own, those of fusions do not."""
    op = ops[at]
    if ownership.layer_of(at) is not None:
        return ()
    rows: Sequence[int] = op.candidates
    if op.hlo is None:
        wanted = _OPERANDS.get(precision)
        calls = [hlo for row in rows if (hlo := ops[row].hlo) is not None]
        if wanted is None or "fusion" in kernel or len(calls) < len(rows):
            return ()
        its = [
            has_matrix(ops[row]) and wanted in hlo.operand_dtypes[:2]
            for row, hlo in zip(rows, calls, strict=True)
        ]
        rows = [row for row, may in zip(rows, its, strict=True) if may]
    layers = [ownership.layers_of(row) for row in rows]
    return tuple(dict.fromkeys(layer for each in layers for layer in each)) if all(layers) else ()


def joined(layers: Sequence[str]) -> str | None:
    """Return how tables call several layers together: "a", "a, b", "a, b (+1)"; None for none."""
    rest = f" (+{len(layers) - 2})" if len(layers) > 2 else ""
    return f"{', '.join(layers[:2])}{rest}" or None


@frozen
class _Owner:
    layer: str = ""  # "": none, or not known
    phase: Phase = "other"
    spans: tuple[Span, ...] = ()

    @property
    def known(self) -> bool:
        return bool(self.layer) or self.phase != "other"


def attribute(trace: Trace, model: ModelFacts | None = None) -> Ownership:
    """Return the owner of every op of the trace.

    With `model`, layers are those that the run recorded. Without it a layer is the scope path as it stands in
    the trace, as far as scopes can be told from parts of a layer; the rest has no layer.
    """
    return attribute_ops(trace.ops, model, _operands(trace))


def attribute_ops(
    ops: Sequence[Op], model: ModelFacts | None, sizes: Mapping[Path, Sequence[Sizes]] | None = None
) -> Ownership:
    """Return the owner of each of `ops`, all that a program has: they decide together what a scope means.

    `sizes`: per module of PyTorch's, the axes of the operands of its forward ops."""
    match = matcher({scope for op in ops for scope in _scopes(op)}, model, sizes)
    owners = [_owner(op, match) for op in ops]
    _adopt_unnamed(ops, owners)
    _share_merged(ops, owners, match)
    return _columns(owners, model)


def _columns(owners: Sequence[_Owner], model: ModelFacts | None) -> Ownership:
    facts = {fact.name: fact for fact in model.layers} if model else {}
    place = {name: at for at, name in enumerate(facts)}
    used = {owner.layer for owner in owners} | {span.layer for owner in owners for span in owner.spans}
    names = tuple(sorted(used - {""}, key=lambda name: (place.get(name, len(place)), name)))
    row = {name: at for at, name in enumerate(names)} | {"": UNKNOWN}
    return Ownership(
        layers=names,
        layer=np.fromiter((row[owner.layer] for owner in owners), np.int32, len(owners)),
        phase=np.fromiter((PHASES.index(owner.phase) for owner in owners), np.int8, len(owners)),
        spans={at: owner.spans for at, owner in enumerate(owners) if owner.spans},
        facts=tuple(facts.get(name) for name in names),
    )


def _operands(trace: Trace) -> dict[Path, list[Sizes]]:
    """Return for each of PyTorch's modules the axes of the operands of its forward ops."""
    table = trace.kernels
    if trace.source.format != "chrome":
        return {}
    stated = np.flatnonzero((table.op >= 0) & (table.shapes >= 0))
    pairs = np.unique(table.op[stated] * np.int64(len(trace.strings)) + table.shapes[stated])
    found: dict[Path, list[Sizes]] = defaultdict(list)
    for pair in pairs.tolist():
        op, shapes = divmod(pair, len(trace.strings))
        scope = _own_scope(trace.ops[op])
        if scope.phase != "backward" and (path := module_path(scope)):
            found[path] += sizes_of(trace.strings[shapes])
    return found


# --- one op ------------------------------------------------------------------------------------------------


def _scopes(op: Op) -> Iterator[Scope]:
    yield _own_scope(op)
    if op.hlo is not None:
        for inner in _inside(op.hlo):
            yield parse(inner.op_name, inner.opcode)


def _own_scope(op: Op) -> Scope:
    return parse((op.hlo.op_name if op.hlo else "") or op.name, op.type)


def _owner(op: Op, match: Matcher) -> _Owner:
    inside = [inner for inner in _inside(op.hlo) if inner.op_name] if op.hlo else []
    return _fusion_owner(inside, match) if inside else _scope_owner(_own_scope(op), match)


def _scope_owner(scope: Scope, match: Matcher) -> _Owner:
    if scope.phase in ("optimizer", "loss_scale", "input"):
        return _Owner(phase=scope.phase)
    layer, in_model = match(scope)
    if scope.phase != "other":
        return _Owner(layer, scope.phase)
    if layer or in_model:
        return _Owner(layer, "forward")
    # What the train step does under a condition, outside the model, is the dynamic loss scale's: un-scaling
    # the gradients and keeping or dropping the update.
    return _Owner(phase="loss_scale" if scope.conditional else "other")


def _fusion_owner(inside: Sequence[HloInstruction], match: Matcher) -> _Owner:
    """Return the owner of a fusion by share of work: matrix work before all else, then elements touched."""
    owners = [_scope_owner(parse(inner.op_name, inner.opcode), match) for inner in inside]
    work: dict[str, float] = defaultdict(float)
    for inner, owner in zip(inside, owners, strict=True):
        if owner.known:
            work[owner.layer] += _work(inner)
    if not work:
        return _Owner()
    spans = _spans(work)
    matrix = [owner for inner, owner in zip(inside, owners, strict=True) if _is_matrix(inner) and owner.known]
    phase = max((owner.phase for owner in matrix or owners), key=_ORDER.index)
    return _Owner(matrix[0].layer if matrix else spans[0].layer, phase, spans if len(spans) > 1 else ())


def _spans(work: Mapping[str, float]) -> tuple[Span, ...]:
    total = sum(work.values())
    order = sorted(work.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Span(layer, amount / total) for layer, amount in order)


def _inside(hlo: HloInstruction) -> list[HloInstruction]:
    """Return the instructions of a fusion, those of fusions within it included."""
    if hlo.opcode in _FLOW:
        return []
    found: list[HloInstruction] = []
    pending = list(hlo.called)
    while pending and len(found) < _MOST_INSTRUCTIONS:
        inner = pending.pop()
        if inner.opcode not in _PLUMBING:
            found.append(inner)
        pending.extend(inner.called)
    return found


def _work(instruction: HloInstruction) -> float:
    """Return the operations of an instruction, or the elements that it touches where they are not stated."""
    shapes = (instruction.shape, *instruction.operand_shapes)
    return max(1.0, instruction.flops or 0.0, *(float(math.prod(shape)) for shape in shapes))


def _is_matrix(hlo: HloInstruction) -> bool:
    return hlo.opcode in ("dot", "convolution") or bool(
        hlo.custom_call and re.search(_MATMUL_CALLS, hlo.custom_call)
    )


def has_matrix(op: Op) -> bool:
    """Return whether the compiled instruction of an op multiplies matrices, itself or within an instruction
    that it calls."""
    return op.hlo is not None and any(map(_is_matrix, (op.hlo, *_inside(op.hlo))))


# --- products of several layers ----------------------------------------------------------------------------


def _share_merged(ops: Sequence[Op], owners: list[_Owner], match: Matcher) -> None:
    """Give a product that XLA made of several layers' (query, key and value) to all of them.

    It has the name of one. What is left of each in the kernels that use it is a slice of its result under
    that layer's name, as wide as the layer's part."""
    products = {at: op.hlo for at, op in enumerate(ops) if op.hlo and _is_matrix(op.hlo) and owners[at].layer}
    users = _graph(ops)[1] if products else {}
    for at, product in products.items():
        readers = [reader for user in users[at] if (reader := ops[user].hlo)]
        slices: dict[str, float] = defaultdict(float)
        for reader in readers:
            for inner in (reader, *_inside(reader)):
                if inner.opcode == "slice" and re.search(_PRODUCT, inner.op_name):
                    slices[inner.op_name] = max(slices[inner.op_name], float(math.prod(inner.shape)))
        if product.op_name not in slices:
            continue
        work: dict[str, float] = defaultdict(float)
        for name, size in slices.items():
            work[_scope_owner(parse(name, "slice"), match).layer] += size
        if len(work) > 1 and "" not in work:
            owners[at] = _Owner(owners[at].layer, owners[at].phase, _spans(work))


# --- instructions without a name ---------------------------------------------------------------------------


def _adopt_unnamed(ops: Sequence[Op], owners: list[_Owner]) -> None:
    """Give instructions that the compiler made the owner of those that use their result: a layer before the
    optimizer, which reads all, and the one with the most work of several.

    Matrix work goes only to a neighbour that does matrix work elsewhere, user or source: what surrounds the
    gradient of a convolution is the normalisation next to it, which is not its owner.
    """
    unnamed = [
        at for at, op in enumerate(ops) if op.hlo and not op.hlo.op_name and not owners[at].known
    ]  # fmt: skip
    if not unnamed:
        return
    reads, users = _graph(ops)
    matrix = {at for at in unnamed if has_matrix(ops[at])}
    matrix_layers = {owners[at].layer for at, op in enumerate(ops) if owners[at].layer and has_matrix(op)}

    def known(rows: Iterable[int]) -> list[_Owner]:
        """Return the owners of those of `rows` that have one, best first, whatever the order of the file's
        tables."""
        found = [row for row in rows if owners[row].known]
        return [owners[row] for row in sorted(found, key=lambda row: _rank(ops[row], owners[row]))]

    waiting = unnamed
    for _ in range(_PASSES):
        adopted: dict[int, _Owner] = {}  # all from the pass before: order must not matter
        for at in waiting:
            near = known(users[at])
            if at in matrix:
                found = _matrix_neighbour([*near, *known(reads[at])], matrix_layers)
            else:
                found = near[0] if near else None
            if found is not None:
                adopted[at] = found
        if not adopted:
            break
        for at, owner in adopted.items():
            owners[at] = owner
        waiting = [at for at in waiting if at not in adopted]
    _set_phases([at for at in unnamed if owners[at].known], reads, users, owners)


def _rank(op: Op, owner: _Owner) -> tuple[object, ...]:
    spans = tuple((span.layer, span.ratio) for span in owner.spans)
    return not owner.layer, -_work(op.hlo) if op.hlo else 0.0, owner.layer, PHASES.index(owner.phase), spans


def _graph(ops: Sequence[Op]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the rows of the ops that each op reads, and of those that use it."""
    rows: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for at, op in enumerate(ops):
        if op.hlo:
            rows[op.hlo.program, op.hlo.module, op.hlo.name].append(at)
    reads: dict[int, list[int]] = defaultdict(list)
    users: dict[int, list[int]] = defaultdict(list)
    for at, op in enumerate(ops):
        for name in op.hlo.operands if op.hlo else ():
            for source in rows.get((op.hlo.program, op.hlo.module, name), ()) if op.hlo else ():
                reads[at].append(source)
                users[source].append(at)
    return reads, users


def _matrix_neighbour(near: Sequence[_Owner], matrix_layers: set[str]) -> _Owner | None:
    for owner in near:
        if owner.layer in matrix_layers:
            return _Owner(owner.layer, owner.phase)
    for owner in near:
        for span in owner.spans:
            if span.layer in matrix_layers:
                return _Owner(span.layer, owner.phase)
    return None


def _set_phases(
    adopted: Sequence[int],
    reads: Mapping[int, Sequence[int]],
    users: Mapping[int, Sequence[int]],
    owners: list[_Owner],
) -> None:
    """Set the phases of the adopted ops: an op that reads a result of the backward pass runs in that pass,
    even where the optimizer uses the op's result."""
    for at in adopted:
        if owners[at].layer and owners[at].phase not in ("forward", "backward"):
            owners[at] = _Owner(owners[at].layer, "forward")
    forward = {at for at in adopted if owners[at].phase == "forward"}
    pending = [
        at for at in forward if any(owners[source].phase == "backward" for source in reads.get(at, ()))
    ]
    while pending:
        at = pending.pop()
        if at in forward:
            forward.remove(at)
            owners[at] = _Owner(owners[at].layer, "backward")
            pending.extend(users.get(at, ()))
