"""What the work of a device on the timeline is coloured by, apart from where it ran."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from mpprof.analysis.breakdown.accounting import roles
from mpprof.analysis.layers.attribution import Ownership
from mpprof.model.account import CLASSES
from mpprof.model.arrays import Int16
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Placements, Verdict
from mpprof.model.trace import Trace, WorkKind

ColourBy = Literal["placement", "precision", "layer", "class"]
COLOURS_BY: tuple[ColourBy, ...] = get_args(ColourBy)
MOST_LAYERS = 12
"""The layers that take the most time have a colour each; the rest share one."""


@frozen
class Colouring:
    """`of` holds a row of `keys` for each row of the kernel table."""

    keys: tuple[str, ...]
    of: Int16


def colouring(trace: Trace, placements: Placements, ownership: Ownership, by: ColourBy) -> Colouring:
    """Return the colour key of each kernel by its precision, layer or class: "precision/tensor_core/fp16",
    "layer/dense", "class/norm"."""
    if by == "layer":
        return _by_layer(trace, ownership)
    if by == "class":
        every = np.arange(len(trace.kernels), dtype=np.int64)
        category = roles(trace, placements, ownership, every)[1]
        return Colouring(tuple(f"class/{name}" for name in CLASSES), category.astype(np.int16))
    return _by_precision(trace, placements)


def _by_precision(trace: Trace, placements: Placements) -> Colouring:
    keys = {"precision/copy": 0}
    of_verdict = [keys.setdefault(_precision(verdict), len(keys)) for verdict in placements.verdicts]
    of = np.array([*of_verdict, 0], np.int16)[placements.index]
    return Colouring(tuple(keys), np.where(trace.kernels.kind == WorkKind.KERNEL, of, 0).astype(np.int16))


def _precision(verdict: Verdict) -> str:
    if verdict.placement == "not_matmul":
        return "precision/other"
    return f"precision/{verdict.placement}/{verdict.precision}"


def _by_layer(trace: Trace, ownership: Ownership) -> Colouring:
    layers = np.append(ownership.layer, -1)[trace.kernels.op]  # op -1 finds the last
    ns = np.bincount(layers + 1, trace.kernels.duration_ns, len(ownership.layers) + 1)[1:]
    longest = np.argsort(-ns, kind="stable")[:MOST_LAYERS].tolist()
    keys = ["no layer", *(f"layer/{ownership.layers[row]}" for row in longest), "other layers"]
    of = np.full(len(ownership.layers) + 1, len(keys) - 1, np.int16)
    of[longest] = np.arange(1, len(longest) + 1)
    of[-1] = 0
    return Colouring(tuple(keys), of[layers])
