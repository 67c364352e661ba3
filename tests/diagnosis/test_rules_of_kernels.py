"""Rules of single layers and kinds of kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.engine import judge
from mpprof.model.account import Cell
from tests.builders import cases as c
from tests.diagnosis.saying import diagnosed, finding, says

OFF = {"precision": "fp16", "kernel": "volta_fp16_scudnn_fp16_128x64", "family": "conv_fprop"}
REACH = 1 - 15.7 / 125  # of a kernel's time, by the peaks of the card


def of(layers, *cells, **facts):
    return c.case(records=c.facts(layers=(*layers, *c.HEALTHY_LAYERS)), account=c.account(*cells), **facts)


# --- MP402 odd-vocabulary


def vocabulary(size, *cells):
    layers = (c.layer("dense"), c.layer("logits", config={"units": size}))
    account = c.account(*cells) if cells else None
    return c.case(records=c.facts(layers=layers), account=account)


def logits(ms, **facts):
    given = {"precision": "fp16", "kernel": "volta_fp16_sgemm_fp16", "layer": "logits", "op": "logits/MatMul"}
    return c.fallback(ms, **{**given, **facts})


@pytest.mark.parametrize(
    ("size", "said"), [(33709, "info"), (33712, "clear"), (8191, "clear"), (8193, "info")]
)
def test_mp402_without_a_trace_it_is_a_possibility(size, said) -> None:
    assert says("MP402", vocabulary(size)) == said


@pytest.mark.parametrize(("ms", "said"), [(1.1, "clear"), (1.2, "info"), (3.5, "warning"), (23, "error")])
def test_mp402_limits_with_a_trace(ms, said) -> None:
    assert says("MP402", vocabulary(33709, logits(ms))) == said


def test_mp402_does_not_clear_a_float32_run() -> None:
    """Its kernels may state `align1`: what its vocabulary costs in 16 bits is not known from it."""
    wide = c.facts("float32", layers=(c.layer("logits", dtype="float32", config={"units": 33709}),))
    slow = c.fallback(30, layer="logits", kernel="cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1")
    given = c.case(records=wide, account=c.account(slow))
    assert says("MP402", given) == "not applicable: the run does not compute in 16 bits"


def test_mp402_on_tensor_cores_all_the_same() -> None:
    fine = c.healthy(30, layer="logits")
    assert says("MP402", vocabulary(33709, fine)) == "clear"
    assert "no kernel in the trace" in says("MP402", vocabulary(33709, c.fallback(30, layer="dense")))
    assert "layers were not recorded" in says("MP402", c.bare())


def test_mp402_on_tensor_cores_in_a_kernel_that_xla_made() -> None:
    """Its name states no alignment, so the size decides, where the product is large and the cost is what it takes
    longer than large aligned products do."""

    def product(tflop: float, kernel: str = "gemm_fusion_dot_34"):
        # 125 TFLOP/s is a V100's peak in 16 bits
        return c.healthy(30, layer="logits", kernel=kernel, flops_per_step=tflop * 1e12, bytes_per_step=1e8)

    found = finding("MP402", vocabulary(33709, product(0.5)))
    assert found.severity == "error"
    assert found.cost_ns_per_step == pytest.approx((30 - 0.5 / 125 * 1e3 / 0.68) * 1e6, rel=0.01)
    assert says("MP402", vocabulary(33712, product(0.5))) == "clear"
    assert (
        says("MP402", vocabulary(33709, product(0.5, "volta_fp16_s884gemm"))) == "clear"
    )  # a library would say so
    assert says("MP402", vocabulary(33709, product(0.006))) == "clear"  # 48 us at the peak


def test_mp402_counts_memory_bound_work_over_odd_rows_in_16_bits_at_the_best_rate_of_its_class() -> None:
    """As on an H100: sums over the logits moved 0.9 to 2 TB/s, and 2.4 to 3 once the rows were padded."""

    def moving(ms: float, megabytes: float | None, shapes: str, category: str = "reduce"):
        return c.cell(category, ms, shapes=shapes, bytes_per_step=megabytes and megabytes * 1e6)

    odd, wide = "(half[4096,33709];half[33709])", "(float[4096,33709])"
    base = (logits(30), moving(1, 500, "(half[4096,512])"))
    alone = finding("MP402", vocabulary(33709, *base)).cost_ns_per_step
    assert alone is not None

    def added(*cells) -> float:
        return (finding("MP402", vocabulary(33709, *base, *cells)).cost_ns_per_step - alone) / 1e6

    assert added(moving(4, 500, odd)) == pytest.approx(3)  # 125 GB/s, where 500 was seen
    assert added(moving(4, 500, "(half[4096,33712])")) == 0
    assert added(moving(4, 500, wide)) == 0
    assert added(moving(4, None, odd)) == 0
    assert added(moving(4, 500, odd, "elementwise")) == 0  # nothing else of its class to go by
    assert added(moving(4, 2_000, odd)) == 0  # itself the fastest of its size


def test_mp402_takes_no_rate_that_the_memory_cannot_give() -> None:
    """A kernel that finds its operands in the cache, or reads a few rows of a table that it names, seems faster
    than the memory; so does one of whose time most belongs to the work beside it."""

    def moving(ms: float, shapes: str, busy_ms: float):
        return c.cell("reduce", ms, shapes=shapes, bytes_per_step=5e8, busy_ns_per_step=busy_ms * 1e6)

    odd = moving(4, "(half[4096,33709])", 4)
    case = vocabulary(33709, logits(30), odd)

    def added(cell, peaks=case.peaks) -> float:
        given = replace(case, account=c.account(logits(30), odd, cell), peaks=peaks)
        return (finding("MP402", given).cost_ns_per_step - alone) / 1e6

    alone = finding("MP402", case).cost_ns_per_step
    wide = "(half[4096,512])"
    assert added(moving(1, wide, 1)) == pytest.approx(3)
    assert added(moving(0.1, wide, 0.1)) == 0  # 5 TB/s, and the memory gives 0.9
    assert added(moving(0.57, wide, 0.57)) == 0  # 97 % of what it gives
    assert added(moving(1, wide, 2)) == pytest.approx(2)  # half of its time is the other stream's
    without = replace(case.peaks, bandwidth_bytes_per_s=None)
    assert added(moving(1, wide, 1), without) == 0


def test_mp402_has_the_cells_and_mp401_says_so() -> None:
    case = vocabulary(33709, logits(30, shapes="(half[512,1024];half[1024,33709])"))
    judgement = judge(case, strict=True)
    assert "MP402" in [f.code for f in judgement.findings]
    assert {u.code: u.reason for u in judgement.unable}["MP401"].startswith("its cost is counted under MP402")


# --- MP403 first-convolution, MP407 grouped-convolution, MP409 bad-algorithm


def first(channels, *cells):
    layers = (c.layer("conv", "Conv2D", input_shape=[None, 224, 224, channels], config={"filters": 64}),)
    return of(layers, *cells)


@pytest.mark.parametrize(
    ("channels", "ms", "said"),
    [
        (3, 2.2, "clear"),
        (3, 2.4, "info"),
        (3, 5.8, "warning"),
        (3, 35, "error"),
        (7, 10, "warning"),
        (8, 10, "clear"),
    ],
)
def test_mp403_limits(channels, ms, said) -> None:
    assert says("MP403", first(channels, c.fallback(ms, layer="conv", **OFF))) == said


def test_mp403_on_tensor_cores_or_without_its_channels() -> None:
    assert says("MP403", first(3, c.healthy(10, layer="conv"))) == "clear"
    assert says("MP403", c.case(account=c.account())).startswith("not applicable: ")  # no convolution at all
    layers = (c.layer("conv", "Conv2D"),)
    assert "channels" in says("MP403", of(layers, c.fallback(10, layer="conv", **OFF)))
    by_kernel = c.fallback(10, layer="conv", shapes="(half[64,224,224,3];half[7,7,3,64])", **OFF)
    assert says("MP403", of(layers, by_kernel)) == "warning"


def later(channels, *cells):
    """A first convolution on Tensor Cores, and a later one that reads so many channels."""
    layers = (
        c.layer("stem", "Conv2D", input_shape=[None, 224, 224, 8], config={"filters": 64}),
        c.layer("of_mask", "Conv2D", input_shape=[None, 56, 56, channels], config={"filters": 32}),
    )
    return of(layers, c.healthy(10, layer="stem"), *cells)


@pytest.mark.parametrize(
    ("channels", "ms", "said"), [(1, 2.2, "clear"), (1, 5.8, "warning"), (8, 10, "clear")]
)
def test_mp403_of_a_convolution_that_is_not_the_first(channels, ms, said) -> None:
    assert says("MP403", later(channels, c.fallback(ms, layer="of_mask", **OFF))) == said


def test_mp403_names_the_later_convolution_and_its_cost() -> None:
    got = finding("MP403", later(1, c.fallback(10, layer="of_mask", **OFF)))
    assert got.layers == ("of_mask",)
    assert got.summary.startswith("of_mask reads 1 channel and runs off")
    assert got.cost_ns_per_step == pytest.approx(10 * REACH * c.MS)
    assert "[0, 7]" in got.remedies[0].snippet


def test_mp403_leaves_channels_that_a_layer_makes_to_that_layer() -> None:
    """As `mpprof audit` does: three filters before three channels are a width to round up (MP401)."""
    case = later(3, c.fallback(10, layer="of_mask", **OFF))
    assert says("MP403", case) == "warning"
    before = c.layer("three", "Conv2D", input_shape=[None, 56, 56, 64], config={"filters": 3})
    layers = (*case.run.facts.model.layers, before)
    case = replace(case, run=c.run(c.facts(layers=layers)))
    assert says("MP403", case) == "clear"


def grouped(groups, *cells):
    return of((c.layer("conv", "Conv2D", config={"groups": groups, "filters": 64}),), *cells)


def test_mp407_claims_the_kernels_and_what_surrounds_them() -> None:
    cells = (c.fallback(20, layer="conv", **OFF), c.cell("layout", 5, layer="conv"))
    got = finding("MP407", grouped(4, *cells))
    assert got.cost_ns_per_step == pytest.approx((20 * REACH + 5) * c.MS)


@pytest.mark.parametrize(("ms", "said"), [(2.2, "clear"), (2.4, "info"), (5.8, "warning"), (23, "error")])
def test_mp407_limits(ms, said) -> None:
    assert says("MP407", grouped(4, c.fallback(ms, layer="conv", **OFF))) == said


def test_mp407_without_groups_on_tensor_cores_or_unattributed() -> None:
    assert says("MP407", grouped(1, c.fallback(20, layer="conv", **OFF))).startswith("not applicable: ")
    assert says("MP407", grouped(4, c.healthy(20, layer="conv"))) == "clear"
    assert "no kernel in the trace" in says("MP407", grouped(4, c.fallback(20, **OFF)))


ALIGNED = "(half[64,56,56,64];half[3,3,64,64])"


@pytest.mark.parametrize(("ms", "said"), [(1.1, "clear"), (1.2, "info"), (3.5, "warning"), (23, "error")])
def test_mp409_limits(ms, said) -> None:
    assert says("MP409", of((), c.fallback(ms, shapes=ALIGNED, **OFF))) == said


def test_mp409_needs_aligned_sizes_that_are_known_and_a_card_that_could() -> None:
    odd = "(half[64,56,56,60];half[3,3,60,64])"
    assert says("MP409", of((), c.fallback(20, shapes=odd, **OFF))) == "clear"
    assert "sizes are not known" in says("MP409", of((), c.fallback(20, **OFF)))
    pascal = c.facts(device=c.DeviceFacts("gpu", "GTX 1080 Ti", "nvidia", (6, 1)))
    work = c.account(c.fallback(20, shapes=ALIGNED, **OFF))
    assert says("MP409", c.case(records=pascal, account=work)).startswith("not applicable: ")
    assert says("MP409", of((), c.healthy(20, shapes=ALIGNED))) == "clear"


# --- MP412 unexplained-fallback


def judged(case):
    return {found.code: found for found in judge(case, strict=True).findings}


def test_mp412_a_16_bit_run_with_most_of_its_step_in_float32_kernels_is_never_silent() -> None:
    """Seen with 63 % of the step, and MP104 and MP402 both clear."""
    layers = (c.layer("embed"), c.layer("head", config={"units": 50257}))
    case = of(layers, c.fallback(50, layer="head"), c.fallback(13, layer="embed"))
    assert (says("MP104", case), says("MP402", case)) == ("clear", "clear")
    found = judged(case)["MP412"]
    assert found.severity == "error"
    assert set(found.layers) == {"head", "embed"}
    assert "head, embed: float16 by its policy, but an fp32 kernel ran" in found.summary
    assert found.cost_ns_per_step == pytest.approx((63 - 63 * 15.7 / 125) * c.MS, rel=0.01)
    assert compose(diagnosed(case)).code == "MP412"


@pytest.mark.parametrize(("ms", "said"), [(2.9, "clear"), (3.1, "info"), (3.6, "warning"), (23, "error")])
def test_mp412_limits(ms, said) -> None:
    # The rest of the matrix work runs at 8 times the rate of such a kernel.
    assert says("MP412", of((), c.fallback(ms, layer="dense"))) == said


def test_mp412_takes_what_narrower_causes_leave() -> None:
    odd = "(half[64,56,56,60];half[3,3,60,64])"
    case = of((), c.fallback(20, shapes=odd, **OFF, layer="dense"), c.fallback(10, layer="dense_1"))
    found = judged(case)
    assert found["MP401"].layers == ("dense",)
    assert found["MP412"].layers == ("dense_1",)
    assert "MP412" not in judged(of((), c.fallback(20, shapes=odd, **OFF, layer="dense")))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"layer": "dense"}, "float16 by its policy, but an fp32 kernel ran"),
        ({"op": "while/dot"}, "while/dot: an fp32 kernel ran, and its layer is not known"),
        ({"layer": "added"}, "an fp32 kernel ran, and the policy of its layer was not recorded"),
        ({"layer": "dense", "inputs": "fp16"}, "the inputs of its op are fp16, but an fp32 kernel ran"),
        ({"layer": "dense", "precision": "fp16"}, "16-bit operands whose sizes are not known"),
        ({"layer": "dense", "precision": "unknown"}, "its name does not state its type"),
        (
            {"layer": "dense", "op_type": "MatMul", "shapes": "(float[64,512];float[512,512])"},
            "the layer's policy computes in float16, but its operands are float32",
        ),
        ({"placement": "tensor_core", "precision": "tf32", "layer": "dense"}, "but a TF32 kernel ran"),
    ],
)
def test_mp412_gives_the_best_explanation_there_is(facts, said) -> None:
    assert said in finding("MP412", of((), c.fallback(30, **facts))).summary


def test_mp412_of_a_kernel_without_a_layer_says_which_layers_it_may_be_of() -> None:
    """In command buffers: a Dense layer stays in float32, and nothing tells whose this kernel is."""
    layers = (c.layer("dense"), c.layer("wide", dtype="float32"), c.layer("dense_1"))
    hidden, shared = c.fallback(30, op="command_buffer_1"), c.fallback(30, candidates=("dense", "wide"))
    assert (
        "may be one of those that stay in float32 (MP104: wide)"
        in finding("MP412", of(layers, hidden)).summary
    )
    assert (
        "an fp32 kernel ran, which belongs to one of these layers: dense, wide"
        in finding("MP412", of(layers, shared)).summary
    )
    assert "cost not known: no kernel in the trace" in finding("MP104", of(layers, hidden)).summary
    assert (
        "cost not known: its kernels (30.0 ms a step) may belong to other layers"
        in finding("MP104", of(layers, shared)).summary
    )


def test_mp104_has_the_cost_of_kernels_that_can_only_be_of_its_layers() -> None:
    layers = (c.layer("wide", dtype="float32"), c.layer("wider", dtype="float32"), c.layer("dense_1"))
    found = judged(of(layers, c.fallback(30, candidates=("wide", "wider"))))
    assert found["MP104"].cost_ns_per_step == pytest.approx((30 - 30 * 15.7 / 125) * c.MS, rel=0.01)
    assert "MP412" not in found


def test_mp412_what_no_tensor_core_takes_is_named_without_a_cost() -> None:
    got = finding("MP412", of((), depthwise(30, layer="dw")))
    assert (got.severity, got.cost_ns_per_step) == ("info", None)
    assert "no product to put on Tensor Cores" in got.summary
    assert got.remedy == "none needed: no matrix unit takes such ops"


def test_mp412_is_about_16_bit_runs_and_cards_with_matrix_units() -> None:
    work = c.account(c.fallback(60, layer="dense"))
    assert says("MP412", c.case(records=c.facts("float32"), account=work)).startswith("not applicable: ")
    pascal = c.facts(device=c.DeviceFacts("gpu", "GTX 1080 Ti", "nvidia", (6, 1)))
    assert says("MP412", c.case(records=pascal, account=work)) == "clear"
    nothing = of((), c.fallback(60, layer="dense"))
    assert says("MP412", replace(nothing, peaks=None)) == "warning"  # what it could be is not known
    emulated = c.case(records=c.facts("mixed_bfloat16"), account=work)  # on a V100: MP804
    assert "no units for bfloat16" in says("MP412", emulated)
    assert says("MP804", emulated) == "error"


# --- MP405 layout, MP406 depthwise, MP501 norms, MP502 elementwise, MP504 optimizer


@pytest.mark.parametrize(("ms", "said"), [(2.9, "clear"), (3.1, "info"), (8.1, "warning"), (25.1, "error")])
def test_mp405_limits(ms, said) -> None:
    assert says("MP405", c.case(account=c.account(c.cell("layout", ms)))) == said


@pytest.mark.parametrize(("family", "first"), [("gemm", "MP501"), ("conv_fprop", "MP405")])
def test_mp405_transposes_of_the_models_own_are_ranked_by_gain_as_norms_are(family, first) -> None:
    """Seen on an H100: 2.8 ms of copies around the heads of a Qwen came before 4.2 ms in its norms."""
    layers = (c.layer("norm", "LayerNormalization"),)
    work = c.cell("elementwise", 14, layer="norm"), c.cell("layout", 5), c.healthy(81, family=family)
    judged = judge(of(layers, *work), strict=True)
    both = [each.code for each in judged.findings if each.code in ("MP405", "MP501")]
    assert both[0] == first
    assert len(both) == 2


@pytest.mark.parametrize(("ms", "said"), [(2.0, "clear"), (2.4, "info")])
def test_mp405_names_transposes_of_a_sixth_of_the_busy_time_in_a_step_that_is_mostly_idle(ms, said) -> None:
    """Seen in a public trace: 17 % of the busy time, below any limit of the whole step."""
    case = c.case(account=c.account(c.cell("idle_other", 86), c.cell("layout", ms), c.healthy(14 - ms)))
    assert says("MP405", case) == said
    if said == "info":
        found = finding("MP405", case)
        assert "17.1 % of the device's work" in found.summary
        assert found.gain_ns_per_step == pytest.approx(2.4 * c.MS)


def test_mp405_does_not_take_concatenations_for_transposes() -> None:
    """Seen on an A100: 2.6 of 3.6 ms of "layout" were `aten::cat`, which no other layout spares."""
    cat = c.cell("layout", 9, kernel="CatArrayBatchedCopy<float, 4>", op_type="aten::cat")
    assert says("MP405", c.case(account=c.account(cat, c.cell("layout", 2.9)))) == "clear"
    found = finding("MP405", c.case(account=c.account(cat, c.cell("layout", 4))))
    assert found.gain_ns_per_step == pytest.approx(4 * c.MS)


def test_mp405_tells_filters_that_convolutions_turn_from_the_layout_of_images() -> None:
    """One transpose of LayoutOptimizer, and convolutions that turn their own filters for most of the time."""
    turned = c.cell("layout", 9, kernel="tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0>")
    put_in = c.cell("layout", 1, op="conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer")
    product = c.fallback(60, family="conv_wgrad")
    found = finding("MP405", c.case(records=c.facts("float32"), account=c.account(turned, put_in, product)))
    assert "of the convolutions' filters" in found.summary
    assert "a larger batch spreads them" in found.remedy
    assert "layout optimizer" not in found.remedy


def depthwise(ms, **facts):
    return c.cell("matmul", ms, family="depthwise", placement="cuda_core", precision="fp16", **facts)


@pytest.mark.parametrize(
    ("before_ms", "ms", "said"),
    [(37, 40, "clear"), (36, 40, "warning"), (15, 40, "error"), (18, 20, "info"), (4.1, 5, "clear")],
)
def test_mp406_against_the_baseline(before_ms, ms, said) -> None:
    # From 10 % more than the baseline's, and 1, 3 and 20 % of the step.
    baseline = c.case(records=c.facts("float32"), account=c.account(depthwise(before_ms)))
    assert says("MP406", c.case(account=c.account(depthwise(ms)), baseline=baseline)) == said


def test_mp406_costs_the_difference_and_needs_a_baseline() -> None:
    baseline = c.case(records=c.facts("float32"), account=c.account(depthwise(15)))
    got = finding("MP406", c.case(account=c.account(depthwise(40)), baseline=baseline))
    assert got.cost_ns_per_step == pytest.approx(25 * c.MS)
    assert "mpprof try" in says("MP406", c.case(account=c.account(depthwise(5.1))))
    assert says("MP406", c.case(account=c.account(depthwise(4.9)))) == "clear"


@pytest.mark.parametrize(("ms", "said"), [(23, "unable"), (30, "error")])
def test_mp406_without_a_baseline_only_what_no_fair_kernel_takes(ms, said) -> None:
    # 2 * 4 * 360 M values, moved twice at 720 GB/s: 8 ms
    row = depthwise(ms, shapes="(half[100,60,60,1000];half[3,3,1000,1])")
    case = c.case(account=c.account(row))
    assert says("MP406", case).startswith(said)
    if said == "error":
        got = finding("MP406", case)
        assert (got.cost_ns_per_step, got.confidence) == (pytest.approx(22 * c.MS), "medium")


def norms(elementwise_ms, cast_ms):
    cells = (c.cell("elementwise", elementwise_ms, layer="bn"), c.cell("cast", cast_ms, layer="bn"))
    return of((c.layer("bn", "BatchNormalization"),), *cells)


@pytest.mark.parametrize(
    ("elementwise_ms", "cast_ms", "said"),
    [(4, 2.9, "clear"), (4, 3.1, "info"), (40, 20.1, "info"), (40, 40.1, "warning"), (38, 61.1, "error")],
)
def test_mp501_is_half_the_norms_and_all_their_casts(elementwise_ms, cast_ms, said) -> None:
    assert says("MP501", norms(elementwise_ms, cast_ms)) == said


@pytest.mark.parametrize(("cast_ms", "said"), [(19.9, "info"), (20.1, "warning"), (40.1, "error")])
def test_mp501_under_xla_a_fifth_is_out_of_the_ordinary(cast_ms, said) -> None:
    layers, fit = (c.layer("bn", "BatchNormalization"),), {"jit_compile": True}
    account = c.account(c.cell("cast", cast_ms, layer="bn"))
    assert says("MP501", c.case(records=c.facts(layers=layers, fit=fit), account=account)) == said


IMAGES, STATISTICS = ("f16", (256, 60, 60, 64)), ("f32", (64,))


def test_mp501_a_norm_that_reads_and_writes_16_bits_has_nothing_to_halve() -> None:
    """What XLA fused computes in float32 within its kernel, and moves 16 bits."""
    fused = c.fusion("convert", "multiply", "add", "convert", operands=[IMAGES, STATISTICS], results=[IMAGES])
    wide = c.fusion("multiply", "add", operands=[("f32", (256, 60, 60, 64))], results=[IMAGES])

    def norm(hlo):
        return c.cell("norm", 30, layer="bn", precision="mixed", hlo=hlo)

    layers = (c.layer("bn", "BatchNormalization"),)
    assert says("MP501", of(layers, norm(fused))) == "clear"
    # Of six bytes a value four are float32: in 16 bits a third less.
    got = finding("MP501", of(layers, norm(wide)))
    assert got.whatif_step_ns == pytest.approx(90 * c.MS)
    assert "casts" not in got.summary


def test_mp501_without_norms_or_without_their_kernels() -> None:
    assert says("MP501", c.case(account=c.account(c.cell("cast", 20)))).startswith("not applicable: ")
    unattributed = of((c.layer("bn", "BatchNormalization"),), c.cell("cast", 20))
    assert "no kernel in the trace" in says("MP501", unattributed)


def test_without_the_layers_casts_of_norms_cannot_be_told_from_others() -> None:
    trace_alone = c.case(records=None, account=c.account(c.cell("cast", 20), c.healthy(60)))
    assert "layers were not recorded" in says("MP501", trace_alone)
    got = finding("MP503", trace_alone)
    assert (got.severity, got.confidence, got.cost_ns_per_step) == ("info", "low", None)
    assert "20.0 %" in got.summary
    assert "layers were not recorded" in got.summary


def test_mp501_has_the_casts_of_norms_and_mp503_the_rest() -> None:
    cells = (c.cell("cast", 8, layer="bn"), c.cell("cast", 7, layer="dense"))
    case = of((c.layer("bn", "BatchNormalization"),), *cells, peaks=None)
    costs = {f.code: f.cost_ns_per_step for f in judge(case, strict=True).findings}
    # Both are below their warnings, a ceiling and no loss: what their remedies would give stands by itself.
    assert (costs["MP501"], costs["MP503"]) == (None, None)
    gains = {
        f.code: 100 * c.MS - f.whatif_step_ns for f in judge(case, strict=True).findings if f.whatif_step_ns
    }
    assert gains == pytest.approx({"MP501": 8 * c.MS, "MP503": 7 * c.MS}, abs=1.0)


@pytest.mark.parametrize(("ms", "said"), [(29.9, "clear"), (30.1, "info")])
def test_mp502_is_only_a_ceiling(ms, said) -> None:
    assert says("MP502", c.case(account=c.account(c.cell("elementwise", ms)))) == said


@pytest.mark.parametrize(("ms", "said"), [(4.9, "clear"), (5.1, "info"), (30.1, "warning"), (50.1, "error")])
def test_mp504_limits(ms, said) -> None:
    assert says("MP504", c.case(account=c.account(c.cell("optimizer", ms)))) == said


def unfused(scale: float, prefix: str = "Optimizer.step#AdamW.step aten::_foreach_"):
    """An update of PyTorch's op by op, each at one rate: 76 bytes a parameter."""
    passes = {"lerp_": 12, "mul_": 8, "addcmul_": 16, "sqrt": 8, "div_": 8, "add_": 8, "addcdiv_": 16}
    return [c.cell("optimizer", scale * size, op=prefix + op) for op, size in passes.items()]


