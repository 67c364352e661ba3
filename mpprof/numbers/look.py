"""`mpprof.numerics`: looks at one forward and backward pass of a model, and changes nothing of it."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpprof.errors import MpprofError, UsageError
from mpprof.numbers import band, breaks, causes, chance, given, guard, updates
from mpprof.numbers.advice import advice, of_updates
from mpprof.numbers.arrays import is_finite
from mpprof.numbers.flow import Flow, flow
from mpprof.numbers.job import Entry, Job, Step, key
from mpprof.numbers.result import Break, NotSeen, Numerics, Row, ScaleBand
from mpprof.numbers.tallies import HALF
from mpprof.numbers.taps import LOSS, Place, Taps

Batch = tuple[Any, Any, Any]
"""`x`, `y` and `sample_weight`."""


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

    The pass runs as the training's own step is compiled, at the model's own policy, with counts of every
    layer's output and of every gradient as further outputs. Nothing changes: weights, the optimizer, metrics
    and seed generators are afterwards what they were. It compiles the step once, and once more in float32 to
    compare with, and runs it some 15 times to find the loss scales that are good.

    Args:
        model: a built Keras 3 model.
        x, y, sample_weight: one batch, as `model.train_on_batch` takes it: arrays, or structures of them.
        loss: a function of `y` and the model's outputs that gives the loss, for a model that trains in a
            loop of its own. None: what `compile` was given.
        loss_scale: what the loss is multiplied by. None: the optimizer's own; 1 where it does not scale.

    Raises:
        UsageError: `model` is something other than a Keras 3 model, or is not built; the batch is empty,
            holds a label beyond the classes, or does not go through the model.
        UnableError: the look would change the training, or the model trains on several devices.
    """
    return look_at(model, [(x, y, sample_weight)], loss=loss, loss_scale=loss_scale)[0]


def look_at(
    model: Any,
    batches: Sequence[Batch],
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    loss_scale: float | None = None,
) -> tuple[Numerics, int]:
    """Return what `numerics` does, of the first of these batches in which something is not finite, else of
    the first; and which it is. Those of other shapes than the first are passed over."""
    keras = given.keras_of(model)
    backend = importlib.import_module(f"mpprof.numbers.{keras.backend.backend()}")
    taps = Taps(model, keras)
    made = [backend.tensors(keras, [given.batch(keras, each) for each in one]) for one in batches]
    shapes = [[each.shape for each in keras.tree.flatten(one) if each is not None] for one in made]
    alike = [number for number, each in enumerate(shapes) if each == shapes[0]]
    why_not = given.why_no_loss(model, batches[0][1], loss)
    x, y, sample_weight = made[0]
    draws = chance.Draws(keras, backend.put_back())
    job = Job(keras, model, taps, draws, x, y, sample_weight, loss, why_not, backend.values(model))
    compiled = [each for each in (getattr(model, "_compile_loss", None),) if each is not None]
    state = keras.src.backend.common.global_state.GLOBAL_STATE_TRACKER
    given.check_rows(keras, x, y)
    with guard.kept([*taps.operations.values(), *compiled], state), backend.kept(model), draws.noted():
        taps.install()
        try:
            look = _Look(job, backend, loss_scale, [made[number] for number in alike])
        except MpprofError:
            raise
        except Exception as error:
            what = f"the pass over this batch failed ({_first_line(error)}); {given.shapes(keras, x, y)}"
            next_ = "Give a batch that model.train_on_batch takes"
            raise UsageError(what, where="numerics", next=next_) from error
        return look.result(), alike[look.tried]


