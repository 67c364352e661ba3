"""Costs of a run that no step time holds: of work that comes with each epoch or `fit`, as a share of the run
without mpprof.

A rule that knows a cause within steps judges the same cause outside them, too, and its outcome is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import Found, Missing, Outcome, Scale, known
from mpprof.diagnosis.signals import Signals
from mpprof.model.finding import SEVERITY_RANK, Severity
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.run_time import THE_RUN

MOSTLY_RATIO, NEARLY_ALL_RATIO = 0.5, 0.9
"""A name with half of the time is named first, and alone where it has nearly all."""
MOST_NAMED = 3


def costly(
    signals: Signals, spent: Mapping[str, float], scale: Scale, what: str, case: str, *, named: bool = False
) -> Found | None:
    """Return that this takes a part of the run outside its steps; None where it is not worth a mention.
    `spent`: ns by name, the longest first; `what`: all of it, with its verb; `named`: a name with
    most of it is said; `case`: of the remedies."""
    times = known(signals.run_time)
    ns = float(sum(spent.values()))
    if times is None or (severity := scale.severity(times.share(ns))) is None:
        return None
    ratio = times.share(ns)
    name, most_ns = next(iter(spent.items()))
    who = what
    if named and most_ns >= NEARLY_ALL_RATIO * ns:
        who = f"`{name}` takes"
    elif named and most_ns >= MOSTLY_RATIO * ns:
        who = f"callbacks, most of all `{name}`, take"
    said = f"{who} {format_ns(ns)} outside the steps, {format_ratio(ratio)} of {THE_RUN}"
    return Found(
        summary=said,
        said=said,
        evidence=(
            evidence.ratio(f"of {THE_RUN}, outside its steps", ratio, scale.crossed(ratio)),
            *(
                evidence.ns(f"{each} outside the steps", own)
                for each, own in list(spent.items())[:MOST_NAMED]
            ),
        ),
        severity=severity,
        cost_ns_of_run=ns,
        cases=(case,),
    )


def together(judge: Callable[[Signals], Outcome], outside: Found | None, signals: Signals) -> Outcome:
    """Return one outcome of what `judge` says of steps and what was found outside them, in the words of what
    takes more of the run."""
    if outside is None:
        return judge(signals)
    try:
        steps = judge(signals)
    except Missing:
        return outside
    if not isinstance(steps, Found):
        return outside
    summary = known(signals.summary)
    cost_ns = signals.cost_ns(steps.claims) if steps.claims else steps.cost_ns or 0.0
    more = cost_ns * (summary.count if summary else 0) >= (outside.cost_ns_of_run or 0.0)
    first, other = (steps, outside) if more else (outside, steps)
    return replace(
        steps,
        summary=f"{first.summary}; {other.summary}",
        said=first.said,
        evidence=(*first.evidence, *other.evidence),
        severity=_worse(steps, outside, cost_ns / signals.whole_ns if signals.whole_ns else 0.0),
        cost_ns_of_run=outside.cost_ns_of_run,
        cases=tuple(dict.fromkeys((*first.cases, *other.cases))),
    )


def _worse(steps: Found, outside: Found, ratio: float) -> Severity | None:
    own = steps.severity or (steps.scale.severity(ratio) if steps.scale else None)
    told = [each for each in (own, outside.severity) if each is not None]
    return min(told, key=SEVERITY_RANK.__getitem__, default=None)
