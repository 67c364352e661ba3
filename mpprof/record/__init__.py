"""The instrument: what a training process records about itself, without changing the training.

MPProfilerCallback   for Keras' `fit`
StepRecorder         for a training loop of one's own; needs no Keras
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpprof.record.callback import MPProfilerCallback
    from mpprof.record.loop import StepRecorder

__all__ = ["MPProfilerCallback", "StepRecorder"]


def __getattr__(name: str) -> Any:
    # The callback's class needs Keras to exist, a loop of one's own does not.
    if name == "MPProfilerCallback":
        from mpprof.record.callback import MPProfilerCallback

        return MPProfilerCallback
    if name == "StepRecorder":
        from mpprof.record.loop import StepRecorder

        return StepRecorder
    raise AttributeError(f"module 'mpprof.record' has no attribute {name!r}")
