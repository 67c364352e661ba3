"""Where every kernel of a trace ran: the evidence ladder.

Strongest first: hardware counters for that kernel name on that card; the name's own statement of its
instruction and types; dtypes and shapes of the op, from the HLO or as the host recorded them; the family.
The strongest that decides gives the placement; weaker evidence completes what it leaves open (precision,
family) and a contradiction between two is written into the reason. The work is done once per distinct
(name, op, device), rows only get an index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mpprof.analysis.kernels import convolution_gradients, device_peaks
from mpprof.analysis.kernels.eligibility import multiplies, parse_shapes, precision_of
from mpprof.analysis.kernels.name_parts import operands, spelled, values
from mpprof.analysis.kernels.names import classify, without_tensor_cores
from mpprof.analysis.kernels.op_types import OWN_SCOPE, family_of, type_from_name
from mpprof.analysis.kernels.rule import direction
from mpprof.analysis.layers import kinds, scopes
from mpprof.analysis.layers.attribution import Ownership, has_matrix
from mpprof.analysis.layers.scopes import parse
from mpprof.model.account import PHASES
from mpprof.model.arrays import Bool, groups
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import changed, frozen
from mpprof.model.kernels import (
    COMPUTE_DTYPES,
    CONVOLUTIONS,
    MATMUL_FAMILIES,
    OTHER_CARD,
    UNKNOWN,
    Family,
    Placement,
    Placements,
    Precision,
    Reason,
    Verdict,
)
from mpprof.model.trace import HloInstruction, Op, Trace, WorkKind

Counters = Mapping[tuple[str, str], Verdict]
"""Verdicts of hardware counters by (kernel name, card's name); card "" stands for any. Tools spell one
kernel's name in several ways: `counters.of_devices` adds the common spelling."""


@frozen
class _Card:
    """What the judgement needs of a device, worked out once."""

    name: str
    vendor: str
    compute_capability: tuple[int, int] | None
    tensor_cores: bool | None
    matrix_units: bool | None
    described: str


def place(trace: Trace, counters: Counters | None = None) -> Placements:
    """Return the verdict of every row of `trace.kernels`.

    `counters` are verdicts by hardware counters, which outrank everything else. A trace of basis "host" has
    the host's ops for kernels: matrix ops are `cpu` there, and an op of a type that is not known is
    `unknown`. An empty trace gives no verdicts and an empty index.
    """
    kernels = trace.kernels
    if not len(kernels):
        return Placements((), np.zeros(0, np.int32))
    told = (kernels.name, kernels.op, kernels.shapes, kernels.device, kernels.kind)
    index, first = groups(told, len(kernels))
    cards = [_card(device.facts) for device in trace.devices]
    known = counters or {}
    rows: dict[Verdict, int] = {}
    ops, strings = (*trace.ops, NO_OP), (*trace.strings, "")  # row -1 finds the last
    verdict_of = []
    for name, op, shapes, device, kind in zip(*(column[first].tolist() for column in told), strict=True):
        if trace.basis == "host":
            verdict = on_host(strings[name], ops[op], strings[shapes])
        else:
            verdict = on_device(strings[name], ops[op], strings[shapes], cards[device], kind, known)
            verdict = _by_calls(verdict, [ops[row].hlo for row in ops[op].candidates])
        verdict_of.append(rows.setdefault(verdict, len(rows)))
    placed = Placements(tuple(rows), np.array(verdict_of, np.int32)[index])
    return placed if trace.basis == "host" else convolution_gradients.told_apart(trace, placed)


def _card(facts: DeviceFacts) -> _Card:
    product = device_peaks.product_of(facts)
    capability = facts.compute_capability or (product.compute_capability if product else None)
    described = facts.name or (
        f"compute capability {capability[0]}.{capability[1]}" if capability else "this card"
    )
    return _Card(
        facts.name or "",
        device_peaks.vendor(facts),
        capability,
        device_peaks.has_tensor_cores(facts),
        device_peaks.has_matrix_units(facts),
        described,
    )


# The ladder on a device ------------------------------------------------------------------------------------


def on_device(
    name: str, op: Op, shapes: str, card: _Card, kind: int = WorkKind.KERNEL, counters: Counters | None = None
) -> Verdict:
    """Return the verdict of one kernel of `op` on `card`."""
    if kind != WorkKind.KERNEL:
        return _move(op, kind)
    named = _by_name(name, card)
    verdict = named
    if named.placement == "unknown":
        verdict = _by_op(named, op, shapes, card)
    verdict = _completed(name, verdict, op, shapes)
    if counters:
        counted = _counted(name, card, counters)
        if counted is not None:
            verdict = _by_counter(counted, verdict)
    return verdict


def _counted(name: str, card: _Card, counters: Counters) -> Verdict | None:
    keys = ((spelling, device) for spelling in (name, spelled(name)) for device in (card.name, ""))
    return next((found for key in keys if (found := counters.get(key)) is not None), None)


def verified_ratio(trace: Trace, placements: Placements) -> float | None:
    """Return the share of the matrix kernels' time that this card's counters decided; None: no such time."""
    duration = np.where(trace.kernels.kind == WorkKind.KERNEL, trace.kernels.duration_ns, 0)
    time = np.bincount(placements.index, weights=duration, minlength=len(placements.verdicts))
    pairs = [
        (float(ns), verdict.strength == "counter" and verdict.reason.code != OTHER_CARD)
        for ns, verdict in zip(time, placements.verdicts, strict=True)
        if verdict.family in MATMUL_FAMILIES and verdict.placement != "not_matmul"
    ]
    whole = sum(ns for ns, _ in pairs)
    return sum(ns for ns, counted in pairs if counted) / whole if whole > 0 else None


def _move(op: Op, kind: int) -> Verdict:
    """Return the verdict of a copy or memset that the collector itself calls one."""
    if OWN_SCOPE.search(op.name):
        return Verdict(
            "not_matmul", "unknown", "mpprof", Reason("own-copy", "a copy that mpprof asked for"), "op"
        )
    family: Family = "copy" if kind == WorkKind.MEMCPY else "memset"
    return Verdict(
        "not_matmul", "unknown", family, Reason("activity", f"the collector calls it a {family}"), "name"
    )


@lru_cache(maxsize=65536)
def _by_name(name: str, card: _Card) -> Verdict:
    verdict = classify(name, card.compute_capability, card.vendor)
    if verdict.placement == "tensor_core" and card.tensor_cores is False:
        return without_tensor_cores(verdict, card.described)
    if verdict.placement == "matrix_core" and card.matrix_units is False:
        text = f"contradiction: {verdict.reason.text}, but {card.described} has no matrix units"
        return replace(verdict, placement="cuda_core", reason=Reason("card-without-matrix-units", text))
    return verdict


def _by_counter(counted: Verdict, otherwise: Verdict) -> Verdict:
    """Return the verdict in which counters decide where the kernel ran, and the other verdict completes the
    rest. The reason states what contradicted the counters, or that they prove nothing."""
    text = counted.reason.text
    if counted.placement == "unknown":
        return replace(otherwise, reason=replace(otherwise.reason, text=f"{otherwise.reason.text}; {text}"))
    if otherwise.placement not in ("unknown", counted.placement):
        text += (
            f"; contradiction: without counters it would be {otherwise.placement} ({otherwise.reason.text})"
        )
    # Counters say that products were multiplied, not for what; the op or the name may know.
    open_ = counted.family == "other" or otherwise.family in MATMUL_FAMILIES
    return Verdict(
        counted.placement,
        counted.precision if counted.precision != "unknown" else otherwise.precision,
        otherwise.family if open_ else counted.family,
        Reason(counted.reason.code, text),
        "counter",
        counted.accumulate or otherwise.accumulate,
    )


# What an op says -------------------------------------------------------------------------------------------


def _by_op(named: Verdict, op: Op, shapes: str, card: _Card) -> Verdict:
    """Return a verdict from the op, where the kernel's name leaves its placement open."""
    if OWN_SCOPE.search(op.name):
        return Verdict("not_matmul", "unknown", "mpprof", Reason("own-op", "an op that mpprof added"), "op")
    if op.hlo is not None and (said := _by_hlo(op.hlo, card)) is not None:
        return said
    op_type = op.type or type_from_name(op.name)
    family = family_of(op_type)
    if family is None:
        return named
    if named.family in MATMUL_FAMILIES or family in MATMUL_FAMILIES:
        # A matrix op may launch helpers beside its product: without a name nothing tells which this is.
        if family in MATMUL_FAMILIES and named == UNKNOWN:
            text = f"a kernel of {op_type}: its name does not show whether it is the product or a helper"
            return Verdict("unknown", inputs_precision(op, shapes), family, Reason("op-without-name", text))
        return named
    text = f"a kernel of the op type {op_type}, which multiplies no matrices"
    return Verdict("not_matmul", tensors_precision(op, shapes), family, Reason("op-type", text), "op")


def _by_hlo(hlo: HloInstruction, card: _Card) -> Verdict | None:
    """Return a verdict from a compiled instruction; None where it does not state enough."""
    inside = products(hlo)
    if inside:
        return _product(inside[0], card)
    if hlo.opcode == "custom-call":
        return None  # a library's: its kernels include helpers
    if hlo.opcode == "fusion" and not hlo.called:
        return None
    family = hlo_family(hlo)
    if family is None or family in MATMUL_FAMILIES:
        return None
    precision = values(hlo_types(hlo))
    text = f"the HLO {hlo.opcode} {hlo.name} holds no matrix product"
    return Verdict("not_matmul", precision, family, Reason("hlo", text), "op")


def _product(product: HloInstruction, card: _Card) -> Verdict:
    """Return where a product that XLA compiled itself (Triton, or the TPU's compiler) runs, by its operand
    types."""
    family: Family = "gemm" if product.opcode in DOT_CODES else "conv_fprop"
    types = [precision_of(dtype) for dtype in product.operand_dtypes[:2]]
    precision = operands(types)
    stated = " x ".join(product.operand_dtypes[:2]) or "unstated types"
    what = f"the HLO {product.opcode} {product.name} on {stated}"
    if card.vendor in ("google", "amd") and card.matrix_units is not False and precision != "unknown":
        return Verdict(
            "matrix_core", precision, family, Reason("hlo-product", f"{what}, on matrix units"), "op"
        )
    if card.tensor_cores is False or card.matrix_units is False:
        text = f"{what}, and {card.described} has no matrix units"
        return Verdict("cuda_core", precision, family, Reason("card-without-matrix-units", text), "op")
    if precision == "fp32" and (said := _float32_product(product, card, family, what)) is not None:
        return said
    if card.tensor_cores is None or precision in ("unknown", "fp32", "fp64", "mixed"):
        text = f"{what}: compiled by XLA; nothing states whether as TF32 or with ordinary arithmetic"
        return Verdict("unknown", precision, family, Reason("hlo-product-open", text))
    capability = card.compute_capability
    if not multiplies(precision, capability):
        text = f"{what}, which Tensor Cores of {card.described} do not multiply"
        return Verdict("cuda_core", precision, family, Reason("type-without-tensor-core", text), "op")
    text = f"{what}: compiled by XLA into mma instructions"
    return Verdict("tensor_core", precision, family, Reason("hlo-product", text), "op", "fp32")


def _float32_product(product: HloInstruction, card: _Card, family: Family, what: str) -> Verdict | None:
    """Return a float32 product that XLA compiled itself: as TF32 where the card has it and no more is asked
    for (xla/service/gpu: IsTf32Allowed), else with ordinary arithmetic. None where that is not stated."""
    if card.compute_capability is None:
        return None
    if not multiplies("tf32", card.compute_capability):
        text = f"{what}, and {card.described} has no TF32"
    elif product.precision in ("high", "highest"):
        text = f"{what} at {product.precision} precision, for which XLA does not use TF32"
    elif product.precision == "default":
        text = f"{what} at default precision: XLA multiplies it as TF32, unless the process has that off"
        return Verdict("tensor_core", "tf32", family, Reason("hlo-product-tf32", text), "op", "fp32")
    else:
        return None
    return Verdict("cuda_core", "fp32", family, Reason("hlo-product-fp32", text), "op", "fp32")


def _completed(name: str, verdict: Verdict, op: Op, shapes: str) -> Verdict:
    """Return the verdict with what the name leaves open (precision, direction of a convolution, the op's
    role) taken from the op."""
    if op is NO_OP:
        return verdict
    if OWN_SCOPE.search(op.name):
        return replace(verdict, family="mpprof")
    family = category_of(verdict, op, name)
    if family == "cast" and shapes.startswith("(bool["):
        family = "elementwise"  # a mask, such as dropout's, becomes numbers: no change of precision
    precision, reason = verdict.precision, verdict.reason
    matrix = family in MATMUL_FAMILIES and verdict.placement != "not_matmul"
    stated = inputs_precision(op, shapes) if matrix else tensors_precision(op, shapes)
    if precision == "unknown":
        precision = stated
    elif contradiction := _contradiction(verdict, stated, shapes):
        reason = Reason(reason.code, f"{reason.text}; {contradiction}")
    if (family, precision, reason) == (verdict.family, verdict.precision, verdict.reason):
        return verdict
    return changed(verdict, family=family, precision=precision, reason=reason)


_ATTENTION_CALL = "fmha"
"""What XLA's names of its calls of fused attention hold: `__cudnn$fmhaSoftmax`, `…Backward`."""


def _by_calls(verdict: Verdict, calls: Sequence[HloInstruction | None]) -> Verdict:
    """Return the verdict of an attention kernel whose name leaves its type open, and of which is known only
    that one of these calls of libraries made it, with the type that all calls of attention among them
    multiply."""
    if verdict.family != "attention" or verdict.placement == "not_matmul" or verdict.precision != "unknown":
        return verdict
    mine = [call for call in calls if call is not None and _ATTENTION_CALL in call.custom_call]
    types = {inputs_precision(Op("", call.opcode, call), "") for call in mine}
    if len(types) != 1:
        return verdict
    text = f"{verdict.reason.text}; every call of attention in its program multiplies {min(types)}"
    return changed(verdict, precision=types.pop(), reason=Reason(verdict.reason.code, text))


def _contradiction(verdict: Verdict, stated: Precision, shapes: str) -> str:
    """Return the words for operands that the op states and the kernel's name denies; "" where they agree.

    TF32 is how float32 operands are multiplied, and a product that casts its operands itself is no
    contradiction of what its name says it multiplies; it is still worth saying.
    """
    if verdict.family not in MATMUL_FAMILIES or verdict.placement not in (
        "tensor_core",
        "cuda_core",
        "matrix_core",
    ):
        return ""
    if stated in ("unknown", "mixed", verdict.precision) or (
        stated == "fp32" and verdict.precision == "tf32"
    ):
        return ""
    source = shapes or "its HLO"
    return f"contradiction: the name says {verdict.precision}, the op's tensors are {stated} ({source[:80]})"


# --- Where the ops of a trace without an accelerator ran: on the host's CPU.


def by_layers(trace: Trace, placements: Placements, ownership: Ownership) -> Placements:
    """Return the verdicts with the precision of matrix ops that only their layer tells: the type that a Keras
    layer computes in is the type that its products multiply, and the reason says that it was taken from
    there.

    For a trace of the host alone: on a device names and tensors tell, and a policy is only an intention.
    """
    if trace.basis != "host" or not ownership.facts:
        return placements
    verdicts, index = list(placements.verdicts), placements.index.copy()
    opens = np.array([v.family in MATMUL_FAMILIES and v.precision == "unknown" for v in verdicts], np.bool_)
    op = trace.kernels.op
    layer = np.append(ownership.layer, -1)[op] if len(op) else op  # op -1: the appended one
    rows = np.flatnonzero(opens[placements.index] & (layer >= 0)) if len(op) else np.zeros(0, np.int64)
    width = len(ownership.layers) + 1
    keys, which = np.unique(
        placements.index[rows].astype(np.int64) * width + layer[rows], return_inverse=True
    )
    now = []
    for key in keys.tolist():
        at, facts = key // width, ownership.facts[key % width]
        precision = COMPUTE_DTYPES.get(facts.compute_dtype or "") if facts else None
        if facts is None or precision is None:
            now.append(at)
            continue
        text = f"{verdicts[at].reason.text}; its layer {facts.name} computes in {facts.compute_dtype}"
        now.append(len(verdicts))
        verdicts.append(replace(verdicts[at], precision=precision, reason=Reason("host-op-layer", text)))
    index[rows] = np.array(now, np.int32)[which] if len(rows) else index[rows]
    return Placements(tuple(verdicts), index)


@lru_cache(maxsize=65536)
def on_host(name: str, op: Op, shapes: str) -> Verdict:
    """Return the verdict of one op on the host's CPU, where matrix work has a placement of its own."""
    family, what = _host_family(name, op)
    if family is None:
        return replace(UNKNOWN, precision=tensors_precision(op, shapes)) if op is not NO_OP else UNKNOWN
    placement: Placement = "cpu" if family in MATMUL_FAMILIES else "not_matmul"
    if placement == "cpu":
        text = f"{what}: matrix work on the CPU"
        return Verdict(placement, inputs_precision(op, shapes), family, Reason("host-op", text), "op")
    verdict = Verdict(
        placement,
        tensors_precision(op, shapes),
        family,
        Reason("host-op", f"{what} multiplies no matrices"),
        "op",
    )
    return replace(verdict, family=category_of(verdict, op))


def _host_family(name: str, op: Op) -> tuple[Family | None, str]:
    if OWN_SCOPE.search(op.name):
        return "mpprof", "an op that mpprof added"
    if op.hlo is not None:
        inside = products(op.hlo)
        if inside:
            return ("gemm" if inside[0].opcode in DOT_CODES else "conv_fprop"), f"the HLO {inside[0].opcode}"
        return hlo_family(op.hlo), f"the HLO {op.hlo.opcode}"
    # A fused op is named after the last that it does ("conv/Relu"): where the type stands, it alone counts.
    stated = (op.type,) if op.type else (type_from_name(op.name), type_from_name(name), name)
    for candidate in stated:
        family = family_of(candidate)
        if family is not None:
            return family, f"the op type {candidate}"
    return None, ""


# --- Norms by what they are: the plain kernels that a framework takes a batch or layer norm apart into.
#
# TensorFlow normalises by `moments` and `batchnorm`, sums and products of plain Eigen kernels; XLA and JAX
# fuse the like. Nothing but the layer that owns them says that they are a norm.

_NAMED = (
    r"(?i)(?:batch|layer|group|instance|rms|unit)_?norm(?:alization)?(?:[123]d)?(?:_\d+)*$"
    r"|(?:^|_)(?:bn|ln|norm)(?:_?(?:\d+|f))*$"
)
"""The last part of a layer's name: as Keras, PyTorch and Flax call them, and `bn`, `ln` and `norm` in the names
that models give (`conv1_bn`, `ln_f`, `norm1`, `attention_norm`). `normalization`, Keras' preprocessing layer, is
none."""
_PARTS = frozenset(("moments", "batchnorm"))
"""Scopes that only a norm has, whatever the class of the layer around them: those of `tf.nn.moments`, of Keras'
own moments and of `tf.nn.batch_normalization`."""
_PLAIN: frozenset[Family] = frozenset(("elementwise", "reduce", "fusion"))
_SPREADING = frozenset(("Tile", "BroadcastTo"))
"""Gradients of a mean: a layout change by type, and none of the tensor's layout."""
_AVERAGING = frozenset(("AssignVariableOp", "AssignSubVariableOp", "AssignAddVariableOp"))
"""The moving averages of a batch norm, kept outside the optimizer."""
_MOST = 0.5
"""The share of a fusion's work over several layers from which the fusion counts as that work."""


def by_norms(trace: Trace, placements: Placements, ownership: Ownership) -> Placements:
    """Return the verdicts with the family "norm" for the plain kernels of norm layers.

    A layer is a norm if the run recorded it as one, or if its name or the scopes within it say so and it
    multiplies no matrices. Casts, copies and changes of layout within it stay what they are."""
    norms = _norm_layers(trace, ownership)
    if not norms:
        return placements
    in_norm = np.append(_ops_of(norms, ownership, len(trace.ops)), False)  # op -1: the appended one
    op = trace.kernels.op
    rows = np.flatnonzero(in_norm[op])
    verdicts, index = list(placements.verdicts), placements.index.copy()
    keys, which = np.unique(
        placements.index[rows].astype(np.int64) * len(trace.ops) + op[rows], return_inverse=True
    )
    now = np.zeros(len(keys), np.int32)
    made: dict[int, int] = {}
    for at, key in enumerate(keys.tolist()):
        verdict, owner = divmod(key, len(trace.ops))
        now[at] = verdict
        if verdicts[verdict].placement == "not_matmul" and _is_norms(
            verdicts[verdict].family, trace.ops[owner]
        ):
            if verdict not in made:
                made[verdict] = len(verdicts)
                reason = verdicts[verdict].reason
                text = f"{reason.text}; the layer that owns it is a norm"
                verdicts.append(replace(verdicts[verdict], family="norm", reason=Reason(reason.code, text)))
            now[at] = made[verdict]
    index[rows] = now[which]
    return Placements(tuple(verdicts), index)


def _is_norms(family: Family, op: Op) -> bool:
    return family in _PLAIN or op.type in _SPREADING or op.type in _AVERAGING


def _norm_layers(trace: Trace, ownership: Ownership) -> set[int]:
    """Return the rows of the layers that are norms."""
    recorded = {at for at, facts in enumerate(ownership.facts) if facts is not None and kinds.is_norm(facts)}
    named = {at for at, name in enumerate(ownership.layers) if re.search(_NAMED, name.rpartition("/")[2])}
    found = named | set(_with_parts(trace, ownership))
    matrix = {int(ownership.layer[at]) for at, op in enumerate(trace.ops) if _multiplies(op)}
    return recorded | (found - matrix)


def _multiplies(op: Op) -> bool:
    return has_matrix(op) or family_of(op.type or type_from_name(op.name)) in MATMUL_FAMILIES


def _with_parts(trace: Trace, ownership: Ownership) -> Iterator[int]:
    for at, op in enumerate(trace.ops):
        layer = int(ownership.layer[at])
        if layer >= 0 and _just_within(ownership.layers[layer], parse(op.name, op.type).path):
            yield layer


def _just_within(layer: str, path: Sequence[str]) -> bool:
    """Return whether a part of a norm stands right below this layer in the op's scopes: deeper down such a
    part belongs to a norm within the layer, and nothing of the layer's other work is a norm."""
    name = layer.rpartition("/")[2]
    return any(part in _PARTS and above == name for above, part in pairwise(path))


def _ops_of(norms: set[int], ownership: Ownership, count: int) -> Bool:
    """Return which ops belong to these layers, forward or backward; of a fusion over several, by most of its
    work."""
    wanted = np.zeros(len(ownership.layers) + 1, np.bool_)  # layer -1: the last
    wanted[list(norms)] = True
    found = wanted[ownership.layer[:count]]
    names = {ownership.layers[at] for at in norms}
    for op, spans in ownership.spans.items():
        found[op] = sum(span.ratio for span in spans if span.layer in names) >= _MOST
    passes = [PHASES.index("forward"), PHASES.index("backward")]
    return found & np.isin(ownership.phase[:count], passes)


# --- What an op says of its kernels: its HLO's products, its tensors' types, its role in the step.

NO_OP = Op("", "")
_GENERIC: frozenset[Family] = frozenset(("elementwise", "reduce", "fusion", "other", "memset"))
_NAMED_BY_ROOT = frozenset(("xla-loop-fusion", "xla-named-fusion"))
"""XLA names a fusion after a few of its instructions; its HLO lists them all."""

_TELLS_NOTHING: frozenset[Family] = frozenset(("other", "copy"))
_TOLD_BY_BODY: frozenset[Family] = _TELLS_NOTHING | {"cast", "layout", "gather_scatter"}
"""A fusion is named after its root: one that multiplies, adds and then converts is no cast, and what it holds
of these its body says."""

DOT_CODES = frozenset(("dot", "ragged-dot", "scaled-dot"))


def products(hlo: HloInstruction, depth: int = 4) -> list[HloInstruction]:
    """Return the matrix products inside an instruction: itself, or those of the computations that it
    calls."""
    if hlo.opcode in DOT_CODES or hlo.opcode == "convolution":
        return [hlo]
    if depth == 0:
        return []
    return [product for inner in hlo.called for product in products(inner, depth - 1)]


_SHAPE_ONLY = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "reshape")
)
_RANK: tuple[Family, ...] = (
    "gather_scatter",
    "random",
    "reduce",
    "pool",
    "norm",
    "elementwise",
    "cast",
    "layout",
)
"""A fusion of several instructions belongs to the first of these families that it has an instruction of."""


