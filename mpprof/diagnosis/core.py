"""The engine: ask every rule, settle whose cost is whose, and put the findings in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpprof.analysis import whatif
from mpprof.diagnosis import ledger
from mpprof.diagnosis import rules as _rules
from mpprof.diagnosis.explanation import explanation
from mpprof.diagnosis.manual import codes, explain
from mpprof.diagnosis.outcomes import Claim, Clear, Found, Missing, Outcome, Rule, Unable
from mpprof.diagnosis.signals import NO_WORK, Case, Signals
from mpprof.diagnosis.verdict import cause, verdict
from mpprof.model import finding as noun
from mpprof.model.account import Speedup
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns, format_ratio

__all__ = ["Case", "Judgement", "cause", "codes", "explain", "explanation", "judge", "verdict"]

_ON_THE_DEVICE = frozenset(("MP304", "MP307", "MP309"))
"""Causes of the third hundred whose remedy shortens the device's work rather than the host's."""
_SEVERITY_RANK = {"error": 0, "warning": 1, "info": 2}
_QUESTIONS_OF_PRINCIPLE = 4
"""Validity, ceiling, in effect and skips come before all costs of the same severity: until they are
answered, a cost may mean something else. Idle and classes are then ranked by cost."""

LOSS_RATIO = 0.05
"""A twentieth of the step, lost for certain, is worth a warning."""
REAL_RATIO = 0.5
"""A normal cost is a loss all the same where the baseline shows that half of it or more need not be."""


@frozen
class Judgement:
    """What all rules said. Every rule is in exactly one of `findings`, `unable` and `clear`.

    `findings` worst first; `unable` and `clear` in the order of judgement. `speedup` is the case's own with
    `unexplained_ns` set. `warnings`: rules that failed.
    """

    findings: tuple[noun.Finding, ...]
    unable: tuple[noun.Unable, ...]
    clear: tuple[str, ...]
    speedup: Speedup | None
    warnings: tuple[str, ...] = ()
    whatif: noun.WhatIf | None = None


def judge(case: Case, rules: Sequence[Rule] | None = None, *, strict: bool = False) -> Judgement:
    """Ask every rule (`rules.ALL` unless others are given) about `case`.

    The order of `rules` changes nothing. A rule that raises becomes *unable* with a warning, because one
    bug must not cost the whole report; with `strict` it raises, as it should in tests.
    """
    signals = Signals(case)
    by_code = {rule.CODE: rule for rule in (_rules.ALL if rules is None else rules)}
    warnings: list[str] = []
    outcomes = {
        code: _ask(by_code[code], signals, warnings, strict=strict)
        for code in sorted(by_code, key=ledger.order)
    }
    found = {code: outcome for code, outcome in outcomes.items() if isinstance(outcome, Found)}
    granted, displaced = _settle(found, by_code, signals)

    shares = ledger.explain_gap(granted, signals.cells, case.speedup)
    findings = [
        _finding(by_code[code], outcome, granted[code], signals, shares)
        for code, outcome in found.items()
        if code not in displaced
    ]
    unable = [
        noun.Unable(code, displaced.get(code) or (outcome.reason if isinstance(outcome, Unable) else ""))
        for code, outcome in outcomes.items()
        if isinstance(outcome, Unable) or code in displaced
    ]
    return Judgement(
        findings=tuple(sorted(findings, key=_worst_first)),
        unable=tuple(unable),
        clear=tuple(code for code, outcome in outcomes.items() if isinstance(outcome, Clear)),
        speedup=_with_unexplained(case.speedup, shares),
        warnings=tuple(warnings),
        whatif=_plan(granted, displaced, signals),
    )


def _plan(
    granted: Mapping[str, Sequence[Claim]], displaced: Mapping[str, str], signals: Signals
) -> noun.WhatIf | None:
    account = signals.case.account
    if account is None:
        return None
    remedies = [
        _remedy(code, ledger.cost_ns(claims, signals.cells) * signals.undistorted)
        for code, claims in granted.items()
        if claims and code not in displaced
    ]
    return whatif.plan(
        account.step_ns, account.host_ns, [remedy for remedy in remedies if remedy.gain_ns > 0]
    )


def _remedy(code: str, gain_ns: float) -> whatif.Remedy:
    return whatif.Remedy(code, gain_ns, host=code[2:3] == "3" and code not in _ON_THE_DEVICE)


def _ask(rule: Rule, signals: Signals, warnings: list[str], *, strict: bool) -> Outcome:
    try:
        return rule.judge(signals)
    except Missing as missing:
        return Unable(str(missing.absent))
    except Exception as error:
        if strict:
            raise
        warnings.append(f"{rule.CODE} {rule.SLUG} could not be judged: internal error {error!r}")
        return Unable(f"internal error {error!r}")


def _settle(
    found: Mapping[str, Found], by_code: Mapping[str, Rule], signals: Signals
) -> tuple[dict[str, tuple[Claim, ...]], dict[str, str]]:
    """Share out the cells: (code -> its claims, code -> why it has nothing left to say).

    A rule that loses so many cells that the rest is not worth saying is neither found nor clear: it can be
    told once the other is remedied. What it did hold goes back to the others.
    """
    displaced: dict[str, str] = {}
    while True:
        wishes = {c: (by_code[c].SPECIFICITY, f.claims) for c, f in found.items() if c not in displaced}
        granted = ledger.settle(wishes)
        owner = {claim.cell: code for code, claims in granted.items() for claim in claims}
        fresh = {}
        for code in granted:
            takers = {owner[claim.cell] for claim in found[code].claims} - {code}
            if takers and found[code].scale and _severity(found[code], granted[code], signals) is None:
                names = ", ".join(sorted(takers, key=ledger.order))
                fresh[code] = f"what it would cost is part of {names} here; judge again once that is remedied"
        if not fresh:
            return granted, displaced
        # The most entitled first, one at a time: what it held may lift another above its limit.
        first = min(fresh, key=lambda code: (-by_code[code].SPECIFICITY, ledger.order(code)))
        displaced[first] = fresh[first]


def _severity(outcome: Found, claims: Sequence[Claim], signals: Signals) -> noun.Severity | None:
    """The severity that is stated, or that the cost has on the rule's scale; None: not worth saying."""
    if outcome.severity is not None or outcome.scale is None:
        return outcome.severity or "warning"
    cost = ledger.cost_ns(claims, signals.cells) if outcome.claims else outcome.cost_ns
    if cost is None or signals.whole_ns <= 0:
        return "warning"  # found on records alone, with nothing to hold it against
    return outcome.scale.severity(cost / signals.whole_ns)


