"""Eligibility: could this product have run on Tensor Cores, and what would have to change?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.kernels.eligibility import (
    Product,
    Tensor,
    judge,
    multiple,
    multiplies,
    parse_shapes,
    precision_of,
    product_of_hlo,
    product_of_shapes,
)
from mpprof.model.kernels import Family, Precision
from mpprof.model.trace import HloInstruction

V100, A100 = (7, 0), (8, 0)


def codes(product: Product, **facts: object) -> list[str]:
    settings = {"capability": A100, "tensor_cores": True, **facts}
    return [code for code, _ in judge(product, **settings).reasons]  # type: ignore[arg-type]


def test_shapes_are_read_as_traces_write_them() -> None:
    assert parse_shapes("(half[32,128];half[128,64])") == (
        Tensor("half", (32, 128)),
        Tensor("half", (128, 64)),
    )
    assert parse_shapes("(f32[2,3]{1,0}, s32[])") == (Tensor("f32", (2, 3)), Tensor("s32", ()))
    assert parse_shapes("(half[?,128])") == (Tensor("half", (-1, 128)),)
    assert parse_shapes("") == ()
    assert parse_shapes("no tensors [here") == ()


@given(st.text(max_size=200))
def test_any_text_gives_some_shapes(text: str) -> None:
    assert len(parse_shapes(text)) <= 64


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("half", "fp16"),
        ("DT_HALF", "fp16"),
        ("bf16", "bf16"),
        ("float", "fp32"),
        ("f8e4m3fn", "fp8"),
        ("int32", "unknown"),
    ],
)
def test_dtypes_in_the_spellings_of_frameworks(dtype: str, precision: Precision) -> None:
    assert precision_of(dtype) == precision


def test_a_type_needs_its_generation() -> None:
    assert multiplies("fp16", V100)
    assert not multiplies("bf16", V100)
    assert multiplies("bf16", A100)
    assert not multiplies("fp32", A100)
    assert not multiplies("fp8", A100)


def test_multiples_by_type_and_generation() -> None:
    assert (multiple("fp16", V100), multiple("fp16", A100, full=True)) == (8, 64)
    assert multiple("int8", A100) == 16
    assert multiple("fp32", A100) == 1


def test_an_odd_vocabulary_names_the_dimension() -> None:
    eligibility = judge(
        Product("gemm", "fp16", 4096, 33709, 512),
        capability=V100,
        tensor_cores=True,
        ran_on_matrix_units=False,
    )
    assert eligibility.answer == "could"
    assert eligibility.conditions == (("shape", "N = 33709 is not a multiple of 8 (fp16)"),)


def test_what_did_run_still_names_what_costs_efficiency() -> None:
    eligibility = judge(
        Product("gemm", "fp16", 64, 63, 64), capability=A100, tensor_cores=True, ran_on_matrix_units=True
    )
    assert eligibility.answer == "did"
    assert [code for code, _ in eligibility.reasons] == ["shape"]


@pytest.mark.parametrize(
    ("product", "facts", "code"),
    [
        (Product("gemm", "fp16", 64, 64, 64), {"tensor_cores": False}, "card"),
        (Product("depthwise", "fp16"), {}, "depthwise"),
        (Product("gemm", "fp16", 1, 64, 64), {}, "shape"),
        (Product("gemm", "fp64", 64, 64, 64), {"capability": (8, 6)}, "dtype"),
    ],
)
def test_what_could_never(product: Product, facts: dict[str, object], code: str) -> None:
    settings = {"capability": A100, "tensor_cores": True, **facts}
    eligibility = judge(product, **settings)  # type: ignore[arg-type]
    assert eligibility.answer == "could_never"
    assert [found for found, _ in eligibility.reasons] == [code]


def test_float32_asks_for_a_policy_and_tells_of_tf32_where_there_is_any() -> None:
    product = Product("gemm", "fp32", 64, 64, 64)
    assert codes(product, capability=V100) == ["policy"]
    assert codes(product) == ["policy", "dtype"]
    mixed = judge(
        Product("gemm", "fp32", 64, 64, 64, compute_dtype="float16"), capability=V100, tensor_cores=True
    )
    assert "operands are float32" in mixed.reasons[0][1]


def test_bfloat16_on_volta_is_a_question_of_the_type() -> None:
    assert codes(Product("gemm", "bf16", 64, 64, 64), capability=V100) == ["dtype"]


def test_convolutions_name_groups_dimensions_and_layout() -> None:
    product = Product("conv_fprop", "fp16", channels=(32, 64), groups=2, spatial_dims=3, layout="NCHW")
    assert codes(product) == ["grouped", "conv3d", "layout"]


def test_an_eligible_product_that_did_not_blames_the_algorithm() -> None:
    assert codes(Product("gemm", "fp16", 64, 64, 64), ran_on_matrix_units=False) == ["algorithm"]


def test_an_unknown_card_gives_no_answer() -> None:
    assert judge(Product("gemm", "fp16", 64, 64, 64), capability=None, tensor_cores=None).answer == "unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(half[32,128];half[128,64])", (32, 64, 128)),
        ("(half[32,128];half[64,128])", (32, 64, 128)),
        ("(half[128,32];half[128,64])", (32, 64, 128)),
        ("(half[8,16,32];half[8,32,48])", (16, 48, 32)),
        ("(half[3,5];half[7,11])", (-1, -1, -1)),
    ],
)
def test_products_of_matmul_shapes(text: str, expected: tuple[int, int, int]) -> None:
    product = product_of_shapes("MatMul", parse_shapes(text), "gemm")
    assert (product.m, product.n, product.k) == expected


@pytest.mark.parametrize(
    ("family", "text", "channels", "groups"),
    [
        ("conv_fprop", "(half[64,56,56,64];half[3,3,64,128])", (64, 128), 1),
        ("conv_dgrad", "(half[3,3,64,128];half[64,56,56,128])", (64, 128), 1),
        ("conv_wgrad", "(half[64,56,56,64];half[64,56,56,128])", (64, 128), 1),
        ("conv_fprop", "(half[64,56,56,64];half[3,3,16,128])", (16, 128), 4),
        ("conv_fprop", "(half[2,8,56,56,3];half[3,3,3,3,32])", (3, 32), 1),
    ],
)
def test_products_of_convolution_shapes(
    family: Family, text: str, channels: tuple[int, int], groups: int
) -> None:
    product = product_of_shapes("Conv2D", parse_shapes(text), family)
    assert (product.channels, product.groups) == (channels, groups)


def test_no_product_without_shapes() -> None:
    assert product_of_shapes("MatMul", (), "gemm") is None
    assert product_of_shapes("Relu", parse_shapes("(half[2,2];half[2,2])"), "elementwise") is None


def test_products_of_hlo_dots() -> None:
    dot = HloInstruction("m", "dot.1", "dot", "", "bf16", (32, 64), ("bf16", "bf16"), ((32, 128), (128, 64)))
    product = product_of_hlo(dot)
    assert (product.precision, product.m, product.n, product.k) == ("bf16", 32, 64, 128)


def test_float32_on_a_card_without_tf32_is_held_to_the_multiples_of_fp16() -> None:
    product = Product("gemm", "fp32", 64, 64, 12)
    assert "shape" in codes(product, capability=V100)
    assert "shape" not in codes(product, capability=A100)


def test_a_convolution_to_one_channel_is_no_matrix_vector_product() -> None:
    product = Product("conv_fprop", "fp16", n=1, k=576, channels=(64, 1), spatial_dims=2)
    judged = judge(product, capability=A100, tensor_cores=True)
    assert judged.answer == "could"
    assert [code for code, _ in judged.reasons] == ["shape"]
