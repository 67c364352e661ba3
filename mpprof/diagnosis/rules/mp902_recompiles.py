"""The step is traced or compiled again and again.

What it means
    Each new shape makes TensorFlow trace, or XLA compile, the step anew. A single such step takes seconds and
    hides in the mean.

How we know
    In the records: how long JAX or torch compiled within steps after the first, or how often TensorFlow
    traced the step anew. How long each `fit` after the first compiled as it began is in no step's time and
    counts as its share of the run without mpprof. In the trace: idle time while the host traced or compiled
    (`idle_compile`), after warm-up; or long steps in the profiler window that the host mostly spent tracing
    or compiling. Single long steps in the step log are not evidence by themselves: a machine that pauses, a
    checkpoint or a slow input make them, too. They are named; a trace of one of them would show the cause.

What it costs
    The time of tracing and compiling, in the mean step. If only the number of tracings is known, or a few of
    the long steps were profiled, the cost is what the long steps take above the median.

When to ignore
    When the long steps come once an epoch.

Sources
    tf#62198 (XLA compiles for each length), tf#59743, tf#34907. TensorFlow guide "Better performance with
    tf.function" (retracing).
"""

from __future__ import annotations

from dataclasses import replace

from mpprof.analysis.steps import spent, validity
from mpprof.analysis.steps.statistics import epochs_of_one_call
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import of_the_run

CODE, SLUG, TITLE = "MP902", "recompiles", "The step is compiled again and again"
ABOUT = "recompiles"
SAYS = "the step is compiled again and again[: {time}]"
ONCE = "once it is compiled only once"
BOUND = "host"

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.20)
"""20 % is where XProf flags a function's expensive calls."""
FEWEST_COMPILES = 3
"""One or two compiles after the first step are those of an epoch's last, smaller batch."""
MOSTLY_RATIO = 0.5
"""Share of what profiled long steps take above the median."""
FEWEST_STEPS = 20
"""Shapes that come every dozen steps may not have come yet in fewer."""


def judge(signals: Signals) -> Outcome:
    return of_the_run.together(_of_steps, _of_fits(signals), signals)


def _of_fits(signals: Signals) -> Found | None:
    """Judge the compiles with which each `fit` after the first begins, and those outside the steps of later
    epochs."""
    again = spent.compiles_outside_steps(signals.case.run)
    if again is None or again.times < FEWEST_COMPILES:
        return None
    many = format_count(again.times)
    what = f"compiling anew in {many} later fits or epochs takes"
    if again.whole_calls:
        what = f"the first calls of {many} later fits, which trace their step anew, take"
    found = of_the_run.costly(signals, {"compiling": again.ns}, SCALE, what, "each fit")
    if found is None:
        return None
    shown = evidence.count("fits and epochs that compile anew", again.times, FEWEST_COMPILES)
    return replace(
        found, evidence=(*found.evidence, shown), confidence="medium" if again.whole_calls else "high"
    )


def _of_steps(signals: Signals) -> Outcome:
    in_trace = known(signals.share("idle_compile"))
    if in_trace is not None and in_trace >= SCALE.info_ratio:
        return Found(
            summary="the device idles {cost} {each} ({share}) while the host traces or compiles",
            evidence=(evidence.ratio("idle while compiling", in_trace, SCALE.info_ratio),),
            scale=SCALE,
            claims=attainable.whole(signals.of("idle_compile")),
        )
    long = validity.long_steps(signals.case.run)
    compiled = spent.compiles(signals.case.run)
    if compiled is not None and (judged := _by_records(compiled, long, signals)) is not None:
        return judged
    counted = (
        compiled is not None and compiled.ns is None
    )  # XLA need not tell of a compile: one may take long
    if long is not None and (long.notable or (counted and long.lost_ratio >= SCALE.warning_ratio)):
        if (seen := _in_profiled(long, signals)) is not None:
            return seen
        return Unable(
            f"{long}: neither a trace count nor a compile event shows whether they were compiled again; "
            f"{validity.TELLS_WHICH}"
        )
    if in_trace is not None:
        return Clear("no compilation in the trace")
    table = need(signals.table)
    if epochs_of_one_call(table) is not None:
        return Unable("each epoch is a single call, so that no step has a time (MP911)")
    if long is None or need(signals.summary).first_steady is None:
        return Unable("the step times never settled, so that long steps cannot be told from warm-up")
    if long.of < FEWEST_STEPS:
        return Unable(f"only {long.of} steps after warm-up; train for {FEWEST_STEPS} or more")
    return Clear(f"single long steps took {format_ratio(long.lost_ratio)} of the time after warm-up")


def _by_records(
    compiled: spent.Compiles, long: validity.LongSteps | None, signals: Signals
) -> Outcome | None:
    """Judge by what was recorded of compiling after the first step; None where that decides nothing."""
    cost_ns, ratio, step_ns = compiled.ns_per_step, compiled.ratio, signals.mean_step_ns
    if cost_ns is not None and ratio is not None:
        if ratio < SCALE.info_ratio or compiled.calls < FEWEST_COMPILES:
            return Clear(f"compiling takes {format_ratio(ratio)} of the time after the first step")
        return Found(
            summary=f"compiling takes {format_ns(cost_ns)} a step after the first ({format_ratio(ratio)})",
            evidence=(
                evidence.ratio("time after the first step spent compiling", ratio, SCALE.crossed(ratio)),
                evidence.count("compiles after the first step", compiled.calls, FEWEST_COMPILES),
            ),
            severity=SCALE.severity(ratio),
            cost_ns=cost_ns,
        )
    if compiled.ns is None and compiled.calls >= FEWEST_COMPILES and long is not None and long.notable:
        return Found(
            summary=f"the step was traced {format_count(compiled.calls)} times anew, and {long}",
            evidence=(evidence.count("tracings after the first step", compiled.calls, FEWEST_COMPILES),),
            confidence="medium",
            severity=SCALE.severity(long.lost_ratio),
            cost_ns=None if step_ns is None else long.lost_ratio * step_ns,
        )
    return None


def _in_profiled(long: validity.LongSteps, signals: Signals) -> Outcome | None:
    """Judge by the long steps in the profiler window; None where it has none, or they did other things."""
    trace, since = signals.case.trace, need(signals.summary).first_steady
    if trace is None or since is None:
        return None
    ratio, step_ns = validity.compiled_ratio(signals.case.run, trace, since), signals.mean_step_ns
    if ratio is None or ratio < MOSTLY_RATIO:
        return None
    return Found(
        summary=f"{long}; those that were profiled trace or compile the step anew",
        evidence=(evidence.ratio("profiled long steps spent tracing or compiling", ratio, MOSTLY_RATIO),),
        confidence="medium",
        severity=SCALE.severity(long.lost_ratio),
        cost_ns=None if step_ns is None else long.lost_ratio * step_ns,
    )