@lru_cache(maxsize=65536)
def hlo_family(hlo: HloInstruction) -> Family | None:
    """Return the family of an instruction or of what a fusion holds; None: an opcode that is not known."""
    if not hlo.called or hlo.opcode in (
        "reduce",
        "sort",
        "scatter",
        "map",
        "reduce-window",
        "select-and-scatter",
    ):
        return family_of(hlo.opcode)
    inside = {family_of(inner.opcode) for inner in hlo.called if inner.opcode not in _SHAPE_ONLY}
    for inner in hlo.called:
        if inner.called and inner.opcode == "fusion":
            inside.add(hlo_family(inner))
    return next(
        (family for family in _RANK if family in inside), "layout" if not inside - {None} else "elementwise"
    )


def hlo_types(hlo: HloInstruction) -> tuple[Precision, ...]:
    return tuple(
        precision
        for dtype in (*hlo.operand_dtypes, hlo.dtype)
        if (precision := precision_of(dtype)) != "unknown"
    )


def tensors_precision(op: Op, shapes: str) -> Precision:
    """Return the precision of an op's operands, from the recorded shapes, else from its HLO."""
    stated = [precision_of(tensor.dtype) for tensor in parse_shapes(shapes)]
    stated = [precision for precision in stated if precision not in ("unknown", "int8")]
    if not stated and op.hlo is not None:
        stated = [precision for precision in hlo_types(op.hlo) if precision != "int8"]
    return values(stated)


