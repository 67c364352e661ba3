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
    kernel. MP302 counts the idle time if the host is less far ahead than the device idled, or if the trace
    does not hold the calls of a training function and their launches.

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
    if not launch_waits.host_gets_ahead(signals):
        return Clear("the host is never so far ahead that this idle time would be hidden")
    path = account.host_path
    ahead_ns = path.ahead_ns if path else 0.0
    waits = launch_waits.in_mid_step(signals)
    return Found(
        summary=(
            "the device idles {cost} {each} ({share}) until its queue fills; once the host has launched the "
            f"last kernel, the device works {format_ns(ahead_ns)} more"
            + (f"; in mid-step the host waits for it, in {evidence.listed(waits)}" if waits else "")
        ),
        proof=f"{waits[0]} waits in mid-step" if waits else "",
        evidence=(
            evidence.ratio(
                f"{{span}} idle until the queue fills{launch_waits.left_out(signals)}",
                share,
                launch_waits.SCALE.crossed(share),
            ),
            evidence.ns("device's work after the last launch", ahead_ns),
            evidence.ratio("device busy", account.device_ns / signals.whole_ns),
        ),
        cases=("mid-step", "") if waits else ("",),
        confidence="medium",
        scale=launch_waits.SCALE,
        claims=claims,
    )
