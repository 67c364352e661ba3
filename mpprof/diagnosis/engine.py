"""The engine: ask every rule, settle whose cost is whose, and put the findings in order."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mpprof.analysis.comparison import whatif
from mpprof.diagnosis import claims as ledger
from mpprof.diagnosis import evidence, launch_waits, profiled_steps
from mpprof.diagnosis import rules as _rules
from mpprof.diagnosis.after_changes import PAYING_RATIO
from mpprof.diagnosis.leading import BEFORE_COSTS, LEADS, said_of_unlike, time_ns
from mpprof.diagnosis.outcomes import (
    FORWARD_ALONE,
    GENERAL,
    INVALID,
    NO_GPU,
    ONLY_INFERS,
    REMAINDER,
    Claim,
    Clear,
    Found,
    Missing,
    NotApplicable,
    Outcome,
    Rule,
    Unable,
    cost_ns,
    held_ns,
    known,
)
from mpprof.diagnosis.remedies.choosing import joined
from mpprof.diagnosis.rules import mp906_unlike_runs, mp907_unknown_kernels, mp912_attribution_lost
from mpprof.diagnosis.signals import NO_WORK, Case, Signals
from mpprof.diagnosis.wording import WORTH_RECORDING
from mpprof.model import finding as noun
from mpprof.model.account import Cell, Class, Phase, Slice, Speedup
from mpprof.model.answer import Remedy
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.steps import StepSummary

_LAST = 5
_QUESTIONS_OF_PRINCIPLE = 4
"""Validity, ceiling, in effect and skips come before all costs of the same severity: until they are
answered, a cost may mean something else. Idle and classes are then ranked by cost."""
_MEMORY = ledger.ORDER_OF_JUDGEMENT.index("6")

MOSTLY_IDLE_RATIO = 0.5
"""A window in which the device idles for more than half may hold anything beside training: loading, building
the model, waiting for its user."""
LOSS_RATIO = 0.05
"""A twentieth of the step, lost for certain, is worth a warning."""
REAL_RATIO = 0.5
"""A normal cost is a loss all the same where the baseline shows that half of it or more need not be."""


@frozen
class Judgement:
    """What all rules said. Every rule is in exactly one of `findings`, `unable`, `clear` and
    `not_applicable`.

    `findings` in the order of the plan (`_ranked`); the others in that of judgement. `speedup` is
    the case's own with `unexplained_ns` set. `unlike`: why the window is not representative. `warnings`:
    rules that failed. `how_to_mark`: where no step is marked, how to mark them. `how_to_switch`: mixed
    precision on, where that may pay.
    """

    findings: tuple[noun.Finding, ...]
    unable: tuple[noun.Unable, ...]
    clear: tuple[str, ...]
    speedup: Speedup | None
    warnings: tuple[str, ...] = ()
    whatif: noun.WhatIf | None = None
    how_to_mark: tuple[Remedy, ...] = ()
    how_to_switch: tuple[Remedy, ...] = ()
    unlike: str | None = None
    not_applicable: tuple[noun.NotApplicable, ...] = ()


def judge(case: Case, rules: Sequence[Rule] | None = None, *, strict: bool = False) -> Judgement:
    """Ask every rule (`rules.ALL` unless others are given) about `case`.

    The order of `rules` changes nothing. A rule that raises becomes *unable* with a warning, because one
    bug must not cost the whole report; with `strict` it raises, as it should in tests.
    """
    signals = Signals(case)
    by_code = {rule.CODE: rule for rule in (_rules.ALL if rules is None else rules)}
    warnings: list[str] = []
    asked = sorted(by_code, key=ledger.order)
    answers: dict[str, Outcome] = {}
    for code in asked:
        if _specificity(by_code[code]) != REMAINDER:
            answers[code] = _ask(by_code[code], signals, warnings, strict=strict)
    granted, displaced = _settle(
        {code: answer for code, answer in answers.items() if isinstance(answer, Found)}, by_code, signals
    )
    for code in asked:  # rules of the remainder, now that the cells are divided
        if code not in answers:
            signals.claimed = frozenset(claim.cell for claims in granted.values() for claim in claims)
            answers[code] = answer = _ask(by_code[code], signals, warnings, strict=strict)
            if isinstance(answer, Found):
                granted[code] = tuple(claim for claim in answer.claims if claim.cell not in signals.claimed)
    answers = {code: answers[code] for code in asked}
    return _judgement(by_code, answers, granted, displaced, warnings, signals)


def _judgement(
    by_code: Mapping[str, Rule],
    outcomes: Mapping[str, Outcome],
    granted: Mapping[str, tuple[Claim, ...]],
    displaced: Mapping[str, str],
    warnings: Sequence[str],
    signals: Signals,
) -> Judgement:
    """Return what the rules' answers come to. `granted`: the claims that each finding is left with;
    `displaced`: by code why a finding that lost its cells has nothing left to say."""
    case = signals.case
    found = {code: outcome for code, outcome in outcomes.items() if isinstance(outcome, Found)}
    clear = tuple(code for code, outcome in outcomes.items() if isinstance(outcome, Clear))
    unrepresentative = profiled_steps.unlike(signals)
    doubt = unrepresentative or _of_the_baseline(signals)
    shares = None if doubt else ledger.explain_gap(granted, signals.cells, case.speedup)
    weighed = {
        code: _weighed(by_code[code], outcome, granted[code], signals, shares)
        for code, outcome in found.items()
        if code not in displaced
    }
    weighed = _within_the_step(weighed, case.account.step_ns if case.account else signals.mean_step_ns)
    plan = _plan(weighed.values(), signals)
    if plan is not None:
        plan = replace(plan, surfacing=_surfacing([by_code[code] for code in clear], granted, plan, signals))
    place = {step.code: at for at, step in enumerate(plan.order)} if plan else {}
    gains = {step.code: step.gain_ns for step in plan.order} if plan else {}
    recovers, added = _recovered(weighed, gains, case), _added(weighed, gains, signals)
    findings = []
    for code, each in weighed.items():
        gain = gains.get(code), recovers.get(code), added.get(code)
        findings.append(_finding(found[code], each, signals, *gain, shares))
    ceilings = {code for code, each in weighed.items() if each.ceiling}
    return Judgement(
        findings=tuple(_ranked(findings, place, ceilings, case.dismissed, case.steps)),
        unable=_unable(outcomes, displaced, signals),
        clear=clear,
        speedup=_unsplit(case.speedup, doubt) if doubt else _completed(case, recovers, shares, signals),
        unlike=unrepresentative,
        warnings=tuple(warnings),
        whatif=plan,
        how_to_mark=signals.remedies("record steps") if signals.unmarked else (),
        how_to_switch=signals.remedies("mixed precision") if _pays(signals) else (),
        not_applicable=tuple(
            noun.NotApplicable(code, outcome.reason)
            for code, outcome in outcomes.items()
            if isinstance(outcome, NotApplicable)
        ),
    )


def _unable(
    outcomes: Mapping[str, Outcome], displaced: Mapping[str, str], signals: Signals
) -> tuple[noun.Unable, ...]:
    """Return the rules that could not be judged, and those that lost their cells, in the rules' order."""
    why = {
        code: _worded(outcome.reason, signals)
        for code, outcome in outcomes.items()
        if isinstance(outcome, Unable)
    } | dict(displaced)
    return tuple(noun.Unable(code, why[code]) for code in outcomes if code in why)