def inputs_precision(op: Op, shapes: str) -> Precision:
    """Return the type of a matrix op's two factors, by its HLO's product or its recorded shapes.

    Sizes and indices beside them are integers; a bias, an accumulator or a workspace comes after them.
    """
    inside = products(op.hlo) if op.hlo is not None else []
    if inside:
        return operands(map(precision_of, inside[0].operand_dtypes[:2]))
    stated = [precision_of(tensor.dtype) for tensor in parse_shapes(shapes)]
    if not stated and op.hlo is not None:
        stated = [precision_of(dtype) for dtype in op.hlo.operand_dtypes]
    stated = [precision for precision in stated if precision != "unknown"]
    return operands([precision for precision in stated if precision != "int8"][:2] or stated[:2])


def category_of(verdict: Verdict, op: Op, kernel: str = "") -> Family:
    """Return the family that the op gives to its kernel: the direction of a convolution, the optimizer's
    work.

    A direction that the kernel's own name states stays: JAX calls the gradients of a convolution
    `conv_general_dilated` too.
    """
    op_type = op.type if op.hlo is None else ""
    of_type = family_of(op_type or type_from_name(op.name))
    if op.hlo is not None and verdict.reason.code in _NAMED_BY_ROOT:
        verdict = replace(verdict, family=hlo_family(op.hlo) or verdict.family)
    if verdict.family in MATMUL_FAMILIES:
        if of_type in CONVOLUTIONS and (stated := direction(kernel.lower())) is not None:
            return stated
        return of_type if of_type in MATMUL_FAMILIES and verdict.family != "attention" else verdict.family
    if verdict.placement != "not_matmul":
        return verdict.family
    if verdict.family in _GENERIC:
        if of_type in ("optimizer", "loss_scale"):
            return of_type
        phase = scopes.parse(op.name, op.type).phase
        if phase in ("optimizer", "loss_scale"):
            return phase
        if (
            of_type is not None
            and of_type not in MATMUL_FAMILIES
            and of_type not in (_TOLD_BY_BODY if op.hlo is not None and op.hlo.called else _TELLS_NOTHING)
            and verdict.family in ("elementwise", "fusion", "other")
        ):
            return of_type
    return verdict.family
