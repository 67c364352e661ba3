"""Steady steps, their median and how sure it is, on step logs put together by hand."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.steps import statistics as stepping
from mpprof.model.run import Timing
from mpprof.model.run_time import EpochTable, Spans, SpentKey, SpentTable
from mpprof.model.steps import ABSENT, StepTable

MS = 1_000_000


def table(interval_ms: list[float], **columns: Any) -> StepTable:
    """One epoch of one fit, a row per interval; a negative interval is one that was not measured."""
    n = len(interval_ms)
    interval = np.array([round(v * MS) if v >= 0 else ABSENT for v in interval_ms], np.int64)
    absent, zeros, no = np.full(n, ABSENT), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    base = StepTable(
        step=np.arange(1, n + 1), fit=np.ones(n, np.int64), epoch=zeros, batch=np.arange(n),
        covers=np.ones(n, np.int64), t_ns=np.cumsum(np.maximum(interval, 0)), interval_ns=interval,
        duration_ns=absent, gap_ns=absent, input_wait_ns=absent, dispatch_ns=absent, synced=no, profiled=no,
        loss=np.full(n, np.nan), loss_known=no, loss_scale=np.full(n, np.nan), loss_scale_known=no,
        skipped=absent, peak_bytes=absent, live_bytes=absent,
    )  # fmt: skip
    return replace(base, **{name: np.array(values) for name, values in columns.items()})


def noisy(n: int, level: float = 10.0, seed: int = 3, spread: float = 0.02) -> list[float]:
    return (level * np.exp(np.random.default_rng(seed).normal(0, spread, n))).tolist()


# --- warm-up -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [[4000.0], [4000.0, 30, 30], [900, 90, 50, 30, 20, 15, 13]])
def test_warm_up_ends_at_the_change(slow: list[float]) -> None:
    assert stepping.warm_up(np.array(slow + noisy(100))) == len(slow)


def test_a_steady_run_has_no_warm_up_and_one_slow_step_in_it_is_none() -> None:
    values = np.array(noisy(100))
    usual = stepping.warm_up(values)
    assert usual <= 2
    values[20:22] *= 5
    assert stepping.warm_up(values) == usual


def test_every_fifth_step_slow_is_not_warm_up() -> None:
    values = np.array(noisy(200))
    values[::5] *= 3
    assert stepping.warm_up(values) <= 1


def test_batches_that_come_one_by_one_and_then_all_at_once_are_no_warm_up() -> None:
    """Seen: eight workers in step only from the second epoch on; half of the steps were taken for a warm-up."""
    one_by_one = [8.0, 12.0, 14.0, 4.0, 40.0, 190.0, 62.0, 6.0] * 12
    at_once = [312.0, 1.3, 1.1, 1.0, 0.9, 0.8, 0.8, 0.8] * 13
    assert stepping.warm_up(np.array([1340.0, *one_by_one, *at_once])) == 1


def test_a_single_step_is_warm_up() -> None:
    assert stepping.warm_up(np.array([5.0])) == 1
    assert stepping.warm_up(np.empty(0)) == 0


def test_each_fit_warms_up_again() -> None:
    run = table([900, *noisy(40), 700, *noisy(40)], fit=[1] * 41 + [2] * 41)
    steady = stepping.steady(run)
    assert not steady[0]
    assert not steady[41]
    assert steady.sum() >= 76


# --- which rows count --------------------------------------------------------------------------------------


def test_edges_of_epochs_profiled_steps_and_their_neighbours_do_not_count() -> None:
    values = [500.0, *noisy(19)] * 1 + [25.0, *noisy(19)]
    values[19] = values[39] = -1  # the last of an epoch has no interval
    profiled = np.zeros(40, bool)
    profiled[30:33] = True
    run = table(values, epoch=[0] * 20 + [1] * 20, profiled=profiled)
    steady = stepping.steady(run)
    assert not steady[[0, 19, 20, 39]].any()
    assert not steady[29:34].any()
    assert steady[[5, 18, 25, 28, 34]].all()


def test_rows_with_a_wait_of_ours_count_only_where_there_are_no_others() -> None:
    synced = np.arange(30) % 4 == 0
    run = table(noisy(30), synced=synced)
    assert not stepping.steady(run)[synced].any()
    alone = table(noisy(30), synced=np.ones(30, bool))
    assert stepping.steady(alone).sum() > 20


def test_between_waits_the_rows_that_waited_are_those_that_count() -> None:
    interval = [50.0 if i == 0 else 8.0 if i % 4 == 3 else -1 for i in range(80)]
    synced = np.array([v >= 0 for v in interval])
    run = table(interval, synced=synced, dispatch_ns=np.full(80, 100_000))
    assert stepping.asynchronous(run)
    summary = stepping.summarise(run, None)
    assert summary.median_ns == 8 * MS
    # 20 waits, each for the four steps since the one before; the first row is warm-up
    assert summary.steady == 79


def test_between_waits_the_one_before_a_window_ends_before_the_profiler_starts() -> None:
    """On a synchronous backend the row before a window also holds the profiler's start."""
    times = [500.0, -1, 10, -1, 10.2, 30, 30, 10.9, -1, 10.4]
    profiled = [False] * 5 + [True] * 2 + [False] * 3
    synced = [time >= 0 for time in times]
    one = table(times, profiled=profiled, synced=synced)
    assert np.flatnonzero(stepping.steady(one)).tolist() == [2, 9]
    one = replace(one, dispatch_ns=np.full(10, MS))
    assert np.flatnonzero(stepping.steady(one)).tolist() == [2, 4, 9]