def test_mp504_counts_the_passes_of_an_unfused_update_where_the_parameters_are_not_known() -> None:
    """Seen with 3.8 of 8.5 ms of the device's time, without records, and no finding."""
    got = finding("MP504", c.case(records=None, peaks=None, account=c.account(*unfused(0.5))))
    assert got.severity == "info"
    assert got.gain_ns_per_step == pytest.approx(0.5e6 * (76 - 28))
    fused = [c.cell("optimizer", 38, op="Optimizer.step#AdamW.step aten::_fused_adamw_")]
    assert says("MP504", c.case(records=None, account=c.account(*fused))).startswith("unable")


def test_mp504_leaves_one_pass_over_memory() -> None:
    got = finding("MP504", c.case(account=c.account(c.cell("optimizer", 40))))
    assert got.cost_ns_per_step == pytest.approx(40 * c.MS - 28e6 / 720e9 * 1e9)
    assert "peak rates" in says("MP504", c.case(account=c.account(c.cell("optimizer", 20)), peaks=None))


@pytest.mark.parametrize("code", ["MP304", "MP403", "MP405", "MP409", "MP501", "MP502", "MP504"])
def test_without_a_trace_they_say_what_to_record(code) -> None:
    conv = (c.layer("conv", "Conv2D", input_shape=[None, 8, 8, 3]), *c.HEALTHY_LAYERS)
    assert "profile_steps" in says(code, c.case(records=c.facts(layers=conv)))


