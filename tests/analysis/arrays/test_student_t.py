"""The 95 % interval of a mean: as tables give it, and it covers the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from mpprof.analysis.arrays.mean_interval import half_width


def test_a_known_interval() -> None:
    values = np.array([4.0, 6.0, 5.0, 7.0, 3.0])  # mean 5, deviation sqrt(2.5), 4 degrees of freedom
    assert half_width(values) == pytest.approx(2.776 * 2.5**0.5 / 5**0.5)


def test_a_single_value_has_none() -> None:
    assert half_width(np.array([1.0])) is None


@pytest.mark.parametrize("n", [2, 6, 20, 60])
def test_it_covers_the_true_mean_in_19_of_20_samples(n: int) -> None:
    samples = np.random.default_rng(n).standard_normal((2000, n))
    covered = [abs(row.mean()) <= (half_width(row) or 0.0) for row in samples]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
