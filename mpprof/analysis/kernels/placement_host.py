"""Where the ops of a trace without an accelerator ran: on the host's CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from mpprof.analysis.kernels.op_types import OWN_SCOPE, family_of, type_from_name
from mpprof.analysis.kernels.placement_ops import (
    DOT_CODES,
    NO_OP,
    category_of,
    hlo_family,
    inputs_precision,
    products,
    tensors_precision,
)
from mpprof.analysis.layers.attribution import Ownership
from mpprof.model.kernels import (
    COMPUTE_DTYPES,
    MATMUL_FAMILIES,
    UNKNOWN,
    Family,
    Placement,
    Placements,
    Reason,
    Verdict,
)
from mpprof.model.trace import Op, Trace


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
