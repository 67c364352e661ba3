"""The losses of two runs after as many applied updates: what is judged, what is flagged, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.comparison.learning import learning
from mpprof.model.run import OptimizerFacts, Run
from tests.builders import cases as c

EPOCH = 100
DYNAMIC = OptimizerFacts("LossScaleOptimizer", "Adam", True, 32768.0, 2000)
PLAIN = OptimizerFacts("Adam")


def falling(steps: int = 600, *, floor: float = 0.4, noise: float = 0.02, seed: int = 0) -> np.ndarray:
    """The loss of each step."""
    scatter = noise * np.random.default_rng(seed).standard_normal(steps)
    return np.asarray(floor + 2.0 * np.exp(-np.arange(steps) / 60.0) + scatter)


def run(
    losses: np.ndarray,
    name: str = "run",
    *,
    optimizer: OptimizerFacts = PLAIN,
    skipped: dict[int, int] | None = None,
    epoch: int = EPOCH,
    covers: int = 1,
    **fit: Any,
) -> Run:
    """A run whose log carries Keras' mean of the epoch so far of these losses of single steps."""
    n = len(losses)
    number = np.arange(n)
    batch = number % epoch
    means = np.concatenate(
        [
            np.cumsum(losses[at : at + epoch]) / np.arange(1, len(losses[at : at + epoch]) + 1)
            for at in range(0, n, epoch)
        ]
    )
    rows = number[covers - 1 :: covers]
    table = c.steps(
        len(rows),
        skipped=skipped,
        step=number[rows] + 1,
        epoch=number[rows] // epoch,
        batch=batch[rows],
        covers=np.full(len(rows), covers),
        loss=means[rows],
        loss_known=np.ones(len(rows), bool),
    )
    told = {"loss": "mean_squared_error", "batch_size": 32, "gradient_accumulation_steps": 1} | fit
    return replace(c.run(c.facts(fits=(c.fit(optimizer=optimizer, **told),)), table), name=name)


def test_the_same_losses_do_not_diverge() -> None:
    found = learning(run(falling(), "a"), run(falling(seed=1), "b"))
    assert (found.verdict, found.severity) == ("alike", None)
    assert found.window == (300, 600)
    assert found.loss[0] == pytest.approx(falling()[300:].mean(), rel=1e-6)
    assert found.loss[1] == pytest.approx(falling(seed=1)[300:].mean(), rel=1e-6)
    assert found.interval[0] < found.difference_ratio < found.interval[1]  # type: ignore[operator]
    assert "no divergence" in found.text


@pytest.mark.parametrize(("floor", "severity"), [(0.46, "info"), (0.60, "warning"), (0.42, None)])
def test_a_higher_loss_is_flagged_by_how_much_and_no_more_than_seen(
    floor: float, severity: str | None
) -> None:
    found = learning(run(falling()), run(falling(floor=floor, seed=1)))
    assert found.severity == severity
    assert found.verdict == ("worse" if severity else "alike")
    assert ("Other seeds" in found.text) is bool(severity)


def test_a_lower_loss_is_told_and_not_flagged() -> None:
    found = learning(run(falling()), run(falling(floor=0.2, seed=1)))
    assert (found.verdict, found.severity) == ("better", None)


def test_a_difference_within_the_scatter_is_no_divergence() -> None:
    found = learning(run(falling(60, noise=0.9)), run(falling(60, floor=0.47, noise=0.9, seed=2)))
    assert found.interval[0] < 0 < found.interval[1]
    assert found.verdict == "alike"


def test_two_losses_that_are_nearly_nothing_do_not_diverge() -> None:
    found = learning(run(falling(floor=0.001, noise=0)), run(falling(floor=0.003, noise=0)))
    assert found.difference_ratio is not None
    assert found.difference_ratio > 0.10
    assert found.severity is None


def test_runs_are_compared_where_as_many_updates_were_applied() -> None:
    """Every other step of the later run was skipped: after 600 steps it stands where the other stood at 300."""
    slow = np.repeat(falling(300, noise=0), 2)
    skips = dict.fromkeys(range(2, 601, 2), 1)
    found = learning(run(falling(noise=0)), run(slow, optimizer=DYNAMIC, skipped=skips), 1.5, (1.4, 1.6))
    assert found.window == (150, 300)
    assert [one.updates for one in found.applied if one] == [600, 300]
    assert found.loss[1] == pytest.approx(found.loss[0], rel=0.02)
    assert found.verdict == "alike"
    assert found.per_update == pytest.approx(0.75)
    assert found.per_update_interval == pytest.approx((0.7, 0.8))
    assert found.per_update_text.startswith("per applied update 0.75x (95 %: 0.70x to 0.80x)")


