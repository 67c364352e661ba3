"""The device idles until its queue of kernels fills, and then the host is ahead of it.

What it means
    A step that begins with an empty queue has nothing to hide the first launches behind. Later in the step
    the host is ahead: when it has launched the last kernel, the device still has more work queued than it
    idled for. Then launching is not too slow for these kernels; the queue ran empty because the host waited
    for the device at the end of the step before (Keras reads the metrics after every call of the training
    function on TensorFlow).

How we know
    Idle time of the device during which the host launched (`idle_launch`), in steps at whose beginning no
    kernel of an earlier launch ran, and the time from the return of the last launch to the end of the last
    kernel. Where no calls of a training function are in the trace, what lies between two waits for the device
    of the launching thread takes a step's place. MP302 counts the idle time if the host is less far ahead
    than the device idled, or if the trace holds neither.

What it costs
    That idle time, as in MP302: had the queue not run empty, it would have been hidden.

When to ignore
    Where each step's results are needed before the next.

Sources
    Limits as of MP302. TensorFlow guide "Optimize GPU performance" (launches ahead of the device).
"""

from __future__ import annotations

from mpprof.diagnosis import launch_waits
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP311", "empty-queue", "The device idles until its queue fills"
ABOUT = "idling until the queue fills"
SAYS = "the {device} idles until its queue fills[: {time}]"
ONCE = "once the queue stays full"
BOUND = "host"
OF_ACCELERATOR = True


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_activity)
    claims = launch_waits.claims(signals)
    share = signals.cost_ratio(claims)
    if share < launch_waits.SCALE.info_ratio:
        return Clear(f"launches leave the device idle {format_ratio(share)} of the step")
    ahead_ns = signals.host_ahead_ns
    if ahead_ns is None:
        return Unable("neither calls of a training function nor waits tell how far ahead the host is")
    if not launch_waits.host_gets_ahead(signals):
        return Clear("the host is never so far ahead that this idle time would be hidden")
    ahead, marked = format_ns(ahead_ns), account.host_path is not None
    waits = launch_waits.in_mid_step(signals)
    named = evidence.listed(waits) if waits else ""
    if marked:
        more = f"once the host has launched the last kernel, the device works {ahead} more"
        more += f"; in mid-step the host waits for it, in {named}" if waits else ""
    else:
        whose = f" ({named})" if waits else ""
        more = f"whenever the host begins to wait for it{whose}, it has work left, {ahead} {{each}} in all"
    return Found(
        summary=f"the device idles {{cost}} {{each}} ({{share}}) until its queue fills; {more}",
        proof=f"{waits[0]} waits for the device" if waits else "",
        evidence=(
            evidence.ratio(
                f"{{span}} idle until the queue fills{launch_waits.left_out(signals)}",
                share,
                launch_waits.SCALE.crossed(share),
            ),
            evidence.ns(
                f"device's work {'after the last launch' if marked else 'left when the host waits'}",
                ahead_ns,
            ),
            evidence.ratio("device busy", account.device_ns / signals.whole_ns),
        ),
        cases=("mid-step", "") if waits else ("",),
        confidence="medium",
        scale=launch_waits.SCALE,
        claims=claims,
    )
