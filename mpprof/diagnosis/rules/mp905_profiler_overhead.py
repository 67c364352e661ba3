"""Profiled steps are slower than the others.

What it means
    Profiling costs time on the host for every kernel and op. Times within the window are therefore too long,
    most of all the idle time in a launch-bound step.

How we know
    The training function's time in the window, less the time in which it was compiled anew, against its
    median in the steps outside it (the class `profiling` of the account is the difference). Stalls are left
    out on both sides. The unprofiled steps just before and after the window show whether the profiler, the
    load of the machine or warm-up made it longer. If steps are timed in groups (JAX), stalls cannot be left
    out, and nothing is judged.

What it costs
    Nothing in training. The step time shown is the unprofiled one.

When to ignore
    When the shares are what matters, and the device is busy in the window.

Sources
    TensorFlow guide "Optimize TensorFlow performance using the Profiler": no more than 10 steps. tf#24572
    (70 -> 220 ms with the profiler on), openxla/xprof#655.
"""

from __future__ import annotations

from mpprof.diagnosis import profiled_steps
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.profiled_steps import timed_launches

CODE, SLUG, TITLE = "MP905", "profiler-overhead", "Profiled steps are slower"
ABOUT = "overhead of the profiler"
LEADS = INVALID

INFO_RATIO, WARNING_RATIO = 0.10, 0.50
"""A tenth is what a trace of a healthy step costs; at half as much again, idle time in the window is mostly
the profiler's. On a CPU this is normal, because each op is an event of the host."""


def judge(signals: Signals) -> Outcome:
    account = need(signals.account)
    if (step_ns := account.unprofiled_ns) is None:
        return Unable(f"no unprofiled steps to compare with{signals.hint('record run')}")
    if account.grouped:
        return Unable("steps are timed in groups, so that stalls are not told apart from what profiling adds")
    if timed_launches(signals):
        return Unable("the recorded step is shorter than the device's work in it: see MP903")
    profiled_ns = profiled_steps.profiled_ns(signals) or account.window_ns
    usual_ns = step_ns if account.function_ns is None else account.function_ns
    slower = profiled_ns / usual_ns - 1 if usual_ns > 0 else 0.0
    if slower < INFO_RATIO:
        return Clear(f"a profiled step takes {format_ratio(max(0.0, slower))} longer")
    why, beside = profiled_steps.reason(signals), profiled_steps.around(signals)
    if why == "warm-up":
        return Unable("the profiled steps lie in warm-up, where unprofiled steps are longer, too: see MP901")
    near = [ns for ns in (beside.before_ns, beside.after_ns) if ns] if beside else []
    said = "part of the idle time in the window is the profiler's"
    if profiled_steps.works_longer(signals):
        said = "the window idles for less than that, so its work takes longer, too"
    if why == "load":
        said = f"the steps around it do, too ({format_ns(min(near))} or more): the machine was busy then"
    return Found(
        summary=(
            f"a profiled step takes {format_ns(profiled_ns)}, {format_speedup(1 + slower)} as long as an "
            f"unprofiled one: {said}"
        ),
        said=f"profiling slowed the step from {format_ns(usual_ns)} to {format_ns(profiled_ns)}",
        proof=said,
        evidence=(
            evidence.speedup("profiled step over unprofiled", 1 + slower, 1 + INFO_RATIO),
            evidence.ns("profiled step", profiled_ns),
            evidence.ns("unprofiled step", usual_ns),
            *((evidence.ns("steps around the window", min(near)),) if near else ()),
        ),
        cases=("load",) if why == "load" else ("",),
        severity="warning" if slower >= WARNING_RATIO and account.trace_basis == "device" else "info",
    )
