"""An observed speedup: six step times a side, of one kind, and always with its interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.comparison.speedup import speedup
from mpprof.model.account import Account, Speedup
from mpprof.model.run import Run
from tests.analysis.comparison.test_speedup import B_RUN, M_RUN, fp16, fp32
from tests.analysis.pieces import V100, account_of
from tests.builders import cases as c

MS = c.MS


def window(run: Run, *lengths_ms: float) -> Account:
    """The account of profiled steps of these lengths, without records."""
    cell = fp16 if run is M_RUN else fp32
    mean = sum(lengths_ms) / len(lengths_ms) * MS
    return replace(
        account_of([cell("dense", mean)], steps=len(lengths_ms)),
        lengths_ns=tuple(length * MS for length in lengths_ms),
    )


def compared(baseline: Account, mixed: Account, before: Run = B_RUN, after: Run = M_RUN) -> Speedup:
    return speedup(mixed, baseline, mixed_run=after, baseline_run=before, peaks=V100)


def test_two_profiled_steps_of_34_and_49_ms() -> None:
    """The pair is 1.08x by its step times; two profiled steps of it said 0.77x, with high confidence."""
    found = compared(window(B_RUN, 32.0), window(M_RUN, 34.0, 49.0))
    assert (found.observed, found.interval) == (None, None)
    why = (
        "float32 has 1 profiled step and mixed has 2 profiled steps; an observed speedup needs 6 in each run"
    )
    assert found.absent["observed"] == found.absent["interval"] == why


@pytest.mark.parametrize(("steps", "known"), [(1, False), (5, False), (6, True)])
def test_the_two_sides_of_six_steps(steps: int, known: bool) -> None:
    found = compared(window(B_RUN, *[20.0] * 8), window(M_RUN, *[10.0] * steps))
    assert (found.observed == pytest.approx(2.0)) is known
    assert (found.interval is not None) is known
    assert ("observed" in (found.absent or {})) is not known


def test_profiled_steps_that_scatter_widen_the_interval() -> None:
    found = compared(window(B_RUN, *[20.0] * 6), window(M_RUN, 8, 9, 10, 10, 12, 14))
    assert found.interval_wide
    assert found.interval[0] < 20 / 12 < 20 / 9 < found.interval[1]
    assert found.interval[0] <= found.observed <= found.interval[1]


def test_profiled_steps_are_not_held_against_unprofiled_ones() -> None:
    recorded = replace(B_RUN, steps=c.steps(40))
    wall = replace(window(B_RUN, *[110.0] * 8), basis="wall", step_ns=100 * MS, wall_ns=100 * MS)
    found = compared(wall, window(M_RUN, *[50.0] * 8), before=recorded)
    assert found.observed is None
    assert "mixed has times of profiled steps alone" in (found.absent or {})["observed"]


def test_records_speak_for_themselves_however_short_the_window() -> None:
    before, after = replace(B_RUN, steps=c.steps(40)), replace(M_RUN, steps=c.steps([50.0] * 40))
    found = speedup(None, None, mixed_run=after, baseline_run=before, peaks=V100)
    assert (found.observed, found.interval) == (pytest.approx(2.0), pytest.approx((2.0, 2.0)))
    short = replace(M_RUN, steps=c.steps([50.0] * 5))
    found = speedup(None, None, mixed_run=short, baseline_run=before, peaks=V100)
    assert found.observed is None
    assert "steady steps; an observed speedup needs 6 in each run" in (found.absent or {})["observed"]
