"""The two runs differ in more than their precision.

What it means
    A speedup between runs with another batch size, card, model, XLA setting or version says nothing about
    mixed precision; nor does one against a "float32" run that was mixed itself, or with the runs swapped.

How we know
    The facts that both runs recorded, and the precision of the baseline's kernels.

What it costs
    The meaning of the comparison.

What to do
    Record the baseline with the same script and one change:

        keras.config.set_dtype_policy("float32")

When to ignore
    When the other difference is what you want to see (a rung of a ladder): it is labelled then.

Sources
    tf#33435: both of the user's runs were in mixed precision, because calling the API had switched it on.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, known, need
from mpprof.diagnosis.signals import Signals

CODE, SLUG, TITLE = "MP906", "unlike-runs", "The runs differ in more than their precision"
SPECIFICITY = GENERAL


def judge(signals: Signals) -> Outcome:
    baseline = need(signals.baseline)
    also_mixed = baseline.half is not None and signals.half is not None
    from mpprof.analysis import alike  # only where there is a baseline

    sides = [alike.Side(side.case.run, known(side.device), side.case.peaks) for side in (baseline, signals)]
    differences = alike.unlike(*sides)
    if signals.case.ladder:
        return _of_a_ladder(differences, also_mixed=also_mixed)
    if also_mixed:
        return Found(
            summary=f"the baseline computes in {baseline.compute_dtype} itself: it is no float32 baseline",
            remedy='record the baseline with keras.config.set_dtype_policy("float32")',
            evidence=(evidence.text("baseline computes in", str(baseline.compute_dtype), "float32"),),
            severity="error",
        )
    if baseline.half is not None and known(signals.compute_dtype) == "float32":
        return Found(
            summary=(
                f"the two are swapped: the baseline computes in {baseline.compute_dtype}, and this run in "
                "float32"
            ),
            remedy="name them the other way round: mpprof report MIXED_RUN --baseline FLOAT32_RUN",
            evidence=(evidence.text("baseline computes in", str(baseline.compute_dtype), "float32"),),
            severity="error",
        )
    if alike.other_card(*sides) is None:  # else that much is known without any records
        need(signals.facts)
        need(baseline.facts)
    if differences:
        return Found(
            summary=f"the runs differ in more than their precision: {'; '.join(differences)}",
            remedy='record the baseline with the same script and only set_dtype_policy("float32") changed',
            evidence=tuple(evidence.text("difference", difference) for difference in differences),
            severity="warning",
        )
    return Clear("the runs differ in nothing that was recorded but their precision")


def _of_a_ladder(differences: Sequence[str], *, also_mixed: bool) -> Outcome:
    """Rungs differ by design: what differs is told, and nothing is wrong with it."""
    if not differences:
        return Clear("both rungs compute in 16 bits" if also_mixed else "the rungs differ in precision alone")
    return Found(
        summary=f"beside any change of precision the rungs differ in {'; '.join(differences)}",
        remedy="none needed where it is what the rung is about; else change one thing at a time",
        evidence=tuple(evidence.text("difference", difference) for difference in differences),
        severity="info",
    )