def unlike(case: Case) -> tuple[str, ...]:
    """Return in which respects the baseline differs beside its precision, as MP906 judges; empty: in none
    that is known, or there is no baseline."""
    answer = _ask(mp906_unlike_runs, Signals(case), [], strict=False)
    return said_of_unlike(answer) if isinstance(answer, Found) else ()


def _pays(signals: Signals) -> bool:
    """Return whether 16 bits may make this float32 run faster: by the estimate, else because its device has
    matrix units."""
    if signals.computes.kind != "float32" or signals.on_cpu or signals.host_only or signals.in_window:
        return False
    peaks, speedup = known(signals.peaks), signals.case.speedup
    could, baseline = speedup.potential if speedup else None, known(signals.baseline)
    if could is not None:
        return could.high >= WORTH_RECORDING
    if baseline is not None and baseline.computes.narrow:
        return False
    return peaks is not None and peaks.has_matrix_units and signals.case.account is not None


@frozen
class _Weighed:
    """A finding's weight, before it is known what its remedy gains beside the others. `cost_ns` as claimed in
    the account (of a distorted window, too), `stated_ns` of a step without the profiler, `explained_ns` of
    the gap, `work_ns` like `stated_ns` of the device's own work alone; `lost`: no healthy run of this kind
    has it; `ceiling`: every one has, and no more; `host`: its remedy relieves the host, too, as the rule says
    or because the device waits for the launches of what it would remove; `held_ns`: of `stated_ns`, what
    communication under it keeps."""

    rule: Rule
    claims: tuple[Claim, ...]
    severity: noun.Severity
    cost_ns: float | None
    stated_ns: float | None
    explained_ns: float | None
    lost: bool
    ceiling: bool
    host: bool
    work_ns: float
    held_ns: float

    @property
    def remedy(self) -> whatif.Remedy:
        return whatif.Remedy(
            self.rule.CODE,
            max(0.0, (self.stated_ns or 0.0) - self.held_ns),
            host=self.host,
            work_ns=self.work_ns,
            lost=self.lost,
            ceiling=self.ceiling,
            mention=self.severity == "info",
        )


