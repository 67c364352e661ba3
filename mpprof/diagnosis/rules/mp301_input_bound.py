"""The device waits for the next batch.

What it means
    The input pipeline does not deliver batches as fast as the device takes them. Mixed precision makes the
    compute shorter and the wait longer: the step stays as long as the pipeline needs.

How we know
    In the trace: idle time of the device during which the training thread waited for the iterator
    (`idle_input` of the account). Without a trace: the input wait that a StepRecorder measured. Time that no
    host event explains (`idle_other`) is not counted, and where there is much of it nothing is claimed.

What it costs
    The wait itself. While the pipeline is the limit, neither a faster device nor any remedy on the device
    gains time. Never more than the recorded step takes beyond the device's work, even where the profiled
    steps waited longer.

What to do
    Overlap and parallelise the pipeline, and move work that is cheap on the device there:

        data = data.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        data = data.batch(256, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    Cache what fits (`.cache()` before the random augmentation), store it decoded and smaller, cast to float16
    on the GPU and not on the CPU.

When to ignore
    In the first epoch of a cached data set, and in a window that covers an epoch's first step.

Sources
    Limits 5 % and 20 %: XProf's input pipeline analyser. apache/mxnet#14173 (AMP: 300 images/s on synthetic
    data against 200 real), tf#34406, NVIDIA/DALI#2095. TensorFlow guide "Better performance with tf.data".
"""

from __future__ import annotations

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.outcomes import GENERAL, Absent, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP301", "input-bound", "The device waits for input"
ABOUT = "waits for input"
SPECIFICITY = GENERAL
BOUND = "host"

SCALE = Scale(info_ratio=0.05, warning_ratio=0.05, error_ratio=0.20)
"""XProf's own limits for "moderately" and "highly" input-bound."""
_ROUNDING = 1.001


def judge(signals: Signals) -> Outcome:
    if signals.case.measured is None:
        return _from_records(signals)
    share = need(signals.share("idle_input"))
    rows = signals.of("idle_input")
    if share >= SCALE.info_ratio:
        waited = evidence.ratio("{span} spent waiting for input", share, SCALE.crossed(share))
        longer = signals.time(rows) > share * signals.whole_ns * _ROUNDING
        return Found(
            summary="the device waits {cost} {each} for input ({share})",
            evidence=(
                waited,
                *((evidence.ns("the same in a profiled step", signals.time(rows)),) if longer else ()),
            ),
            scale=SCALE,
            claims=attainable.whole(rows),
        )
    hidden, (busy, runs) = need(signals.unattributed_idle_ratio), signals.code_on_host
    if share + busy >= SCALE.warning_ratio and busy > max(share, hidden):
        return Unable(
            f"the device idles {format_ratio(busy)} of {{whole}} while {runs}, and the trace does not show "
            "whether that code makes the input"
        )
    if share + hidden >= SCALE.warning_ratio and hidden > share:
        return Unable(
            f"the device idles {format_ratio(hidden)} of {{whole}} and the trace does not show what "
            f"for{signals.hint('record host events')}"
        )
    return Clear(f"waiting for input takes {format_ratio(share)} of the step")


def _from_records(signals: Signals) -> Outcome:
    table, summary = known(signals.table), known(signals.summary)
    absent = signals.account
    reason = absent if isinstance(absent, Absent) else Absent("no account", signals.advice("record window"))
    if table is None or summary is None or not summary.median_ns:
        return Unable(str(reason))
    measured = table.input_wait_ns >= 0
    if summary.first_steady is not None:
        measured &= table.step >= summary.first_steady
    if not measured.any():
        return Unable(f"the wait for input was not measured separately: {reason}")
    wait_ns = median(table.input_wait_ns[measured] / table.covers[measured])
    share = wait_ns / summary.median_ns
    if share < SCALE.warning_ratio:
        return Clear(f"waiting for input takes {format_ratio(share)} of the step")
    return Found(
        summary=f"training waits for input {format_ratio(share)} of the step",
        evidence=(
            evidence.ratio("step spent waiting for input", share, SCALE.crossed(share)),
            evidence.ns("median wait for input", wait_ns),
        ),
        severity=SCALE.severity(share),
        cost_ns=wait_ns,
    )
