"""Stalls: a mean step far above the median is said, with the period and the cause that the records tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpprof.analysis.steps.stalls import Stalls, stalls
from mpprof.analysis.steps.validity import doubts
from mpprof.model.run import Run
from mpprof.model.run_time import EpochTable, Spans, SpentKey, SpentTable
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
    assert str(told).endswith("median 1.71 ms: every 8th step takes 325 ms: it waits for the loader")
    assert doubts(run) == (str(told),)


def test_workers_that_have_fallen_apart_stall_several_times_in_each_round() -> None:
    facts = c.facts(fit={"input": {"kind": "PyDataset", "workers": 8}})
    told = found(run_of([900.0, *[100, 2, 2, 130, 78, 2, 2, 2] * 60], facts=facts))
    assert (told.every, told.in_each) == (8, 3)
    assert "3 of every 8 steps are stalls of about 100 ms; each waits for the loader" in str(told)


def test_a_checkpoint_every_fifth_step_lies_between_two_calls() -> None:
    values, gaps = np.array(noisy(200)), np.zeros(200)
    values[4::5] += 60
    gaps[4::5] = 60
    told = found(run_of(values.tolist(), gaps=gaps.tolist()))
    assert told.every == 5
    assert str(told).endswith(
        "every 5th step takes 70.0 ms: it stalls between two calls (callbacks or the loop)"
    )
    facts = c.facts(framework={"keras": "3.15.1", "backend": "torch"})
    on_torch = found(run_of(values.tolist(), gaps=gaps.tolist(), facts=facts))
    assert "(input, callbacks or the loop)" in str(on_torch)


def test_compilations_that_come_back_irregularly_are_counted() -> None:
    values = np.array([3000.0, *noisy(299)])
    values[[20, 31, 77, 130, 131, 250]] = 2000
    told = found(run_of(values.tolist()))
    assert (told.count, told.every) == (6, None)
    assert "6 of 299 steps are stalls of about 2.00 s; each stalls within the training function" in str(told)


def test_random_stalls_have_no_period() -> None:
    random = np.random.default_rng(5)
    values = np.where(random.random(600) < 0.3, 100.0, 5.0)
    assert found(run_of([900.0, *values.tolist()])).every is None


def test_steps_that_scatter_are_no_stalls_and_nothing_is_said() -> None:
    run = run_of([900.0, *noisy(200)])
    assert not found(run).notable
    assert doubts(run) == ()
    assert stalls(c.run()) is None


def with_spent(run: Run, key: SpentKey, *lines: tuple[int, int, int, float]) -> Run:
    """The run with lines of first step, last step, calls and ms."""
    first, last, calls, ms = (np.array(column) for column in zip(*lines, strict=True))
    zero, none = np.zeros(len(lines), np.int64), np.empty(0, np.int64)
    spent = SpentTable((key,), zero, zero + 1, first, last, calls, np.round(ms * MS).astype(np.int64))
    return replace(run, spans=Spans((), EpochTable(none, none, none, none), spent))


SLOW = SpentKey("callbacks", "Slow", "batch")


def test_a_second_cause_that_takes_much_of_the_stalls_is_said_with_its_time() -> None:
    """A callback at every seventh step, and one step that is compiled anew."""
    values, gaps = np.array(noisy(211)), np.zeros(211)
    values[3::7], gaps[3::7] = 46, 36
    values[100] = 700
    lines = [(row + 1, row + 1, 1, 36.0) for row in range(3, 211, 7)]
    run = with_spent(run_of(values.tolist(), gaps=gaps.tolist()), SLOW, *lines, (101, 101, 1, 690.0))
    assert run.spans is not None
    key = np.append(np.zeros(len(lines), np.int64), 1)
    spent = replace(run.spans.spent, keys=(SLOW, SpentKey("compile", "jax", "batch")), key=key)
    said = str(found(replace(run, spans=replace(run.spans, spent=spent))))
    assert said.endswith("every 7th step takes 46.0 ms: it runs Slow; beside that compiling (jax) 690 ms")


def test_a_compile_in_mid_run_is_named_as_what_holds_its_step_up() -> None:
    """Of JAX, with its tracing as a line without a compile."""
    values = np.array([900.0, *noisy(200)])
    values[[60, 61, 100]] = 60, 60, 4000
    lines = (101, 101, 0, 1400.0), (101, 101, 1, 2500.0)
    run = with_spent(run_of(values.tolist()), SpentKey("compile", "jax", "batch"), *lines)
    said = str(found(run))
    assert said.endswith("are stalls of about 60.0 ms, 4.12 s in all; compiling (jax) takes 3.90 s of that")
    alone = np.where(values == 60, 10.0, values)
    lonely = replace(run, steps=run_of(alone.tolist()).steps)
    assert str(found(lonely)).endswith("1 of 200 steps is a stall of 4.00 s; it compiles (jax)")


def test_what_few_of_many_stalls_run_is_said_with_its_time_and_not_of_each() -> None:
    values = np.array([900.0, *noisy(495)])
    values[np.random.default_rng(5).random(len(values)) < 0.25] = 60
    slept = [51, 90, 160, 161, 277, 340, 402, 480]
    values[slept] = 1500
    run = run_of(values.tolist(), gaps=np.where(values > 1000, 1490.0, 0.0).tolist())
    said = str(found(with_spent(run, SLOW, *((row + 1, row + 1, 1, 1490.0) for row in slept))))
    assert said.endswith("are stalls of about 60.0 ms, 20.2 s in all; Slow takes 11.9 s of that")
    assert "144 of 495 steps are stalls of about 60.0 ms" in said


def test_unlike_stalls_are_said_with_their_sum_and_the_longest_with_what_it_does() -> None:
    values = np.array([900.0, *noisy(399)])
    values[[5, 60, 61, 130, 140, 201, 330]] = 25
    values[231] = 2000
    run = run_of(values.tolist())
    length = "8 of 399 steps are stalls of 25.0 ms to 2.00 s, 2.17 s in all"
    longest = "the longest takes 2.00 s, at step 232"
    within = "stalls within the training function (input or compiling)"
    assert str(found(run)).endswith(f"{length}; each {within}; {longest}")
    values[[20, 31, 77, 150, 260]] = 500
    some = with_spent(run_of(values.tolist()), SLOW, (232, 232, 1, 1990.0))
    within = "stalls within the training function (input or compiling)"
    told = str(found(some))
    assert (
        f"13 of 399 steps are stalls of 25.0 ms to 2.00 s, 4.67 s in all; each of the others {within}" in told
    )
    assert told.endswith(f"{longest}: it runs Slow")


def test_of_two_stalls_the_mean_describes_neither() -> None:
    values = np.array([900.0, *noisy(199)])
    values[[60, 130]] = 40, 2000
    assert "2 of 199 steps are stalls of 40.0 ms to 2.00 s, 2.04 s in all; " in str(
        found(run_of(values.tolist()))
    )


def test_what_each_stall_runs_is_said_of_each() -> None:
    values = np.array([900.0, *noisy(299)])
    slept = [20, 31, 77, 130, 131, 250]
    values[slept] = 2000
    run = run_of(values.tolist(), gaps=np.where(values == 2000, 1990.0, 0.0).tolist())
    told = found(with_spent(run, SLOW, *((row + 1, row + 1, 1, 1990.0) for row in slept)))
    assert str(told).endswith("6 of 299 steps are stalls of about 2.00 s; each runs Slow")
    assert told.cause_ns == pytest.approx(6 * 1990 / 299 * MS, rel=0.02)


def test_what_is_spent_beside_the_stalls_is_no_cause_of_them() -> None:
    values = np.array([900.0, *noisy(99)])
    values[40] = 2000
    for lines in ([(1, 100, 100, 3000.0)], [(31, 31, 1, 3000.0)], [(1, 100, 100, 3.5)]):
        told = found(with_spent(run_of(values.tolist()), SLOW, *lines))
        assert (told.count, told.cause_ns) == (1, 0)
        assert "Slow" not in str(told)


@pytest.mark.parametrize(("number", "said"), [(2, "2nd"), (3, "3rd"), (11, "11th"), (21, "21st")])
def test_periods_are_ordinals(number: int, said: str) -> None:
    told = Stalls(20 * MS, 10 * MS, 10, 10 * number, number, None, 0.0, grouped=False, length_ns=100 * MS)
    assert f"every {said} step takes 100 ms; the records do not show where" in str(told)


def test_means_of_several_steps_do_not_tell_which_step_stalls() -> None:
    interval = [
        50.0 if i == 15 else 60.0 if i % 160 == 31 else 8.0 if i % 16 == 15 else -1 for i in range(640)
    ]
    log = table(interval, synced=np.array(interval) >= 0, dispatch_ns=np.full(640, 100_000))
    told = found(c.run(None, log))
    assert (told.grouped, told.every) == (True, None)
    assert (
        "3 of 38 timings of several steps are stalls of about 60.0 ms a step; the records do not show where"
        in str(told)
    )


EIGHT = {"input": {"kind": "DataLoader", "workers": 8}}


@pytest.mark.parametrize(("wait_ms", "said"), [(0.0, "between two calls"), (60.0, "waits for the loader")])
def test_waits_on_record_come_before_a_period_that_is_that_of_a_loader(wait_ms: float, said: str) -> None:
    """A loop that saves its model every eight steps has a loader of eight workers, too."""
    values, gaps, waits = np.array([900.0, *noisy(320)]), np.zeros(321), np.zeros(321)
    values[8::8], gaps[8::8] = values[8::8] + 60, 60
    waits[9::8] = wait_ms  # before the step that follows
    facts = c.facts(framework={"backend": "torch", "loop": "custom"}, fit=EIGHT)
    told = found(
        run_of(values.tolist(), gaps=gaps.tolist(), facts=facts, input_wait_ns=(waits * MS).astype(np.int64))
    )
    assert told.every == 8
    assert said in str(told)


def test_tracings_and_a_callback_on_record_come_before_the_period_of_a_loader() -> None:
    values = np.array([900.0, *noisy(320)])
    values[8::8] += 60
    run = run_of(values.tolist(), facts=c.facts(fit=EIGHT))
    assert "waits for the loader" in str(found(run))
    rows = range(8, 321, 8)
    traced = with_spent(
        run, SpentKey("compile", "tensorflow tracing", "batch"), (1, 1, 1, 0.0), (2, 321, 40, 0.0)
    )
    assert "within the training function (input or compiling)" in str(found(traced))
    saved = with_spent(
        run, SpentKey("callbacks", "Saves", "batch"), *((row + 1, row + 1, 1, 20.0) for row in rows)
    )
    assert "loader" not in str(found(saved))


def test_a_loop_whose_input_was_measured_may_run_code_of_its_own() -> None:
    values = np.array([3000.0, *noisy(299)])
    values[[20, 31, 77, 130, 131, 250]] = 200
    loop = c.facts(framework={"keras": "3.15.1", "backend": "tensorflow", "loop": "custom"})
    waited = {"input_wait_ns": np.full(300, 1000)}
    said = str(found(run_of(values.tolist(), facts=loop, **waited)))
    assert said.endswith("each stalls within the step (compiling or your own code in it)")
    gaps = np.where(values == 200, 190.0, 0.0)
    between = str(found(run_of(values.tolist(), gaps=gaps.tolist(), facts=loop, **waited)))
    assert between.endswith("each stalls between two calls (your own code)")
    of_fit = str(found(run_of(values.tolist(), facts=c.facts(), **waited)))
    assert of_fit.endswith("each stalls within the training function (compiling, or the step itself)")


def on_host(own_ms: np.ndarray, timed: np.ndarray, *lines: tuple[int, int, int, float], epoch: int) -> Run:
    """A run on JAX: what each call takes on the host, and the calls at whose end the device was waited for, each
    timed with those before it in its epoch of so many calls."""
    interval, since = np.full(len(own_ms), -1.0), 0
    for row in np.flatnonzero(timed).tolist():
        since = max(since, row - row % epoch)
        interval[row], since = own_ms[since : row + 1].mean(), row + 1
    log = table(
        interval.tolist(), synced=timed, dispatch_ns=np.round(own_ms * MS).astype(np.int64),
        epoch=np.arange(len(own_ms)) // epoch,
    )  # fmt: skip
    return with_spent(c.run(None, log), SLOW, *lines)


def test_a_call_that_waits_for_the_device_is_no_stall_of_the_callback_in_it() -> None:
    rows = np.arange(640)
    slow, waits = (rows % 40 == 0) & (rows % 16 != 0), rows % 16 == 0
    own = np.where(slow, 150.0, np.where(waits, 120.0, 1.0))
    took = np.where(slow, 149.0, np.where(waits, 55.0, 0.0))
    lines = [(row + 1, row + 1, 1, took[row]) for row in np.flatnonzero(took).tolist()]
    told = found(on_host(own, rows % 16 == 15, *lines, epoch=640))
    assert told.on_host
    assert told.cause == "runs Slow"
    assert told.cause_ns == pytest.approx(149 * slow.sum() / 640 * MS, rel=0.05)


def test_what_the_step_time_leaves_out_adds_nothing_to_its_stalls() -> None:
    """An epoch's last calls have no time where its end does not wait for the device."""
    rows = np.arange(640)
    slow = np.isin(rows % 40, (10, 36))
    lines = [(row + 1, row + 1, 1, 149.0) for row in np.flatnonzero(slow).tolist()]
    told = found(on_host(np.where(slow, 150.0, 1.0), np.isin(rows % 40, (15, 31)), *lines, epoch=40))
    assert told.on_host
    assert told.cause_ns == pytest.approx(149 / 32 * MS, rel=0.05)
    assert told.cause_ns < told.mean_ns