def _finding(
    rule: Rule,
    outcome: Found,
    claims: Sequence[Claim],
    signals: Signals,
    shares: ledger.GapShares | None,
) -> noun.Finding:
    account = signals.case.account
    cost = ledger.cost_ns(claims, signals.cells) if claims else outcome.cost_ns
    stated = cost * signals.undistorted if cost is not None and claims else cost
    step_ns = account.step_ns if account else None
    explained = shares.explained_ns.get(rule.CODE, 0.0) if shares and claims else None
    severity = _severity(outcome, claims, signals) or "warning"
    ceiling = severity == "info" and _is_ceiling(outcome, claims, signals, cost, explained)
    if severity == "info" and not ceiling and _is_loss(outcome, cost, signals):
        severity = "warning"
    if severity == "error" and outcome.severity is None and outcome.claims and signals.distorted:
        severity = "warning"  # the window is to be mended first: MP905
    return noun.Finding(
        code=rule.CODE,
        slug=rule.SLUG,
        title=rule.TITLE,
        severity=severity,
        confidence=_confidence(outcome, signals),
        evidence=outcome.evidence,
        remedy=outcome.remedy,
        summary=_filled_in(outcome.summary, stated, cost, signals.whole_ns),
        cost_ns_per_step=None if ceiling else stated,
        cost_bytes=outcome.cost_bytes,
        gap_ratio=explained / shares.gap_ns
        if shares and explained is not None and shares.gap_ns > 0
        else None,
        lost_ratio=shares.lost_ratio(rule.CODE)
        if shares and explained is not None and shares.lost_ns > 0
        else None,
        whatif_step_ns=_whatif(rule, step_ns, stated, signals) if claims and step_ns and stated else None,
        layers=outcome.layers,
    )


def _is_ceiling(
    outcome: Found, claims: Sequence[Claim], signals: Signals, cost: float | None, explained: float | None
) -> bool:
    """What every healthy run of this kind has, and the comparison (if there is one) does not show to be more.

    A baseline that idles less shows nothing of the kind: its longer kernels hide the same launches."""
    if outcome.scale is None or not outcome.scale.normal or not cost:
        return False
    idle = all(signals.cells[claim.cell].role in NO_WORK for claim in claims)
    return idle or explained is None or explained < REAL_RATIO * cost


def _is_loss(outcome: Found, cost: float | None, signals: Signals) -> bool:
    """What is normal as a rule, but the baseline shows that here it need not be."""
    if outcome.scale is None or not outcome.scale.normal or signals.whole_ns <= 0:
        return False
    return (cost or 0.0) >= LOSS_RATIO * signals.whole_ns


def _confidence(outcome: Found, signals: Signals) -> noun.Confidence:
    """The rule's own, but low for costs out of a window in which steps took far longer than they do, and not
    high for those of a single step: whether it is like the others, nobody knows."""
    if outcome.claims and signals.distorted:
        return "low"
    account = signals.case.account
    if outcome.claims and account and len(account.steps) == 1 and outcome.confidence == "high":
        return "medium"
    return outcome.confidence


def _filled_in(summary: str, stated: float | None, cost: float | None, whole_ns: float) -> str:
    # Not str.format: names of layers and kernels may hold braces.
    ratio = cost / whole_ns if cost is not None and whole_ns else None
    return summary.replace("{cost}", format_ns(stated)).replace("{share}", format_ratio(ratio))


def _whatif(rule: Rule, step_ns: float, cost: float, signals: Signals) -> float:
    """The step with this finding's cells at what they could be, and nothing else remedied."""
    account = signals.case.account
    host_ns = account.host_ns if account else None
    return min(step_ns, whatif.step_after(step_ns, host_ns, [_remedy(rule.CODE, cost)]))


def _worst_first(found: noun.Finding) -> tuple[int, int, float, tuple[int, str]]:
    place, _ = ledger.order(found.code)
    return (
        _SEVERITY_RANK[found.severity],
        min(place, _QUESTIONS_OF_PRINCIPLE),
        -(found.cost_ns_per_step or 0.0),
        ledger.order(found.code),
    )


def _with_unexplained(speedup: Speedup | None, shares: ledger.GapShares | None) -> Speedup | None:
    if speedup is None or shares is None:
        return speedup
    return replace(speedup, unexplained_ns=shares.unexplained_ns)