def _weighed(
    rule: Rule, outcome: Found, claims: tuple[Claim, ...], signals: Signals, shares: ledger.GapShares | None
) -> _Weighed:
    cost = signals.cost_ns(claims) if claims else outcome.cost_ns
    stated = cost * signals.undistorted if cost is not None and claims else cost
    explained = shares.explained_ns.get(rule.CODE, 0.0) if shares and claims else None
    severity = _severity(outcome, claims, signals) or "warning"
    normal = _is_ceiling(outcome, claims, signals, cost, explained)
    ceiling = severity == "info" and normal
    if severity == "info" and not ceiling and _is_loss(outcome, cost, signals):
        severity = "warning"
    if severity == "error" and outcome.severity is None and outcome.claims and signals.distorted:
        severity = "warning"  # the window is to be mended first: MP905
    launching = any(signals.cells[claim.cell].category == "idle_launch" for claim in claims)
    host = getattr(rule, "BOUND", "device") == "host" or launching
    of_work = [claim for claim in claims if signals.cells[claim.cell].category not in NO_WORK]
    work_ns = cost_ns(of_work, signals.cells) * signals.undistorted
    held = held_ns(claims, signals.cells) * signals.undistorted
    return _Weighed(rule, claims, severity, cost, stated, explained, not normal, ceiling, host, work_ns, held)


def _within_the_step(weighed: dict[str, _Weighed], step_ns: float | None) -> dict[str, _Weighed]:
    """Return them with costs that are no more than the step together. What a finding has by the records alone
    may be another's time, too: it is left what no other has, and first of all one that says of all time that
    it grew (MP8). Of skipped updates (MP2) the time was spent, on whatever it was."""
    costs = {code: each for code, each in weighed.items() if each.stated_ns and not each.ceiling}
    bare = [code for code, each in costs.items() if not each.claims and not code.startswith("MP2")]
    left_ns = (step_ns or math.inf) - sum(each.stated_ns or 0.0 for each in costs.values() if each.claims)
    found = dict(weighed)
    for code in sorted(bare, key=lambda code: (code.startswith("MP8"), ledger.order(code))):
        own_ns = min(costs[code].stated_ns or 0.0, max(0.0, left_ns))
        left_ns -= own_ns
        if own_ns != costs[code].stated_ns:
            found[code] = replace(costs[code], cost_ns=own_ns or None, stated_ns=own_ns or None)
    return found


