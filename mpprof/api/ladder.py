"""Several runs against each other, in the order given: each against the first, each rung against the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mpprof.analysis.comparison import batch_scaling, comparability
from mpprof.analysis.comparison import learning as learned
from mpprof.analysis.comparison import matching as aligning
from mpprof.analysis.comparison import speedup as comparing
from mpprof.analysis.comparison import two_windows as side_by_side
from mpprof.api.workflows import Analysis, analyse, judge, side, signals_of, window_of
from mpprof.diagnosis.remedies import promises
from mpprof.diagnosis.signals import DISTORTED_RATIO
from mpprof.errors import UsageError
from mpprof.model.account import Account, Speedup
from mpprof.model.finding import Comparison, Diagnosis, KernelChange, Matching, Rung, WindowsOfTwo
from mpprof.model.outcome import Learning, Promises
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.runs.loading import Given, Several, load_all

LEAST_MATCHED = 0.6
"""With less of a run's op time matched to the other's, they ran different programs: a mixed run brings casts
and loss scaling of its own, which is up to a third of it."""


def compare(*chosen: Given | Several, strict: bool = False, dismissed: Collection[str] = ()) -> Comparison:
    """Compare two runs or a ladder, in the order given: each run against the first, each rung against the
    last. Each is a loaded run, a path, which stands for all runs under it, or a list of either. `dismissed`
    as for `workflows.judge`."""
    return compare_analyses([analyse(run, strict=strict) for run in load_all(chosen)], dismissed=dismissed)


def _named_apart(analyses: Sequence[Analysis]) -> list[Analysis]:
    """Return the same, with as many directories before runs of one name as tell them apart."""
    alike = Counter(each.run.name for each in analyses)
    named = []
    for each in analyses:
        run, name = each.run, each.run.name
        others = [other.run for other in analyses if other.run.name == name and other.run.path != run.path]
        depth = 1
        while alike[run.name] > 1 and depth < len(run.path.parts):
            depth += 1
            name = "/".join((*run.path.parts[-depth:-1], run.name))
            if all(other.path.parts[-depth:-1] != run.path.parts[-depth:-1] for other in others):
                break
        named.append(replace(each, run=replace(run, name=name)))
    return named


def compare_analyses(analyses: Sequence[Analysis], *, dismissed: Collection[str] = ()) -> Comparison:
    """Return the comparison of what was already analysed. Raises UsageError for fewer than two runs."""
    if len(analyses) < 2:
        raise UsageError(
            "a comparison needs two runs or more", next="Give the baseline first, then the others"
        )
    analyses = _named_apart(analyses)
    ladder = len(analyses) > 2 or _of_one_policy(analyses)
    of = partial(judge, dismissed=dismissed)
    judged = [of(analyses[0]), *(of(mine, analyses[0], ladder=ladder) for mine in analyses[1:])]
    rungs = []
    for index, (start, end) in enumerate(pairwise(analyses)):
        step = judged[index + 1] if index == 0 else of(end, start, ladder=ladder)
        sides = side(start), side(end)
        refused = comparability.refusal(*sides)
        changes: tuple[KernelChange, ...] = ()
        matching = None
        comparable = refused is None and comparability.not_steps(*sides) is None
        if start.account and end.account and comparable:
            changes = aligning.kernel_changes(start.account, end.account, start.run, end.run)
            matching = aligning.matching(start.account, end.account, start.run, end.run)
        rungs.append(
            Rung(
                start=index,
                end=index + 1,
                speedup=step.speedup,
                slices=step.speedup.slices if step.speedup else (),
                kernels=changes,
                findings=step.findings,
                labels=comparability.unlike(*sides),
                notes=_doubts(start, end, matching),
                answer=step.answer if refused is None else None,
                refused=refused,
                cards=comparability.rates(*sides),
                matching=matching,
                promises=_promises(judged[index], step, start, end) if refused is None else None,
                windows=_windows(start, end) if refused is None else None,
                learning=_learning(start, end, step.speedup) if refused is None else None,
                examples_per_s=(
                    comparing.examples_per_s(start.run, start.account),
                    comparing.examples_per_s(end.run, end.account),
                ),
            )
        )
    sizes = batch_scaling.of([mine.run for mine in analyses], [mine.steps for mine in analyses])
    return Comparison(runs=tuple(judged), rungs=tuple(rungs), batches=sizes)


def _of_one_policy(analyses: Sequence[Analysis]) -> bool:
    """Return whether all runs recorded the same policy: they are one training before and after a change, and
    none was meant as a float32 baseline."""
    policies = {mine.run.last_fit.policy.own if mine.run.last_fit else None for mine in analyses}
    return len(policies) == 1 and None not in policies


def _promises(earlier: Diagnosis, later: Diagnosis, start: Analysis, end: Analysis) -> Promises:
    unlike = comparability.other_card(side(start), side(end))
    return promises.promises(earlier, later, signals_of(start), signals_of(end), unlike)


def _windows(start: Analysis, end: Analysis) -> WindowsOfTwo | None:
    """Return the whole windows of both runs if not both have steps, or if their steps are not comparable."""
    both = start.account is not None and end.account is not None
    if both and comparability.not_steps(side(start), side(end)) is None:
        return None
    whole = _window(start), _window(end)
    if whole[0] is None or whole[1] is None:
        return None
    return side_by_side.windows(whole[0], whole[1])


def _window(mine: Analysis) -> Account | None:
    if mine.window is not None or mine.trace is None or mine.placements is None or mine.ownership is None:
        return mine.window
    return window_of(mine.run, mine.trace, mine.placements, mine.ownership, "")


def _learning(start: Analysis, end: Analysis, speedup: Speedup | None) -> Learning:
    observed = (speedup.observed, speedup.interval) if speedup else (None, None)
    return learned.learning(start.run, end.run, *observed)


def _doubts(start: Analysis, end: Analysis, matching: Matching | None) -> tuple[str, ...]:
    """Return what makes the parts of two runs hard to compare, independent of their records."""
    said = [
        f"profiling changed {mine.run.name}: its parts are those of a profiled step, which takes "
        f"{format_ns(mine.account.window_ns)} instead of {format_ns(mine.account.unprofiled_ns)}"
        for mine in (start, end)
        if mine.account and mine.account.unprofiled_ns
        if mine.account.window_ns > DISTORTED_RATIO * mine.account.unprofiled_ns
    ]
    shares = [ratio for ratio in (matching.by_layer_ratio if matching else ()) if ratio is not None]
    if shares and min(shares) < LEAST_MATCHED:
        missing = format_ratio(1.0 - min(shares))
        said.append(
            f"the programs differ: {missing} of one run's op time is in ops that the other does not have"
        )
    return tuple(said)
