"""Which tensor breaks first, in the forward and in the backward pass, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ratio
from mpprof.numbers import band, causes
from mpprof.numbers.job import Entry, Job, key
from mpprof.numbers.result import Break, ScaleBand
from mpprof.numbers.tallies import LARGEST16
from mpprof.numbers.taps import Place
from mpprof.numbers.text import power

InFloat32 = dict[tuple[Any, ...], Entry]
"""What the pass in float32 gave, by `job.key`."""

Why = tuple[str, str]
"""A kind and its reason."""


@frozen
class Computed:
    """The operations that one call of a layer, or the loss, is computed by. `within`: what the layer is given
    is not finite already, and these are those of the call of this layer, or of the model, around it."""

    operations: list[causes.Op]
    within: str | None = None


@frozen
class Passes:
    """What was seen at the model's own policy and in float32. `operations` runs one call of a layer, or the
    loss, operation by operation; `stays_narrow` tells whether it computes in 16 bits in the float32 pass,
    too."""

    entries: Sequence[Entry]
    float32: InFloat32
    operations: Callable[[Place], Computed]
    stays_narrow: Callable[[Place], bool]


def forward(job: Job, passes: Passes) -> Break | None:
    """Return the first output that is not finite; None where all are."""
    entries = passes.entries
    found = next((each for each in entries if each.tensor == "output" and each.tally.nonfinite), None)
    if found is None:
        return None
    why = _not_finite_before(job, found.place)
    source = None
    if why is None:
        computed = passes.operations(found.place)
        source = computed.within
        why = causes.cause(computed.operations, of_one=source is None)
        if why is None or why[0] == "cast":
            first = found is entries[0]
            not_known = "its inputs are finite" if source is None else "what it is given is not finite"
            why = _beyond_float16(job, found, first) or why or ("not known", not_known)
        if source is not None and why[0] != "not known":
            why = why[0], f"what it is given is not finite ({why[1]}, in the call of {source})"
        other = passes.float32.get(key(found))
        if other is not None and other.tally.max_abs and not other.tally.nonfinite:
            why = why[0], f"{why[1]}; in float32 its largest is {causes.figure(other.tally.max_abs)}"
    return _broken(found, why, passes, source)


def backward(passes: Passes, broken: Break | None, scale: ScaleBand | None, now: float) -> Break | None:
    """Return the first gradient that is not finite; else, where the loss scale is too low, the first of which
    more than `band.MOST_LOST` is 0 and is not in float32; None where there is none. `broken`: the break of
    the forward pass."""
    gradients = _in_order(passes.entries)
    found = next((each for each in gradients if each.tally.nonfinite), None)
    if found is not None:
        return _broken(found, _why_not_finite(broken, scale, now), passes)
    if scale is None or (scale.low is not None and now >= scale.low):
        return None
    found = _first_lost(gradients, passes.float32)
    if found is None:
        return None
    reason = f"{_lost(found, passes.float32)} of it rounds to 0 at a loss scale of {power(now)}"
    if scale.low is not None:
        return _underflow(found, f"{reason}; from {power(scale.low)} on at most 1 % does")
    outputs = [each for each in passes.entries if each.tensor == "output"]
    source = _first_lost(outputs, passes.float32)
    if source is None:
        return _underflow(found, f"{reason}, and more than 1 % at any")
    before = f"{_lost(source, passes.float32)} of the output of {source.place.layer} does before"
    return _underflow(found, f"{reason}, and more than 1 % at any: {before}", source.place.layer)


def _first_lost(entries: Sequence[Entry], float32: InFloat32) -> Entry | None:
    return next((each for each in entries if (flushed(each, float32) or 0) > band.MOST_LOST), None)


def _lost(entry: Entry, float32: InFloat32) -> str:
    return format_ratio(flushed(entry, float32) or 0.0)


def _underflow(entry: Entry, reason: str, source: str | None = None) -> Break:
    return Break(entry.place.layer, entry.tensor, reason, "underflow", source=source)


def _broken(entry: Entry, why: Why, passes: Passes, source: str | None = None) -> Break:
    """Return the break of a tensor that is not finite; it says so where it is not in float32, either."""
    other = passes.float32.get(key(entry))
    finite = None if other is None else other.tally.nonfinite == 0
    kind, reason = why
    if finite is False and kind not in ("batch", "weights", "forward"):
        if passes.stays_narrow(entry.place):
            finite = None
        else:
            reason += "; it is not finite in float32, either"
    return Break(entry.place.layer, entry.tensor, reason, kind, finite, source)


def flushed(entry: Entry, float32: InFloat32) -> float | None:
    """Return the share of a tensor that is 0 and is not in float32; None where that is not known."""
    other = float32.get(key(entry))
    if other is None or other.tally.elements != entry.tally.elements:
        return None
    if entry.tally.nonfinite or other.tally.nonfinite:
        return None
    return max(entry.tally.zero - other.tally.zero, 0) / entry.tally.elements


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Return the gradients as the backward pass comes to them: of an output, then of the weights of its
    layer, which are computed from it."""
    flow = [each for each in entries if each.tensor == "gradient"]
    last = {each.place.layer: number for number, each in enumerate(flow)}
    ranked = [(float(number), each) for number, each in enumerate(flow)]
    ranked += [
        (last.get(each.place.layer, len(flow)) + 0.5, each)
        for each in entries
        if each.tensor == "weight_gradient"
    ]
    return [each for _, each in sorted(ranked, key=lambda one: one[0])]