def _plan(weighed: Iterable[_Weighed], signals: Signals) -> noun.WhatIf | None:
    """Return the plan of the remedies of all findings that hold time of the step."""
    account = signals.case.account
    if account is None:
        return None
    remedies = [
        replace(each.remedy, dismissed=each.rule.CODE in signals.case.dismissed)
        for each in weighed
        if each.claims and each.remedy.gain_ns > 0
    ]
    return whatif.plan(account.step_ns, account.host_ns, remedies, _work_ns(signals))


def _surfacing(
    clear: Iterable[Rule], granted: Mapping[str, Sequence[Claim]], plan: noun.WhatIf, signals: Signals
) -> tuple[noun.Surfacing, ...]:
    """Return what these rules, which find nothing in the step as it is, find in the step after all remedies,
    the largest first: the same rules judge an account without the time that the claims free. Empty where the
    host then limits the step."""
    account = signals.case.account
    claimed = {claim.cell: claim for claims in granted.values() for claim in claims}
    if (
        plan.floor.by != "device"
        or account is None
        or signals.distorted
        or not claimed
        or plan.best_step_ns <= 0
    ):
        return ()
    cells = tuple(
        replace(cell, ns_per_step=min(cell.ns_per_step, claimed[row].attainable_ns))
        if row in claimed
        else cell
        for row, cell in enumerate(signals.cells)
    )
    best = plan.best_step_ns
    main = replace(account.main, cells=cells, step_ns=best, slices=_slices(account.main.slices, cells))
    wall = best if account.wall_ns else None
    after = replace(account, main=main, step_ns=best, window_ns=best, wall_ns=wall, devices=(main,))
    later = Signals(replace(signals.case, account=after))
    found = []
    for rule in clear:
        answer = _ask(rule, later, [], strict=False)
        claims = (
            [claim for claim in answer.claims if claim.cell not in claimed]
            if isinstance(answer, Found)
            else []
        )
        gain = later.cost_ns(claims)
        if isinstance(answer, Found) and claims and _severity(answer, claims, later):
            found.append(noun.Surfacing(rule.CODE, gain))
    return tuple(sorted(found, key=lambda each: (-each.gain_ns, each.code)))


def _slices(slices: Sequence[Slice], cells: Sequence[Cell]) -> tuple[Slice, ...]:
    """Return the same classes with the time of these cells."""
    time: dict[Class, float] = {}
    for cell in cells:
        time[cell.category] = time.get(cell.category, 0.0) + cell.ns_per_step
    whole = sum(max(0.0, ns) for category, ns in time.items() if category != "profiling")
    return tuple(
        replace(part, ns_per_step=ns, ratio=ns / whole if whole else 0.0, causes=())
        for part in slices
        if (ns := time.get(part.category, 0.0)) and part.category != "profiling"
    )


def _work_ns(signals: Signals) -> float:
    """Return the device's work in a step as it runs without the profiler, in ns."""
    return sum(signals.cells[row].ns_per_step for row in signals.work) * signals.undistorted


def _recovered(weighed: Mapping[str, _Weighed], gains: Mapping[str, float], case: Case) -> dict[str, float]:
    """Return by code how much of a remedy's gain this run had lost against the attainable step; the rest goes
    beyond that. Where losses come to more than the way to the attainable step, because other parts were
    faster than thought or because the host is a floor, each recovers the same share."""
    above_ns = _above_attainable(case)
    if above_ns is None:
        return {}
    lost = {
        code: min(gain_ns, weighed[code].explained_ns or 0.0)
        for code, gain_ns in gains.items()
        if weighed[code].explained_ns is not None
    }
    total = sum(lost.values())
    share = min(1.0, max(0.0, above_ns) / total) if total > 0 else 0.0
    return {code: ns * share for code, ns in lost.items()}


