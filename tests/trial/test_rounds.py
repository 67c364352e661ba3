"""The interval of a speedup by rounds, and what the losses of two settings show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mpprof.trial.rounds import FEWEST_ROUNDS, Ratio, Trained, learns_worse, of_cycles, ratio
from tests.trial.known import BFLOAT16, FLOAT32

DRAWS = 2_000
SCATTER = 0.03
"""Of the step times of equal processes, as it was recorded."""


def measured(rng: np.random.Generator, most: int, scatter: float, drift: float) -> Ratio:
    """The ratio of two equal settings, with as many rounds as a ladder would run."""
    logs: list[float] = []
    while True:
        at = 2 * len(logs)
        first, second = rng.normal(0, scatter, 2) + drift * np.array([at, at + 1])
        logs.append(first - second if len(logs) % 2 == 0 else second - first)
        found = of_cycles(logs)
        if len(logs) >= most or (len(logs) >= FEWEST_ROUNDS and found.close):
            return found


@pytest.mark.parametrize("most", [4, 8, 40])
@pytest.mark.parametrize(("scatter", "drift"), [(SCATTER, 0.0), (0.01, 0.002), (0.06, 0.0)])
def test_the_interval_holds_the_ratio_in_95_of_100_ladders(most: int, scatter: float, drift: float) -> None:
    rng = np.random.default_rng(31)
    found = [measured(rng, most, scatter, drift) for _ in range(DRAWS)]
    held = sum(not each.faster and not each.slower for each in found) / DRAWS
    assert 0.93 <= held <= 0.97


def test_rounds_end_once_either_end_is_within_five_percent() -> None:
    rng = np.random.default_rng(7)
    found = [measured(rng, 1000, SCATTER, 0.0) for _ in range(200)]
    assert all(each.interval is not None and each.interval[1] / each.value <= 1.05 + 1e-9 for each in found)
    assert 4 < np.mean([each.rounds for each in found]) < 12


def test_one_round_has_no_interval() -> None:
    assert of_cycles([math.log(2)]) == Ratio(pytest.approx(2.0), None, 1)


def trained(cycle: int, step_ns: float, setting: object = FLOAT32, **more: object) -> Trained:
    one = Trained(
        FLOAT32, 0, cycle, cycle + 1, 10.0, step_ns=step_ns, batch=8, examples_per_s=8 / step_ns * 1e9
    )
    return replace(one, setting=setting, **more)  # type: ignore[arg-type]


def test_a_ratio_is_of_cycles_that_measured_both() -> None:
    done = [
        trained(0, 20.0), trained(0, 10.0, BFLOAT16), trained(1, 30.0), trained(2, 40.0),
        trained(1, 10.0, BFLOAT16, took=(0, 3)), trained(2, 10.0, BFLOAT16, error="killed"),
    ]  # fmt: skip
    assert ratio(done, FLOAT32, BFLOAT16) == Ratio(pytest.approx(2.0), None, 1)
    assert ratio(done[2:], FLOAT32, BFLOAT16) is None


def test_settings_of_other_batches_are_compared_by_examples() -> None:
    double = replace(FLOAT32, batch=2.0)
    done = [trained(0, 10.0), trained(0, 16.0, double, batch=16, examples_per_s=16 / 16e-9)]
    found = ratio(done, FLOAT32, double)
    assert found.value == pytest.approx(1.25)
    unknown = [done[0], replace(done[1], examples_per_s=None)]
    assert ratio(unknown, FLOAT32, double) is None


def test_a_loss_is_worse_only_beyond_the_scatter_of_the_rounds() -> None:
    def rounds(*losses: float) -> list[Trained]:
        return [trained(at, 1.0, curve=((10.0, 9.0), (20.0, loss))) for at, loss in enumerate(losses)]

    usual = rounds(1.0, 1.01, 0.99, 1.0)
    assert learns_worse(rounds(1.5, 1.52, 1.49, 1.5), usual)
    assert not learns_worse(rounds(1.05, 1.04, 1.05, 1.06), usual)  # less than a tenth
    assert not learns_worse(rounds(1.0, 3.0, 0.5, 1.2), usual)  # scatters
    assert not learns_worse(rounds(0.5, 0.5, 0.5), usual)
    assert not learns_worse(rounds(2.0), usual)  # one round shows no scatter