def test_accumulated_steps_are_one_update() -> None:
    accumulated = run(np.repeat(falling(300, noise=0), 2), gradient_accumulation_steps=2)
    found = learning(run(falling(noise=0)), accumulated)
    assert found.window == (150, 300)
    assert found.verdict == "alike"


def test_without_skips_nothing_stands_beside_the_speedup() -> None:
    found = learning(run(falling()), run(falling(seed=1)), 1.5, (1.4, 1.6))
    assert (found.per_update, found.per_update_text) == (None, "")


@pytest.mark.parametrize("side", [0, 1])
def test_a_loss_that_is_not_finite_on_one_side_is_an_error(side: int) -> None:
    losses = [falling(), falling(seed=1)]
    losses[side] = losses[side].copy()
    losses[side][450:] = np.nan
    found = learning(run(losses[0], "before"), run(losses[1], "after"))
    assert (found.verdict, found.severity) == ("not finite", "error")
    assert f"that of {('before', 'after')[side]} is not finite, first after 451 updates" in found.text


def test_one_bad_epoch_at_the_start_leaves_the_rest_to_be_judged() -> None:
    broken = falling(seed=1)
    broken[20] = np.inf  # the mean is broken to the end of the epoch
    found = learning(run(falling()), run(broken))
    assert found.verdict == "alike"
    assert found.loss[1] == pytest.approx(falling(seed=1)[300:].mean(), rel=1e-6)


def custom(one: Run) -> Run:
    return replace(one, facts=replace(one.facts, framework={**one.facts.framework, "loop": "custom"}))  # type: ignore[union-attr,type-var]


def own_step(one: Run) -> Run:
    facts = one.facts
    assert facts.model is not None
    return replace(one, facts=replace(facts, model=replace(facts.model, train_step="own")))


GOOD = run(falling(), "good")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (custom(GOOD), "is a custom loop"),
        (own_step(GOOD), "has a train_step of its own"),
        (run(falling(), loss="mean_absolute_error"), "the loss function differs"),
        (run(falling(), loss=None), "the loss function of run is not on record"),
        (run(falling(), batch_size=64), "the batch size differs: 32 against 64"),
        (run(falling(), epoch=50), "the data are unlike: 100 and 50 steps an epoch"),
        (run(falling(8)), "losses in the second half of the updates; it needs 6"),
        (run(falling(), optimizer=DYNAMIC), "how many updates run skipped is not on record"),
        (replace(GOOD, steps=None), "the loss of good was not recorded"),
        (run(np.full(600, -1.0)), None),
    ],
)
def test_what_is_not_known_to_be_the_same_mean_is_not_judged(other: Run, why: str | None) -> None:
    found = learning(GOOD, other)
    if why is None:  # a negative loss of the later run is a number like any other
        assert found.verdict == "better"
        return
    assert found.verdict == "not judged"
    assert found.reason is not None
    assert why in found.reason
    assert why in found.text
    assert found.severity is None


def test_a_loss_of_a_class_and_of_its_function_are_the_same() -> None:
    found = learning(GOOD, run(falling(seed=1), loss="MeanSquaredError"))
    assert found.verdict == "alike"


def test_a_baseline_that_is_not_above_zero_gives_no_share() -> None:
    found = learning(run(np.full(600, -1.0)), GOOD)
    assert "is not above zero" in (found.reason or "")


@given(
    st.integers(7, 40),
    st.sampled_from([1, 2, 4]),
    st.integers(20, 150),
    st.floats(0.5, 100.0),
    st.integers(0, 9),
)
def test_means_of_stretches_come_back_whatever_epochs_and_calls(
    tens: int, covers: int, epoch: int, scale: float, seed: int
) -> None:
    """The mean over the window is that of the single steps in it, though only means of epochs are logged."""
    steps, epoch = 16 * tens, epoch // covers * covers or covers
    losses = scale * falling(steps, seed=seed)
    found = learning(run(losses, covers=covers, epoch=epoch), run(losses, covers=covers, epoch=epoch))
    if found.verdict == "not judged":
        assert "it needs 6" in (found.reason or "")
        return
    assert found.loss[0] == pytest.approx(losses[steps // 2 :].mean(), rel=1e-3)
    assert found.difference_ratio == pytest.approx(0.0, abs=1e-12)