def _added(weighed: Mapping[str, _Weighed], gains: Mapping[str, float], signals: Signals) -> dict[str, float]:
    """Return by code the part of a remedy's gain that the baseline's step would not gain, too: where this run
    takes longer than the baseline for the same work or wait. Empty without a baseline to compare with."""
    baseline, speedup = known(signals.baseline), signals.case.speedup
    if baseline is None or speedup is None or speedup.expected is None:
        return {}
    longer = {(part.category, part.layer): part.mixed_ns - part.baseline_ns for part in speedup.slices}
    waits: tuple[Class, str | None] = ("idle_launch", None)
    if waits in longer:  # what the profiler added to a step is no part of a cost
        longer[waits] += launch_waits.added_ns(baseline) - launch_waits.added_ns(signals)
    found = {}
    for code, gain_ns in gains.items():
        excess: dict[tuple[Class, str | None], float] = {}
        for claim in weighed[code].claims:
            cell = signals.cells[claim.cell]
            key = cell.category, cell.layer
            excess[key] = excess.get(key, 0.0) + cost_ns((claim,), signals.cells)
        added = sum(min(ns, max(0.0, longer.get(key, 0.0))) for key, ns in excess.items())
        found[code] = min(gain_ns, added)
    return found


def _above_attainable(case: Case) -> float | None:
    """Return this run's step less the attainable one; None where nothing is known to be attainable."""
    attainable_ns = case.speedup.attainable_step_ns if case.speedup else None
    return None if attainable_ns is None or case.account is None else case.account.step_ns - attainable_ns


def _ranked(
    findings: Sequence[noun.Finding],
    place: Mapping[str, int],
    ceilings: Container[str],
    dismissed: Container[str],
    steps: StepSummary | None,
) -> list[noun.Finding]:
    """Return the findings in the order of the plan: by gain, but what may lead comes first; then what
    gains no time, the ceilings behind all causes, and what was dismissed.

    What must be settled first, because a gain may mean something else until then (validity, ceiling, in
    effect and skips), comes before all gains where it is an error, and before those of warnings as one.
    A warning of memory alone answers another question: it comes behind all that costs time.
    """
    in_plan = [found for found in findings if found.code in place and found.code not in dismissed]
    causes = [found for found in in_plan if found.code not in ceilings]
    last = max((place[found.code] for found in causes), default=-1)
    mild = min(
        (place[each.code] for each in in_plan if each.severity != "error" and place[each.code] <= last),
        default=len(place),
    )

    def rank(found: noun.Finding) -> tuple[int, float, int, tuple[int, str]]:
        order, before = ledger.order(found.code), _before_costs(found.code)
        tie = (noun.SEVERITY_RANK[found.severity], order)
        if found.code in dismissed:
            return (_LAST, place.get(found.code, len(place)), *tie)
        if found.code in place:
            return (1 if place[found.code] <= last else 3, place[found.code], *tie)
        if found.cost_ns_of_run and found.severity != "info" and place:
            own_ns = time_ns(found, steps)
            return (1, sum((each.gain_ns_per_step or 0.0) > own_ns for each in in_plan) - 0.5, *tie)
        if found.cost_ns_in_window is not None:  # there is no plan: by severity, then by cost
            return (2 * noun.SEVERITY_RANK[found.severity], -found.cost_ns_in_window, *tie)
        if found.severity == "error":
            return (0, before, *tie)
        if found.severity == "warning" and order[0] != _MEMORY:
            return (1, mild - 0.5 + before, *tie) if order[0] < _QUESTIONS_OF_PRINCIPLE else (2, 0, *tie)
        return (4, 0, *tie)

    return sorted(findings, key=rank)


def _before_costs(code: str) -> float:
    """Return the place of a finding among those that come before all costs, as what leads a report has it:
    from -0.3 for an error that ended the training to 0 for what leads nothing of itself."""
    kind = LEADS.get(code)
    return 0.0 if kind is None or kind == INVALID else (BEFORE_COSTS.index(kind) - len(BEFORE_COSTS) + 1) / 10