def _why_not_finite(broken: Break | None, scale: ScaleBand | None, now: float) -> Why:
    if broken is not None:
        return "forward", f"the forward pass broke before, in {broken.layer}"
    if scale is None or (scale.high is not None and now <= scale.high):
        return "not known", "all outputs and weights' gradients are finite"
    if scale.high is None:
        return "every scale", "it is not finite at any loss scale"
    if scale.low is None:
        lost = "where more than 1 % of the gradients' elements round to 0"
        return "every scale", f"it overflows above a loss scale of {power(scale.high)}, {lost}"
    at = f"it overflows at a loss scale of {power(now)}"
    return "loss scale", f"{at}; {power(scale.high)} is the highest at which no gradient does"


def _not_finite_before(job: Job, place: Place) -> Why | None:
    if not is_finite(job, (job.x, job.y, job.sample_weight)):
        return "batch", "the batch holds values that are not finite"
    with job.scope():
        for variable in _weights(job, place):
            if not is_finite(job, variable.value):
                return "weights", f"its weight {variable.name} is not finite"
    return None


def _beyond_float16(job: Job, entry: Entry, first: bool) -> Why | None:
    """Return that a weight, or the batch, is finite and beyond float16, in which its layer computes."""
    if entry.tally.dtype != "float16":
        return None
    with job.scope():
        for variable in _weights(job, entry.place):
            if (most := _largest(job, variable.value)) > LARGEST16:
                return "weights", f"its weight {variable.name} holds {causes.figure(most)}, beyond float16"
    if first and (most := _largest(job, job.x)) > LARGEST16:
        return "cast", f"the batch holds {causes.figure(most)}, and float16 ends at {LARGEST16:,.0f}"
    return None


def _weights(job: Job, place: Place) -> Iterable[Any]:
    return getattr(job.taps.operations.get(place.layer), "variables", None) or ()


def _largest(job: Job, structure: Any) -> float:
    return max((float(np.abs(each).max()) for each in _arrays(job, structure) if each.size), default=0.0)


def is_finite(job: Job, structure: Any) -> bool:
    """Return whether all numbers in a structure of tensors are finite."""
    return all(np.isfinite(array).all() for array in _arrays(job, structure))


def _arrays(job: Job, structure: Any) -> list[Any]:
    """Return the arrays of a structure that hold numbers, as float32."""
    flat = [each for each in job.keras.tree.flatten(structure) if each is not None]
    arrays = [np.asarray(job.keras.ops.convert_to_numpy(each)) for each in flat if not isinstance(each, str)]
    return [each.astype(np.float32) for each in arrays if each.dtype.kind not in "OUS"]
