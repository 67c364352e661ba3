"""The two runs differ in more than their precision.

What it means
    A speedup between runs with another batch size, card, model, XLA setting or version says nothing about
    mixed precision; nor does one against a "float32" run that was mixed itself, or with the runs swapped.

How we know
    The facts that both runs recorded, and the precision of the baseline's kernels.

What it costs
    The meaning of the comparison.

When to ignore
    When the other difference is what you want to see (a rung of a ladder): it is labelled then.

Sources
    tf#33435: both of the user's runs were in mixed precision, because calling the API had switched it on.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP906", "unlike-runs", "The runs differ in more than their precision"
ABOUT = "runs that differ in more than precision"
LEADS = INVALID


def judge(signals: Signals) -> Outcome:
    baseline = need(signals.baseline)
    theirs, mine = baseline.computes, signals.computes
    narrower = (
        mine.in_float8 is not None and theirs.in_float8 is None
    )  # 16 bits are what float8 is held against
    also_mixed = theirs.narrow and mine.narrow and not narrower
    from mpprof.analysis.comparison import comparability  # only where there is a baseline

    sides = [
        comparability.Side(side.case.run, known(side.device), side.case.peaks) for side in (baseline, signals)
    ]
    differences = comparability.unlike(*sides)
    if signals.case.ladder:
        return _of_a_ladder(differences, also_mixed=also_mixed)
    if also_mixed:
        return Found(
            summary=f"the baseline computes {_in(theirs)} itself: it is not a float32 baseline",
            evidence=(evidence.text("baseline computes in", theirs.words, "float32"),),
            cases=("mixed baseline",),
            severity="error",
        )
    if theirs.narrow and mine.kind == "float32":
        return Found(
            summary=f"the two are swapped: the baseline computes {_in(theirs)}, and this run in float32",
            evidence=(evidence.text("baseline computes in", theirs.words, "float32"),),
            cases=("swapped",),
            values={"baseline": baseline.words["run"]},
            severity="error",
        )
    if comparability.other_card(*sides) is None:  # else that much is known without any records
        need(signals.facts)
        need(baseline.facts)
    if differences:
        return Found(
            summary=f"the runs differ in more than their precision: {'; '.join(differences)}",
            said=_in_short(differences),
            evidence=tuple(evidence.text("difference", difference) for difference in differences),
            cases=("unlike",),
            severity="warning",
        )
    return Clear("in all that was recorded, the runs differ only in precision")


def _in_short(differences: Sequence[str]) -> str:
    """Return what differs, with its values where it is one thing."""
    known_ones = [each for each in differences if not each.startswith("not known")] or list(differences)
    if len(known_ones) == 1:
        return f"these two runs cannot be compared: {known_ones[0].replace(': ', ' ', 1)}"
    heads = [each.partition(":")[0] for each in known_ones]
    return f"these two runs cannot be compared: they differ in {evidence.listed(heads)}"


def _in(computes: ComputePrecision) -> str:
    return computes.words if computes.kind == "partly 16-bit" else f"in {computes.words}"


def _of_a_ladder(differences: Sequence[str], *, also_mixed: bool) -> Outcome:
    """Return what differs between rungs of a ladder. Rungs differ by design: a difference is reported, but is
    not a fault."""
    if not differences:
        return Clear("both runs compute in 16 bits" if also_mixed else "the runs differ in precision alone")
    return Found(
        summary=f"apart from any change of precision, the runs differ in {'; '.join(differences)}",
        evidence=tuple(evidence.text("difference", difference) for difference in differences),
        cases=("ladder",),
        severity="info",
    )
