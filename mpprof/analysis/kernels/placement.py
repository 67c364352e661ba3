"""Where every kernel of a trace ran: the evidence ladder.

Strongest first: hardware counters for that kernel name on that card; the name's own statement of its
instruction and types; dtypes and shapes of the op, from the HLO or as the host recorded them; the family.
The strongest that decides gives the placement; weaker evidence completes what it leaves open (precision,
family) and a contradiction between two is written into the reason. The work is done once per distinct
(name, op, device), rows only get an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.eligibility import multiplies, precision_of
from mpprof.analysis.kernels.name_parts import operands, spelled, values
from mpprof.analysis.kernels.names import classify, without_tensor_cores
from mpprof.analysis.kernels.op_types import OWN_SCOPE, family_of, type_from_name
from mpprof.analysis.kernels.placement_host import on_host
from mpprof.analysis.kernels.placement_ops import (
    DOT_CODES,
    NO_OP,
    category_of,
    hlo_family,
    hlo_types,
    inputs_precision,
    products,
    tensors_precision,
)
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import changed, frozen
from mpprof.model.grouping import groups
from mpprof.model.kernels import (
    MATMUL_FAMILIES,
    OTHER_CARD,
    UNKNOWN,
    Family,
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
        verdict_of.append(rows.setdefault(verdict, len(rows)))
    return Placements(tuple(rows), np.array(verdict_of, np.int32)[index])


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
