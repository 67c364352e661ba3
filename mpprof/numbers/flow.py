"""Which call of a layer is handed which outputs, from one forward pass that runs eagerly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from mpprof.model.frozen import frozen
from mpprof.numbers.arrays import is_finite
from mpprof.numbers.job import Job
from mpprof.numbers.taps import FLOATS, LOSS, Place


@frozen
class Call:
    """One call. `given`: the outputs before it that it is handed, themselves or cast. `within`: of these,
    those that it hands on to a call within it. `outer`: the layer, or the model, whose call it is part of;
    None: it is the model's own. `given_finite`: whether all that it is handed is finite."""

    place: Place
    given: tuple[Place, ...]
    within: frozenset[Place]
    outer: str | None
    given_finite: bool


@frozen
class Flow:
    """`calls` in the order in which they end; `ends`: the outputs that are the model's."""

    calls: Sequence[Call]
    ends: frozenset[Place]

    def readers(self, place: Place, *, innermost: bool = True) -> list[str]:
        """Return the layers that are handed an output; `innermost`: without those that only hand it on."""
        found = [
            call.place.layer
            for call in self.calls
            if place in call.given and not (innermost and place in call.within)
        ]
        return list(dict.fromkeys(found))

    def reader(self, place: Place) -> str | None:
        """Return what alone reads an output: a layer, the loss, or the layer (or model) in whose own call
        that is; None where several do, or it is not known."""
        found = self.readers(place)
        if place in self.ends:
            found.append(LOSS.layer)
        if not found:
            return self.outer(place.layer)
        return found[0] if len(found) == 1 else None

    def outer(self, layer: str) -> str | None:
        """Return the layer, or the model, whose call the call of a layer is part of."""
        return next((call.outer for call in self.calls if call.place.layer == layer), None)

    def given(self, place: Place) -> Collection[Place]:
        """Return what the call is handed that gives an output; of the loss, the outputs of the model."""
        call = self.call_of(place)
        return self.ends if place == LOSS else () if call is None else call.given

    def call_of(self, place: Place) -> Call | None:
        """Return the call that gives an output; None for the loss, and where it is not known."""
        return next((call for call in self.calls if call.place[:2] == place[:2]), None)


def flow(job: Job) -> Flow:
    """Return what is handed to what; nothing where the pass fails when it runs eagerly."""
    try:
        return _walked(job)
    except Exception:  # noqa: BLE001 - it says where a break comes from; the tensor is known
        return Flow((), frozenset())


def _walked(job: Job) -> Flow:
    tree, backend = job.keras.tree, job.keras.backend
    outputs: list[tuple[Place, Any]] = []
    calls: list[Call] = []
    handed: list[set[Place]] = []  # by call that has begun and not ended: what calls within it are handed
    begun: list[str] = []

    def floats(structure: Any) -> list[tuple[int, Any]]:
        return [
            (number, each)
            for number, each in enumerate(tree.flatten(structure))
            if hasattr(each, "dtype") and backend.standardize_dtype(each.dtype) in FLOATS
        ]

    def around(at: Place, call: Callable[[], Any], inputs: Any) -> Any:
        values = [each for _, each in floats(inputs)]
        given = [place for each in values for place in _places(job, outputs, each)]
        finite = is_finite(job, values)
        outer = begun[-1] if begun else None
        for each in handed:
            each.update(given)
        handed.append(set())
        begun.append(at.layer)
        result = call()
        begun.pop()
        within = frozenset(handed.pop())
        known = [value for _, value in outputs]
        outputs.extend(
            (Place(at.layer, at.call, number), each)
            for number, each in floats(result)
            if not any(each is other for other in known)
        )
        calls.append(Call(at, tuple(dict.fromkeys(given)), within, outer, finite))
        return result

    job.taps.around, job.taps.reachable = around, lambda: True
    try:
        with job.scope():
            result = job.forward(job.x)
    finally:
        job.taps.around = None
    ends = [place for _, each in floats(result) for place in _places(job, outputs, each)]
    return Flow(tuple(calls), frozenset(ends))


def _places(job: Job, outputs: Sequence[tuple[Place, Any]], value: Any) -> list[Place]:
    """Return the output that a tensor is; else the last that it was cast from."""
    same = [place for place, each in outputs if each is value]
    return same[-1:] or [place for place, each in outputs if _is_cast(job, each, value)][-1:]


def _is_cast(job: Job, before: Any, after: Any) -> bool:
    ops = job.keras.ops
    if before.dtype == after.dtype or tuple(before.shape) != tuple(after.shape):
        return False
    cast = ops.convert_to_numpy(ops.cast(before, after.dtype))
    other = ops.convert_to_numpy(after)
    return bool(((cast == other) | ((cast != cast) & (other != other))).all())