def test_the_first_mean_between_two_waits_is_never_steady() -> None:
    interval = [37.4 if i == 15 else 0.156 if i == 31 else -1 for i in range(32)]
    run = table(interval, synced=np.array([v >= 0 for v in interval]), dispatch_ns=np.full(32, 100_000))
    assert np.flatnonzero(stepping.steady(run)).tolist() == [31]
    summary = stepping.summarise(run, None)
    assert summary.median_ns == 0.156 * MS


def test_a_call_of_several_steps_is_divided() -> None:
    run = table([40.0] * 20, covers=[4] * 19 + [2], step=np.cumsum([4] * 19 + [2]))
    summary = stepping.summarise(run, None)
    assert summary.count == 78
    assert summary.median_ns == 10 * MS


# --- the step time, a mean ----------------------------------------------------------------------------------


def mean_ms(run: StepTable, facts: Any = None) -> float:
    summary = stepping.summarise(run, facts)
    assert summary.mean_ns is not None
    return summary.mean_ns / MS


def eight_workers(steps: int, *, seed: int = 1) -> list[float]:
    """A loader of 8 workers that take 320 ms for a batch each, and deliver them at once."""
    jitter = np.exp(np.random.default_rng(seed).normal(0, 0.05, steps))
    return [(326.0 if row % 8 == 0 else 1.7) * float(wobble) for row, wobble in enumerate(jitter)]


def fed_by(workers: int) -> Any:
    from tests.builders import cases as c

    return c.facts(fit={"batch_size": 32, "input": {"kind": "PyDataset", "workers": workers}})


