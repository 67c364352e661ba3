"""Stalls: a mean step far above the median is said, with the period and the cause that the records tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpprof.analysis.steps.stalls import Stalls, stalls
from mpprof.analysis.steps.validity import doubts
from mpprof.model.run import Run
from tests.analysis.steps.test_statistics import MS, eight_workers, noisy, table
from tests.builders import cases as c


def run_of(values: list[float], *, gaps: list[float] | None = None, facts: Any = None, **columns: Any) -> Run:
    took = np.array(values) - (np.zeros(len(values)) if gaps is None else np.array(gaps))
    log = table(values, duration_ns=np.round(took * MS).astype(np.int64), **columns)
    return c.run(facts, log)


def found(run: Run) -> Stalls:
    told = stalls(run)
    assert told is not None
    return told


def test_a_loader_of_eight_workers_is_named_with_its_period() -> None:
    """The contract's example."""
    facts = c.facts(fit={"input": {"kind": "PyDataset", "workers": 8}})
    run = run_of([2000.0, *eight_workers(599)], facts=facts)
    told = found(run)
    assert (told.every, told.in_each, told.notable) == (8, 1, True)
    assert str(told).endswith("median 1.71 ms: every 8th step waits for the loader")
    assert doubts(run) == (str(told),)


def test_workers_that_have_fallen_apart_stall_several_times_in_each_round() -> None:
    facts = c.facts(fit={"input": {"kind": "PyDataset", "workers": 8}})
    told = found(run_of([900.0, *[100, 2, 2, 130, 78, 2, 2, 2] * 60], facts=facts))
    assert (told.every, told.in_each) == (8, 3)
    assert "3 of every 8 steps are stalls; each waits for the loader" in str(told)


def test_a_checkpoint_every_fifth_step_lies_between_two_calls() -> None:
    values, gaps = np.array(noisy(200)), np.zeros(200)
    values[4::5] += 60
    gaps[4::5] = 60
    told = found(run_of(values.tolist(), gaps=gaps.tolist()))
    assert told.every == 5
    assert str(told).endswith("every 5th step stalls between two calls (callbacks or the loop)")
    facts = c.facts(framework={"keras": "3.15.1", "backend": "torch"})
    on_torch = found(run_of(values.tolist(), gaps=gaps.tolist(), facts=facts))
    assert "(input, callbacks or the loop)" in str(on_torch)


def test_compilations_that_come_back_irregularly_are_counted() -> None:
    values = np.array([3000.0, *noisy(299)])
    values[[20, 31, 77, 130, 131, 250]] = 2000
    told = found(run_of(values.tolist()))
    assert (told.count, told.every) == (6, None)
    assert "6 of 299 steps are stalls; each stalls within the training function" in str(told)


def test_random_stalls_have_no_period() -> None:
    random = np.random.default_rng(5)
    values = np.where(random.random(600) < 0.3, 100.0, 5.0)
    assert found(run_of([900.0, *values.tolist()])).every is None


def test_steps_that_scatter_are_no_stalls_and_nothing_is_said() -> None:
    run = run_of([900.0, *noisy(200)])
    assert not found(run).notable
    assert doubts(run) == ()
    assert stalls(c.run()) is None


@pytest.mark.parametrize(("number", "said"), [(2, "2nd"), (3, "3rd"), (11, "11th"), (21, "21st")])
def test_periods_are_ordinals(number: int, said: str) -> None:
    told = Stalls(20 * MS, 10 * MS, 10, 10 * number, number, None, 0.0, grouped=False)
    assert f"every {said} step stalls; the records do not show where" in str(told)


def test_means_of_several_steps_do_not_tell_which_step_stalls() -> None:
    interval = [
        50.0 if i == 15 else 60.0 if i % 160 == 31 else 8.0 if i % 16 == 15 else -1 for i in range(640)
    ]
    log = table(interval, synced=np.array(interval) >= 0, dispatch_ns=np.full(640, 100_000))
    told = found(c.run(None, log))
    assert (told.grouped, told.every) == (True, None)
    assert "3 of 38 timings of several steps are stalls; the records do not show where" in str(told)
