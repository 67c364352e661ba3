"""The kernels are so short that the host cannot launch them fast enough.

What it means
    Each kernel costs the host several microseconds to launch. When kernels are as short as that, the GPU is
    done before the next one is there. Mixed precision makes kernels shorter and adds more of them (casts,
    finite checks), so that it can even be slower.

How we know
    Idle time of the device during which the launching thread was in launch or executor code (`idle_launch`).
    The median duration of a kernel tells whether kernels are short (below 20 µs: high confidence) or the
    host slow for another reason (medium). Where CUDA graphs or command buffers hide the launches, or the
    trace has no host events, nothing is claimed.

What it costs
    That idle time, less what the profiler itself added to the step (its work for every launch falls there).

What to do
    Give each kernel more to do, or launch less often:

        model.compile(..., jit_compile=True)          # XLA fuses many kernels into one
        model.compile(..., steps_per_execution=16)    # fewer returns to Python
        data = data.batch(4 * batch_size)

    TF_GPU_THREAD_MODE=gpu_private keeps launches from queueing behind the input pipeline's threads.

When to ignore
    In a model that is only a test: a few thousand parameters will never fill a GPU.

Sources
    Limits 3 % and 15 % of launch time: XProf. TensorFlow guide "Optimize GPU performance" (20 to 40 µs of
    launch latency). tf#34406 (60 k parameters, no gain on V100), keras#9594, NVIDIA/apex#297.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Claim, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.account import Account
from mpprof.model.quantities import format_count, format_ns, format_ratio

CODE, SLUG, TITLE = "MP302", "launch-bound", "Kernels are shorter than their launch"
SPECIFICITY = GENERAL

SCALE = Scale(info_ratio=0.03, warning_ratio=0.15, error_ratio=0.30, normal=True)
"""XProf calls 3 % of launch time moderate and 15 % high. Ours is the idle time that launches leave, of which
a healthy unfused step on a fast card has 3 to 12 %: a mention, and a warning from XProf's "high"."""
SHORT_KERNEL_NS = 20_000.0
"""The lower end of the launch latencies that TensorFlow's guide names (20 to 40 µs)."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU, so that no kernels are launched")
    account = need(signals.gpu_account)
    rows = signals.select(lambda cell: cell.role == "idle_launch")
    claims = tuple(Claim(row, reachable_ns=_profilers_own(account)) for row in rows)
    share = signals.cost_ratio(claims)
    hidden = need(signals.unattributed_idle_ratio)
    if share < SCALE.info_ratio:
        if share + hidden >= SCALE.warning_ratio and hidden > share:
            return Unable(
                f"the device idles {format_ratio(hidden)} of the step and the trace does not show "
                "what for (CUDA graphs, "
                "command buffers, or no host events); record once with "
                "XLA_FLAGS=--xla_gpu_enable_command_buffer= and "
                "host tracer level 2"
            )
        return Clear(f"launches leave the device idle {format_ratio(share)} of the step")
    median, launches = known(signals.median_kernel_ns), known(signals.launches_per_step)
    short = median is not None and median < SHORT_KERNEL_NS
    detail = (
        f", {format_count(launches and round(launches))} kernels a step of {format_ns(median)} in the median"
    )
    return Found(
        summary="the device idles {cost} a step ({share}) waiting for launches" + detail,
        remedy=(
            "jit_compile=True (fuses kernels), a larger batch, steps_per_execution=16; "
            "TF_GPU_THREAD_MODE=gpu_private where the input pipeline competes for threads"
        ),
        evidence=(
            evidence.ratio("step idle for launches", share, SCALE.warning_ratio),
            evidence.ns("median kernel", median, SHORT_KERNEL_NS),
            evidence.count("kernels per step", launches),
            evidence.ratio("device busy", account.device_ns / account.step_ns),
        ),
        confidence="high" if short else "medium",
        scale=SCALE,
        claims=claims,
    )


def _profilers_own(account: Account) -> float:
    """What profiling added to a step, in ns: host work for the most part, and so time without launches."""
    return max(0.0, account.window_ns - account.wall_ns) if account.wall_ns else 0.0
