"""The looks of a callback at the model that it records: at which batch, and how often at most.

The batch is the one that was given; or one that `fit` has drawn itself and that was kept (JAX, PyTorch); or,
on TensorFlow, whose batches are drawn within the graph, the first rows of the arrays that `fit` was given.
No iterator is opened: one more over a shuffled set would change the next epoch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpprof.errors import UnableError
from mpprof.numbers import files
from mpprof.numbers.look import Batch, look_at

MOST_LOOKS = {"start": 1, "skipped": 3, "loss": 1, "end": 3}
"""How often a run is looked at, by the reason; `skipped` not again before 8 times as many steps have run."""
SKIPPED_APART = 8
KEPT_BYTES = 64 * 1024**2
"""Batches that were drawn are kept up to so many bytes, the newest of them."""
GIVE = "give a batch: numerics=(x, y)"


class Kept(NamedTuple):
    """A batch, and the step that it was drawn for."""

    step: int
    batch: Batch
    size: int


class Looks:
    """The looks of one run. `given`: a batch, or None for one that `fit` draws. `wanted`: the reason why the
    model is to be looked at, None where there is none now."""

    def __init__(self, given: Sequence[Any] | None, most_kept: int) -> None:
        self._given: Batch | None = None if given is None else _whole(given)
        self._most_kept = most_kept
        self._done = dict.fromkeys(MOST_LOOKS, 0)
        self._skipped_at = 0  # the step of the last look for that reason
        self._kept: deque[Kept] = deque()
        self._in_graph = True  # within a graph: none is seen
        self._drawn = 0
        self._adapter: Any = None
        self._steps: tuple[int, int] = (0, 0)  # within which it broke, the first excluded
        self._scale: float | None = None
        self._lost = False
        self.wanted: files.Trigger | None = "start"

    def start_fit(self, step: int, adapter: Any) -> None:
        """Begin a fit after so many steps. `adapter`: Keras' own of its data."""
        self._kept.clear()
        self._drawn, self._adapter = step, adapter
        self._in_graph = _by_graph()

    @property
    def due(self) -> bool:
        """Whether there is a reason to look, and a batch."""
        at_hand = self._given is not None or bool(self._in_graph or self._kept)
        return self.wanted is not None and at_hand

    @property
    def keep(self) -> Callable[[Any], None] | None:
        """What is to be told of each batch that is drawn; None where a batch was given."""
        return None if self._given is not None else self._keep

    def _keep(self, drawn: Any) -> None:
        """Keep a copy of a batch."""
        import keras

        self._drawn += 1
        batch = keras.tree.map_structure(_copied, _whole(keras.utils.unpack_x_y_sample_weight(drawn)))
        size = sum(int(each.nbytes) for each in keras.tree.flatten(batch) if each is not None)
        self._kept.append(Kept(self._drawn, batch, size))
        while len(self._kept) > self._most_kept or sum(each.size for each in self._kept) > KEPT_BYTES:
            self._kept.popleft()

    def see(self, step: int, span: int, skipped: int | None, loss: float | None, scale: float | None) -> None:
        """Note what a reading shows of the last `span` steps: how many updates were skipped, the loss, and
        the loss scale before. Keras' running mean is not finite until its epoch ends: that is news once. With
        `span` 0 it is not known of which step the loss is. Skips, whose step is known, come before a loss:
        what Keras says at an epoch's end may be seen before a reading that has not arrived."""
        was_lost, self._lost = self._lost, loss is not None and not math.isfinite(loss)
        trigger: files.Trigger = "skipped" if skipped else "loss"
        if not skipped and (not self._lost or was_lost):
            return
        soon = skipped and self._skipped_at and step < SKIPPED_APART * self._skipped_at
        free = self.wanted in (None, "start") or (trigger, self.wanted) == ("skipped", "loss")
        if self._done[trigger] < MOST_LOOKS[trigger] and not soon and free:
            self.wanted, self._steps = trigger, (step - span if span else 0, step)
            self._scale = scale

    def end(self) -> None:
        """Note that the training has ended."""
        if self._done["end"] < MOST_LOOKS["end"]:
            self.wanted, self._scale = "end", None

    def look(
        self,
        root: Path,
        model: Any,
        step: int,
        t_ns: int,
        clock: Callable[[], int],
        *,
        unscaled: bool = False,
    ) -> bool:
        """Look at the model, whose first `step` steps have run, and write what is found to the run at `root`.
        `unscaled`: its training step does not scale the loss, though the optimizer could.

        Returns whether it was looked at: no batch need have been drawn yet. Raises what `numerics` does."""
        trigger = self.wanted
        batches = list(self._batches(trigger))
        if trigger == "end" and not batches:
            raise UnableError("the batches of this fit cannot be kept", where="numerics", next=GIVE)
        if trigger is None or not batches:
            return False
        self.wanted = None
        self._done[trigger] += 1
        if trigger == "skipped":
            self._skipped_at = max(step, 1)
        begin_ns = clock()
        scale, self._scale = self._scale, None
        scale = 1.0 if unscaled else scale
        found, number = look_at(model, [batch for batch, _ in batches], loss_scale=scale)
        cost_ns = clock() - begin_ns
        said = batches[number][1]
        files.append(root, found, trigger=trigger, step=step, t_ns=t_ns, cost_ns=cost_ns, batch=said)
        return True

    def _batches(self, trigger: str | None) -> Iterator[tuple[Batch, str]]:
        """Yield the batches to try, with what each is."""
        import keras

        if self._given is not None:
            yield self._given, "the one given"
        elif self._in_graph:
            batch, rows = _first_rows(keras, self._adapter)
            late = ", which need not be the batch that broke" if trigger in ("skipped", "loss") else ""
            yield batch, f"the first {rows} rows of the arrays given to fit{late}"
        elif self._drawn and not self._kept:
            raise UnableError(
                f"a batch holds more than {KEPT_BYTES // 1024**2} MiB", where="numerics", next=GIVE
            )
        else:
            yield from self._drawn_batches(trigger)

    def _drawn_batches(self, trigger: str | None) -> Iterator[tuple[Batch, str]]:
        kept, (after, until) = [*reversed(self._kept)], self._steps
        if trigger not in ("skipped", "loss"):
            yield from ((each.batch, f"that of step {each.step}") for each in kept[:1])
            return
        own = [each for each in kept if after < each.step <= until]
        yield from ((each.batch, f"that of step {each.step}") for each in own)
        if not own:
            late = "the batch that broke is no longer kept"
            yield from ((each.batch, f"that of step {each.step}; {late}") for each in kept[:1])