def _ask(rule: Rule, signals: Signals, warnings: list[str], *, strict: bool) -> Outcome:
    try:
        if signals.only_infers and getattr(rule, "OF_TRAINING", False):
            return ONLY_INFERS
        if getattr(rule, "OF_ACCELERATOR", False) and signals.on_cpu:
            return NO_GPU
        answer = rule.judge(signals)
        if isinstance(answer, Clear) and signals.forward_alone and getattr(rule, "OF_TRAINING", False):
            return FORWARD_ALONE
        if signals.in_window and isinstance(answer, Clear) and signals.busy_ratio < MOSTLY_IDLE_RATIO:
            return _clear_of_steps(rule, signals, answer)
        return answer
    except Missing as missing:
        absent = missing.absent
        return NotApplicable(absent.reason) if absent.moot else Unable(str(absent))
    except Exception as error:
        if strict:
            raise
        warnings.append(f"{rule.CODE} {rule.SLUG} could not be judged: internal error {error!r}")
        return Unable(f"internal error {error!r}")


_OF_THE_WORK = frozenset((mp907_unknown_kernels.CODE, mp912_attribution_lost.CODE))
"""Whose shares are of the device's work, so that idle time makes none of them small."""


def _clear_of_steps(rule: Rule, signals: Signals, answer: Clear) -> Outcome:
    """Return the same answer, where the rule gives it without the window, too. A share of a window that is
    mostly idle is below any limit, and tells nothing of a step."""
    try:
        alone = rule.judge(Signals(replace(signals.case, window=None)))
    except Missing:
        alone = Unable("")
    if isinstance(alone, Clear) or rule.CODE in _OF_THE_WORK:
        return answer
    return Unable(
        f"the device was busy for only {format_ratio(signals.busy_ratio)} of the window, so shares of a "
        "step are not known"
    )


def _specificity(rule: Rule) -> int:
    return getattr(rule, "SPECIFICITY", GENERAL)


def _settle(
    found: Mapping[str, Found], by_code: Mapping[str, Rule], signals: Signals
) -> tuple[dict[str, tuple[Claim, ...]], dict[str, str]]:
    """Divide the cells among the codes: return (code -> its claims, code -> why it has nothing left to say).

    A rule that loses so many cells that the rest is below its limits is neither found nor clear: it can be
    judged once the other cause is remedied. What it did hold goes back to the others.
    """
    displaced: dict[str, str] = {}
    while True:
        wishes = {c: (_specificity(by_code[c]), f.claims) for c, f in found.items() if c not in displaced}
        granted = ledger.settle(wishes)
        owner = {claim.cell: code for code, claims in granted.items() for claim in claims}
        fresh = {}
        for code in granted:
            takers = {owner[claim.cell] for claim in found[code].claims} - {code}
            if takers and found[code].scale and _severity(found[code], granted[code], signals) is None:
                names = ", ".join(sorted(takers, key=ledger.order))
                fresh[code] = f"its cost is counted under {names} here; judge again once that is fixed"
        if not fresh:
            return granted, displaced
        # The most entitled first, one at a time: what it held may lift another above its limit.
        first = min(fresh, key=lambda code: (-_specificity(by_code[code]), ledger.order(code)))
        displaced[first] = fresh[first]


def _severity(outcome: Found, claims: Sequence[Claim], signals: Signals) -> noun.Severity | None:
    """Return the severity that is stated, or that the cost has on the rule's scale; None: not worth
    saying."""
    if outcome.severity is not None or outcome.scale is None:
        return outcome.severity or "warning"
    cost = signals.cost_ns(claims) if outcome.claims else outcome.cost_ns
    if cost is None or signals.whole_ns <= 0:
        return "warning"  # found on records alone, with nothing to hold it against
    return outcome.scale.severity(cost / signals.whole_ns)


