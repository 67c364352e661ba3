"""How long the host waits for the next batch, where `fit` takes it on the host: on JAX and torch.

Keras' epoch iterator asks its method `_get_iterator` for the batches of an epoch (read in Keras 3.15,
`trainers/epoch_iterator.py`). The iterator of this `fit` gets another one, which hands on each batch, and
each exception, and reads the clock. On JAX the train function takes the batch, on torch the loop before the
step begins. On TensorFlow the graph takes it: nothing is replaced there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from mpprof.model.limits import LONG_CALL_NS
from mpprof.record.backends.base import Absent
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled
from mpprof.record.wall_time.sums import Spent

NOT_KNOWN = "this Keras hands over batches in a way that is not known here (no EpochIterator._get_iterator)"
TIMED_ALREADY = "another MPProfilerCallback of this fit times the input"


class InputWait:
    """The wait for batches of one `fit`. The first one of each epoch counts apart, and so does the end of an
    epoch's data. `within_call`: a batch is taken after its call has begun. `ended_ns`: what the end of the
    data has taken in this epoch."""

    def __init__(self, spent: Spent, name: str, *, within_call: bool = False) -> None:
        self.clock, self._spent, self._within_call = spent.clock, spent, within_call
        self.first, self.others, self._end = (
            spent.of("input", name, at) for at in ("first", "batch", "epoch")
        )
        self.now, self.ended_ns = self.first, 0
        self._no_call = False  # the call that has begun finds no batch: this is no call's time

    def begin_epoch(self) -> None:
        self.now, self.ended_ns, self._no_call = self.first, 0, False

    def made(self, took_ns: int) -> None:
        """Note that an iterator of batches was made, before an epoch's first batch or after its last."""
        self.first.ns += took_ns
        if self.now is self.others:
            self.ended_ns += took_ns

    def exhausted(self, took_ns: int) -> None:
        """Add the time of a wait for a batch that did not come."""
        self._no_call |= self._within_call
        self.ended(took_ns)

    def ended(self, took_ns: int) -> None:
        """Add the time spent at the end of an epoch's data."""
        self.ended_ns += took_ns
        if not self._no_call:
            self._spent.add(self._end, took_ns)

    def waited(self, took_ns: int) -> None:
        """Add the time that the host has waited for a batch."""
        total = self.now
        total.calls += 1
        total.ns += took_ns
        if took_ns >= LONG_CALL_NS or total is self.first:
            self.now = self.others
            if total is self.others:
                self._spent.stalled(total, took_ns)


def time_input(
    iterator: Any,
    wait: InputWait,
    failed: Callable[[BaseException], None],
    keep: Callable[[Any], None] | None = None,
) -> Absent | None:
    """Note the waits for what the epoch iterator of a `fit` hands over; `keep` is told of each batch.
    `failed` is told of a failure of ours. Returns why that cannot be done, or None."""
    kind = type(iterator)
    if not kind.__module__.startswith("keras.") or not callable(getattr(kind, "_get_iterator", None)):
        return Absent(NOT_KNOWN)
    if "_get_iterator" in vars(iterator):
        return Absent(TIMED_ALREADY)
    held = weakref.ref(iterator)  # which holds what follows: it would keep itself and the data alive

    def get_iterator() -> Iterator[Any]:
        begin_ns = wait.clock()
        batches = iter(kind._get_iterator(held()))
        wait.made(wait.clock() - begin_ns)
        timed = TimedBatches(batches, wait, failed)
        return timed if keep is None else _told(timed, keep)

    iterator._get_iterator = get_iterator
    _time_end(getattr(iterator, "data_adapter", None), wait)
    return None


def _told(batches: Iterator[Any], keep: Callable[[Any], None]) -> Iterator[Any]:
    for batch in batches:
        keep(batch)
        yield batch


def _time_end(adapter: Any, wait: InputWait) -> None:
    """Note what Keras' adapter of the data does at an epoch's end: it stops a pool of workers, and calls
    `on_epoch_end` of a PyDataset."""
    kind = type(adapter)
    if not kind.__module__.startswith("keras.") or "on_epoch_end" in vars(adapter):
        return  # of the user's own
    held = weakref.ref(adapter)

    def on_epoch_end() -> Any:
        begin_ns = wait.clock()
        try:
            return kind.on_epoch_end(held())
        finally:
            wait.ended(wait.clock() - begin_ns)

    adapter.on_epoch_end = on_epoch_end


class TimedBatches:
    """The batches of an iterator, as they come."""

    __slots__ = ("_batches", "_failed", "_wait")

    def __init__(
        self, batches: Iterator[Any], wait: InputWait, failed: Callable[[BaseException], None]
    ) -> None:
        self._batches, self._wait, self._failed = batches, wait, failed

    def __iter__(self) -> TimedBatches:
        return self

    def __next__(self) -> Any:
        wait = self._wait
        begin_ns, waited = wait.clock(), wait.waited
        try:
            return next(self._batches)
        except StopIteration:
            waited = wait.exhausted
            raise
        finally:
            try:
                waited(wait.clock() - begin_ns)
            except FAILURES as error:  # no failure of ours may stop the user's training
                raise_if_signalled(error)
                self._failed(error)
