"""Did the remedies help: what a report promised against what a later run obtained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mpprof.analysis.arrays.mean_interval import of_difference
from mpprof.analysis.comparison.observed import step_times
from mpprof.analysis.comparison.obtained import Obtained, Side, obtained, scatter_ns
from mpprof.diagnosis.remedies.applied import evidence
from mpprof.model.account import Account
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.outcome import CauseAfter, Promises, RemediesTotal, RemedyOutcome, RemedyStatus

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

Range = tuple[float, float]
CLEAR_RATIO = 0.10
"""A share of what was predicted: a cause that gave less cannot be distinguished from one that fell below its
limit by chance, nor one that gave more from one that was left alone."""


def promises(
    earlier: Diagnosis, later: Diagnosis, before: Signals, after: Signals, unlike: str | None
) -> Promises:
    """Hold the gains that the report of `earlier` states against `later`. `unlike`: why the runs are no
    comparison (another model or card); None: they are one."""
    promised = [found for found in earlier.findings if (found.gain_ns_per_step or 0.0) > 0]
    why = None if promised else f"the report of {earlier.run.name} states no gain"
    why = why or unlike or _not_comparable(before, after)
    was, now = earlier.account, later.account
    same = before.computes.dtype == after.computes.dtype
    if why is not None or was is None or now is None:
        why = why or "one of the runs has no account of a step"
        return Promises(refused=why, promised=bool(promised), same_precision=same)
    sides = Side(earlier.run, was, before.undistorted), Side(later.run, now, after.undistorted)
    parts = obtained({found.code: found.claimed for found in promised}, *sides)
    half_ns = scatter_ns(*sides)
    outcomes = tuple(
        _outcome(found, parts[found.code], half_ns, later, evidence(found, before, after), was, same)
        for found in sorted(promised, key=lambda found: _place(earlier, found))
    )
    done = [each.predicted_ns for each in outcomes if each.counted]
    return Promises(
        outcomes=outcomes,
        total=RemediesTotal(
            predicted_ns=(sum(low for low, _ in done), sum(high for _, high in done)),
            obtained_ns=was.step_ns - now.step_ns if was.basis == now.basis else None,
            interval_ns=_step_interval(earlier, later),
        )
        if done
        else None,
        promised=True,
        same_precision=same,
    )


def _not_comparable(before: Signals, after: Signals) -> str | None:
    for signals in (before, after):
        if signals.case.account is None:
            why = signals.case.trace_problem or "no account"
            return f"{signals.case.run.name} has no account of a step ({why})"
    batches = [run.last_fit.batch_size if run.last_fit else None for run in (before.case.run, after.case.run)]
    if batches[0] != batches[1]:
        return f"the batches differ: {batches[0]} and {batches[1]}"
    return None


def _place(earlier: Diagnosis, found: Finding) -> int:
    """Return the place of the finding in the plan."""
    codes = [step.code for step in earlier.whatif.order] if earlier.whatif else []
    return codes.index(found.code) if found.code in codes else len(codes)


def _outcome(
    found: Finding,
    got: Obtained,
    half_ns: float | None,
    later: Diagnosis,
    seen: tuple[str, ...],
    account: Account,
    same_precision: bool,
) -> RemedyOutcome:
    after = _after(found.code, later)
    reason = got.reason
    interval: Range | None = None
    if got.ns is not None and half_ns is not None:
        half_ns = math.hypot(half_ns, got.corrections_ns)
        interval = got.ns - half_ns, got.ns + half_ns
    predicted = _predicted(found, account)
    if reason is None and half_ns is None:
        reason = "a single profiled step gives no interval"
    status = _status(seen, after, predicted, got.ns, interval)
    return RemedyOutcome(
        code=found.code,
        slug=found.slug,
        status=status,
        after=after,
        evidence=seen,
        predicted_ns=predicted,
        obtained_ns=got.ns,
        interval_ns=interval,
        reason=reason,
        counted=status == "applied" or (same_precision and status != "not seen"),
    )


def _status(
    seen: tuple[str, ...],
    after: CauseAfter,
    predicted: Range,
    obtained_ns: float | None,
    interval: Range | None,
) -> RemedyStatus:
    if seen:
        return "applied"
    least = CLEAR_RATIO * predicted[1]
    if after == "gone":
        return "not seen" if obtained_ns is not None and obtained_ns < least else "gone"
    return "less" if interval is not None and interval[0] > least else "not seen"


def _after(code: str, later: Diagnosis) -> CauseAfter:
    if any(found.code == code for found in later.findings):
        return "remains"
    return "not judged" if any(unable.code == code for unable in later.unable) else "gone"


def _predicted(found: Finding, account: Account) -> Range:
    """Return the finding's gain after the causes before it in the plan, and alone: behind the host's floor
    they differ."""
    gain = found.gain_ns_per_step or 0.0
    alone = gain if found.whatif_step_ns is None else account.step_ns - found.whatif_step_ns
    return min(gain, alone), max(gain, alone)


def _step_interval(earlier: Diagnosis, later: Diagnosis) -> Range | None:
    """Return the interval of the earlier mean step less the later one."""
    was, now = (step_times(each.run, each.account) for each in (earlier, later))
    if was.basis != now.basis or isinstance(was.interval, str) or isinstance(now.interval, str):
        return None
    return of_difference(was.interval, now.interval)