class _Look:
    """One look at one batch, while the taps are in. `tried`: which of the batches it is."""

    def __init__(self, job: Job, backend: Any, loss_scale: float | None, batches: Sequence[Any]) -> None:
        self._job, self._backend = job, backend
        own = given.loss_scale(job.model)
        self._scales = own is not None if loss_scale is None else loss_scale != 1
        self._wrapped = own is not None
        self._now = next(each for each in (loss_scale, own, 1.0) if each is not None)
        self._absent: dict[str, str] = {}
        self._handed: Flow | None = None
        self._step: Step = backend.step(job)
        self._runs: dict[float, list[Entry]] = {}
        self.tried = self._first_broken(batches) if len(batches) > 1 else 0
        self._entries = self._run(self._now)
        self._lost_updates = self._updates()
        self._float32 = self._run_in_float32()

    def _first_broken(self, batches: Sequence[Any]) -> int:
        """Take, and return the number of, the first batch in which something is not finite, else the
        first."""
        for number, batch in [*enumerate(batches), (0, batches[0])]:
            self._job.x, self._job.y, self._job.sample_weight = batch
            self._runs[self._now] = entries = self._step.run(self._now)
            if any(entry.tally.nonfinite for entry in entries):
                return number
        return 0

    def _run(self, scale: float) -> list[Entry]:
        """Return what is seen at a loss scale; each is run once."""
        if scale not in self._runs:
            self._runs[scale] = self._step.run(scale)
        return self._runs[scale]

    def _updates(self) -> updates.Lost:
        """Return what `updates.lost` does, of the run before; empty where no weight has 16 bits."""
        job = self._job
        if not self._step.gradients or getattr(job.model, "optimizer", None) is None:
            return {}
        try:
            return updates.lost(job, self._step.gradients, self._now)
        except Exception as error:  # noqa: BLE001 - an optimizer of the user's own may raise anything
            self._absent["update_lost"] = f"its optimizer does not run in float32 ({_first_line(error)})"
            return {}

    def _run_in_float32(self) -> breaks.InFloat32:
        """Return what is seen where every layer computes in float32, at a loss scale of 1; empty where
        nothing computes in 16 bits, or it cannot be run so."""
        if self._is_wide():
            return {}
        try:
            with in_float32(self._job):
                found = {key(entry): entry for entry in self._backend.step(self._job).run(1.0)}
        except Exception as error:  # noqa: BLE001 - a layer of the user's own may raise anything
            self._absent["flushed_ratio"] = f"it does not run in float32 ({_first_line(error)})"
            return {}
        if not self._job.draws.alike:
            self._absent["flushed_ratio"] = "in float32 it draws other numbers at random"
            return {}
        return found

    def _is_wide(self) -> bool:
        """Return whether all that was seen is wider than 16 bits."""
        return not any(entry.tally.dtype in HALF for entry in self._entries)

    def _flow(self) -> Flow:
        """Return what is handed to what; the pass runs once."""
        if self._handed is None:
            self._handed = flow(self._job)
        return self._handed

    def result(self) -> Numerics:
        job, scale = self._job, self._band()
        passes = breaks.Passes(
            self._entries,
            self._float32,
            self._is_wide(),
            lambda: self._run(2.0**band.LOWEST),
            self._operations,
            self._stays_narrow,
            self._flow,
        )
        forward = breaks.forward(job, passes)
        backward = breaks.backward(passes, forward, scale, self._now)
        found = [each for each in (forward, backward) if each is not None]
        ends = [
            getattr(each, "_keras_history", [None])[0] for each in getattr(job.model, "outputs", None) or ()
        ]
        loss = job.loss or getattr(job.model, "loss", None)
        about: dict[str, Any] = {"scales": self._scales, "wrapped": self._wrapped, "outputs": ends}
        about["loss"] = loss if isinstance(loss, str) else type(loss).__name__ + getattr(loss, "__name__", "")
        about["beyond"] = self._beyond()
        kinds = job.taps.operations
        rows = tuple(self._row(entry) for entry in self._entries)
        told = {
            each.snippet: each
            for broken in reversed(found)
            if (each := advice(
                kinds, broken, scale, outer=self._flow().outer(broken.layer),
                by_itself=broken is forward and self._breaks_alone(broken), **about,
            ))
        }  # fmt: skip
        lost_updates = of_updates(kinds, rows)
        unable = dict(job.taps.unable)
        if job.why_not is not None:
            self._absent |= dict.fromkeys(("first_backward", "loss_scale"), job.why_not)
        elif job.loss is None and given.overrides(job.model, "train_step"):
            what = "its own train_step may compute another loss; that of `compile` was looked at"
            unable[str(job.model.name)] = what
        return Numerics(
            "compiled" if self._step.compiled else "eager",
            self._step.note,
            scale,
            forward,
            backward,
            rows,
            (*reversed(told.values()), *([] if lost_updates is None else [lost_updates])),
            tuple(NotSeen(layer, reason) for layer, reason in unable.items()),
            self._absent,
        )

    def _beyond(self) -> list[str]:
        """Return the layers that compute in float16 what is beyond it in the pass in float32, and those that
        read it in float16, as infinite."""
        found: list[str] = []
        for entry in self._entries:
            other = self._float32.get(key(entry))
            too_large = other is not None and bool(
                other.tally.would_be("float16").nonfinite_ratio and not other.tally.nonfinite
            )
            if entry.tensor == "output" and too_large and entry.place != LOSS:
                found += [entry.place.layer, *self._flow().readers(entry.place, innermost=False)]
        kinds = self._job.taps.operations
        types = {each.place.layer: each.tally.dtype for each in self._entries if each.tensor == "output"}
        narrow = [
            each for each in found if getattr(kinds.get(each), "compute_dtype", types.get(each)) == "float16"
        ]
        ordered = [*types]
        return sorted(
            dict.fromkeys(narrow),
            key=lambda each: (each not in ordered, ordered.index(each) if each in ordered else 0),
        )

    def _band(self) -> ScaleBand | None:
        """Return the band of loss scales; None where no layer computes in float16 and nothing scales."""
        half = any(entry.tally.dtype == "float16" for entry in self._entries)
        if not self._job.with_loss or not (half or self._scales):
            return None
        if not any(entry.tensor == "weight_gradient" for entry in self._entries):
            self._absent["loss_scale"] = "no weight has a gradient"
            return None
        high = band.highest(lambda exponent: _finite(self._run(2.0**exponent)))
        if high is None:
            return ScaleBand(self._now, None, None)
        low = band.lowest(lambda exponent: self._lost(exponent, high), high)
        return ScaleBand(self._now, None if low is None else 2.0**low, 2.0**high)

    def _lost(self, exponent: int, high: int) -> float:
        """Return the share of the weights' gradients that is 0 here and not in float32; without a pass in
        float32, not at the highest loss scale either."""
        other = self._float32 or {key(entry): entry for entry in self._run(2.0**high)}
        pairs = [
            (entry.tally, other[key(entry)].tally)
            for entry in self._run(2.0**exponent)
            if entry.tensor == "weight_gradient" and key(entry) in other
        ]
        return band.lost_ratio(
            sum(mine.zero for mine, _ in pairs),
            sum(float32.zero for _, float32 in pairs),
            sum(mine.elements for mine, _ in pairs),
        )

    def _operations(self, place: Place) -> breaks.Computed:
        """Return what one call of a layer, or the loss, is computed by, run eagerly; nothing where it
        fails."""
        try:
            return self._computed(place)
        except Exception:  # noqa: BLE001 - it only says why; the layer and the tensor are known
            return breaks.Computed([])

    def _computed(self, place: Place) -> breaks.Computed:
        job = self._job
        found: list[causes.Op] = []
        calls: list[Place] = []  # that have begun and not ended
        given: list[Any] = []
        outer: list[Place] = []

        def around(at: Place, call: Callable[[], Any], inputs: Any) -> Any:
            if (at.layer, at.call) != (place.layer, place.call):
                calls.append(at)
                result = call()
                calls.pop()
                return result
            given.append(inputs)
            outer.extend(calls)
            result, operations = self._backend.operations(call, job)
            found.extend(operations)
            return result

        job.taps.around, job.taps.reachable = around, lambda: True
        try:
            with job.scope():
                outputs = job.forward(job.x)
                if place == LOSS:
                    of_loss = job.x, job.y, outputs, job.sample_weight
                    return breaks.Computed(self._backend.operations(lambda: job.loss_of(*of_loss), job)[1])
        finally:
            job.taps.around = None
        if outer and not is_finite(job, given):
            before = self._computed(outer[-1])
            return breaks.Computed(before.operations, before.within or outer[-1].layer)
        return breaks.Computed(found)

    def _stays_narrow(self, place: Place) -> bool:
        """Return whether something is computed in 16 bits even where every layer is to compute in float32:
        a layer casts by itself."""
        if any(entry.tally.dtype in HALF for entry in self._float32.values()):
            return True
        with in_float32(self._job):
            ops = self._operations(place).operations
        return any(each.dtype in HALF for op in ops for each in (*op.inputs, *op.outputs))

    def _breaks_alone(self, found: Break) -> bool:
        """Return whether a layer breaks also where it alone is given float32 as its type: it casts by itself,
        or computes between layers of its own."""
        places = [each.place for each in self._entries if each.tensor == "output" and self._is_wrong(each)]
        place = next((each for each in places if each.layer == found.layer), None)
        if place is None or not hasattr(self._job.taps.operations.get(place.layer), "dtype_policy"):
            return False
        with in_float32(self._job, found.layer):
            ops = self._operations(place).operations
        return not all(each.is_finite for op in ops for each in op.outputs)

    def _safe(self, entry: Entry, other: Entry | None) -> bool | None:
        """Return whether float16 holds an output, and its own layer does not break it; None for gradients,
        which a loss scale moves. Its values are those in float32, where they are known."""
        if entry.tensor != "output":
            return None
        shares = (other or entry).tally.would_be("float16")
        if shares.nonfinite_ratio or shares.flushed_ratio > band.MOST_LOST:
            return False
        if not self._is_wrong(entry):
            return True
        if other is None:
            return False
        call = self._flow().call_of(entry.place)
        before = self._flow().given(entry.place)
        given = [each for each in self._entries if each.tensor == "output" and each.place in before]
        lost = any((breaks.flushed(each, self._float32) or 0) > band.MOST_LOST for each in given)
        finite = call is None or call.given_finite
        return not finite or lost or any(self._is_wrong(each) for each in given)

    def _is_wrong(self, entry: Entry) -> bool:
        """Return whether an output is not finite, or 0 where float16 would hold what it is in float32."""
        return bool(entry.tally.nonfinite) or breaks.lost_within(entry, self._float32) > band.MOST_LOST

    def _row(self, entry: Entry) -> Row:
        tally, other = entry.tally, self._float32.get(key(entry))
        wide = tally if other is None or entry.tensor != "output" else other.tally
        return Row(
            entry.place.layer,
            entry.tensor,
            tally.dtype,
            tally.max_abs,
            tally.nonfinite / tally.elements,
            breaks.flushed(entry, self._float32),
            tally.subnormal_ratio,
            tally.exponents,
            tally.elements,
            tally.zero / tally.elements,
            {name: wide.would_be(name) for name in HALF},
            self._safe(entry, other),
            None if other is None else other.tally.max_abs,
            entry.place.call or None,
            entry.weight,
            self._lost_updates.get((entry.place.layer, entry.weight or "")),
        )


