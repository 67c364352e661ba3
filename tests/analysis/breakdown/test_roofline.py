"""Operations and bytes of ops, and the roof over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.analysis.breakdown.roofline import Cost, cost, roof, weighed
from mpprof.analysis.breakdown.whole_window import account_of_window
from mpprof.analysis.kernels.eligibility import parse_shapes, product_of_shapes
from mpprof.analysis.layers.attribution import attribute
from mpprof.model.account import Cell
from mpprof.model.kernels import Family
from mpprof.model.trace import HloInstruction, Op
from tests.analysis.pieces import (
    ELEMENTWISE,
    V100,
    account_of,
    layer,
    model,
    placements_of,
    run_of,
    trace_of,
)
from tests.builders.cases import fusion


def test_a_matrix_product_from_its_shapes() -> None:
    found = cost(Op("x/MatMul", "MatMul"), "(half[32,128];half[128,64])", family="gemm")
    assert found.flops == 2 * 32 * 128 * 64


@pytest.mark.parametrize(
    ("op_type", "shapes", "products", "moved"),
    [
        # Scores of attention: what is read is little beside the product that is written.
        ("aten::bmm", "(bf16[96,3137,64];bf16[96,64,3137])", 96 * 3137 * 64 * 3137,
         2 * 96 * (3137 * 64 + 64 * 3137 + 3137 * 3137)),
        # A bias is no operand: not as a vector, and not where its matrix is stated first.
        ("aten::addmm", "(bf16[768];bf16[25089,3072];bf16[3072,768])", 25089 * 3072 * 768,
         2 * (768 + 25089 * 3072 + 3072 * 768 + 25089 * 768)),
        ("aten::baddbmm", "(bf16[6,40,50];bf16[6,40,30];bf16[6,30,50])", 6 * 40 * 30 * 50,
         2 * 6 * (40 * 50 + 40 * 30 + 30 * 50 + 40 * 50)),
        # A weight without batch axes serves all of the batch.
        ("BatchMatMulV2", "(half[20,30];half[6,30,50])", 6 * 20 * 30 * 50,
         2 * (20 * 30 + 6 * 30 * 50 + 6 * 20 * 50)),
    ],
)  # fmt: skip
def test_what_a_product_computes_and_moves(op_type: str, shapes: str, products: int, moved: int) -> None:
    found = cost(Op("x", op_type), shapes, family="gemm")
    assert (found.flops, found.bytes) == (2 * products, moved)


GRADIENT = "(half[4096,64];half[4096,64])"
"""X transposed by dY makes 64 x 64, X by dY transposed 4096 x 4096: 64 times the operations of the other."""


@pytest.mark.parametrize(
    ("op_type", "shapes"),
    [("MatMul", GRADIENT), ("BatchMatMulV2", "(half[8,32,128];half[8,128,32])")],
)
def test_operands_that_fit_several_products_tell_no_operations(op_type: str, shapes: str) -> None:
    assert cost(Op("x", op_type), shapes, family="gemm") == Cost(None, None)
    stranger = layer("d", "Dense", output_shape=[None, 7], parameters=77)
    assert cost(Op("x", op_type), shapes, family="gemm", layer=stranger, batch=3) == Cost(None, None)


def test_of_several_products_the_layers_is_taken() -> None:
    dense = layer("d", "Dense", output_shape=[None, 64], parameters=64 * 64 + 64)
    found = cost(Op("x", "MatMul"), GRADIENT, family="gemm", layer=dense, batch=4096)
    assert found == Cost(2 * 4096 * 64 * 64, 2 * (2 * 4096 * 64 + 64 * 64))
    attention = layer(
        "a", "MultiHeadAttention", output_shape=[None, 4096, 64], config={"num_heads": 2, "key_dim": 64}
    )
    scores = "(half[3,2,4096,64];half[3,2,4096,64])"
    found = cost(Op("x", "BatchMatMulV2"), scores, family="gemm", layer=attention, batch=3)
    assert found == Cost(2 * 6 * 4096 * 64 * 4096, 2 * (2 * 6 * 4096 * 64 + 6 * 4096 * 4096))


@pytest.mark.parametrize("shapes", ["", "(half[3,4096,2,64];half[3,4096,2,64])"])
def test_an_einsum_of_attention_is_one_of_its_two_products(shapes: str) -> None:
    config = {"num_heads": 2, "key_dim": 64}
    attention = layer("a", "MultiHeadAttention", output_shape=[None, 4096, 64], config=config)
    found = cost(Op("x", "Einsum"), shapes, family="gemm", layer=attention, batch=3)
    assert found == Cost(2 * 3 * 2 * 4096**2 * 64, None)
    assert cost(Op("x", "Einsum"), shapes, family="gemm") == Cost(None, None)


@pytest.mark.parametrize(
    ("op_type", "family", "shapes"),
    [
        ("CompiledFunction", "gemm", "(float[128,440];float[192,440])"),
        ("vllm::moe_forward", "gemm", "(c10::BFloat16[888,3072];c10::BFloat16[888,128])"),
        (
            "_C_cache_ops::reshape_and_cache_flash",
            "layout",
            "(c10::BFloat16[888,64];c10::BFloat16[4213816,64])",
        ),
        ("aten::einsum", "gemm", "(float[2,128,440];float[2,440,192])"),
    ],
)
def test_what_an_op_states_of_several_kernels_is_of_none_of_them(
    op_type: str, family: Family, shapes: str
) -> None:
    """Seen on a V100: "128 x 192 x 440 at 163 GFLOP/s", of the first two inputs of a compiled function."""
    op = Op("op", op_type)
    assert cost(op, shapes, family=family) == Cost(None, None)
    product = product_of_shapes(op_type, parse_shapes(shapes), family)
    assert product is None or (product.m, product.n, product.k) == (-1, -1, -1)
    assert (
        cost(Op("op", "aten::mm"), "(float[128,440];float[440,192])", family="gemm").flops
        == 2 * 128 * 440 * 192
    )


def test_square_operands_fit_one_product_and_pytorchs_are_as_multiplied() -> None:
    assert cost(Op("x", "MatMul"), "(half[64,64];half[64,64])", family="gemm").flops == 2 * 64**3
    found = cost(Op("x", "aten::mm"), "(half[32,128];half[128,32])", family="gemm")
    assert found == Cost(2 * 32 * 128 * 32, 2 * (2 * 32 * 128 + 32 * 32))


def test_elementwise_work_is_its_bytes() -> None:
    found = cost(Op("x/Relu", "Relu"), "(half[1000])", family="elementwise")
    assert (found.flops, found.bytes) == (None, 4000)


def test_a_convolution_from_its_recorded_layer() -> None:
    facts = layer("c", "Conv2D", output_shape=[None, 4, 4, 8], parameters=224, config={"filters": 8})
    found = cost(
        Op("x", "Conv2D"), "(half[2,4,4,3];half[3,3,3,8])", family="conv_dgrad", layer=facts, batch=2
    )
    assert found.flops == 2 * 16 * 216 * 2


def test_hlo_says_both() -> None:
    dot = HloInstruction("m", "dot", "dot", "", "f32", (4, 8), ("f16", "f16"), ((4, 2), (2, 8)), flops=128.0)
    assert cost(Op("dot", "dot", dot), family="gemm") == Cost(128.0, 32 * 4 + 8 * 2 + 16 * 2)


def test_masks_and_indices_have_bytes_and_a_fusion_all_its_results() -> None:
    made = fusion(
        "reduce", "is-finite",
        operands=[("f32", (8, 512, 512)), ("s32", (512,))], results=[("pred", (512,)), ("f32", (512, 512))],
    )  # fmt: skip
    moved = 8 * 512 * 512 * 4 + 512 * 4 + 512 + 512 * 512 * 4
    assert cost(Op("x", "fusion", made), family="reduce") == Cost(None, moved)


@pytest.mark.parametrize(("shapes"), ["", "rubbish", "(half[?,3])", "(token[4])"])
def test_unknown_shapes_are_unknown(shapes: str) -> None:
    assert cost(Op("x", "Relu"), shapes, family="elementwise") == Cost(None, None)


def test_the_roof_is_the_larger_of_both() -> None:
    compute = roof(Cost(125e9, 9e6), "tensor_core", "fp16", V100)
    memory = roof(Cost(125e6, 9e6), "tensor_core", "fp16", V100)
    assert (compute.bound, compute.least_ns) == ("compute", pytest.approx(1e6))
    assert (memory.bound, memory.least_ns) == ("memory", pytest.approx(1e4))
    assert roof(Cost(1e9, None), "cuda_core", "fp32", V100).least_ns == pytest.approx(1e9 / 15.7e3)  # type: ignore[union-attr]
    assert roof(Cost(1e9, 1e9), "cuda_core", "fp32", None) is None
    assert roof(Cost(None, None), "cuda_core", "fp32", V100) is None


def test_cells_are_weighed_per_step() -> None:
    op = Op("model/dense/MatMul", "MatMul")
    cell = Cell(
        "matmul",
        10.0,
        10.0,
        3.0,
        op=op.name,
        op_type=op.type,
        layer="dense",
        family="gemm",
        shapes="(half[2,4];half[4,8])",
    )
    trace, facts = trace_of([op]), model("dense", name="model")
    found = weighed(account_of([cell]), attribute(trace, facts), run_of("r", "float16", facts))
    assert found.main.cells[0].flops_per_step == 3 * 2 * 2 * 4 * 8
    assert found.devices[0] is found.main


def test_ops_of_one_name_have_each_their_own_bytes_whatever_their_order() -> None:
    def op(program: int, size: int) -> Op:
        hlo = HloInstruction("m", "add", "add", "", "f32", (size,), ("f32",), ((size,),), program=program)
        return Op("jit(f)/add", "add", hlo)

    ops = [op(1, 1_000), op(2, 50)]
    for first in (0, 1):
        order = [ops[first], ops[1 - first]]
        kernels = [(0, 0, f"k{row}", order.index(ops[row]), 0, 10) for row in (0, 1)]
        trace = trace_of(order, kernels)
        found = account_of_window(trace, placements_of([ELEMENTWISE], kernels), attribute(trace), None, "")
        moved = {cell.kernel: cell.bytes_per_step for cell in found.main.cells if cell.kernel}
        assert moved == {"k0": 8_000, "k1": 400}


def test_calls_of_one_op_with_other_shapes_are_cells_of_their_own() -> None:
    """PyTorch's ops have one name whatever they are given."""
    kernels = [(0, 0, "add", 0, 0, 10) for _ in range(3)]
    trace = trace_of([Op("aten::add", "aten::add")], kernels)
    texts = (*trace.strings, "(float[1000])", "(float[50])")
    trace = replace(
        trace,
        strings=texts,
        kernels=replace(trace.kernels, shapes=np.array([2, 1, 2], np.int32)),
    )
    found = account_of_window(trace, placements_of([ELEMENTWISE], kernels), attribute(trace), None, "")
    moved = {
        cell.shapes: (cell.calls_per_step, cell.bytes_per_step) for cell in found.main.cells if cell.kernel
    }
    assert moved == {"(float[1000])": (1, 8_000), "(float[50])": (2, 800)}
