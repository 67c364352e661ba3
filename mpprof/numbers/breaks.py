"""Which tensor breaks first, in the forward and in the backward pass, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ratio
from mpprof.numbers import band, causes
from mpprof.numbers.arrays import is_finite, largest
from mpprof.numbers.flow import Flow
from mpprof.numbers.job import Entry, Job, key
from mpprof.numbers.result import Break, ScaleBand
from mpprof.numbers.tallies import LARGEST16, LIMITS, counted_as
from mpprof.numbers.taps import Place
from mpprof.numbers.text import power

InFloat32 = dict[tuple[Any, ...], Entry]
"""What the pass in float32 gave, by `job.key`."""

UNDERFLOW = "underflow"
_BEFORE = "the forward pass broke before, in {}"

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
    """What was seen at the model's own policy and in float32. `is_wide`: nothing is computed in 16 bits, so
    that there is no other pass in float32. `lowest` gives what is seen at the lowest loss scale; `operations`
    runs one call of a layer, or the loss, operation by operation; `stays_narrow` tells whether it computes in
    16 bits in the float32 pass, too; `flow` gives what is handed to what."""

    entries: Sequence[Entry]
    float32: InFloat32
    is_wide: bool
    lowest: Callable[[], Sequence[Entry]]
    operations: Callable[[Place], Computed]
    stays_narrow: Callable[[Place], bool]
    flow: Callable[[], Flow]


def forward(job: Job, passes: Passes) -> Break | None:
    """Return the first output that is not finite; else the first that is 0 where its type would hold what
    it is in float32; None where there is none."""
    entries = passes.entries
    outputs = [each for each in entries if each.tensor == "output"]
    found = next((each for each in outputs if each.tally.nonfinite), None)
    if found is None:
        return _lost_in_a_layer(outputs, passes)
    why = _not_finite_before(job, found.place)
    source = None if why is None or why[0] != "batch" else _part(job)
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
            why = why[0], f"{why[1]}; in float32 the output's largest is {causes.figure(other.tally.max_abs)}"
    return _broken(found, why, passes, source)


def _lost_in_a_layer(outputs: Sequence[Entry], passes: Passes) -> Break | None:
    for each in outputs:
        lost = lost_within(each, passes.float32)
        if lost > band.MOST_LOST and not _is_given_lost(each, outputs, passes):
            why = causes.cause(passes.operations(each.place).operations)
            reason = f"{format_ratio(lost)} of it is 0 and is not in float32"
            return _underflow(each, reason if why is None else f"{reason}: within it {why[1]}", finite=True)
    return None


def _is_given_lost(entry: Entry, outputs: Sequence[Entry], passes: Passes) -> bool:
    given = passes.flow().given(entry.place)
    return _first_lost([each for each in outputs if each.place in given], passes.float32) is not None


def backward(passes: Passes, broken: Break | None, scale: ScaleBand | None, now: float) -> Break | None:
    """Return the first gradient that is finite at no loss scale; else the first that is not finite at this
    one; else, where the loss scale is too low, the first of which more than `band.MOST_LOST` is 0 and is not
    in float32; None where there is none. `broken`: the break of the forward pass, from which it follows where
    float16 would hold at this scale what the gradient is in float32, or no scale keeps it from being 0."""
    gradients = _in_order(passes.entries)
    over = [each for each in gradients if each.tally.nonfinite]
    if over:
        others = *passes.lowest(), *passes.float32.values()  # at the lowest, what is given back may be 0
        never = {key(each) for each in others if each.tally.nonfinite}
        found = next((each for each in over if key(each) in never), None)
        if found is not None:
            return _at_no_scale(found, broken, passes)
        if broken is not None and _would_fit(over[0], now, passes.float32):
            return _follows(over[0], broken, passes)
        return _overflow(over[0], scale, now, passes)
    if scale is None or (scale.low is not None and now >= scale.low):
        return None
    found = _first_lost(gradients, passes.float32)
    if found is None:
        return None
    if broken is not None and broken.kind == UNDERFLOW and scale.low is None:
        return _underflow(found, _BEFORE.format(broken.layer), broken.layer)
    reason = f"{_lost(found, passes.float32)} of it rounds to 0 at a loss scale of {power(now)}"
    if scale.low is not None:
        at_most = "at most 1 % of all weights' gradients does"
        return _underflow(found, f"{reason}; from {power(scale.low)} on {at_most}")
    outputs = [each for each in passes.entries if each.tensor == "output"]
    source = _first_lost(outputs, passes.float32)
    any_scale = "more than 1 % of all weights' gradients at any"
    if source is None:
        return _underflow(found, f"{reason}, and {any_scale}")
    before = f"{_lost(source, passes.float32)} of the output of {source.place.layer} does before"
    return _underflow(found, f"{reason}, and {any_scale}: {before}", source.place.layer)


def _first_lost(entries: Sequence[Entry], float32: InFloat32) -> Entry | None:
    return next((each for each in entries if (flushed(each, float32) or 0) > band.MOST_LOST), None)


def _lost(entry: Entry, float32: InFloat32) -> str:
    return format_ratio(flushed(entry, float32) or 0.0)


def _underflow(entry: Entry, reason: str, source: str | None = None, finite: bool | None = None) -> Break:
    return Break(entry.place.layer, entry.tensor, reason, UNDERFLOW, finite, source)


def _broken(entry: Entry, why: Why, passes: Passes, source: str | None = None) -> Break:
    """Return the break of a tensor that is not finite; it says so where it is not in float32, either."""
    other = passes.float32.get(key(entry))
    finite = None if other is None else other.tally.nonfinite == 0
    kind, reason = why
    if kind in ("batch", "weights", "forward"):
        pass
    elif passes.is_wide:
        finite, reason = False, f"{reason}; nothing of it computes in 16 bits"
    elif finite is False:
        if passes.stays_narrow(entry.place):
            finite, reason = None, f"{reason}; a layer casts to 16 bits by itself"
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


def lost_within(entry: Entry, float32: InFloat32) -> float:
    """Return the share of an output that is 0 though its type would hold what it is in float32; 0 where that
    is not known."""
    other = float32.get(key(entry))
    if other is None or flushed(entry, float32) is None:
        return 0.0
    too_small = other.tally.would_be(counted_as(entry.tally.dtype)).flushed_ratio * other.tally.elements
    return max(entry.tally.zero - other.tally.zero - too_small, 0.0) / entry.tally.elements


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


def _at_no_scale(found: Entry, broken: Break | None, passes: Passes) -> Break:
    """Return the break of a gradient that is not finite at the lowest loss scale, either."""
    other = passes.float32.get(key(found))
    own = broken is not None and broken.finite_in_float32 and other is not None and other.tally.nonfinite
    if broken is not None and broken.kind != UNDERFLOW and not own:
        return _follows(found, broken, passes)
    reason, source = "it is not finite, whatever the loss scale", None
    if found.tensor == "gradient":
        flow = passes.flow()
        source = flow.reader(found.place)
        if source is not None and source == flow.outer(found.place.layer):
            reason += f", and breaks in the call of {source}, after {found.place.layer}"
        elif source is not None:
            reason += f", and breaks in the backward pass of {source}"
    if broken is not None and source == broken.layer and not own:
        return _follows(found, broken, passes)
    return _broken(found, ("every scale", reason), passes, source)


def _follows(found: Entry, broken: Break, passes: Passes) -> Break:
    """Return the break of a gradient that comes from that of the forward pass."""
    follows = _broken(found, ("forward", _BEFORE.format(broken.layer)), passes)
    if follows.finite_in_float32 is not False:
        return follows
    if broken.finite_in_float32 is None:  # the layer is narrow in the pass in float32, too
        return replace(follows, finite_in_float32=None)
    return replace(follows, reason=f"{follows.reason}; it is not finite in float32, either")


def _would_fit(entry: Entry, scale: float, float32: InFloat32) -> bool:
    """Return whether float16 would hold, at a loss scale, what a gradient is in float32."""
    other = float32.get(key(entry))
    if other is None or other.tally.nonfinite or other.tally.max_abs is None:
        return False
    return other.tally.max_abs * scale < LIMITS["float16"].over


def _overflow(found: Entry, scale: ScaleBand | None, now: float, passes: Passes) -> Break:
    """Return the break of a gradient that is finite at a lower loss scale than this one."""
    if scale is None or scale.high is None or now <= scale.high:
        why = "not known", f"it is finite at a loss scale of {power(2.0**band.LOWEST)}"
    elif scale.low is None:
        lost = "where more than 1 % of the elements of all weights' gradients round to 0"
        why = "every scale", f"it overflows above a loss scale of {power(scale.high)}, {lost}"
    else:
        at = f"it overflows at a loss scale of {power(now)}"
        why = "loss scale", f"{at}; {power(scale.high)} is the highest at which no weight's gradient does"
    return _broken(found, why, passes)


def _not_finite_before(job: Job, place: Place) -> Why | None:
    if not is_finite(job, (job.x, job.y, job.sample_weight)):
        return "batch", "the batch holds values that are not finite"
    with job.scope():
        for variable in _weights(job, place):
            if not is_finite(job, variable.value):
                return "weights", f"its weight {variable.name} is not finite"
    return None


def _part(job: Job) -> str:
    """Return the part of the batch that is not finite."""
    parts = {"x": job.x, "y": job.y, "sample_weight": job.sample_weight}
    return next((name for name, part in parts.items() if not is_finite(job, part)), "x")


def _beyond_float16(job: Job, entry: Entry, first: bool) -> Why | None:
    """Return that a weight, or the batch, is finite and beyond float16, in which its layer computes."""
    if entry.tally.dtype != "float16":
        return None
    with job.scope():
        for variable in _weights(job, entry.place):
            if (most := largest(job, variable.value)) > LARGEST16:
                return "weights", f"its weight {variable.name} holds {causes.figure(most)}, beyond float16"
    if first and (most := largest(job, job.x)) > LARGEST16:
        return "cast", f"the batch holds {causes.figure(most)}, and float16 ends at {LARGEST16:,.0f}"
    return None


def _weights(job: Job, place: Place) -> Iterable[Any]:
    return getattr(job.taps.operations.get(place.layer), "variables", None) or ()
