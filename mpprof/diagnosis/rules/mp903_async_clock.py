"""The clock timed the launch of the step and not the step.

What it means
    JAX, torch and custom loops return before the device is done. An interval between two hooks is then the
    time of dispatch, except where something waits.

How we know
    The recorded step is less than half as long as the device was busy per step in the trace; of the profiled
    steps themselves, where their times were recorded, because others may have been longer or shorter.

What it costs
    Nothing: the step times are wrong, not slow.

What to do
    Time between two waits and divide, as the callback does by itself on such backends; in a custom loop:

        recorder.step(outputs)      # StepRecorder waits for the outputs every read_every steps

When to ignore
    On TensorFlow with Keras 3.15, where every step ends with its logs as numbers, and so with a wait.

Sources
    Executed with Keras 3.15.1 on TensorFlow and JAX: see mpprof's documentation of timing.
"""

from __future__ import annotations

import numpy as np

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ns

CODE, SLUG, TITLE = "MP903", "async-clock", "The clock timed the launch, not the step"
SPECIFICITY = GENERAL

TOO_SHORT_RATIO = 0.5
"""Clocks and windows differ by some percent; half cannot be the same step."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu and known(signals.backend) == "tensorflow":
        return Clear("on TensorFlow every step ends with a wait")
    median = _profiled_ns(signals) or need(signals.summary).median_ns
    busy = need(signals.gpu_account).device_ns
    if not median:
        return Unable("there are no steady steps to compare with the trace; train longer")
    if not too_short(median, busy):
        return Clear("the recorded step is as long as the device was busy")
    return Found(
        summary=(
            f"the recorded step takes {format_ns(median)}, and in the trace the device was busy "
            f"{format_ns(busy)} a step: "
            "the clock timed the launch"
        ),
        remedy="time between two waits for the device, as MPProfilerCallback and StepRecorder do",
        evidence=(evidence.ns("recorded step", median), evidence.ns("device busy per step", busy)),
        severity="error",
    )


def too_short(recorded_ns: float, busy_ns: float) -> bool:
    """A step cannot have taken so little of the time that the device worked in it."""
    return recorded_ns < busy_ns * TOO_SHORT_RATIO


def _profiled_ns(signals: Signals) -> float | None:
    """The median recorded time of the profiled steps; None where none was recorded."""
    table = known(signals.table)
    if table is None:
        return None
    rows = table.profiled & (table.interval_ns > 0)
    return float(np.median(table.interval_ns[rows] / table.covers[rows])) if rows.any() else None
