"""Where the ops of a trace without an accelerator ran: on the host's CPU, with ordinary arithmetic."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from mpprof.analysis.eligibility import precision_of
from mpprof.analysis.kernel_names_ops import OWN_SCOPE, family_of, type_from_name
from mpprof.analysis.kernel_names_parse import operands
from mpprof.analysis.layers import Ownership
from mpprof.analysis.placement_ops import DOT_CODES, NO_OP, hlo_family, products, role_of, tensors_precision
from mpprof.model.kernels import (
    MATMUL_FAMILIES,
    UNKNOWN,
    Family,
    Placement,
    Placements,
    Precision,
    Reason,
    Verdict,
)
from mpprof.model.trace import Op, Trace

COMPUTE_DTYPES: dict[str, Precision] = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
"""What the layers of a Keras policy compute in."""


def by_layers(trace: Trace, placements: Placements, ownership: Ownership) -> Placements:
    """The verdicts with the precision of matrix ops that only their layer tells: what a Keras layer computes
    in is what its products multiply, and the reason says that it was taken from there.

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
    """The verdict of one op on the host's CPU: matrix work is ordinary arithmetic there."""
    family, what = _host_family(name, op)
    if family is None:
        return replace(UNKNOWN, precision=tensors_precision(op, shapes)) if op is not NO_OP else UNKNOWN
    placement: Placement = "cuda_core" if family in MATMUL_FAMILIES else "not_matmul"
    if placement == "cuda_core":
        text = f"{what} on the CPU: matrix work with ordinary arithmetic"
        return Verdict(placement, _host_operands(op, shapes), family, Reason("host-op", text), "op")
    verdict = Verdict(
        placement,
        tensors_precision(op, shapes),
        family,
        Reason("host-op", f"{what} multiplies no matrices"),
        "op",
    )
    return replace(verdict, family=role_of(verdict, op))


def _host_family(name: str, op: Op) -> tuple[Family | None, str]:
    if OWN_SCOPE.search(op.name):
        return "mpprof", "an op that mpprof added"
    if op.hlo is not None:
        inside = products(op.hlo)
        if inside:
            return ("gemm" if inside[0].opcode in DOT_CODES else "conv_fprop"), f"the HLO {inside[0].opcode}"
        return hlo_family(op.hlo), f"the HLO {op.hlo.opcode}"
    for candidate in (op.type, type_from_name(op.name), type_from_name(name), name):
        family = family_of(candidate)
        if family is not None:
            return family, f"the op type {candidate}"
    return None, ""


def _host_operands(op: Op, shapes: str) -> Precision:
    if op.hlo is not None and (inside := products(op.hlo)):
        return operands(precision_of(dtype) for dtype in inside[0].operand_dtypes[:2])
    return tensors_precision(op, shapes)