def _finding(
    outcome: Found,
    weighed: _Weighed,
    signals: Signals,
    gain_ns: float | None,
    recovers_ns: float | None,
    added_ns: float | None,
    shares: ledger.GapShares | None,
) -> noun.Finding:
    rule, account = weighed.rule, signals.case.account
    stated, explained = weighed.stated_ns, weighed.explained_ns
    step_ns = account.step_ns if account else None
    of_window = signals.in_window and bool(weighed.claims)
    remedies = (
        (Remedy(outcome.remedy),)
        if outcome.remedy
        else (*outcome.first, *signals.remedies(rule.CODE, outcome.cases, outcome.values))
    )
    return noun.Finding(
        code=rule.CODE,
        slug=rule.SLUG,
        title=outcome.title or rule.TITLE,
        severity=weighed.severity,
        confidence=_confidence(outcome, signals),
        evidence=(
            *(replace(each, name=_worded(each.name, signals)) for each in outcome.evidence),
            *(
                (evidence.ns("of it while communication goes on, which gains nothing", weighed.held_ns),)
                if weighed.held_ns > PAYING_RATIO * signals.whole_ns
                else ()
            ),
            *_lines_of_code(weighed.claims, signals),
            *_tried(rule.CODE, signals),
        ),
        remedy=joined(remedies),
        remedies=remedies,
        summary=_filled_in(_worded(outcome.summary, signals), stated, weighed.cost_ns, signals.whole_ns),
        cost_ns_per_step=None if weighed.ceiling or of_window else stated,
        cost_ns_in_window=stated if of_window and not weighed.ceiling else None,
        cost_ns_of_run=outcome.cost_ns_of_run,
        cost_bytes=outcome.cost_bytes,
        spare_bytes=outcome.spare_bytes,
        gap_ratio=explained / shares.gap_ns
        if shares and explained is not None and shares.gap_ns > 0
        else None,
        lost_ratio=shares.lost_ratio(rule.CODE)
        if shares and explained is not None and shares.lost_ns > 0
        else None,
        whatif_step_ns=_whatif(weighed.remedy, step_ns, signals)
        if weighed.claims and step_ns and stated
        else None,
        layers=outcome.layers,
        gain_ns_per_step=gain_ns,
        recovers_ns_per_step=recovers_ns,
        added_ns_per_step=added_ns,
        claimed=_claimed(weighed.claims, signals),
        said=_worded(outcome.said or getattr(rule, "SAYS", ""), signals),
        proof=_worded(outcome.proof, signals),
        once=getattr(rule, "ONCE", ""),
    )


def _lines_of_code(claims: Sequence[Claim], signals: Signals) -> tuple[noun.Evidence, ...]:
    """Return the lines of the user's code that the claimed work comes from, those that cost most first; empty
    where the trace states none, or one for all its work, which tells nothing of a cause."""
    cells = signals.cells
    if len({cell.hlo.line for cell in cells if cell.hlo and cell.hlo.line}) < 2:
        return ()
    cost: dict[str, float] = {}
    for claim in claims:
        hlo = cells[claim.cell].hlo
        if hlo and hlo.line:
            cost[hlo.line] = cost.get(hlo.line, 0.0) + cost_ns((claim,), cells)
    lines = sorted(cost, key=lambda line: (-cost[line], line))
    return (evidence.text("at", evidence.listed(lines)),) if lines else ()


def _tried(code: str, signals: Signals) -> Iterator[noun.Evidence]:
    """Yield what the remedies of this cause have brought that were tried on the run's script."""
    for each in signals.case.run.tried:
        if each.code == code:
            yield evidence.text(f"tried: {each.change}:", each.said)


def _claimed(claims: Sequence[Claim], signals: Signals) -> tuple[noun.ClaimedPart, ...]:
    """Return the parts of the step that these cells belong to."""
    excess: dict[tuple[Class, Phase, str | None, str | None], float] = {}
    for claim in claims:
        cell = signals.cells[claim.cell]
        key = cell.category, cell.phase, cell.layer, cell.cause
        excess[key] = excess.get(key, 0.0) + cost_ns((claim,), signals.cells)
    return tuple(noun.ClaimedPart(*key, ns) for key, ns in excess.items() if ns > 0)


