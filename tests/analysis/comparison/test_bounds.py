"""Bounds from records alone, held against published figures of a convnet on a V100."""

from __future__ import annotations

import json

import pytest

from mpprof.analysis.breakdown.roofline import layer_flops, model_flops
from mpprof.analysis.comparison.bounds import Side, prove
from mpprof.model.run import ModelFacts
from tests.analysis.pieces import A100, V100, layer
from tests.paths import NO_DATA, SHARED_DATA

SEED = SHARED_DATA / "seed_figures.json"
MS = 1e6


def conv(name: str, size: int, channels: int, filters: int, kernel: int, padding: str = "same"):  # type: ignore[no-untyped-def]
    return layer(
        name,
        "Conv2D",
        config={"filters": filters, "kernel_size": [kernel, kernel], "strides": [2, 2], "padding": padding},
        output_shape=[None, size, size, filters],
        parameters=kernel * kernel * channels * filters + filters,
    )


CONVNET = ModelFacts(
    "convnet",
    None,
    (
        conv("a", 128, 3, 32, 5), layer("n", "BatchNormalization", output_shape=[None, 128, 128, 32], parameters=128),
        conv("b", 64, 32, 64, 7), conv("c", 32, 64, 128, 11),
        layer("head", output_shape=[None, 10], parameters=1290, config={"units": 10}),
    ),
)  # fmt: skip


def test_the_convnet_takes_8_7_gflop_per_image() -> None:
    counted = model_flops(CONVNET)
    assert counted.training / 1e9 == pytest.approx(8.7, abs=0.05)
    assert counted.unknown == ()


@pytest.mark.skipif(not SEED.exists(), reason=NO_DATA)
def test_the_published_convnet() -> None:
    figures = json.loads(SEED.read_text())["imagenette_convnet"]
    card = figures["Tesla V100 16GB (cc 7.0)"]
    flops = model_flops(CONVNET).training * figures["batch"][0]
    mixed, single = (Side(card[key][0] * MS, card["gpu_utilization"]["32"]) for key in ("mixed", "float32"))
    proof = prove(flops, mixed, single, V100)
    values = {bound.statement: bound for bound in proof.bounds}
    assert values["the baseline's average rate of matrix work, at least"].value / 1e12 == pytest.approx(
        9.3, abs=0.05
    )
    most = values["average rate of the mixed run's matrix kernels, at most"]
    assert most.value / 1e12 == pytest.approx(18, abs=0.5)
    assert values["share of the matrix units' peak, at most"].value == pytest.approx(0.14, abs=0.005)
    assert any("not known" in assumption for assumption in most.assumptions)
    assert proof.unable is not None
    assert "a host bound is not excluded" in proof.unable
    assert "72.0 %" in proof.unable
    assert "the likelier" in proof.unable
    assert "14.2 % of the matrix units' peak" in proof.unable
    assert "MPProfilerCallback" in proof.unable


def test_runs_known_to_be_bound_by_the_gpu_leave_nothing_open() -> None:
    proof = prove(278.7e9, Side(28 * MS, 0.99), Side(30 * MS, None, 0.01), V100)
    assert proof.unable is None
    assert any("as recorded" in a for bound in proof.bounds for a in bound.assumptions)


def test_low_utilisation_outweighs_a_short_input_wait() -> None:
    assert not Side(1.0, utilization_ratio=0.7, input_wait_ratio=0.01).bound_by_gpu
    assert Side(1.0, input_wait_ratio=0.01).bound_by_gpu
    assert not Side(1.0).bound_by_gpu


def test_a_step_shorter_than_ordinary_arithmetic_proves_matrix_units() -> None:
    """1 TFLOP in 20 ms is 50 TFLOP/s; a V100 does 31.4 at best without Tensor Cores, so 37 % ran on them."""
    proof = prove(1e12, Side(20 * MS), None, V100)
    assert proof.unable is None
    assert [b.value for b in proof.bounds if b.unit == "ratio"] == [pytest.approx(1 - 31.4 * 0.02)]


def test_half2_counts_as_ordinary_arithmetic() -> None:
    assert prove(1e12, Side(40 * MS), None, V100).unable is not None


def test_tf32_may_have_run_in_the_baseline_unless_it_is_known_not_to() -> None:
    sides = Side(12 * MS, 0.99), Side(30 * MS, 0.99)
    loose = prove(400e9, *sides, A100)
    strict = prove(400e9, *sides, A100, tf32=False)
    most = "average rate of the mixed run's matrix kernels, at most"
    assert most not in [bound.statement for bound in loose.bounds]  # the rest may be longer than the step
    assert [b.value for b in strict.bounds if b.statement == most] == [
        pytest.approx(400e9 / (12 - (30 - 20.5128205)) * 1e3)
    ]


def test_a_bound_above_the_peak_says_nothing_and_is_left_out() -> None:
    """The A100's peak is 312 TFLOP/s: 400 GFLOP in 1.28 ms, beside 9.49 ms of other work."""
    for step_ms, said in ((10.7, False), (10.9, True)):
        proof = prove(400e9, Side(step_ms * MS, 0.99), Side(30 * MS, 0.99), A100, tf32=False)
        assert any("at most" in bound.statement for bound in proof.bounds) is said


def test_nothing_known_proves_nothing() -> None:
    assert prove(0, Side(1 * MS), None, V100).bounds == ()
    assert "peak rates" in (prove(1e9, Side(1 * MS), None, None).unable or "")


@pytest.mark.parametrize(
    ("facts", "flops"),
    [
        (layer("d", output_shape=[None, 7, 10], parameters=210, config={"units": 10}), 2 * 7 * 200),
        (layer("d", output_shape=[None, 10], parameters=200, config={"units": 10, "use_bias": False}), 400),
        (layer("d", output_shape=[None, None, 10], parameters=210), None),
        (layer("d"), None),
        (layer("r", "ReLU", output_shape=[None, 10], parameters=0), 0.0),
        (layer("c", "DepthwiseConv2D", output_shape=[None, 4, 4, 8], parameters=80, config={}), 2 * 16 * 72),
        (
            layer("l", "LSTM", input_shape=[None, 5, 3], parameters=4 * (3 + 2 + 1) * 2, config={"units": 2}),
            2 * 5 * 4 * (3 + 2) * 2,
        ),
    ],
)  # fmt: skip
def test_operations_of_a_layer(facts, flops: float | None) -> None:  # type: ignore[no-untyped-def]
    assert layer_flops(facts) == flops
