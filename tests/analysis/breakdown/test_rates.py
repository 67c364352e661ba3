"""Rates and eligibility of ops: what shapes, peaks and layers tell together, and what they leave open."""

from __future__ import annotations

import json

import pytest

from mpprof.analysis.breakdown import rates
from mpprof.analysis.breakdown.roofline import Cost, Roof
from mpprof.analysis.kernels import device_peaks
from mpprof.api import workflows
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import Family, Placement, Precision, Reason, Verdict
from mpprof.model.run import LayerFacts
from mpprof.model.trace import HloInstruction, Op
from tests.paths import SAMPLES

V100 = DeviceFacts("gpu", "Tesla V100-SXM2-16GB", "nvidia", (7, 0))
A100 = DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0))
MATMUL = Op("dense/MatMul", "MatMul")
SHAPES = "(half[1024,2048];half[2048,512])"


def verdict(placement: Placement, precision: Precision, family: Family = "gemm") -> Verdict:
    return Verdict(placement, precision, family, Reason("test", "said so by the test"), "name")


def one(
    placement: Placement = "tensor_core", precision: Precision = "fp16", shapes: str = SHAPES, **how
) -> rates.Part:  # type: ignore[no-untyped-def]
    settings = {
        "calls": 2,
        "total_ns": 100_000,
        "layer": None,
        "batch": None,
        "peaks": device_peaks.peaks(V100),
        **how,
    }
    return rates.part(MATMUL, shapes, verdict(placement, precision), **settings)


def test_a_product_of_known_shapes_has_a_rate_and_its_share_of_the_roofline() -> None:
    found = rates.summed([one()])
    flops = 2 * 1024 * 2048 * 512
    assert found["flops_per_call"] == flops
    assert found["flops_per_s"] == pytest.approx(flops * 2 / 100e-6)
    assert found["roofline_ratio"] == pytest.approx(flops / 125e12 / 50e-6)
    assert found["bound"] == "compute"


def test_parts_of_several_shapes_add_up_and_one_unknown_part_leaves_it_open() -> None:
    small = one(shapes="(half[64,64];half[64,64])", calls=6, total_ns=60_000)
    both = rates.summed([one(), small])
    flops = 2 * (2 * 1024 * 2048 * 512) + 6 * (2 * 64**3)
    assert both["flops_per_call"] == pytest.approx(flops / 8)
    assert both["flops_per_s"] == pytest.approx(flops / 160e-6)
    assert rates.summed([one(), one(shapes="")])["flops_per_s"] is None
    assert rates.summed([]) == rates.NO_RATE


def test_a_rate_that_no_card_reaches_is_no_rate() -> None:
    assert rates.summed([one(total_ns=2_000)]) == rates.NO_RATE


def test_a_convolution_on_cuda_cores_may_do_with_fewer_operations() -> None:
    fewer = rates.Part(1, 1000, Cost(1e9, None), Roof(1500.0, "compute"), True)
    assert rates.summed([fewer])["roofline_ratio"] == pytest.approx(1.5)


def test_memory_bound_work_is_called_so() -> None:
    found = rates.part(
        Op("relu", "Relu"), "(half[1048576])", verdict("not_matmul", "fp16", "elementwise"),
        calls=1, total_ns=10_000, layer=None, batch=None, peaks=device_peaks.peaks(V100),
    )  # fmt: skip
    row = rates.summed([found])
    assert (row["bound"], row["flops_per_s"]) == ("memory", None)
    assert row["bytes_per_s"] == pytest.approx(2 * 2 * 1048576 / 10e-6)


def test_half_in_ordinary_arithmetic_is_measured_against_the_faster_way() -> None:
    # GTX 1080 Ti: half arithmetic at 1/64 of the float32 rate, so converting wins.
    card = device_peaks.peaks(DeviceFacts("gpu", "NVIDIA GeForce GTX 1080 Ti", "nvidia", (6, 1)))
    row = rates.summed([one("cuda_core", peaks=card, total_ns=1_000_000)])
    assert row["roofline_ratio"] == pytest.approx(2 * 2 * 1024 * 2048 * 512 / 11.3e12 / 1e-3, rel=0.02)


# Eligibility -------------------------------------------------------------------------------------------------


def answer(
    op: Op, shapes: str, said: Verdict, device: DeviceFacts = V100, **how: object
) -> tuple[str, str | None]:
    layer = how.pop("layer", None)
    row = rates.eligibility(op, shapes, said, layer, device, rates.Setting(**how))  # type: ignore[arg-type]
    return row["eligible"], row["eligible_reason"] and row["eligible_reason"]["code"]


def test_what_ran_did() -> None:
    assert answer(MATMUL, SHAPES, verdict("tensor_core", "fp16")) == ("did", None)


def test_an_odd_size_could() -> None:
    assert answer(MATMUL, "(half[64,33];half[33,64])", verdict("cuda_core", "fp16")) == ("could", "shape")


def test_a_product_of_eligible_size_and_type_blames_the_algorithm() -> None:
    assert answer(MATMUL, SHAPES, verdict("cuda_core", "fp16")) == ("could", "algorithm")


def test_float32_asks_for_a_policy_and_names_tf32_where_the_card_has_it() -> None:
    said = verdict("cuda_core", "fp32")
    assert answer(MATMUL, "", said) == ("could", "policy")
    row = rates.eligibility(MATMUL, "", said, None, A100, rates.Setting(tf32_enabled=False))
    assert "TF32 only, which is off" in row["eligible_reason"]["text"]


