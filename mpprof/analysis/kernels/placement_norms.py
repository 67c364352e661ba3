"""Norms by what they are: the plain kernels that a framework takes a batch or layer norm apart into.

TensorFlow normalises by `moments` and `batchnorm`, sums and products of plain Eigen kernels; XLA and JAX fuse
the like. Nothing but the layer that owns them says that they are a norm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.kernels.op_types import family_of, type_from_name
from mpprof.analysis.layers import kinds
from mpprof.analysis.layers.attribution import Ownership, has_matrix
from mpprof.analysis.layers.scopes import parse
from mpprof.model.account import PHASES
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Placements, Reason
from mpprof.model.trace import Op, Trace

_NAMED = (
    r"(?i)(?:batch|layer|group|instance|rms|unit)_?norm(?:alization)?(?:[123]d)?(?:_\d+)*$"
    r"|(?:^|_)(?:bn|ln|norm)(?:_?(?:\d+|f))*$"
)
"""The last part of a layer's name: as Keras, PyTorch and Flax call them, and `bn`, `ln` and `norm` in the names
that models give (`conv1_bn`, `ln_f`, `norm1`, `attention_norm`). `normalization`, Keras' preprocessing layer, is
none."""
_PARTS = frozenset(("moments", "batchnorm"))
"""Scopes of `tf.nn.moments`, Keras' own moments and `tf.nn.batch_normalization`, within whatever layer."""
_PLAIN: frozenset[Family] = frozenset(("elementwise", "reduce", "fusion"))
_SPREADING = frozenset(("Tile", "BroadcastTo"))
"""Gradients of a mean: a layout change by type, and none of the tensor's layout."""
_AVERAGING = frozenset(("AssignVariableOp", "AssignSubVariableOp", "AssignAddVariableOp"))
"""The moving averages of a batch norm, kept outside the optimizer."""
_MOST = 0.5
"""Of the work of a fusion over several layers from which it counts as what most of it is."""


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


def _ops_of(norms: set[int], ownership: Ownership, count: int) -> NDArray[np.bool_]:
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
