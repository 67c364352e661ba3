"""Checks that a report or a comparison must pass: findings that are forbidden, and a least speedup.

Pure functions of the JSON documents. A check has one of three outcomes: it passed, it failed, or it cannot be
judged, which is not the same as passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from mpprof.diagnosis import manual
from mpprof.errors import NotFoundError, UsageError, did_you_mean
from mpprof.model.account import covered
from mpprof.model.frozen import frozen
from mpprof.model.report import ComparedRuns, Report
from mpprof.report import words
from mpprof.report.to_json import to_json

SEVERITIES: Final = ("error", "warning", "info")
"""The worst first: a severity stands for itself and all that are worse."""
DIVERGED_LOSS: Final = "diverged-loss"
"""Found by a comparison alone: the later run's loss after as many applied updates is worse, or not finite."""


@frozen
class Outcome:
    """What became of one check of one run. `check`: as it was asked for (MP104, error, speedup)."""

    check: str
    verdict: Literal["passed", "failed", "unable"]
    text: str  # one sentence with the figures
    cause: str | None = None  # the code of the finding that it is about


@frozen
class Forbidden:
    """Findings that a run must not have. `severity`: the least one, None for none."""

    codes: tuple[str, ...]
    severity: str | None
    diverged_loss: bool = False

    def covers(self, severity: str | None) -> bool:
        """Return whether a finding of this severity is forbidden for its severity alone."""
        if self.severity is None or severity is None:
            return False
        return SEVERITIES.index(severity) <= SEVERITIES.index(self.severity)


def without(wanted: Forbidden, ignore: Collection[str]) -> Forbidden:
    """Return what stays forbidden where these codes are dismissed."""
    codes = tuple(code for code in wanted.codes if code not in ignore)
    return Forbidden(codes, wanted.severity, wanted.diverged_loss)


def forbidden(names: Sequence[str], *, compared: bool, option: str) -> Forbidden:
    """Return what codes (MP104), slugs (float32-island) and severities stand for. `compared`: of a
    comparison, which can also judge `DIVERGED_LOSS`. Raises UsageError, which names `option`, for any other
    name and for none at all."""
    given = [name.strip() for name in names if name.strip()]
    if not given:
        raise UsageError(f"{option}: no cause is named", next=f"Give causes or {_listed(SEVERITIES)}")
    wanted = [name.lower() for name in given]
    if DIVERGED_LOSS in wanted and not compared:
        raise UsageError(f"{option} {DIVERGED_LOSS}: needs two runs", next="mpprof compare BASELINE RUN")
    codes = [_code(name, option) for name in given if name.lower() not in (*SEVERITIES, DIVERGED_LOSS)]
    severities = [name for name in wanted if name in SEVERITIES]
    least = max(severities, key=SEVERITIES.index, default=None)
    return Forbidden(tuple(dict.fromkeys(codes)), least, DIVERGED_LOSS in wanted)


def _code(name: str, option: str) -> str:
    try:
        return manual.code_of(name)
    except NotFoundError as error:
        next_ = did_you_mean(name, (*SEVERITIES, DIVERGED_LOSS)) or error.next
        raise UsageError(f"{option} {name}: neither a cause nor a severity", next=next_) from error


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def of_findings(report: Report, wanted: Forbidden) -> Iterator[Outcome]:
    """Yield one failure for each forbidden finding of a report that is not dismissed, worst first, and one
    outcome for each forbidden cause that could not be judged. Severities are judged by the findings alone: it
    is not known what severity a cause would have that could not be judged."""
    run = report.run.name
    for finding in report.findings:
        if finding.dismissed is not None:
            continue
        named = finding.code in wanted.codes
        if named or wanted.covers(finding.severity):
            says = finding.summary or finding.title
            cause = f"{finding.code} {finding.slug} ({finding.severity})"
            check = finding.code if named else str(wanted.severity)
            yield Outcome(check, "failed", f"{run} has {cause}: {says}", finding.code)
    for unable in report.unable:
        if (code := unable.code) in wanted.codes:
            yield Outcome(code, "unable", f"{run}: cannot be judged: {unable.reason}", code)


def of_losses(comparison: ComparedRuns, wanted: Forbidden) -> Iterator[Outcome]:
    """Yield one outcome for each step of a comparison whose later run did not learn as the earlier one
    did."""
    for rung in comparison.steps:
        run = comparison.runs[rung.end].run.name
        found = rung.learning
        severity = found.severity if found else None
        if found and severity and (wanted.diverged_loss or wanted.covers(severity)):
            check = DIVERGED_LOSS if wanted.diverged_loss else str(wanted.severity)
            yield Outcome(check, "failed", f"{run} has {DIVERGED_LOSS} ({severity}): {found.text}")
        elif wanted.diverged_loss and (found is None or found.verdict == "not judged"):
            why = (found.reason if found else rung.refused) or "the losses are not compared"
            yield Outcome(DIVERGED_LOSS, "unable", f"{run}: cannot be judged: {why}")


_CONDITIONS: Final = {
    "device": "device",
    "batch_size": "batch size",
    "model_parameters": "model's number of parameters",
}


def unlike(mine: Mapping[str, Any], its: Mapping[str, Any]) -> str | None:
    """Return why the steps of two runs cannot be compared, by `run` of their documents: another device, batch
    size or model. None: none of these is known to differ."""
    for key, name in _CONDITIONS.items():
        one, other = mine.get(key), its.get(key)
        if None not in (one, other) and one != other:
            return " ".join(f"the {name} is {one}, and {other} in the baseline".split())
    return None


def of_speedup(report: Report, least: float, baseline: Report) -> Outcome:
    """Return whether a run is at least `least` times as fast as the measured baseline that its report is
    against.

    The whole 95 % interval decides: above, it passed; below, it failed; a `least` within it cannot be judged,
    nor can a speedup without an interval, or one over a run under other conditions."""
    run, speedup = report.run.name, report.speedup
    observed = speedup.observed if speedup and speedup.baseline == "measured" else None
    if observed is None or speedup is None:
        return Outcome("speedup", "unable", f"{run}: no speedup is known: {_why(report, 'observed')}")
    if (other := unlike(to_json(report.run), to_json(baseline.run))) is not None:
        return Outcome("speedup", "unable", f"{run}: cannot be judged: {other}")
    says = f"{run} is {words.speedup(observed)} as fast as {baseline.run.name}"
    if (interval := speedup.interval) is None:
        why = _why(report, "interval")
        return Outcome("speedup", "unable", f"{says}, without an interval: {why}")
    low, high = interval
    says += f" ({covered(wide=bool(speedup.interval_wide))}: {low:.4g}x to {high:.4g}x)"
    if low >= least:
        return Outcome("speedup", "passed", says)
    if high < least:
        return Outcome("speedup", "failed", f"{says}, and not {least:g}x")
    return Outcome("speedup", "unable", f"{says}: {least:g}x lies within the interval; record more steps")


def _why(report: Report, field: str) -> str:
    absent: dict[str, Any] = report.absent
    return str(absent.get(f"speedup.{field}") or absent.get("speedup") or "not recorded")