def test_the_layers_policy_is_named_where_its_operands_are_float32_all_the_same() -> None:
    layer = LayerFacts("dense", "Dense", "float16", "float32", "float16")
    row = rates.eligibility(MATMUL, "", verdict("cuda_core", "fp32"), layer, V100, rates.Setting())
    assert "computes in float16" in row["eligible_reason"]["text"]


@pytest.mark.parametrize(
    ("said", "shapes", "device", "code"),
    [
        (verdict("cuda_core", "fp16", "depthwise"), "", V100, "depthwise"),
        (verdict("cuda_core", "fp16"), "(half[1,512];half[512,64])", V100, "shape"),
        (
            verdict("cuda_core", "fp16"),
            SHAPES,
            DeviceFacts("gpu", "Tesla P100-SXM2-16GB", "nvidia", (6, 0)),
            "card",
        ),
    ],
)
def test_what_could_never(said: Verdict, shapes: str, device: DeviceFacts, code: str) -> None:
    assert answer(MATMUL, shapes, said, device) == ("could_never", code)


@pytest.mark.parametrize(
    ("kind", "config", "codes"),
    [
        ("Conv2D", {"data_format": "channels_first", "groups": 1}, "channels first"),
        ("Conv2D", {"data_format": "channels_last", "groups": 4}, "4 groups"),
        ("Conv3D", {"data_format": "channels_last"}, "3-D convolution"),
    ],
)
def test_a_layers_own_settings_tell_why_a_convolution_fell_back(kind: str, config: dict, codes: str) -> None:  # type: ignore[type-arg]
    layer = LayerFacts("conv", kind, "float16", "float32", "float16", config)
    said = verdict("cuda_core", "fp16", "conv_fprop")
    row = rates.eligibility(Op("conv/Conv2D", "Conv2D"), "", said, layer, V100, rates.Setting())
    assert row["eligible"] == "could"
    assert codes in row["eligible_reason"]["text"]


def test_without_shapes_of_the_op_the_layer_tells_the_channels() -> None:
    layer = LayerFacts(
        "conv", "Conv2D", "float16", "float32", "float16", {"filters": 64}, [None, 224, 224, 3]
    )
    said = verdict("cuda_core", "fp16", "conv_fprop")
    row = rates.eligibility(Op("conv/convolution", "convolution"), "", said, layer, V100, rates.Setting())
    assert row["eligible_reason"] == {
        "code": "shape",
        "text": "input channels = 3 is not a multiple of 8 (fp16)",
    }


def test_on_a_cpu_nothing_could() -> None:
    assert answer(MATMUL, SHAPES, verdict("cuda_core", "fp16"), on_host=True) == ("could_never", "card")


def test_the_hlo_of_a_library_call_states_its_product() -> None:
    hlo = HloInstruction(
        "m", "cublas-gemm.1", "custom-call", "", "bf16", (64, 63), ("bf16", "bf16"), ((64, 128), (128, 63)),
        custom_call="__cublas$gemm",
    )  # fmt: skip
    assert answer(Op("dot", "dot", hlo), "", verdict("cuda_core", "bf16"), A100) == ("could", "shape")


def test_pytorchs_bias_is_no_operand_of_the_product() -> None:
    op = Op("linear", "aten::addmm")
    assert answer(op, "(half[64];half[512,1024];half[1024,63])", verdict("cuda_core", "fp16")) == (
        "could",
        "shape",
    )


# On the samples ----------------------------------------------------------------------------------------------


def rows_of(name: str) -> list[dict]:  # type: ignore[type-arg]
    return workflows.table_rows(workflows.load(SAMPLES / name), "ops")


def test_the_odd_vocabulary_is_found_by_its_op() -> None:
    missed = [row for row in rows_of("v100-odd-vocabulary-mixed-float16") if row["eligible"] == "could"]
    assert {row["layer"] for row in missed} == {"logits"}
    assert all("33709 is not a multiple of 8" in row["eligible_reason"]["text"] for row in missed)


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("v100-convnet-float32", {"could"}),
        ("h100-mixed-bfloat16", {"did"}),
        ("gtx1080ti-mixed-float16", {"could_never"}),
        ("recorded-cpu-mixed-float16", {"could_never"}),
    ],
)
def test_every_matrix_op_of_a_sample_gets_its_answer_and_most_a_rate(name: str, answers: set[str]) -> None:
    matrix = [row for row in rows_of(name) if row["eligible"] is not None]
    assert {row["eligible"] for row in matrix} == answers
    assert sum(row["flops_per_s"] is not None for row in matrix) >= 0.8 * len(matrix)
    assert json.loads(json.dumps(matrix)) == matrix
    assert all(row["roofline_ratio"] is None or 0 < row["roofline_ratio"] < 1 for row in matrix)


def test_on_a_cpu_the_layer_tells_what_its_products_multiply() -> None:
    run = workflows.load(SAMPLES / "recorded-cpu-mixed-float16")
    rows = workflows.table_rows(run, "kernels")
    told = [row for row in rows if row["reason"]["code"] == "host-op-layer"]
    assert {row["precision"] for row in told} == {"fp16"}
    assert all("computes in float16" in row["reason"]["text"] for row in told)
    matrix = [row for row in rows if row["placement"] == "cuda_core"]
    assert not [row for row in matrix if row["precision"] == "unknown" and row["layer"]]
