"""The host launches kernels no faster than the device runs them.

What it means
    Each kernel costs the host several microseconds to launch. When kernels are as short as that, the GPU has
    finished one before the next is launched. Mixed precision makes kernels shorter and adds more of them
    (casts, finite checks), so that it can even be slower.

How we know
    Idle time of the device during which the host called the training function, launched, or returned from it
    (`idle_launch`). It is judged gap by gap: a driver call that does not return (0.4 ms and more), an op that
    runs on the CPU, or more than 1 ms without any event is not launching. The median duration of a kernel
    tells whether kernels are short (below 20 µs: high confidence) or the host slow for another reason
    (medium). Of several devices it is that of the device that works longest, and the others' stands beside
    it. If the host gets further ahead in the step than the device idled, launches are not too slow, and MP311
    (empty queue) counts that time. Where CUDA graphs or command buffers hide the launches, or the trace has
    no host events, nothing is claimed.

What it costs
    That idle time, less what the profiler itself added to the step (it works at every launch), and less the
    idle time around the calls of a float32 baseline that is not launch-bound: a call costs that much in any
    run. If profiled steps take at least 1.5 times as long as unprofiled ones, the idle time's share of the
    profiled step is applied to the unprofiled step, with low confidence. The cost is never more than the
    unprofiled step takes beyond the device's work. Without records the profiler's part is not known, and the
    cost is that of the profiled steps.

When to ignore
    In a model that is only a test: a few thousand parameters will never fill a GPU.

Sources
    Limits 3 % and 15 % of launch time: XProf. TensorFlow guide "Optimize GPU performance" (20 to 40 µs of
    launch latency). tf#34406 (60 k parameters, no gain on V100), keras#9594, NVIDIA/apex#297.
"""

from __future__ import annotations

from mpprof.diagnosis import launch_waits
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.conditions import launches_one_by_one

CODE, SLUG, TITLE = "MP302", "launch-bound", "The device waits for launches"
ABOUT = "launches too slow for the device"
SAYS = "the host launches too slowly: the {device} idles[ {time}]"
ONCE = "with fewer launches"
BOUND = "host"
OF_ACCELERATOR = True

_HIDES = " (graphs of launches, command buffers, or no host events)"
SHORT_KERNEL_NS = 20_000.0
"""The lower end of the launch latencies that TensorFlow's guide names (20 to 40 µs)."""


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_activity)
    claims = launch_waits.claims(signals)
    share = signals.cost_ratio(claims)
    hidden = need(signals.unattributed_idle_ratio)
    if share < launch_waits.SCALE.info_ratio:
        if share + hidden >= launch_waits.SCALE.warning_ratio and hidden > share:
            hides = "" if launches_one_by_one(signals) else _HIDES
            return Unable(
                f"the device idles {format_ratio(hidden)} of {{whole}} and the trace does not show "
                f"what for{hides}{signals.hint('record without graphs')}{signals.hint('record host events')}"
            )
        return Clear(f"launches leave the device idle {format_ratio(share)} of the step")
    if launch_waits.host_gets_ahead(signals):
        return Clear("the host gets ahead by more than the device's idle time (MP311)")
    calls = known(signals.kernel_calls)
    short = calls is not None and _short(calls)
    waits = launch_waits.in_mid_step(signals)
    summary = "the device idles {cost} {each} ({share}) waiting for launches"
    if calls is not None:
        many = format_count(round(calls.per_step))
        summary += f": {many} kernels {{each}}, of {format_ns(calls.median_ns)} in the median"
    return Found(
        summary=summary,
        proof="" if calls is None else summary.partition(": ")[2],
        evidence=(
            evidence.ratio(
                f"{{span}} idle for launches{launch_waits.left_out(signals)}",
                share,
                launch_waits.SCALE.crossed(share),
            ),
            *_of_the_others(signals),
            *_counted(calls),
            evidence.ratio("device busy", account.device_ns / signals.whole_ns),
            *((evidence.text("the host waits in mid-step in", evidence.listed(waits)),) if waits else ()),
        ),
        confidence="high" if short else "medium",
        scale=launch_waits.SCALE,
        claims=claims,
    )


def _of_the_others(signals: Signals) -> tuple[Evidence, ...]:
    """Return how long the other devices wait for launches: the summary is of the one that works most."""
    others = sorted(each.classes.get("idle_launch", 0.0) for each in signals.devices[1:])
    if not others:
        return ()
    name = "{span} idle for launches on " + (
        "the other device" if len(others) == 1 else f"the other {len(others)} devices"
    )
    least, most = format_ns(others[0]), format_ns(others[-1])
    return (evidence.text(name, least if least == most else f"{least} to {most}"),)


def _short(calls: KernelCalls) -> bool:
    return calls.median_ns < SHORT_KERNEL_NS


def _counted(calls: KernelCalls | None) -> tuple[Evidence, ...]:
    """Return the counts of kernels and, apart from them, of launched work that computes nothing."""
    if calls is None:
        return ()
    kernels = (
        evidence.ns("median kernel", calls.median_ns, SHORT_KERNEL_NS if _short(calls) else None),
        evidence.count("kernels {per}", calls.per_step),
    )
    if not calls.copies_per_step:
        return kernels
    return (*kernels, evidence.count("copies and fills {per}", calls.copies_per_step))
