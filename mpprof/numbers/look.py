"""`mpprof.numerics`: looks at one forward and backward pass of a model, and changes nothing of it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpprof.errors import MpprofError, UnableError, UsageError
from mpprof.numbers import band, causes, guard
from mpprof.numbers.advice import advice, power
from mpprof.numbers.job import LOSS, Entry, Job, Step
from mpprof.numbers.result import Advice, Break, NotSeen, Numerics, Row, ScaleBand
from mpprof.numbers.tallies import LARGEST16
from mpprof.numbers.taps import Place, Taps

STEPS = {"tensorflow": "TensorFlowStep", "jax": "JaxStep", "torch": "TorchStep"}
HALF = ("float16", "bfloat16")


def numerics(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    loss_scale: float | None = None,
) -> Numerics:
    """Return where 16 bits break, by layer, in one forward and backward pass of a batch.

    The pass runs as the training's own step is compiled, at the model's own policy, with the magnitudes of
    every layer's output and of every gradient as further outputs. Nothing changes: weights, the optimizer,
    metrics and seed generators are afterwards what they were. It compiles the step once, and once more in
    float32 to compare with, and runs it some 15 times to find the loss scales that are good.

    Args:
        model: a built Keras 3 model.
        x, y, sample_weight: one batch, as `model.train_on_batch` takes it: arrays, or structures of them.
        loss: a function of `y` and the model's outputs that gives the loss, for a model that trains in a
            loop of its own. None: what `compile` was given.
        loss_scale: None: the optimizer's own; 1 where it does not scale.

    Raises:
        UsageError: `model` is no Keras 3 model, or is not built.
        UnableError: the look would change the training, or the model trains under `tf.distribute`.
    """
    keras = _keras_of(model)
    backend = importlib.import_module(f"mpprof.numbers.{keras.backend.backend()}")
    taps = Taps(model, keras)
    job = Job(keras, model, taps, *(backend.tensors(keras, _floats(keras, each)) for each in (x, y, sample_weight)),
              loss, _why_no_loss(model, y, loss))  # fmt: skip
    state = keras.src.backend.common.global_state.GLOBAL_STATE_TRACKER
    objects = [*taps.operations.values(), *filter(None, [getattr(model, "_compile_loss", None)])]
    with guard.kept(objects, state):
        taps.install()
        return _Look(job, backend, loss_scale).result()


class _Look:
    """One look at one batch, while the taps are in."""

    def __init__(self, job: Job, backend: Any, loss_scale: float | None) -> None:
        self._job, self._backend = job, backend
        own = _own_scale(job)
        self._scales = own is not None
        self._now = loss_scale if loss_scale is not None else own if own is not None else 1.0
        self._step: Step = getattr(backend, STEPS[job.keras.backend.backend()])(job)
        self._runs: dict[float, list[Entry]] = {}
        self._absent: dict[str, str] = {}
        self._entries = self._run(self._now)
        self._float32 = self._run_in_float32()

    def _run(self, scale: float) -> list[Entry]:
        """Return what is seen at a loss scale; each is run once."""
        if scale not in self._runs:
            self._runs[scale] = self._step.run(scale)
        return self._runs[scale]

    def _run_in_float32(self) -> dict[tuple[Any, ...], Entry]:
        """Return what is seen where every layer computes in float32, at a loss scale of 1; empty where
        nothing computes in 16 bits, or it cannot be run so."""
        job = self._job
        if not any(entry.tally.dtype in HALF for entry in self._entries):
            return {}
        try:
            with in_float32(job):
                step = getattr(self._backend, STEPS[job.keras.backend.backend()])(job)
                return {_key(entry): entry for entry in step.run(1.0)}
        except Exception as error:  # noqa: BLE001 - a layer of the user's own may raise anything
            first = (str(error).splitlines() or [""])[0][:120]
            self._absent["float32"] = f"the model does not run in float32 ({type(error).__name__}: {first})"
            return {}

    def result(self) -> Numerics:
        scale = self._band()
        forward = self._first_forward()
        backward = self._first_backward(forward, scale)
        own = self._job.taps.operations
        said = [
            advice(own.get(found.layer), found, scale, scales=self._scales)
            for found in (forward, backward)
            if found is not None and found.kind != "forward"
        ]
        unable = dict(self._job.taps.unable)
        if self._job.why_not is not None:
            self._absent["first_backward"] = self._absent["loss_scale"] = self._job.why_not
        elif _own_train_step(self._job.model) and self._job.loss is None:
            unable[str(self._job.model.name)] = (
                "its own train_step may compute another loss than `compile` was given, which was looked at"
            )
        return Numerics(
            "compiled" if self._step.compiled else "eager",
            self._step.note,
            scale,
            forward,
            backward,
            tuple(self._row(entry) for entry in self._entries),
            tuple(each for each in said if each is not None),
            tuple(NotSeen(layer, reason) for layer, reason in unable.items()),
            self._absent,
        )

    def _band(self) -> ScaleBand | None:
        """Return the band of loss scales; None where no layer computes in float16 and nothing scales."""
        half = any(entry.tally.dtype == "float16" for entry in self._entries)
        if not self._job.with_loss or not (half or self._scales):
            return None
        high = band.highest(lambda exponent: _finite(self._run(2.0**exponent)))
        if high is None:
            return ScaleBand(self._now, None, None)
        low = band.lowest(lambda exponent: self._lost(self._run(2.0**exponent), high), high)
        return ScaleBand(self._now, None if low is None else 2.0**low, 2.0**high)

    def _lost(self, entries: list[Entry], high: int) -> float:
        """Return the share of the weights' gradients that is 0 and is not in float32; where there is no pass
        in float32, not at the highest loss scale."""
        compared = self._float32 or {_key(entry): entry for entry in self._run(2.0**high)}
        pairs = [
            (entry.tally, compared[_key(entry)].tally)
            for entry in entries
            if entry.tensor == "weight_gradient" and _key(entry) in compared
        ]
        return band.lost_ratio(
            sum(mine.of("zero") for mine, _ in pairs),
            sum(other.of("zero") for _, other in pairs),
            sum(mine.elements for mine, _ in pairs),
        )

    def _first_forward(self) -> Break | None:
        found = next((e for e in self._entries if e.tensor == "output" and e.tally.nonfinite), None)
        if found is None:
            return None
        place = found.place
        if (where := self._not_finite_before(place)) is not None:
            return Break(place.layer, "output", *where)
        cause = causes.cause(self._operations(place))
        if cause is None or cause[0] == "cast":
            cause = self._beyond(found) or cause or ("not known", "its inputs are finite and it is not")
        return Break(place.layer, "output", f"{cause[1]}{self._in_float32(found)}", cause[0])

    def _not_finite_before(self, place: Place) -> tuple[str, str] | None:
        job = self._job
        given = [each for each in job.keras.tree.flatten((job.x, job.y, job.sample_weight)) if each is not None]
        if not all(np.isfinite(_numpy(job, each)).all() for each in given):
            return "the batch holds values that are not finite", "batch"
        layer = job.taps.operations.get(place.layer)
        for variable in getattr(layer, "variables", ()) or ():
            if not np.isfinite(_numpy(job, variable)).all():
                return f"its weight {variable.name} is not finite", "weights"
        return None

    def _beyond(self, entry: Entry) -> tuple[str, str] | None:
        """Return that the batch, or a weight, is finite and beyond float16, in which its layer computes."""
        job = self._job
        if entry.tally.dtype != "float16":
            return None
        layer = job.taps.operations.get(entry.place.layer)
        for variable in getattr(layer, "variables", ()) or ():
            if (most := _largest(_numpy(job, variable))) > LARGEST16:
                return "weights", f"its weight {variable.name} holds {causes.figure(most)}, beyond float16"
        most = max((_largest(_numpy(job, each)) for each in job.keras.tree.flatten(job.x)), default=0.0)
        if most > LARGEST16 and entry is self._entries[0]:
            return "cast", f"the batch holds {causes.figure(most)}, beyond float16, which ends at 65,504"
        return None

    def _in_float32(self, entry: Entry) -> str:
        other = self._float32.get(_key(entry))
        if other is None or not other.tally.max_abs:
            return ""
        return f" ({causes.figure(other.tally.max_abs)} in float32)"

    def _operations(self, place: Place) -> list[causes.Op]:
        """Return the operations of one call of a layer, or of the loss, run eagerly; none where that fails."""
        job, found = self._job, []

        def around(at: Place, call: Callable[[], Any]) -> Any:
            if (at.layer, at.call) != (place.layer, place.call):
                return call()
            result, ops = self._backend.operations(call, job)
            found.extend(ops)
            return result

        job.taps.around, job.taps.reachable = around, lambda: True
        try:
            with job.scope():
                outputs = job.forward(job.x)
                if place == LOSS:
                    _, found = self._backend.operations(
                        lambda: job.loss_of(job.x, job.y, outputs, job.sample_weight), job
                    )
        except Exception:  # noqa: BLE001 - it only says why; the layer and the tensor are known
            return []
        finally:
            job.taps.around = None
        return found

    def _first_backward(self, forward: Break | None, scale: ScaleBand | None) -> Break | None:
        gradients = self._in_backward_order()
        found = next((entry for entry in gradients if entry.tally.nonfinite), None)
        if found is not None:
            return Break(found.place.layer, found.tensor, *self._why_backward(found, forward, scale))  # type: ignore[arg-type]
        if scale is None or scale.high is None or (scale.low is not None and scale.now >= scale.low):
            return None
        for entry in gradients:
            if (self._flushed(entry) or 0.0) > band.MOST_LOST:
                ratio, low = self._flushed(entry), scale.low
                better = f", and at most 1 % from {power(low)} on" if low is not None else ""
                reason = f"{ratio:.0%} of it rounds to 0 at a loss scale of {power(self._now)}{better}"
                return Break(entry.place.layer, entry.tensor, reason, "underflow")  # type: ignore[arg-type]
        return None

    def _why_backward(
        self, found: Entry, forward: Break | None, scale: ScaleBand | None
    ) -> tuple[str, str]:
        if forward is not None:
            return f"the forward pass broke before, in {forward.layer}", "forward"
        at = f"it is not finite at a loss scale of {power(self._now)}"
        if scale is None:
            return "it is not finite", "not known"
        if scale.high is None:
            return "it is not finite at any loss scale", "every scale"
        if self._now > scale.high:
            return f"{at}; {power(scale.high)} is the highest at which all gradients are finite", "loss scale"
        return at, "not known"

    def _in_backward_order(self) -> list[Entry]:
        """Return the gradients as the backward pass comes to them: of an output, then of its layer's
        weights, which need it."""
        order: dict[str, int] = {}
        for entry in self._entries:
            if entry.tensor == "gradient":
                order.setdefault(entry.place.layer, len(order))
        some = [entry for entry in self._entries if entry.tensor != "output"]
        flow = {id(e): n for n, e in enumerate(e for e in some if e.tensor == "gradient")}
        last = {e.place.layer: n for e, n in ((e, flow[id(e)]) for e in some if id(e) in flow)}
        return sorted(some, key=lambda e: flow.get(id(e), last.get(e.place.layer, len(flow)) + 0.5))

    def _flushed(self, entry: Entry) -> float | None:
        """Return the share of a tensor that is 0 and is not in float32; None where that is not known."""
        other = self._float32.get(_key(entry))
        if other is None or entry.tally.dtype != "float16" and entry.tensor == "output":
            return None
        if entry.tally.nonfinite or other.tally.nonfinite or other.tally.elements != entry.tally.elements:
            return None
        return max(entry.tally.of("zero") - other.tally.of("zero"), 0) / entry.tally.elements

    def _row(self, entry: Entry) -> Row:
        tally, other = entry.tally, self._float32.get(_key(entry))
        would_be = {name: tally.would_be(name) for name in HALF}
        return Row(
            entry.place.layer,
            entry.tensor,  # type: ignore[arg-type]
            tally.dtype,
            tally.max_abs,
            tally.nonfinite / tally.elements,
            self._flushed(entry),
            tally.subnormal_ratio,
            tally.exponents,
            tally.elements,
            tally.of("zero") / tally.elements,
            would_be,
            _safe(entry, other),
            None if other is None else other.tally.max_abs,
            entry.place.call or None,
            entry.weight,
        )


def _safe(entry: Entry, other: Entry | None) -> bool | None:
    """Return whether an output fits float16: as it is in float32, where that is known; None for gradients,
    which a loss scale moves."""
    if entry.tensor != "output":
        return None
    if entry.tally.nonfinite:
        return False
    shares = (other or entry).tally.would_be("float16")
    return shares.nonfinite_ratio == 0 and shares.flushed_ratio <= band.MOST_LOST


def _finite(entries: list[Entry]) -> bool:
    return not any(entry.tally.nonfinite for entry in entries if entry.tensor == "weight_gradient")


def _largest(array: Any) -> float:
    return float(np.abs(array).max()) if array.size else 0.0


def _key(entry: Entry) -> tuple[Any, ...]:
    return entry.place, entry.tensor, entry.weight


def _numpy(job: Job, tensor: Any) -> Any:
    array = np.asarray(job.keras.ops.convert_to_numpy(tensor))
    return array.astype(np.float32) if array.dtype.kind not in "iubOUS" else np.zeros(0)


@contextlib.contextmanager
def in_float32(job: Job) -> Iterator[None]:
    """Let every layer that computes in 16 bits compute in float32 while the context lasts."""
    policy = job.keras.dtype_policies.DTypePolicy("float32")
    layers = [
        layer
        for layer in job.taps.operations.values()
        if hasattr(layer, "_dtype_policy") and layer.compute_dtype in HALF
    ]
    before = [vars(layer)["_dtype_policy"] for layer in layers]
    try:
        for layer in layers:
            vars(layer)["_dtype_policy"] = policy
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            vars(layer)["_dtype_policy"] = own


def _keras_of(model: Any) -> Any:
    """Return Keras 3. Raises UsageError and UnableError where the model cannot be looked at."""
    package = next((each.__module__.partition(".")[0] for each in type(model).__mro__
                    if each.__name__ == "Model" and each.__module__.startswith(("keras.", "tf_keras."))), None)  # fmt: skip
    if package == "tf_keras":
        raise UnableError("this is a model of tf_keras", where="numerics", next="Use Keras 3")
    if package is None:
        raise UsageError(f"not a Keras model: {type(model).__name__}", where="numerics", next="Give a keras.Model")
    import keras

    if not model.built:
        raise UsageError(
            "the model is not built: to build it would draw its weights", where="numerics",
            next="Call it on a batch first, or model.build(shape)",
        )  # fmt: skip
    if getattr(model, "_distribute_strategy", None) is not None or keras.distribution.distribution() is not None:
        raise UnableError(
            "the model trains on several devices", where="numerics", next="Look at it without the distribution"
        )
    if keras.backend.backend() not in STEPS:
        raise UnableError(f"Keras runs on {keras.backend.backend()}", where="numerics", next="Use another backend")
    return keras


def _floats(keras: Any, structure: Any) -> Any:
    """Return arrays with floats in Keras' own type, as `fit` makes them."""

    def one(value: Any) -> Any:
        if value is None or not isinstance(value, np.ndarray | list | float | int):
            return value
        array = np.asarray(value)
        return array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array

    return one(structure) if isinstance(structure, list) and _plain(structure) else keras.tree.map_structure(one, structure)


