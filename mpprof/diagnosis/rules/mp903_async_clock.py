"""The clock timed the launch of the step and not the step.

What it means
    JAX, torch and custom loops return before the device is done. An interval between two hooks is then the
    time of dispatch, except where something waits.

How we know
    The recorded step is less than half as long as the device was busy per step in the trace. The times of the
    profiled steps themselves are used where they were recorded, because others may have been longer or
    shorter.

What it costs
    Nothing: the step times are wrong, not slow.

When to ignore
    On TensorFlow with Keras 3.15, where every step ends by converting its logs to numbers, which waits for
    the device.

Sources
    Executed with Keras 3.15.1 on TensorFlow and JAX: see mpprof's documentation of timing.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.profiled_steps import recorded_ns, timed_launches

CODE, SLUG, TITLE = "MP903", "async-clock", "The clock timed the launch, not the step"
ABOUT = "step times without the device's work"
LEADS = INVALID


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu and known(signals.backend) == "tensorflow":
        return NotApplicable("on TensorFlow every step ends with a wait")
    recorded = recorded_ns(signals) or need(signals.summary).mean_ns
    busy = need(signals.gpu_account).device_ns
    if not recorded:
        return Unable("there are no steady steps to compare with the trace; train longer")
    if not timed_launches(signals):
        return Clear("the recorded step is at least half as long as the device was busy")
    return Found(
        summary=(
            f"the recorded step takes {format_ns(recorded)}, and in the trace the device was busy "
            f"{format_ns(busy)} a step: "
            "the clock timed the launch"
        ),
        evidence=(evidence.ns("recorded step", recorded), evidence.ns("device busy per step", busy)),
        severity="error",
    )
