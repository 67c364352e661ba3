"""Skipped steps, counted from the optimizer's counters alone, against a simulated optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mpprof.record.backends.base import Reading
from mpprof.record.reading import CLOSE_STEPS, Schedule, Settled, SkipCounter


@dataclass
class LossScaling:
    """Keras' LossScaleOptimizer, as far as its counters go."""

    growth_steps: int
    scale: float = 2.0**15
    good: int = 0
    iterations: int = 0

    def step(self, finite: bool) -> None:
        if not finite:
            self.scale, self.good = self.scale / 2, 0
            return
        self.iterations += 1
        if self.good == self.growth_steps - 1:
            self.scale, self.good = self.scale * 2, 0
        else:
            self.good += 1

    def reading(self) -> Reading:
        return Reading(self.iterations, self.scale, self.good)


@given(
    growth_steps=st.integers(20, 40),
    before=st.lists(st.booleans(), max_size=50),
    ran=st.lists(st.booleans(), min_size=1, max_size=12),
    missing=st.integers(0, 7),
)
def test_steps_that_did_not_run_are_told_from_steps_that_were_skipped(
    growth_steps: int, before: list[bool], ran: list[bool], missing: int
) -> None:
    optimizer = LossScaling(growth_steps)
    for finite in before:
        optimizer.step(finite)
    counter = SkipCounter(growth_steps)
    counter.start(optimizer.reading())
    for finite in ran:
        optimizer.step(finite)
    settled = counter.settle(len(ran) + missing, optimizer.reading(), 7)
    assert settled == Settled(len(ran), ran.count(False))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=10))
def test_totals_are_exact_however_readings_are_spread(spans: list[list[bool]]) -> None:
    optimizer, counter, total = LossScaling(3), SkipCounter(3), 0
    counter.start(optimizer.reading())
    for span in spans:
        for finite in span:
            optimizer.step(finite)
        settled = counter.settle(len(span), optimizer.reading())
        total += settled.skipped
    assert total == sum(span.count(False) for span in spans)


def test_without_a_dynamic_scale_nothing_is_ever_skipped() -> None:
    counter = SkipCounter()
    counter.start(Reading(10))
    assert counter.settle(4, Reading(14)) == Settled(4, 0)
    assert counter.settle(8, Reading(16), 7) == Settled(2, 0)  # the input ended within the call


def test_a_counter_that_ran_on_past_the_end_of_the_input_hides_nothing() -> None:
    counter = SkipCounter()
    counter.start(Reading(10))
    assert counter.settle(4, Reading(15), beyond=1) == Settled(4, 0)
    assert counter.settle(4, Reading(19), beyond=1) == Settled(4, 0)
    assert counter.settle(4, Reading(25), beyond=1) is None


def test_an_optimizer_that_is_not_applied_once_per_step_is_no_count_of_skips() -> None:
    counter = SkipCounter()
    counter.start(Reading(0))
    assert counter.settle(4, Reading(8)) is None  # two updates per step
    assert counter.settle(4, Reading(10)) is None  # one in two steps
    assert counter.settle(4, Reading(None)) is None


@given(every=st.integers(2, 8), growth_steps=st.sampled_from([20, 2000]), span=st.integers(1, 16))
def test_gradients_gathered_by_hand_are_no_skips(every: int, growth_steps: int, span: int) -> None:
    """A train_step that applies the optimizer on every so many steps only: the scale does not fall."""
    for reads_good_steps in (True, False):
        optimizer, counter = LossScaling(growth_steps), SkipCounter(growth_steps)

        def reading(made: LossScaling = optimizer, whole: bool = reads_good_steps) -> Reading:
            return made.reading() if whole else made.reading()._replace(good_steps=None)

        counter.start(reading())
        for step in range(1, 40 * span + 1):
            if step % every == 0:
                optimizer.step(True)
            if step % span == 0:
                assert counter.settle(span, reading()) in (None, Settled(span, 0))


def test_a_scale_that_somebody_else_sets_hides_no_skip() -> None:
    counter = SkipCounter(2000)
    counter.start(Reading(0, 2.0**15, 0))
    assert counter.settle(4, Reading(4, 1000.0, 4)) == Settled(4, 0)
    assert counter.settle(4, Reading(7, 10.0, 2)) == Settled(4, 1)


def test_readings_come_closely_at_the_start_and_after_a_change() -> None:
    schedule = Schedule(16)
    due = [step for step in range(1, 100) if schedule.due(step - 1, step)]
    assert due == [*range(1, CLOSE_STEPS + 1), 48, 64, 80, 96]
    schedule.changed(96)
    due = [step for step in range(97, 200) if schedule.due(step - 1, step)]
    assert due == [*range(97, 129), 144, 160, 176, 192]
    assert [step for step in range(200, 260, 10) if schedule.due(step - 10, step)] == [200, 210, 230, 240]


def test_every_step_can_be_read() -> None:
    schedule = Schedule(1)
    assert all(schedule.due(step - 1, step) for step in range(1, 200))


def test_skips_of_a_counter_that_counts_them_too() -> None:
    """Keras 2, simulated step by step and read every few of them."""
    random = np.random.default_rng(3)
    for every, growth in ((1, 7), (4, 200), (16, 200)):
        scale, good, counter = 2.0**100, 0, SkipCounter(growth, counts_skipped=True)
        counter.start(Reading(0, scale, good))
        told, truth, since = 0, 0, 0
        for step in range(1, 401):
            since += 1
            if random.random() < 0.05:
                scale, good, truth = max(1.0, scale / 2), 0, truth + 1
            elif good + 1 >= growth:
                scale, good = scale * 2, 0
            else:
                good += 1
            if step % every == 0:
                settled = counter.settle(since, Reading(step, scale, good))
                assert settled.ran == since
                told, since = told + settled.skipped, 0
        assert told == truth


def test_steps_that_did_not_run_and_a_scale_that_cannot_fall() -> None:
    counter = SkipCounter(2000, counts_skipped=True)
    counter.start(Reading(0, 1.0, 5))
    assert counter.settle(8, Reading(6, 1.0, 11), missing=7) == Settled(6, 0)
    assert counter.settle(1, Reading(7, 1.0, 0)) == Settled(1, 1)
    assert counter.settle(8, Reading(9, 1.0, 2)) is None  # more are missing than can be
