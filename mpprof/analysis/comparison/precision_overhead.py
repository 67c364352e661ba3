"""Work that 16 bits bring with them: no healthy mixed run is without it, and a float32 run has none of it.

Casts of the weights that a layer computes with, and of the gradients that come back; casts around layers that
are meant to compute in float32 (norms, the model's end); one pass over the gradients to check and un-scale
them. All as fast as memory allows, except for the casts around norms, which take what they take: how much of
them XLA would fuse away is a question of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpprof.analysis.attainable.work import FLOOR_NS, SIXTEEN_BITS, streaming_ns
from mpprof.analysis.comparison.ratios import MatchKey, Part, compiled, parts, precision_of
from mpprof.analysis.layers import kinds
from mpprof.model.account import Cell
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.run import LayerFacts, Run

CAST_BYTES = 6
"""Per value: four bytes read and two written, or the other way round."""
SCALING_BYTES = 12
"""Per parameter: the gradient read for the finite check, and read and written once to un-scale it."""
_CASTS_OF_A_LAYER = 4.0  # kernel and bias, there and back


@frozen
class _Known:
    layers: Mapping[str, LayerFacts]
    end: frozenset[str]
    parameters: int | None
    bandwidth_bytes_per_s: float | None
    scaling: bool
    fused: bool  # XLA compiles the step: casts around norms are no need


def added(
    before: Mapping[MatchKey, Part], after: Mapping[MatchKey, Part], run: Run, peaks: DevicePeaks | None
) -> dict[MatchKey, float]:
    """Return the nanoseconds per step, by role, of the mixed run's work that belongs to computing in 16 bits.

    At most what the role takes above the baseline. Empty without recorded layers.
    """
    known = _known(run, peaks)
    if known is None:
        return {}
    found: dict[MatchKey, float] = {}
    left = _scaling_ns(known)
    for key, part in sorted(after.items(), key=lambda item: -item[1].ns):
        had = before[key].ns if key in before else 0.0
        if key.category == "cast":
            ns = _cast_ns(part, known)
        elif key.category == "loss_scale" and known.scaling:
            moving = min(part.ns, left)
            left -= moving
            ns = moving + part.calls * FLOOR_NS
        else:
            continue
        if min(part.ns, ns) > had:
            found[key] = min(part.ns, ns) - had
    return found


def needed_casts(cells: Sequence[Cell], run: Run, peaks: DevicePeaks | None) -> list[float]:
    """Return for each cell the nanoseconds per step of casting that its layer cannot do without in 16 bits: 0
    for what is no cast, and for all cells where the layers were not recorded."""
    known = _known(run, peaks)
    if known is None:
        return [0.0] * len(cells)
    keys = [MatchKey(cell.category, cell.phase, cell.layer, None, None) for cell in cells]
    share = {
        key: min(1.0, _cast_ns(part, known) / part.ns) if part.ns > 0 else 0.0
        for key, part in parts(cells, keys).items()
        if key.category == "cast"
    }
    return [cell.ns_per_step * share.get(key, 0.0) for cell, key in zip(cells, keys, strict=True)]


def of_layer(layer: LayerFacts, bandwidth_bytes_per_s: float | None, *, passes: int = 2) -> float:
    """Return the time that casting the weights of a layer takes, in ns per step: the weights to 16 bits, and
    (2 passes) the gradients back."""
    if not bandwidth_bytes_per_s or not layer.parameters:
        return 0.0
    each = streaming_ns(CAST_BYTES * layer.parameters, bandwidth_bytes_per_s)
    return passes * (FLOOR_NS + each)


def _known(run: Run, peaks: DevicePeaks | None) -> _Known | None:
    model, fit = run.model, run.last_fit
    if model is None:
        return None
    return _Known(
        layers={layer.name: layer for layer in model.layers},
        end=kinds.head(model.layers),
        parameters=model.parameters,
        bandwidth_bytes_per_s=peaks.bandwidth_bytes_per_s if peaks else None,
        scaling=bool(fit and fit.optimizer.dynamic),
        fused=compiled(run),
    )


def _cast_ns(part: Part, known: _Known) -> float:
    layer = known.layers.get(part.key.layer or "")
    if layer is None:
        return 0.0
    if layer.name in known.end or (kinds.is_norm(layer) and not known.fused):
        return part.ns
    if precision_of(layer.compute_dtype) not in SIXTEEN_BITS or not layer.parameters:
        return 0.0
    return _weights_ns(part, layer, known)


def _weights_ns(part: Part, layer: LayerFacts, known: _Known) -> float:
    """Return the time of one cast of every weight of the layer in this phase."""
    if not known.bandwidth_bytes_per_s or layer.parameters is None:
        return 0.0
    moving = streaming_ns(CAST_BYTES * layer.parameters, known.bandwidth_bytes_per_s)
    return min(part.calls, _CASTS_OF_A_LAYER) * FLOOR_NS + moving


def _scaling_ns(known: _Known) -> float:
    if not known.bandwidth_bytes_per_s or known.parameters is None:
        return 0.0
    return streaming_ns(SCALING_BYTES * known.parameters, known.bandwidth_bytes_per_s)
