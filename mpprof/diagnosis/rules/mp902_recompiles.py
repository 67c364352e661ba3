"""The step is traced or compiled again and again.

What it means
    Each new shape makes TensorFlow trace, or XLA compile, the step anew. A single such step takes seconds and
    hides in the mean.

How we know
    In the trace: idle time while the host traced or compiled (`idle_compile`), after warm-up. In the step
    log: single steps of more than five times the median after warm-up, which may also be checkpoints or
    pauses of the input, hence the low confidence.

What it costs
    In the trace, that idle time; in the log, what these steps took above the median, spread over all.

What to do
    Keep shapes constant:

        data = data.batch(64, drop_remainder=True)
        data = data.padded_batch(64, padded_shapes=([512],))
        @tf.function(reduce_retracing=True)

When to ignore
    When the long steps come once an epoch.

Sources
    tf#62198 (XLA compiles for each length), tf#59743, tf#34907. TensorFlow guide "Better performance with
    tf.function" (retracing).
"""

from __future__ import annotations

from mpprof.analysis.steps import epochs_of_one_call
from mpprof.diagnosis import evidence, reach
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_count, format_ratio

CODE, SLUG, TITLE = "MP902", "recompiles", "The step is compiled again and again"
SPECIFICITY = GENERAL

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.20)
"""20 % is where XProf flags a function's expensive calls."""
OUTLIER = 5.0
"""A step of five medians is no scatter."""
FEWEST_OUTLIERS = 3
"""One or two long steps are an epoch's end or a checkpoint."""
FEWEST_STEPS = 20
"""Shapes that come round every dozen steps have not come yet in fewer."""
REMEDY = (
    "constant shapes: drop_remainder=True, padding to a few lengths; reduce_retracing=True; jit_compile=False"
)


def judge(signals: Signals) -> Outcome:
    in_trace = known(signals.share("idle_compile"))
    if in_trace is not None and in_trace >= SCALE.info_ratio:
        return Found(
            summary="the device idles {cost} a step ({share}) while the host traces or compiles",
            remedy=REMEDY,
            evidence=(evidence.ratio("idle while compiling", in_trace, SCALE.info_ratio),),
            scale=SCALE,
            claims=reach.whole(signals.select(lambda cell: cell.role == "idle_compile")),
        )
    table, summary = known(signals.table), known(signals.summary)
    if table is None or summary is None or not summary.median_ns or summary.first_steady is None:
        need(signals.table)
        if in_trace is not None:
            return Clear("no compilation in the trace")
        if table is not None and epochs_of_one_call(table) is not None:
            return Unable("each epoch is a single call, so that no step has a time (MP911)")
        return Unable("the step times never settled, so that long steps cannot be told from warm-up")
    steady = (table.interval_ns > 0) & (table.step >= summary.first_steady) & ~table.profiled
    times = table.interval_ns[steady] / table.covers[steady]
    if len(times) < FEWEST_STEPS and in_trace is None:
        return Unable(f"only {len(times)} steps after warm-up; train for {FEWEST_STEPS} or more")
    long = times > OUTLIER * summary.median_ns
    lost = float((times[long] - summary.median_ns).sum() / times.sum()) if len(times) else 0.0
    if int(long.sum()) < FEWEST_OUTLIERS or lost < SCALE.info_ratio:
        return Clear(f"single long steps took {format_ratio(lost)} of the time after warm-up")
    return Found(
        summary=(
            f"{format_count(int(long.sum()))} of {format_count(len(times))} steps after warm-up took "
            f"more than {OUTLIER:g} "
            f"times the median, {format_ratio(lost)} of the time: recompilation, or pauses of another kind"
        ),
        remedy=REMEDY,
        evidence=(
            evidence.count("long steps", int(long.sum()), FEWEST_OUTLIERS),
            evidence.ratio("time in them above the median", lost, SCALE.info_ratio),
        ),
        confidence="low",
        severity=SCALE.severity(lost),
        cost_ns=float((times[long] - summary.median_ns).sum()) / len(times),
    )
