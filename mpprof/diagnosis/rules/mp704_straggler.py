"""Other devices wait for one that is slower.

What it means
    Devices that exchange gradients in every step all take as long as the slowest. The step times of all of
    them are equal, and the fast ones spend the difference in the exchange, waiting.

How we know
    A device's own part of a step is the step less its exposed communication. It is computed for each device
    of the hosts whose traces are there. The others wait for a device whose own part is longer than theirs by
    3 % of the step. The class of time in which it takes longer says whether it computes more slowly or waits
    for something of its own. If the records name a synchronous strategy and the trace holds no communication,
    waiting cannot be distinguished from other idle time, and the devices' work is compared instead. This
    compares no clocks of different hosts.

What it costs
    The time by which the step would be shorter if the slow devices were as fast as the slowest of the others.

When to ignore
    Where the devices do different work by design, as in a pipeline.

Sources
    TensorFlow guide "Optimize GPU performance" (several GPUs); the account of each device (`time.devices`).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP704", "straggler", "Other devices wait for one that is slower"
ABOUT = "devices that others wait for"
ONCE = "once that device keeps up"
SPECIFICITY = NAMED

SCALE = Scale(info_ratio=0.03, warning_ratio=0.10, error_ratio=0.25)
_OF_THE_HOST = ("idle_input", "idle_launch", "idle_between_steps", "idle_sync", "idle_compile")


def judge(signals: Signals) -> Outcome:
    if (refused := several_devices.not_applicable(signals)) is not None:
        return refused
    found = several_devices.waited_for(signals)
    if isinstance(found, Unable):
        return found
    if found is None:
        return Clear("all devices keep pace")
    mostly = several_devices.mostly(found)
    if (
        mostly == "idle_launch"
        and several_devices.mirrored(signals)
        and several_devices.launched_together(found)
    ):
        return Clear("a device is late because its launches are: MP702")
    slow, fast = found.slow[0], min(found.others, key=found.own_ns)
    compared = "work of the device" if found.by_work else "step without exposed communication"
    waits = () if found.by_work else (evidence.ns(f"exposed communication, {fast.name}", fast.exposed_ns),)
    hosts = signals.case.hosts
    return Found(
        said=f"the other devices wait for {several_devices.named(found.slow)}[ {{time}}]",
        summary=(
            f"the others wait for {several_devices.named(found.slow)}: {{cost}} {{each}} ({{share}})"
            f"{several_devices.beyond(found)}"
        ),
        evidence=(
            evidence.ns(f"{compared}, {slow.name}", found.own_ns(slow)),
            evidence.ns(f"the same, {fast.name}", found.own_ns(fast)),
            *waits,
            evidence.count("devices", len(signals.devices)),
            *(
                (evidence.count("hosts whose trace is missing", len(hosts.missing)),)
                if hosts and hosts.missing
                else ()
            ),
        ),
        cases=("waits" if mostly in _OF_THE_HOST else "",),
        confidence="high" if signals.collectives else "medium",
        scale=SCALE,
        claims=several_devices.waiting(signals, found),
        cost_ns=found.cost_ns,
    )