def _by_graph() -> bool:
    import keras

    return bool(keras.backend.backend() == "tensorflow")


def _whole(batch: Sequence[Any]) -> Batch:
    x, y, sample_weight = (*batch, None, None)[:3]
    return x, y, sample_weight


def _copied(value: Any) -> Any:
    """Return a copy of what may change: an array of NumPy's, or a tensor of PyTorch's."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.detach().clone() if hasattr(value, "detach") else value


def _first_rows(keras: Any, adapter: Any) -> tuple[Batch, int]:
    """Return the first rows of the arrays that Keras' adapter holds, as many as a batch has. Raises
    UnableError where it holds other things."""
    inputs, rows = getattr(adapter, "_inputs", None), getattr(adapter, "_batch_size", None)
    arrays = [each for each in keras.tree.flatten(inputs) if each is not None]
    sliced = all(isinstance(each, np.ndarray) or keras.ops.is_tensor(each) for each in arrays)
    if not arrays or not sliced or not isinstance(rows, int):
        what = "TensorFlow draws its batches within the graph, and fit was given no arrays"
        raise UnableError(what, where="numerics", next=GIVE)
    x, y, sample_weight = _whole(keras.utils.unpack_x_y_sample_weight(inputs))
    batch = keras.tree.map_structure(
        lambda each: None if each is None else each[:rows], [x, y, sample_weight]
    )
    return _whole(batch), min(rows, int(arrays[0].shape[0]))
