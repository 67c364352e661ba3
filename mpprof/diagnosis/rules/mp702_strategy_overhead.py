"""A strategy's devices get their launches late, one after the other.

What it means
    Under TensorFlow's MirroredStrategy one process launches the kernels of all its devices. While it launches
    those of one, another has nothing to do, and in the exchange of gradients all wait for the last. 16-bit
    kernels are shorter, but their launches are not, so mixed precision exposes the delay.

How we know
    The run's records name the strategy, and some devices of a host take longer in their step than others and
    are idle for most of the difference while the host launches.

What it costs
    The time by which the step would be shorter if the late devices were as fast as the others.

When to ignore
    Where the devices wait for input instead: MP301, MP704.

Sources
    TensorFlow guide "Optimize GPU performance" (threads of the launches). tensorflow#41827, tensorflow#46831
    (MirroredStrategy slower in mixed precision).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP702", "strategy-overhead", "A strategy's devices get their launches late"
ABOUT = "late launches under a strategy"
SAYS = "one device gets its launches late in every step[: {time}]"
SPECIFICITY = NAMED
BOUND = "host"

SCALE = Scale(info_ratio=0.03, warning_ratio=0.10, error_ratio=0.25)


def judge(signals: Signals) -> Outcome:
    refused = several_devices.no_strategy(signals, "no strategy launches for several devices in one process")
    if refused is not None:
        return refused
    found = several_devices.waited_for(signals)
    if isinstance(found, Unable):
        return found
    late = found is not None and several_devices.mostly(found) == "idle_launch"
    if found is None or not late or not several_devices.launched_together(found):
        return Clear("no device waits longer for its launches than the others")
    slow = found.slow[0]
    return Found(
        summary=(
            f"{several_devices.named(found.slow)} is late in every step ({{cost}}, {{share}}): "
            "it waits for its launches"
        ),
        evidence=(
            evidence.ns("idle for launches on the late device", slow.classes.get("idle_launch", 0.0)),
            evidence.ns("on the fastest", min(each.classes.get("idle_launch", 0.0) for each in found.others)),
            evidence.count("devices", len(signals.devices)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=several_devices.waiting(signals, found),
        cost_ns=found.cost_ns,
    )
