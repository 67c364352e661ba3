"""Median and quantile give what NumPy's give, to the last bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.arrays.quantiles import median, quantile

NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40)


@given(NUMBERS, st.floats(0, 1))
def test_the_same_as_of_numpy(numbers: list[float], ratio: float) -> None:
    values = np.array(numbers)
    assert median(values) == np.median(values)
    for each in (ratio, 0.0, 0.02, 0.5, 0.95, 1.0):
        assert quantile(values, each) == np.quantile(values, each)


def test_nothing_has_no_median() -> None:
    assert np.isnan(median(np.empty(0)))