def _plain(value: Any) -> bool:
    """Return whether a list is one of numbers, not of arrays."""
    return not any(hasattr(each, "dtype") for each in value)


def _why_no_loss(model: Any, y: Any, loss: Any) -> str | None:
    """Return why there is no loss to look at; None where there is one."""
    if loss is not None:
        return None
    compiled = getattr(model, "_compile_loss", None) is not None
    own = type(model).compute_loss.__module__.partition(".")[0] != "keras"
    if not model.compiled or not (compiled or own or model.losses):
        return "the model has no loss: give `loss=`, or compile it with one"
    if y is None and compiled:
        return "no `y` was given"
    return None


def _own_train_step(model: Any) -> bool:
    return type(model).train_step.__module__.partition(".")[0] != "keras"


def _own_scale(job: Job) -> float | None:
    """Return the scale by which the model's optimizer multiplies the loss; None where it does not."""
    optimizer = getattr(job.model, "optimizer", None)
    if hasattr(optimizer, "initial_scale"):
        if not optimizer.built:
            return float(optimizer.initial_scale)
        state = getattr(job.model, "_jax_state", None)
        if state and not job.model._jax_state_synced:
            for variable, value in zip(optimizer.variables, state["optimizer_variables"], strict=True):
                if variable is optimizer.dynamic_scale:
                    return float(value)
        return float(_numpy(job, optimizer.dynamic_scale))
    factor = getattr(optimizer, "loss_scale_factor", None)
    return None if factor is None else float(factor)
