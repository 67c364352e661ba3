"""Ends a training once so many steady steps are recorded, before the script does anything more."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def ending_after(
    keras: ModuleType,
    model: Any,
    recorded: Any,
    enough: Callable[[int], bool],
    end: Callable[[], None],
    ends_well: Callable[[], bool] = lambda: False,
) -> Any:
    """Return a callback that stands before `recorded`, an `MPProfilerCallback`, and calls `end` when that has
    recorded `enough` steady steps: as the epoch is broken off, before its validation and before any other
    callback learns of it, so that nothing saves what is half trained. Where nothing is recorded any more, it
    counts the steps that begin. A fit that ends before is the end, too, where `ends_well` says so."""

    class EndAfter(keras.callbacks.Callback):  # type: ignore[misc, name-defined]  # keras has no types
        begun = 0
        last = False

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            # Not at a batch's end: see MPProfilerCallback. The call that begins here is the last.
            self.begun += 1
            steady = recorded.steady_steps
            if enough(self.begun if steady is None else steady):
                self.last = model.stop_training = True

        def on_test_begin(self, logs: Any = None) -> None:
            self._end()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._end(epoch, logs)

        def on_train_end(self, logs: Any = None) -> None:
            if not self.last and ends_well():
                recorded.on_train_end()
                end()

        def _end(self, epoch: int = 0, logs: Any = None) -> None:
            if self.last:
                recorded.on_epoch_end(epoch, logs)
                recorded.on_train_end()
                end()

        # Keras 2 asks these.
        _supports_tf_logs = False

    return EndAfter()
