"""What leads a report, and the code of its first cause: decided here, for every place that shows an answer.

First that the training ended by an error; then that it does not learn, that mixed precision is not in effect,
that the measurement is not valid (where that could change the first cause or its sign); then the largest gain
in time, within steps or outside them; the largest in memory; or nothing. That a run was on a CPU is
no cause, and leads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis import rules
from mpprof.diagnosis.outcomes import INVALID, Found, Leads
from mpprof.diagnosis.rules import (
    mp106_float16_output,
    mp901_warm_up,
    mp903_async_clock,
    mp905_profiler_overhead,
    mp906_unlike_runs,
    mp907_unknown_kernels,
    mp910_no_window,
    mp911_too_short,
)
from mpprof.model.answer import Leading
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.steps import StepSummary

BEFORE_COSTS: tuple[Leads, ...] = ("error", "learning", "inactive", "invalid")
LEADS: dict[str, Leads] = {rule.CODE: rule.LEADS for rule in rules.ALL if hasattr(rule, "LEADS")}
"""By code what the finding of a rule is before any cost: as each rule states it."""
_OF_MEMORY = "MP6"
_OF_THE_SIGN = (mp903_async_clock.CODE, mp906_unlike_runs.CODE)
"""With a clock that timed launches, or an unlike baseline, no difference of two times is known."""


def leads(report: Diagnosis) -> tuple[Leading, str | None]:
    """Return what leads the report, and the code of the first cause; None where nothing leads. What is only
    worth a mention, and what was dismissed, leads nothing."""
    found = [
        each for each in report.findings if each.severity != "info" and each.code not in report.dismissed
    ]
    of_time = _of_time(found, report)
    for kind in BEFORE_COSTS:
        for each in found:
            if LEADS.get(each.code) == kind and (kind != INVALID or _could_change(each, of_time, report)):
                return kind, each.code
    if of_time is not None:
        return "time", of_time.code
    of_memory = [each for each in found if each.code.startswith(_OF_MEMORY)]
    if of_memory:
        return "memory", max(of_memory, key=lambda each: each.cost_bytes or each.spare_bytes or 0).code
    return "nothing", None


def _of_time(found: Sequence[Finding], report: Diagnosis) -> Finding | None:
    """Return the finding with the largest gain in time; without gains the one that costs most, or the first
    of those whose cost is not known. None: none is about time."""
    of_time = [
        each
        for each in found
        if each.code not in LEADS and not each.code.startswith((_OF_MEMORY, *_WITHOUT_TIME))
    ]
    return max(of_time, key=lambda each: time_ns(each, report.steps), default=None)


_WITHOUT_TIME = (mp106_float16_output.CODE,)
"""A float16 output costs no time."""


def time_ns(found: Finding, steps: StepSummary | None) -> float:
    """Return what there is to gain of a step, else what the finding costs, with its part of what it costs
    beside the steps; 0 where none is known."""
    outside_ns = (found.cost_ns_of_run or 0.0) / steps.count if steps is not None and steps.count else 0.0
    if found.gain_ns_per_step is not None:  # 0: hidden behind the host
        return found.gain_ns_per_step + outside_ns
    return (found.cost_ns_per_step or found.cost_ns_in_window or 0.0) + outside_ns


def _is_faster(report: Diagnosis) -> bool:
    speedup = report.speedup
    return speedup is not None and speedup.baseline == "measured" and speedup.difference == "faster"


def _could_change(doubt: Finding, first: Finding | None, report: Diagnosis) -> bool:
    """Return whether what makes the measurement doubtful could change the first cause, or its sign: where it
    hides more of a step than the first cause gains."""
    gain_ns = time_ns(first, report.steps) if first is not None else 0.0
    if doubt.code in _OF_THE_SIGN:
        return True
    if doubt.code == mp910_no_window.CODE and not mp910_no_window.was_asked_for(report.run.facts):
        return False
    if doubt.code == mp901_warm_up.CODE and report.steps is not None and report.steps.first_steady is None:
        return report.speedup is not None and report.speedup.baseline == "measured"  # never settled: the sign
    if doubt.code == mp901_warm_up.CODE and first is None:
        # That the run is faster the records tell. Where mpprof chose the steps, there is nothing to mend.
        return not _is_faster(report) and mp901_warm_up.was_chosen(report.run.facts) is True
    interval = report.steps.mean_interval_ns if report.steps is not None else None
    if doubt.code == mp911_too_short.CODE and interval is not None:  # few steps leave as much of a step open
        sign = report.speedup is not None and report.speedup.difference == "not known"
        return sign or first is None or interval[1] - interval[0] > gain_ns
    account = report.account or report.window
    if account is None:
        step_ns = report.steps.mean_ns if report.steps else None
        if step_ns is None:  # what steps may hide is less than an error outside them takes
            return first is None or not (first.cost_ns_of_run and first.severity == "error")
        return first is None or gain_ns < step_ns / 2
    if doubt.code == mp905_profiler_overhead.CODE:  # it lengthens the step, and hides nothing
        return first is not None and account.added_by_profiling_ns > gain_ns
    if doubt.code == mp907_unknown_kernels.CODE and report.tensor_core is not None:
        copied = sum(part.ns_per_step for part in account.main.slices if part.category == "copy")
        return report.tensor_core.unknown_ratio * (account.device_ns - copied) > gain_ns
    return gain_ns < account.step_ns / 2


# --- What a judgement ranks and compares: the causes in their order, and what makes a baseline unlike.

_NO_EXPLANATION = frozenset((mp910_no_window.CODE, mp911_too_short.CODE))
"""Too little was recorded: true, and the cause of nothing that was measured."""
_UNLIKE = mp906_unlike_runs.CODE


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that cost time or come before all that do, ranked as they are: without those that
    are only worth a mention, and without those that only say that too little was recorded, unless nothing
    else is wrong."""
    told = [found for found in findings if found.severity != "info" or found.gain_ns_per_step is not None]
    explain = [found for found in told if found.code not in _NO_EXPLANATION]
    return explain if any(found.severity != "info" for found in explain) else told


def changes_type(found: Finding) -> bool:
    """Return whether the finding's remedy changes the type to compute in: what the others gain, they gain in
    this one."""
    return any(remedy.other_type for remedy in found.remedies)


def unlike(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return in which respects the baseline differs beside its precision; empty: in none that is known."""
    found = next((each for each in diagnosis.findings if each.code == _UNLIKE), None)
    if found is not None and (said := said_of_unlike(found)):
        return said
    speedup = diagnosis.speedup
    refused = (speedup.absent or {}).get("observed", "") if speedup and speedup.observed is None else ""
    return (refused,) if refused.startswith("they train different models") else ()


def said_of_unlike(found: Finding | Found) -> tuple[str, ...]:
    """Return what MP906 says is unlike; empty: of rungs, which differ by design."""
    return () if found.severity == "info" else _differences(found) or (found.summary,)


def _differences(found: Finding | Found) -> tuple[str, ...]:
    return tuple(str(each.value) for each in found.evidence if each.name == "difference")


def per_update(diagnosis: Diagnosis) -> float | None:
    """Return the observed speedup per applied update: a skipped step took its time and taught nothing."""
    speedup, steps = diagnosis.speedup, diagnosis.steps
    if speedup is None or speedup.baseline != "measured" or speedup.observed is None:
        return None
    skipped = steps.skipped_ratio if steps else None
    return speedup.observed * (1.0 - skipped) if skipped else speedup.observed
