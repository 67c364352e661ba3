"""The instrument: what a training process records about itself, without changing the training.

MPProfilerCallback   for Keras' `fit`
StepRecorder         for a training loop of one's own; needs no Keras
WandbSink, MlflowSink  sinks of the callback: series, summary and report for Weights & Biases and MLflow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpprof.record.callback import MPProfilerCallback
    from mpprof.record.loop import StepRecorder
    from mpprof.record.tracking import MlflowSink, WandbSink

__all__ = ["MPProfilerCallback", "MlflowSink", "StepRecorder", "WandbSink"]


def __getattr__(name: str) -> Any:
    # The callback's class needs Keras to exist, a loop of one's own does not.
    if name == "MPProfilerCallback":
        from mpprof.record.callback import MPProfilerCallback

        return MPProfilerCallback
    if name == "StepRecorder":
        from mpprof.record.loop import StepRecorder

        return StepRecorder
    if name in ("MlflowSink", "WandbSink"):
        from mpprof.record import tracking

        return getattr(tracking, name)
    raise AttributeError(f"module 'mpprof.record' has no attribute {name!r}")