def _first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of it that says what is wrong: Keras and TensorFlow
    begin with where it was, and write in colours."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_WHERE)]
    return f"{type(error).__name__}: {(telling or [''])[0][:200]}"


_WHERE = (
    "Exception encountered when calling",
    "Graph execution error",
    "Detected at node",
    "Stack trace",
    "File ",
)


def _finite(entries: list[Entry]) -> bool:
    return not any(entry.tally.nonfinite for entry in entries if entry.tensor == "weight_gradient")


@contextlib.contextmanager
def in_float32(job: Job, only: str | None = None) -> Iterator[None]:
    """Switch every layer that computes in 16 bits to float32 while the context lasts; or `only` one, with
    those within it where it is Keras' own, which gives them its type."""
    policy = job.keras.dtype_policies.DTypePolicy("float32")
    kinds = job.taps.operations
    own = only is not None and type(kinds[only]).__module__.startswith("keras.")
    operations = [
        vars(each)
        for path, each in kinds.items()
        if only in (None, path) or (own and path.startswith(f"{only}/"))
        if getattr(each, "compute_dtype", None) in HALF
    ]
    before = [attributes["_dtype_policy"] for attributes in operations]
    job.draws.wide = True
    try:
        for attributes in operations:
            attributes["_dtype_policy"] = policy
        yield
    finally:
        for attributes, own in zip(operations, before, strict=True):
            attributes["_dtype_policy"] = own
        job.draws.wide = False