@pytest.mark.parametrize("epochs", [1, 3, 25])
def test_a_loader_of_eight_workers_is_no_faster_than_one_that_takes_as_long_a_batch(epochs: int) -> None:
    """The contract's example: the mean is 42 ms, the median 1.7, and the median said 25 times faster."""
    values = eight_workers(600)
    values[0] += 2_000  # the compilation
    edges = np.arange(1, epochs + 1) * (600 // epochs) - 1
    intervals = [-1.0 if row in edges else value for row, value in enumerate(values)]
    run = table(
        intervals, epoch=np.arange(600) // (600 // epochs), duration_ns=np.round(np.array(values) * MS)
    )
    summary = stepping.summarise(run, fed_by(8))
    assert summary.median_ns == pytest.approx(1.7 * MS, rel=0.02)
    assert summary.mean_ns == pytest.approx(float(np.mean(eight_workers(600))) * MS, rel=0.03)
    assert summary.mean_ns == pytest.approx(42 * MS, rel=0.05)
    assert summary.examples_per_s == pytest.approx(760, rel=0.05)


def test_an_epoch_s_first_call_counts_only_as_far_as_several_workers_let_another_one_wait() -> None:
    values = [900.0, *[10.0] * 18, -1, 200.0, *[10.0] * 18, -1]
    took = [900, *[10] * 19, 200, *[10] * 19]
    run = table(values, epoch=[0] * 20 + [1] * 20, duration_ns=np.array(took) * MS)
    assert mean_ms(run, fed_by(1)) == pytest.approx(10)
    # Two batches were made while the first step was compiled. No other batch was waited for.
    assert mean_ms(run, fed_by(2)) == pytest.approx(10)
    values[30] = took[30] = 150
    waited = table(values, epoch=[0] * 20 + [1] * 20, duration_ns=np.array(took) * MS)
    assert mean_ms(waited, fed_by(1)) == pytest.approx((37 * 10 + 10 + 150) / 39)
    assert mean_ms(waited, fed_by(2)) == pytest.approx((36 * 10 + 150 + 150) / 38)


@pytest.mark.parametrize("start", [0.0, 5_000.0])
def test_what_workers_take_to_start_is_in_no_step_and_their_first_round_is(start: float) -> None:
    """An epoch's first call waits for as many batches as any other that waits: without it the mean would be too
    short by a round."""
    values = eight_workers(624)
    took = [value + (start if row % 104 == 0 else 0.0) for row, value in enumerate(values)]
    intervals = [-1.0 if row % 104 == 103 else value for row, value in enumerate(took)]
    run = table(intervals, epoch=np.arange(624) // 104, duration_ns=np.round(np.array(took) * MS))
    assert mean_ms(run, fed_by(8)) == pytest.approx(float(np.mean(values)), rel=0.01)


def test_every_stall_counts_also_in_a_row_that_is_read() -> None:
    values = np.array(noisy(320))
    values[16::16] = 100
    run = table(values.tolist(), synced=np.arange(320) % 16 == 0)
    assert mean_ms(run) == pytest.approx(float(values.mean()), rel=0.001)


def test_a_slow_compilation_later_on_counts_and_is_no_warm_up() -> None:
    values = np.array([3000.0, *noisy(99)])
    values[[20, 41]] = 2000
    assert mean_ms(table(values.tolist())) == pytest.approx(float(values[1:].mean()))


def test_bursts_from_the_first_step_on_are_no_warm_up() -> None:
    random = np.random.default_rng(7)
    for share in (0.1, 0.3, 0.45):
        times = np.where(random.random(400) < share, 300.0, 10.0)
        assert stepping.warm_up(times) <= 4, share


def test_an_epoch_s_last_call_counts_with_the_mean_time_between_two_calls() -> None:
    """A hook of 5 ms follows each call, the last of an epoch waits for the loader, and of the second epoch's
    first call what a usual one does not take is left out."""
    duration = np.full(40, 10.0)
    duration[[0, 20]] = 800, 30
    duration[[19, 39]] = 90
    interval = duration + 5
    interval[[19, 39]] = -1
    run = table(interval.tolist(), epoch=[0] * 20 + [1] * 20, duration_ns=duration * MS)
    assert mean_ms(run) == pytest.approx((37 * 15 + 2 * 95) / 39)


@pytest.mark.parametrize("at", [0, 10, 19])
@pytest.mark.parametrize("ends", [True, False])
def test_a_callback_that_takes_long_once_an_epoch_counts_wherever_that_is(at: int, ends: bool) -> None:
    """At the first, a middle or the last call of each of six epochs of twenty steps of 10 ms: 200 ms."""
    duration = np.full(120, 10.0)
    interval = duration.copy()
    rows = np.arange(at, 120, 20)
    interval[rows] += 200
    interval[19::20] = -1
    run = table(
        interval.tolist(),
        epoch=np.repeat(np.arange(6), 20),
        **({"duration_ns": duration * MS} if ends else {}),
    )
    n = len(rows)
    columns = [[0] * n, [1] * n, rows + 1, rows + 1, [1] * n, [200 * MS] * n]
    none, keys = np.empty(0, np.int64), (SpentKey("callbacks", "Slow", "batch"),)
    spent = SpentTable(keys, *(np.array(each) for each in columns))
    spans = Spans((), EpochTable(none, none, none, none), spent)
    warm = {0: 1}.get(at, 0)  # the first call of all is warm-up where it took long
    steps = 120 - warm
    mean = stepping.averaged(run, None, spans).mean_ns
    assert mean == pytest.approx((10 * steps + 200 * (6 - warm)) / steps * MS)


def test_validations_and_windows_are_not_in_the_mean() -> None:
    values = [500.0, *[10.0] * 29]
    values[10:14] = [90, 30, 30, 80]
    profiled = np.zeros(30, bool)
    profiled[11:13] = True
    assert mean_ms(table(values, profiled=profiled)) == pytest.approx(10)


def test_means_between_waits_weigh_as_the_steps_between_them() -> None:
    interval = [50.0 if i == 0 else 8.0 if i == 15 else 20.0 if i == 19 else -1 for i in range(20)]
    run = table(interval, synced=np.array([v >= 0 for v in interval]), dispatch_ns=np.full(20, 100_000))
    assert mean_ms(run) == pytest.approx((15 * 8 + 4 * 20) / 19)


# --- the summary -------------------------------------------------------------------------------------------


def test_the_wait_for_an_epoch_s_first_batch_is_left_out_of_the_steps_between_two_waits() -> None:
    """Four epochs of eight steps of 10 ms, timed in groups of four; from the second epoch on a buffer fills for
    800 ms before the first step."""
    interval = [-1.0, -1.0, -1.0, 10.0] * 8
    for group in (11, 19, 27):
        interval[group] = 10.0 + 800.0 / 4
    run = table(interval, epoch=np.repeat(np.arange(4), 8), dispatch_ns=np.full(32, 100_000))
    keys = (SpentKey("input", "generator", "first"),)
    first, last, ns = [1, 9, 17, 18], [8, 9, 17, 32], [5 * MS, 800 * MS, 800 * MS, 800 * MS]
    columns = [np.array(each) for each in ([0] * 4, [1] * 4, first, last, [1] * 4, ns)]
    none = np.empty(0, np.int64)
    spans = Spans((), EpochTable(none, none, none, none), SpentTable(keys, *columns))
    assert stepping.averaged(run).mean_ns == pytest.approx((27 * 10 + 3 * 800) / 28 * MS, rel=0.05)
    assert stepping.averaged(run, None, spans).mean_ns == pytest.approx(10 * MS)
    assert stepping.summarise(run, None, spans=spans).mean_ns == pytest.approx(10 * MS)


@pytest.mark.parametrize("workers", [1, 8])
def test_on_torch_the_wait_for_an_epoch_s_first_batch_is_in_no_time_to_begin_with(workers: int) -> None:
    """Four epochs of eight steps of 10 ms; each waits 800 ms for its first batch, before its first step begins.
    On a GPU the steps are timed in groups of four."""
    facts = replace(fed_by(workers), framework={"backend": "torch"})
    keys, none = (SpentKey("input", "DataLoader", "first"),), np.empty(0, np.int64)
    first = np.arange(1, 33, 8)
    columns = [np.full(4, 0), np.full(4, 1), first, first, np.full(4, 1), np.full(4, 800 * MS)]
    spans = Spans((), EpochTable(none, none, none, none), SpentTable(keys, *columns))
    epoch = np.repeat(np.arange(4), 8)
    on_cpu = table(([10.0] * 7 + [-1.0]) * 4, epoch=epoch)
    on_gpu = table([-1.0, -1.0, -1.0, 10.0] * 8, epoch=epoch, dispatch_ns=np.full(32, 100_000))
    of_gpu = replace(facts, timing=Timing("asynchronous", 4, ""))
    assert stepping.averaged(on_cpu, facts, spans).mean_ns == pytest.approx(10 * MS)
    assert stepping.averaged(on_gpu, of_gpu, spans).mean_ns == pytest.approx(10 * MS)


def test_no_log_no_summary_and_an_empty_log_says_nothing() -> None:
    assert stepping.summarise(None, None) is None
    empty = stepping.summarise(table([]), None)
    assert (empty.count, empty.steady, empty.median_ns, empty.skipped, empty.loss_scale) == (
        0, 0, None, None, None,
    )  # fmt: skip


def test_skips_and_scale_are_exact() -> None:
    skipped = np.full(40, ABSENT)
    skipped[[0, 1, 15, 31]] = [1, 1, 0, 3]
    scale = np.full(40, np.nan)
    scale[[0, 1, 15, 31]] = [2.0**14, 2.0**13, 2.0**13, 2.0**10]
    run = table(noisy(40), skipped=skipped, loss_scale=scale, loss_scale_known=np.isfinite(scale))
    summary = stepping.summarise(run, None)
    assert summary.skipped == 5
    assert summary.skipped_ratio == 5 / 32  # of the steps that were counted, not of all 40
    assert (summary.loss_scale.first, summary.loss_scale.last) == (2.0**14, 2.0**10)
    assert (summary.loss_scale.min, summary.loss_scale.max) == (2.0**10, 2.0**14)


def test_the_peak_is_that_after_the_reset() -> None:
    peak = np.full(30, ABSENT)
    peak[[2, 5, 12, 25]] = [900, 900, 400, 410]
    summary = stepping.summarise(table(noisy(30), peak_bytes=peak), None)
    assert summary.peak_memory_bytes == 410
    peak[[12, 25]] = [900, 950]
    grown = stepping.summarise(table(noisy(30), peak_bytes=peak), None)
    assert grown.peak_memory_bytes == 950


def test_the_first_steady_step_is_named() -> None:
    summary = stepping.summarise(table([900.0, 30.0, *noisy(50)]), None)
    assert summary.first_steady == 3
    assert stepping.summarise(table([900.0]), None).first_steady is None  # type: ignore[union-attr]


# --- how sure ----------------------------------------------------------------------------------------------


@given(st.integers(1, 400))
def test_the_interval_of_the_median_covers_at_least_95_percent(n: int) -> None:
    found = stepping.median_interval(np.arange(n, dtype=float))
    if n < 6:
        assert found is None
        return
    rank = int(found[0])  # values are their own ranks
    assert found[1] == n - 1 - rank
    coverage = 1 - 2 * sum(comb(n, k) for k in range(rank + 1)) / 2**n
    narrower = 1 - 2 * sum(comb(n, k) for k in range(rank + 2)) / 2**n
    assert coverage >= 0.95 > narrower


def test_the_interval_of_many_values_meets_the_exact_one() -> None:
    exact, near = (stepping.median_interval(np.arange(n, dtype=float)) for n in (999, 1000))
    assert abs(near[0] - exact[0]) <= 1


def test_drift_and_two_modes() -> None:
    flat = np.array(noisy(120))
    assert stepping.drift(flat[:17]) is None
    still = stepping.drift(flat)
    assert abs(still.ratio) < 0.01
    rising = stepping.drift(flat * np.linspace(1, 1.2, 120))
    assert rising.significant
    assert rising.ratio == pytest.approx(0.13, abs=0.02)


@pytest.mark.parametrize("spread", [0.001, 0.02, 0.1])
def test_one_mode_is_not_two(spread: float) -> None:
    assert stepping.bimodal(np.array(noisy(300, spread=spread))) is None
    assert stepping.bimodal(np.linspace(5, 15, 300)) is None
    assert stepping.bimodal(np.full(300, 7.0)) is None


def test_two_modes_are_found_and_a_few_outliers_are_not_a_mode() -> None:
    values = np.array(noisy(200))
    outliers = values.copy()
    outliers[:8] *= 10
    assert stepping.bimodal(outliers) is None
    values[::4] *= 1.6
    found = stepping.bimodal(values)
    assert found.slow_ratio == 0.25
    assert found.fast_ns == pytest.approx(10, rel=0.02)
    assert found.slow_ns == pytest.approx(16, rel=0.02)


# --- several workers ---------------------------------------------------------------------------------------


def test_each_worker_has_its_own_step_times_where_there_are_several() -> None:
    slow, fast = table([50.0, *[12.0] * 40, -1.0]), table([40.0, *[10.0] * 40, -1.0])
    assert stepping.by_worker({0: slow}) == ()
    first, second, third = stepping.by_worker({2: table([-1.0]), 0: slow, 1: fast})
    assert (first.worker, first.count, first.median_ns, first.p95_ns) == (0, 42, 12 * MS, 12 * MS)
    assert (first.mean_ns, third.mean_ns) == (12 * MS, None)
    assert (second.worker, second.median_ns) == (1, 10 * MS)
    assert (third.worker, third.count, third.median_ns, third.p95_ns) == (2, 1, None, None)