# --- MP508 bias-gradient


def bias(ms: float, op_type: str = "BiasAddGrad", layer: str = "logits", precision: str = "fp16") -> Cell:
    return c.cell("reduce", ms, op_type=op_type, layer=layer, precision=precision)


@pytest.mark.parametrize(
    ("forward", "backward", "said"),
    [(4, 5.9, "clear"), (1, 1.9, "clear"), (1, 2.1, "info"), (1, 4.1, "warning"), (1, 21.1, "error")],
)
def test_mp508_without_a_baseline_it_is_held_against_adding_the_same_bias(forward, backward, said) -> None:
    cells = bias(forward, "BiasAdd"), bias(backward)
    assert says("MP508", c.case(account=c.account(*cells))) == said
    if said not in ("clear", "info"):
        assert finding("MP508", c.case(account=c.account(*cells))).cost_ns_per_step == pytest.approx(
            (backward - forward) * c.MS
        )


def test_mp508_with_a_baseline_it_is_held_against_float32_layer_by_layer() -> None:
    """A layer without its like there, and one as fast as there, cost nothing."""
    before = c.case(
        records=c.facts("float32"), account=c.account(bias(2, precision="fp32"), bias(3, layer="conv"))
    )
    cells = bias(32), bias(3.5, layer="conv"), bias(1, layer="new")
    got = finding("MP508", c.case(account=c.account(*cells), baseline=before))
    assert got.cost_ns_per_step == pytest.approx(30 * c.MS)
    assert got.layers == ("logits",)
    assert "16.0x as long as in float32" in got.summary


def test_mp508_a_baseline_in_16_bits_says_nothing_of_float32() -> None:
    before = c.case(account=c.account(bias(31), bias(1, "BiasAdd")))
    got = finding("MP508", c.case(account=c.account(bias(32), bias(2, "BiasAdd")), baseline=before))
    assert got.cost_ns_per_step == pytest.approx(30 * c.MS)
    assert "as long as the kernels that add the same biases" in got.summary
    assert got.confidence == "medium"


def test_mp508_is_unable_where_nothing_is_there_to_hold_it_against() -> None:
    """A convolution adds its bias in a fused kernel, and there is no float32 run."""
    assert "is not known" in says("MP508", c.case(account=c.account(bias(10))))
    assert says("MP508", c.case(account=c.account(bias(2)))) == "clear"
    assert "no bias" in says("MP508", c.case(account=c.account(bias(10, "Sum"))))
