"""What is said first of a step that is mostly idle for neither input nor launches."""

from __future__ import annotations

from copy import deepcopy

import pytest

from mpprof import diagnose
from mpprof.report.headline import headline, to_change
from tests.cli.conftest import FLOAT32, SAMPLES

ALLOCATED = "memory allocated by the driver"


@pytest.mark.parametrize(
    ("known_ratio", "says"),
    [
        (0.8, f"The device idles 80.0 % of the step: {ALLOCATED}."),
        (0.1, "The device idles 80.0 % of the step; the trace does not show what for."),
    ],
)
def test_the_larger_part_of_the_idling_is_said_where_no_cause_was_found(
    known_ratio: float, says: str
) -> None:
    document = deepcopy(diagnose(FLOAT32).document())
    document.pop("cause", None)
    time = document["time"]
    assert time is not None
    step_ns = sum(part["ns_per_step"] for part in time["slices"])
    idle = next(part for part in time["slices"] if part["class"] == "idle_other")
    idle |= {
        "ns_per_step": 0.9 * step_ns,
        "ratio": 0.9,
        "causes": [{"cause": ALLOCATED, "ns_per_step": known_ratio * step_ns}],
    }
    assert headline(document) == says


def test_where_a_cpu_makes_16_bits_slow_its_remedy_is_the_first() -> None:
    mixed, wide = SAMPLES / "recorded-cpu-mixed-float16", SAMPLES / "recorded-cpu-float32"
    document = diagnose(mixed, wide).document()
    assert not document["facts"]["causes"]
    assert to_change(document) == ["MP806"]
    assert "MP806" not in to_change(diagnose(wide).document())
