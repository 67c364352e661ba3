"""Several batch sizes of one model: when their step times tell something, and what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.analysis.comparison import batch_scaling
from mpprof.model.finding import Batches
from mpprof.model.run import Run
from mpprof.model.steps import HardwareTable, StepSummary
from tests.analysis.pieces import layer, model, run_of

MODEL = model("dense", "dense_1")


def summary(step_ms: float) -> StepSummary:
    ns = step_ms * 1e6
    return StepSummary(100, 90, 2, ns, ns, ns, (ns, ns), None, None, None, None)


def run(dtype: str, batch: int, used: float | None = None) -> Run:
    layers = model(layer("dense", dtype=dtype), layer("dense_1", dtype=dtype))
    made = run_of(f"{dtype}-{batch}", dtype, layers, batch=batch)
    if used is None:
        return made
    none = np.full(3, np.nan)
    table = HardwareTable(
        np.arange(3), np.zeros(3, np.int64), np.full(3, used), *[none] * 7, throttle=((),) * 3
    )
    return replace(made, hardware=table)


def judged(times: dict[int, float], used: float | None = None, dtype: str = "float16") -> tuple[Batches, ...]:
    return batch_scaling.of(
        [run(dtype, size, used) for size in times], [summary(ms) for ms in times.values()]
    )


PROPORTIONAL = {512: 372.0, 32: 25.0, 128: 95.0}  # in any order


def test_a_constant_time_per_example_with_an_idling_device_points_to_the_input() -> None:
    (found,) = judged(PROPORTIONAL, 0.72)
    assert found.batch_sizes == (32, 128, 512)
    assert found.runs == (1, 2, 0)
    assert found.spread_ratio == pytest.approx(25 / 32 / (372 / 512) - 1)
    assert found.fixed_ns == pytest.approx((25 - 32 * (372 - 25) / 480) * 1e6)
    said = found.statements[2]
    assert said.index("input or host work for each example") < said.index("the device does, at one rate")
    assert "likelier: at a utilisation of 72.0 %" in said
    assert "28.0 % of the time" in said
    assert "1.39x at most" in said
    assert "a profile window" in said


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (None, "no recorded utilisation says which is likelier"),
        (0.88, "the device does, at one rate whatever the batch (the likelier, at a utilisation of 88.0 %)"),
        (0.99, "the device limits it"),
    ],
)
def test_the_utilisation_decides_which_explanation_is_likelier(used: float | None, words: str) -> None:
    (found,) = judged(PROPORTIONAL, used)
    assert words in found.statements[2]
    assert ("settles it" in found.statements[2]) is (used != 0.99)


def test_a_step_of_fixed_length_is_launches_and_not_input() -> None:
    (found,) = judged({32: 20.0, 64: 21.0, 128: 23.0}, 0.3)
    assert found.spread_ratio > 1
    assert found.fixed_ns == pytest.approx(19e6)
    assert not any("explanations remain" in said for said in found.statements)
    assert "a larger batch, or fewer launches" in found.statements[1]


@pytest.mark.parametrize(
    "times",
    [{32: 25.0, 128: 95.0}, {32: 25.0, 48: 37.0, 64: 49.0}, {64: 49.0}],
    ids=["two sizes", "a factor of two", "one"],
)
def test_few_sizes_tell_nothing(times: dict[int, float]) -> None:
    assert judged(times) == ()


def test_other_models_types_and_settings_are_other_groups() -> None:
    sizes = {32: 25.0, 64: 49.0, 128: 95.0}
    runs = [run("float16", size) for size in sizes]
    other = run_of("wide", "float16", replace(MODEL, parameters=5), batch=128)
    assert batch_scaling.of([*runs[:2], other], [summary(ms) for ms in sizes.values()]) == ()
    bare = replace(runs[2], facts=None)
    assert batch_scaling.of([*runs[:2], bare], [summary(ms) for ms in sizes.values()]) == ()


def test_what_input_alone_could_not_explain() -> None:
    sizes = {32: 25.0, 128: 95.0, 512: 372.0}
    runs = [run(dtype, size, 0.75) for dtype in ("float32", "float16") for size in sizes]
    steps = [
        summary(ms * (1.1 if dtype == "float32" else 1.0))
        for dtype in ("float32", "float16")
        for ms in sizes.values()
    ]
    single, mixed = batch_scaling.of(runs, steps)
    assert "float32" in single.statements[0]
    assert len(single.statements) == 3
    assert "against float32 at the same batches: 1.10x to 1.10x" in mixed.statements[3]
    assert "part of each step is the device's own work" in mixed.statements[3]
