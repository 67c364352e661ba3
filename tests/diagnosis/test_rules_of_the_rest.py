"""The rarer causes: graph rewrite, 3-D convolution, attention, clipping, preallocation, GeForce."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.model.steps import HardwareTable
from tests.builders import cases as c
from tests.diagnosis.saying import finding, says

OFF = {"precision": "fp16", "kernel": "volta_fp16_scudnn_fp16_128x64", "family": "conv_fprop"}
FLOAT32 = (c.layer("dense", dtype="float32"),)


def of(*layers, cells=(), **facts):
    return c.case(records=c.facts(layers=(*layers, *c.HEALTHY_LAYERS), **facts), account=c.account(*cells))


# --- MP105 graph-rewrite-noop


def rewriting(*cells, switch=True, layers=FLOAT32):
    account = c.account(*cells)
    return c.case(records=c.facts("float32", layers=layers, graph_rewrite=switch), account=account)


@pytest.mark.parametrize("switch", [True, "auto_mixed_precision_mkl", "TF_ENABLE_AUTO_MIXED_PRECISION"])
def test_mp105_on_and_nothing_in_16_bits(switch) -> None:
    got = finding("MP105", rewriting(c.fallback(100), switch=switch))
    assert got.severity == "error"
    assert got.cost_ns_per_step > 50 * c.MS


def test_mp105_off_or_at_work() -> None:
    assert says("MP105", rewriting(c.fallback(100), switch=False)).startswith("not applicable: ")
    assert says("MP105", rewriting(c.fallback(90), c.healthy(10))) == "clear"
    assert says("MP105", rewriting(c.fallback(100), layers=c.HEALTHY_LAYERS)) == "clear"


def test_mp105_needs_records_and_a_trace() -> None:
    assert "no facts of the run were recorded" in says("MP105", c.bare())
    assert "not recorded" in says("MP105", rewriting(c.fallback(100), switch=None))
    records = c.facts("float32", layers=FLOAT32, graph_rewrite=True)
    assert "no trace" in says("MP105", c.case(records=records))


# --- MP408 convolution-3d


def conv3d(*cells):
    return of(c.layer("conv", "Conv3D"), cells=cells)


@pytest.mark.parametrize(("ms", "said"), [(1.1, "clear"), (1.2, "info"), (3.5, "warning"), (23, "error")])
def test_mp408_limits(ms, said) -> None:
    assert says("MP408", conv3d(c.fallback(ms, layer="conv", **OFF))) == said


def test_mp408_on_tensor_cores_without_one_or_unattributed() -> None:
    assert says("MP408", conv3d(c.healthy(30, layer="conv"))) == "clear"
    flat = of(c.layer("conv", "Conv2D"), cells=(c.fallback(30, layer="conv", **OFF),))
    assert says("MP408", flat) == "not applicable: the model has no 16-bit 3-D convolution"
    assert "no kernel in the trace" in says("MP408", conv3d(c.fallback(30, **OFF)))


# --- MP411 attention-unfused


def attention(ms, backend="tensorflow", layer="mha"):
    cells = (c.cell("elementwise", ms, layer=layer, family="softmax"),)
    return of(c.layer("mha", "MultiHeadAttention"), cells=cells, framework={"backend": backend})


@pytest.mark.parametrize(("ms", "said"), [(9.9, "clear"), (10.1, "info"), (60, "info")])
def test_mp411_limits(ms, said) -> None:
    assert says("MP411", attention(ms)) == said


def test_mp411_inner_layers_count_and_other_backends_do_not() -> None:
    assert says("MP411", attention(20, layer="mha/softmax")) == "info"
    assert says("MP411", attention(20, backend="jax")).startswith("not applicable: ")
    assert says("MP411", c.case(account=c.account())).startswith("not applicable: ")
    assert "no kernel in the trace" in says("MP411", attention(20, layer="mha_2"))


SCORES, ROWS = "bfloat16[8,12,301,301]", "bfloat16[8,12,301,64]"
PRODUCT = "(bfloat16[96,301,64];bfloat16[96,64,301])"


def on_torch(*cells):
    work = [replace(each, layer="Block_0/Attention_0") for each in cells]
    return c.case(records=c.facts(framework={"backend": "torch", "loop": "custom"}), account=c.account(*work))


def scores(ms, shapes=SCORES):
    softmax = c.cell("elementwise", ms, family="softmax", op_type="aten::_softmax", shapes=f"({shapes})")
    mask = c.cell("elementwise", ms, op_type="aten::add", shapes=f"({shapes};bfloat16[8,1,1,301])")
    return softmax, mask, c.healthy(20, op_type="aten::bmm", family="gemm", shapes=PRODUCT)


@pytest.mark.parametrize(("ms", "said"), [(2.4, "clear"), (2.6, "info"), (5.1, "warning"), (21, "error")])
def test_mp411_on_torch_is_told_by_the_sizes_of_a_product_and_its_softmax(ms, said) -> None:
    assert says("MP411", on_torch(*scores(ms))) == said


def test_mp411_on_torch_costs_what_works_on_scores_and_no_more() -> None:
    beside = c.cell("elementwise", 30, op_type="aten::add", shapes=f"({ROWS};{ROWS})")
    assert finding("MP411", on_torch(*scores(10), beside)).cost_ns_per_step == pytest.approx(20 * c.MS)


def test_mp411_leaves_the_work_of_projections_out() -> None:
    """A bias, its gradient and their transposes are no work on scores, though they are within attention."""
    of_scores = c.cell("elementwise", 12, layer="mha/softmax", family="softmax")
    of_biases = c.cell("reduce", 40, layer="mha/query", op_type="BiasAddGrad")
    case = of(c.layer("mha", "MultiHeadAttention"), cells=(of_scores, of_biases))
    (ratio,) = (each.value for each in finding("MP411", case).evidence)
    assert ratio == pytest.approx(0.12)


def test_mp411_on_torch_as_many_values_in_other_rows_are_no_scores() -> None:
    """64 tokens and 12 heads of 64: all scores are as many values as the outputs of a projection."""
    softmax, mask, product = scores(10, shapes="bfloat16[8,12,64,64]")
    product = replace(product, shapes="(bfloat16[96,64,32];bfloat16[96,32,64])")
    bias = c.cell("reduce", 30, op_type="aten::sum", shapes="(bfloat16[512,768])")
    assert 8 * 12 * 64 * 64 == 512 * 768
    assert finding("MP411", on_torch(softmax, mask, product, bias)).cost_ns_per_step == pytest.approx(
        20 * c.MS
    )


def test_mp411_on_torch_a_softmax_over_classes_is_none() -> None:
    assert says("MP411", on_torch(*scores(10, shapes="bfloat16[96,1000]"))) == "clear"
    linear = c.healthy(20, op_type="aten::addmm", family="gemm", shapes="(bf16[9];bf16[96,64];bf16[64,301])")
    softmax, mask, _ = scores(10, shapes="bf16[96,301]")
    assert says("MP411", on_torch(softmax, mask, linear)) == "clear"


def test_mp411_on_torch_needs_shapes() -> None:
    softmax, *_ = scores(10)
    assert "record_shapes" in says("MP411", on_torch(replace(softmax, shapes=None)))


# --- MP506 gradient-clipping


@pytest.mark.parametrize(("ms", "said"), [(1.9, "clear"), (2.1, "info"), (10.1, "warning"), (25.1, "error")])
def test_mp506_limits(ms, said) -> None:
    by_type = c.cell("reduce", ms / 2, op_type="L2Loss")
    by_scope = c.cell("optimizer", ms / 2, op="train/clip_by_global_norm/mul")
    assert says("MP506", c.case(account=c.account(by_type, by_scope))) == said


def test_mp506_needs_a_trace() -> None:
    assert "no trace" in says("MP506", c.case())


# --- MP602 preallocation


def memory(used_gib, peak_gib):
    nan = np.full(4, np.nan)
    samples = HardwareTable(
        np.arange(4), np.zeros(4, np.int64), nan, np.full(4, used_gib * 2.0**30), nan, nan, nan, nan, nan, nan,
        ((),) * 4,
    )  # fmt: skip
    table = c.steps()
    summary = c.summary(table, peak_memory_bytes=None if peak_gib is None else int(peak_gib * 2**30))
    return c.case(table=table, run=c.run(c.facts(), table, hardware=samples), steps=summary)


@pytest.mark.parametrize(
    ("used_gib", "peak_gib", "said"),
    [(15, 4, "info"), (15, 8.9, "info"), (15, 9.1, "clear"), (13.5, 4, "clear")],
)
def test_mp602_limits_on_a_card_of_16_gib(used_gib, peak_gib, said) -> None:
    assert says("MP602", memory(used_gib, peak_gib)) == said


def test_mp602_needs_both_figures() -> None:
    assert "is missing" in says("MP602", memory(15, None))
    assert "is missing" in says("MP602", c.case(table=c.steps()))


# --- MP805 geforce-accumulate


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA GeForce RTX 3090", "info"),
        ("NVIDIA GeForce RTX 4080 SUPER", "info"),
        ("NVIDIA GeForce RTX 2080 Ti", "not applicable"),
        ("NVIDIA RTX A6000", "not applicable"),
    ],
)
def test_mp805_by_name(name, said) -> None:
    case = c.case(records=c.facts(device=c.DeviceFacts("gpu", name, "nvidia", (8, 6))))
    assert says("MP805", case).split(":")[0] == said


def test_mp805_needs_a_name_and_mixed_precision() -> None:
    nameless = c.DeviceFacts("gpu", None, "nvidia", (8, 6))
    assert "name is missing" in says("MP805", c.case(records=c.facts(device=nameless)))
    assert says("MP805", c.case(records=c.facts("float32"))).startswith("not applicable: ")
    assert "not recorded" in says("MP805", c.bare())


def test_mp805_without_a_name_by_the_cards_that_the_figures_leave() -> None:
    def card(sm_count, memory_gb):
        memory_bytes = int(0.98 * memory_gb * 2**30)
        return c.DeviceFacts("gpu", None, "nvidia", (8, 6), memory_bytes=memory_bytes, sm_count=sm_count)

    assert says("MP805", c.case(records=c.facts(device=card(82, 24)))) == "info"  # GeForce RTX 3090
    assert says("MP805", c.case(records=c.facts(device=card(84, 48)))).startswith(
        "not applicable: "
    )  # A40 or RTX A6000
    assert says("MP805", c.case(records=c.facts(device=card(84, 24)))) == "info"  # GeForce RTX 3090 Ti
    assert "name is missing" in says("MP805", c.case(records=c.facts(device=card(81, 24))))  # none
    # GeForce RTX 3080 Ti has 12 GB, RTX A5500 and A10G 24.
    assert says("MP805", c.case(records=c.facts(device=card(80, 24)))).startswith("not applicable: ")
    either = c.DeviceFacts("gpu", None, "nvidia", (8, 6), sm_count=80)
    assert "name is missing" in says("MP805", c.case(records=c.facts(device=either)))
