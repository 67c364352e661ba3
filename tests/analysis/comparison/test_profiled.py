"""What the timings of a pair tell, and what its profiled steps show beside them: planted pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.analysis.comparison.speedup import speedup
from mpprof.diagnosis.answer import compose
from mpprof.model.account import Account, Speedup, difference
from mpprof.model.run import Run
from mpprof.report.content import profiled_steps
from tests.analysis.comparison.test_observed import window
from tests.analysis.comparison.test_speedup import B_RUN, M_RUN
from tests.analysis.pieces import V100
from tests.builders import cases as c
from tests.diagnosis.saying import diagnosed

MS = c.MS


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ((1.01, 3.0), "faster"), ((0.2, 0.99), "slower"), ((0.96, 1.04), "none"), ((0.95, 1.05), "none"),
        ((0.94, 1.01), "not known"), ((0.99, 1.06), "not known"), ((0.82, 1.85), "not known"), (None, None),
    ],
)  # fmt: skip
def test_a_wide_interval_that_holds_1_excludes_nothing(interval, told) -> None:  # type: ignore[no-untyped-def]
    assert difference(interval) == told


def means(*times_ms: float) -> Run:
    """A run timed between waits: each time is the mean of eight steps; the first, of a second, compiles."""
    n = 8 * (len(times_ms) + 1)
    interval, synced = np.full(n, -1), np.zeros(n, bool)
    interval[7::8] = [1000 * MS, *(int(time * MS) for time in times_ms)]
    synced[7::8] = True
    table = c.steps(
        n, interval_ns=interval, synced=synced, dispatch_ns=np.full(n, MS), duration_ns=np.full(n, -1)
    )
    return replace(B_RUN, steps=table)


def profiled(run: Run, *lengths_ms: float, wall_ms: float, **facts: object) -> Account:
    account = replace(window(run, *lengths_ms), basis="wall", step_ns=wall_ms * MS, wall_ns=wall_ms * MS)
    return replace(account, **facts)  # type: ignore[arg-type]


def pair(before: Account, after: Account, *, other_card: bool = False) -> Speedup:
    one = replace(B_RUN, steps=means(10.5, 10.8).steps)
    other = replace(M_RUN, steps=means(8.6, 9.1).steps)
    return speedup(
        after, before, mixed_run=other, baseline_run=one, peaks=V100, other_card=other_card
    )  # fmt: skip


BEFORE = profiled(B_RUN, 12.0, 10.7, 10.6, 10.6, 10.7, wall_ms=10.65)
AFTER = profiled(M_RUN, 11.0, 8.8, 8.7, 8.8, 8.8, wall_ms=8.85)


def test_two_means_a_side_do_not_tell_and_the_profiled_steps_are_given_beside_them() -> None:
    """The first profiled step begins on an idle device and is longer; the median is not moved by it."""
    found = pair(BEFORE, AFTER)
    assert found.interval[0] < 1.0 < 1.5 < found.interval[1]
    assert found.difference == "not known"
    assert found.profiled.ratio == pytest.approx(10.7 / 8.8)
    assert (found.profiled.baseline_ns, found.profiled.mixed_ns) == (10.7 * MS, 8.8 * MS)
    assert (found.profiled.baseline_steps, found.profiled.mixed_steps) == (5, 5)
    assert "profiled" not in (found.absent or {})


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (profiled(M_RUN, 8.8, 8.8, wall_ms=8.85), "mixed has 2 whole profiled steps; it needs 3"),
        (profiled(M_RUN, 7, 8, 8.8, 8.9, 12, wall_ms=8.85), "the profiled steps of mixed do not agree"),
        (profiled(M_RUN, 6, 7, *[8.8] * 3, 11, 12, wall_ms=8.85), "the profiled steps of mixed do not agree"),
        (profiled(M_RUN, *[10.0] * 5, wall_ms=8.85), "takes 10.0 ms, and an unprofiled one 8.85 ms"),
        (profiled(M_RUN, *[8.8] * 5, wall_ms=8.85, trace_basis="host"), "mixed has no steps of a device"),
        (profiled(M_RUN, *[8.8] * 5, wall_ms=8.85, of="window"), "mixed has no steps of a device"),
    ],
)  # fmt: skip
def test_profiled_steps_that_tell_nothing_are_not_given_and_the_reason_is(after: Account, why: str) -> None:
    found = pair(BEFORE, after)
    assert found.profiled is None
    assert why in (found.absent or {})["profiled"]


def test_profiled_steps_of_two_cards_are_not_compared() -> None:
    found = pair(BEFORE, AFTER, other_card=True)
    assert (found.absent or {})["profiled"] == "the cards differ"


def test_records_alone_have_no_profiled_steps() -> None:
    found = speedup(None, None, mixed_run=means(8.6, 9.1), baseline_run=means(10.5, 10.8), peaks=None)
    assert found.difference == "not known"
    assert found.profiled is None
    assert "needs the traces of both runs" in (found.absent or {})["profiled"]


def test_a_speedup_that_is_that_of_the_profiled_steps_is_not_given_twice() -> None:
    found = speedup(
        window(M_RUN, *[10.0] * 6),
        window(B_RUN, *[20.0] * 6),
        mixed_run=M_RUN,
        baseline_run=B_RUN,
        peaks=V100,
    )
    assert found.difference == "faster"
    assert found.profiled is None
    assert (found.absent or {})["profiled"] == "the observed speedup is that of the profiled steps"


def test_profiled_steps_are_per_example_where_the_batches_differ() -> None:
    def of(run: Run, batch: int) -> Run:
        assert run.facts is not None
        return replace(run, facts=replace(run.facts, fits=(c.fit(batch_size=batch),)))

    found = speedup(AFTER, BEFORE, mixed_run=of(M_RUN, 64), baseline_run=of(B_RUN, 32), peaks=V100)
    assert found.per_example
    assert found.profiled.ratio == pytest.approx(2 * 10.7 / 8.8)
    said = "; the profiled steps were 2.43x as fast per example"
    undecided = replace(found, interval=(0.8, 1.5))
    for case in (undecided, replace(undecided, observed=None, interval=None)):
        assert profiled_steps(case) == said
    because = compose(diagnosed(c.case(speedup=undecided))).because
    assert f"T{said.removeprefix('; t')}." in because