def _is_ceiling(
    outcome: Found, claims: Sequence[Claim], signals: Signals, cost: float | None, explained: float | None
) -> bool:
    """Return whether the finding is one that every healthy run of this kind has, and that the comparison (if
    there is one) does not show to be more.

    A baseline that idles less shows nothing of the kind: its longer kernels hide the same launches."""
    if outcome.scale is None or not outcome.scale.normal or not cost:
        return False
    idle = all(signals.cells[claim.cell].category in NO_WORK for claim in claims)
    return idle or explained is None or explained < REAL_RATIO * cost


def _is_loss(outcome: Found, cost: float | None, signals: Signals) -> bool:
    """Return whether the finding, which is normal as a rule, need not be here, as the baseline shows."""
    if outcome.scale is None or not outcome.scale.normal or signals.whole_ns <= 0:
        return False
    return (cost or 0.0) >= LOSS_RATIO * signals.whole_ns


def _confidence(outcome: Found, signals: Signals) -> noun.Confidence:
    """Return the rule's own confidence, but low for costs out of a window in which steps took far longer than
    they do, of a single step, which may not be representative, and of a window without steps."""
    doubtful = signals.distorted or signals.one_step or signals.in_window
    return "low" if outcome.claims and doubtful else outcome.confidence


def _worded(text: str, signals: Signals) -> str:
    """Return a rule's text, completed with what its times refer to: a step, or the whole window where no step
    can be told apart."""
    for name, words in (_OF_WINDOW if signals.in_window else _OF_STEP).items():
        text = text.replace(name, words)
    return text


_OF_STEP = {"{each}": "a step", "{per}": "per step", "{whole}": "the step", "{span}": "step"}
_OF_WINDOW = {
    "{each}": "in the window", "{per}": "in the window", "{whole}": "the window", "{span}": "window",
}  # fmt: skip


def _filled_in(summary: str, stated: float | None, cost: float | None, whole_ns: float) -> str:
    # Not str.format: names of layers and kernels may hold braces.
    ratio = cost / whole_ns if cost is not None and whole_ns else None
    return summary.replace("{cost}", format_ns(stated)).replace("{share}", format_ratio(ratio))


def _whatif(remedy: whatif.Remedy, step_ns: float, signals: Signals) -> float:
    """Return the time of the step with this finding's cells at what they could be, and nothing else
    remedied."""
    account = signals.case.account
    host_ns = account.host_ns if account else None
    return min(step_ns, whatif.step_after(step_ns, host_ns, [remedy], _work_ns(signals)))


def _of_the_baseline(signals: Signals) -> str | None:
    """Return why the baseline's window tells nothing of its other steps; None where the window does, or where
    there is no baseline."""
    baseline = known(signals.baseline)
    said = profiled_steps.unlike(baseline) if baseline is not None else None
    return f"of the baseline {said}" if said else None


def _unsplit(speedup: Speedup | None, doubt: str) -> Speedup | None:
    """Return the comparison without parts of the gap: the parts would be those of other steps."""
    if speedup is None or not speedup.slices:
        return speedup
    return replace(speedup, slices=(), absent=(speedup.absent or {}) | {"slices": doubt})


def _completed(
    case: Case, recovers: Mapping[str, float], shares: ledger.GapShares | None, signals: Signals
) -> Speedup | None:
    """Return the comparison with what no remedy recovers of the way to the attainable step; where that is not
    known, with what no claim explains of the plain difference. Without a measured baseline, return how to
    record one."""
    speedup = case.speedup
    if speedup is not None and speedup.baseline == "estimated":
        return replace(speedup, absent=(speedup.absent or {}) | {"observed": signals.how_to_compare})
    if speedup is None or shares is None:
        return speedup
    above_ns = _above_attainable(case)
    left = (
        shares.gap_ns - sum(shares.explained_ns.values())
        if above_ns is None
        else above_ns - sum(recovers.values())
    )
    return replace(speedup, unexplained_ns=left, above_attainable_ns=above_ns)
