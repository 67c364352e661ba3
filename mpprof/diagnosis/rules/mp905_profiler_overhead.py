"""Profiled steps are slower than the others.

What it means
    Profiling costs time on the host for every kernel and op. Times within the window are therefore too long,
    most of all the idle time in a launch-bound step.

How we know
    The step in the window against the median of steady steps outside it (the class `profiling` of the
    account is the difference).

What it costs
    Nothing in training. The step time shown is the unprofiled one.

What to do
    Keep the window short and the tracers light; the callback's own window has the Python tracer off:

        MPProfilerCallback("logs/run", profile_steps=(100, 105))

When to ignore
    When the shares are what matters, and the device is busy in the window.

Sources
    TensorFlow guide "Optimize TensorFlow performance using the Profiler": no more than 10 steps. tf#24572
    (70 -> 220 ms with the profiler on), openxla/xprof#655.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Unable, need
from mpprof.diagnosis.rules.mp903_async_clock import too_short
from mpprof.diagnosis.signals import RECORD_RUN, Signals
from mpprof.model.quantities import format_ns, format_ratio

CODE, SLUG, TITLE = "MP905", "profiler-overhead", "Profiled steps are slower"
SPECIFICITY = GENERAL

INFO_RATIO, WARNING_RATIO = 0.10, 0.50
"""A tenth is what a trace of a healthy step costs; at half as much again, idle time in the window is mostly
the profiler's. On a CPU, where each op is an event of the host, that is how it is."""


def judge(signals: Signals) -> Outcome:
    account = need(signals.account)
    if account.wall_ns is None:
        return Unable(f"no unprofiled steps to compare with; {RECORD_RUN}")
    if too_short(account.wall_ns, account.device_ns):
        return Unable("the recorded step is shorter than the device's work in it: see MP903")
    slower = account.window_ns / account.wall_ns - 1 if account.wall_ns > 0 else 0.0
    if slower < INFO_RATIO:
        return Clear(f"a profiled step takes {format_ratio(max(0.0, slower))} longer")
    return Found(
        summary=(
            f"a profiled step takes {format_ns(account.window_ns)}, {format_ratio(slower)} longer "
            "than an unprofiled one: "
            "idle time in the window is partly the profiler's"
        ),
        remedy="profile fewer steps, with the Python tracer off and host tracer level 2 or lower",
        evidence=(
            evidence.ratio("profiled step above unprofiled", slower, INFO_RATIO),
            evidence.ns("profiled step", account.window_ns),
            evidence.ns("unprofiled step", account.wall_ns),
        ),
        severity="warning" if slower >= WARNING_RATIO and account.trace_basis == "device" else "info",
    )
