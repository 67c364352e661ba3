"""Eight more models against XLA's assignment for V100 (`more_assignments.json`, JAX 0.10.2): three subclassed, three with
functions of `keras.ops` between layers. The mixer was compiled after the rules for functions were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.forecasts.memory import training
from tests.forecasts.memory.models import BATCH, CUSTOM
from tests.forecasts.memory.test_training import run_of

DATA = json.loads(Path(__file__).with_name("more_assignments.json").read_text())


@pytest.mark.parametrize("case", DATA["assignments"], ids=lambda case: f"{case['model']}-{case['policy']}")
def test_memory_is_within_a_fifth_of_xlas_or_a_lower_bound(case: dict[str, Any]) -> None:
    """XLA's temporaries hold the gradients and 16-bit copies of the weights too, as far as they are there at once."""
    name, (assigned,) = case["model"], case["temporaries_bytes"]
    found = training.forecast(
        run_of(DATA["models"][name]),
        BATCH[name],
        policies=(case["policy"],),
        card_bytes=1 << 40,
        capability=(7, 0),
    )
    (run,) = found.runs
    if name == CUSTOM:
        assert run.activations_bytes < assigned
        assert "peak_bytes" in run.at_least
        assert run.largest_batch is None
        return
    assert not found.unknown
    assert run.largest_batch
    with_weights = run.activations_bytes + run.gradients_bytes + run.weight_copies_bytes
    assert run.activations_bytes <= 1.2 * assigned
    assert with_weights >= 0.8 * assigned
