"""Placement: the evidence ladder over traces, real ones where they are, hand-made ones for each rung."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.kernels.placement import place
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import Family, Placements, Reason, Verdict
from mpprof.model.trace import (
    AllocationTable,
    HloInstruction,
    HostTable,
    KernelTable,
    MarkerTable,
    Op,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
    WorkKind,
)
from tests.paths import NO_TRACES, SHARED

V100 = DeviceFacts("gpu", "Tesla V100-SXM2-16GB", "nvidia", (7, 0))
A100 = DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0))
GTX = DeviceFacts("gpu", "NVIDIA GeForce GTX 1660 Ti", "nvidia", (7, 5))
MI300 = DeviceFacts("gpu", None, "amd", (9, 4))
TPU = DeviceFacts("tpu", "TPU v4", "google")
CPU = DeviceFacts("cpu")

Row = tuple[str, Op | None, str]


def trace(
    rows: list[Row], facts: DeviceFacts = V100, *, basis: str = "device", kind: WorkKind = WorkKind.KERNEL
) -> Trace:
    """A trace with one kernel (name, op, shapes) per row on one device."""
    strings: list[str] = []
    ops: list[Op] = []

    def text(value: str) -> int:
        if value not in strings:
            strings.append(value)
        return strings.index(value)

    def row_of(op: Op | None) -> int:
        if op is None:
            return -1
        if op not in ops:
            ops.append(op)
        return ops.index(op)

    n = len(rows)
    long, short = np.full(n, -1, np.int64), np.full(n, -1, np.int32)
    kernels = KernelTable(
        device=np.zeros(n, np.int32),
        stream=np.zeros(n, np.int32),
        start_ns=np.arange(n, dtype=np.int64),
        duration_ns=np.ones(n, np.int64),
        kind=np.full(n, kind, np.int8),
        name=np.array([text(name) for name, _, _ in rows], np.int32),
        op=np.array([row_of(op) for _, op, _ in rows], np.int32),
        correlation=long,
        launch=short,
        shapes=np.array([text(shapes) if shapes else -1 for _, _, shapes in rows], np.int32),
        details=short,
        copy=np.full(n, -1, np.int8),
        bytes=long,
        graph=long,
        group=long,
    )
    none64, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    no_bool, no_8 = np.zeros(0, np.bool_), np.zeros(0, np.int8)
    return Trace(
        source=TraceSource(Path("made.xplane.pb"), "xspace", 0),
        origin_unix_ns=None,
        strings=tuple(strings),
        devices=(TraceDevice("/device:GPU:0", 0, facts),),
        streams=(Stream(0, 7, "Stream #7"),),
        threads=(),
        ops=tuple(ops),
        kernels=kernels,
        host=HostTable(none32, none64, none64, no_8, none32, none32, none64),
        markers=MarkerTable(none64, none64, none64, none32, none32),
        allocations=AllocationTable(
            none64,
            no_bool,
            none32,
            none64,
            none64,
            none64,
            none64,
            none64,
            none64,
            none32,
            none32,
            none32,
            none32,
        ),
        basis=basis,
    )


def one(
    name: str, op: Op | None = None, shapes: str = "", facts: DeviceFacts = V100, **how: object
) -> Verdict:
    """The verdict of a trace with this one kernel."""
    placements = place(trace([(name, op, shapes)], facts, **how))  # type: ignore[arg-type]
    return placements.verdicts[placements.index[0]]


def dot(dtype: str) -> HloInstruction:
    return HloInstruction("m", "dot.1", "dot", "", dtype, (8, 8), (dtype, dtype), ((8, 8), (8, 8)))


def fusion(*inside: HloInstruction, dtype: str = "bf16") -> HloInstruction:
    return HloInstruction("m", "fusion.1", "fusion", "", dtype, (8, 8), (dtype, dtype), (), inside)


def step(opcode: str) -> HloInstruction:
    return HloInstruction("m", f"{opcode}.1", opcode, "", "bf16", (8, 8), (), ())


# Shape of the answer -------------------------------------------------------------------------------------------


def test_an_empty_trace_has_no_verdicts() -> None:
    placements = place(trace([]))
    assert placements.verdicts == ()
    assert len(placements.index) == 0


def test_every_row_gets_its_own_verdict_and_equal_rows_share_one() -> None:
    rows: list[Row] = [
        ("volta_sgemm_32x32_tn", None, ""),
        ("foo", None, ""),
        ("volta_sgemm_32x32_tn", None, ""),
    ]
    placements = place(trace(rows))
    assert [placements.verdicts[i].placement for i in placements.index] == [
        "cuda_core",
        "unknown",
        "cuda_core",
    ]
    assert len(placements.verdicts) == 2


# Counters ------------------------------------------------------------------------------------------------------


def test_counters_outrank_the_name_and_say_what_spoke_against_them() -> None:
    counted = Verdict("cuda_core", "unknown", "other", Reason("counter", "0 tensor instructions"), "counter")
    made = trace([("volta_h884gemm_64x64_nn", None, "")])
    placements = place(made, {("volta_h884gemm_64x64_nn", "Tesla V100-SXM2-16GB"): counted})
    verdict = placements.verdicts[0]
    assert (verdict.placement, verdict.precision, verdict.family) == ("cuda_core", "fp16", "gemm")
    assert verdict.strength == "counter"
    assert "contradiction" in verdict.reason.text


def test_counters_leave_the_family_to_the_op() -> None:
    counted = Verdict("tensor_core", "fp16", "gemm", Reason("counter-tensor", "counted"), "counter")
    made = trace([("somebodys_kernel", Op("attention/Mha", "Mha"), "")], V100)
    (verdict,) = place(made, {("somebodys_kernel", ""): counted}).verdicts
    assert (verdict.placement, verdict.family, verdict.strength) == ("tensor_core", "attention", "counter")


def test_counters_of_another_card_are_not_used() -> None:
    counted = Verdict("cuda_core", "unknown", "other", Reason("counter", "0"), "counter")
    placements = place(
        trace([("volta_h884gemm_64x64_nn", None, "")]), {("volta_h884gemm_64x64_nn", "T4"): counted}
    )
    assert placements.verdicts[0].placement == "tensor_core"


# Name and op ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "family"),
    [("Conv2D", "conv_fprop"), ("Conv2DBackpropInput", "conv_dgrad"), ("Conv2DBackpropFilter", "conv_wgrad")],
)
def test_the_op_gives_the_direction_that_a_gemm_name_lacks(op_type: str, family: Family) -> None:
    verdict = one("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", Op("c", op_type), facts=A100)
    assert (verdict.placement, verdict.family) == ("tensor_core", family)


@pytest.mark.parametrize("stated", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("op_type", ["Conv2D", "Conv2DBackpropInput", "conv_general_dilated"])
def test_a_direction_that_the_kernels_name_states_stays(stated: str, op_type: str) -> None:
    """JAX calls all three `conv_general_dilated`, the gradients under `transpose(jvp(…))`."""
    op = Op(f"jit(train_step)/transpose(jvp(conv2d_1))/{op_type}", "")
    for name in (
        f"sm90_xmma_{stated}_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x32x64_warpgroupsize2x1x1_g1_strided_execute_kernel__5x_cudnn",
        f"void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816{stated}_optimized_f16_256x64_32x4_nhwc_align8>(T1::Params)",
    ):
        assert one(name, op, facts=A100).family == f"conv_{stated}"


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sixteen_bits_in_a_cudnn_engines_name_are_told_by_the_custom_call(dtype: str) -> None:
    """`f16` stands in the name beside bfloat16 operands too."""
    name = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
    call = HloInstruction(
        "m", "custom-call.3", "custom-call", "a/dot_product_attention", dtype, (8,), (dtype,) * 3, ((8,),) * 3,
        custom_call="__cudnn$fmhaSoftmax",
    )  # fmt: skip
    told = one(name, Op("a/dot_product_attention", "custom-call", call), facts=A100)
    assert (told.placement, told.precision) == ("tensor_core", {"bf16": "bf16", "f16": "fp16"}[dtype])
    open_ = one(name, Op("command_buffer_1", ""), facts=A100)
    assert (open_.placement, open_.precision) == ("tensor_core", "unknown")
    assert "16 bits, half or bfloat16" in open_.reason.text


@pytest.mark.parametrize(
    ("dtypes", "precision"), [(("f16", "f16"), "fp16"), (("bf16", "bf16"), "bf16"), (("f16", "bf16"), "unknown"), ((), "unknown")]
)  # fmt: skip
def test_attention_in_a_command_buffer_is_of_the_type_of_all_its_programs_calls(
    dtypes: Sequence[str], precision: str
) -> None:
    """Seen on an H100: of a kernel in a command buffer the trace names no instruction, and the kernel's name only
    its 16 bits."""
    fmha = [
        HloInstruction(
            "m", f"call.{at}", "custom-call", "", dtype, (8,), (dtype,) * 3, ((8,),) * 3,
            custom_call=f"__cudnn$fmhaSoftmax{'Backward' * at}",
        )
        for at, dtype in enumerate(dtypes)
    ]  # fmt: skip
    product = HloInstruction(
        "m",
        "dot",
        "custom-call",
        "",
        "f32",
        (8,),
        ("f32",) * 2,
        ((8,),) * 2,
        custom_call="__cublas$lt$matmul",
    )
    called = [Op(each.name, each.opcode, each) for each in (product, *fmha)]
    buffer = Op("command_buffer_1", "", candidates=tuple(range(len(called))))
    name = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0"
    placed = place(trace([*(("call", op, "") for op in called), (name, buffer, "")], A100))
    found = placed.verdicts[placed.index[-1]]
    assert (found.placement, found.precision) == ("tensor_core", precision)


def test_shapes_complete_the_precision() -> None:
    verdict = one("loop_add_fusion", Op("a/add", "Add"), "(half[8,8];half[8,8])")
    assert (verdict.placement, verdict.precision) == ("not_matmul", "fp16")


def test_a_contradiction_is_shown_and_the_stronger_evidence_stays() -> None:
    verdict = one("volta_sgemm_128x64_nn", Op("d/MatMul", "MatMul"), "(half[8,8];half[8,8])")
    assert verdict.placement == "cuda_core"
    assert verdict.precision == "fp32"
    assert "contradiction: the name says fp32, the op's tensors are fp16" in verdict.reason.text


def test_tf32_is_how_float32_is_multiplied_and_no_contradiction() -> None:
    verdict = one("ampere_s1688gemm_64x64_nn", Op("d/MatMul", "MatMul"), "(float[8,8];float[8,8])", A100)
    assert verdict.precision == "tf32"
    assert "contradiction" not in verdict.reason.text


def test_an_op_of_a_known_type_decides_for_a_nameless_kernel() -> None:
    verdict = one("kernel_17", Op("a/Cast", "Cast"), "(float[8])")
    assert (verdict.placement, verdict.family, verdict.strength) == ("not_matmul", "cast", "op")


def test_a_nameless_kernel_of_a_matrix_op_stays_open() -> None:
    verdict = one("kernel_17", Op("d/MatMul", "MatMul"), "(half[8,8];half[8,8])")
    assert (verdict.placement, verdict.family, verdict.precision) == ("unknown", "gemm", "fp16")


@pytest.mark.parametrize(
    ("op", "family"),
    [
        (Op("StatefulPartitionedCall/adam/Mul_3", "Mul"), "optimizer"),
        (Op("StatefulPartitionedCall/loss_scale_optimizer/Mul", "Mul"), "loss_scale"),
        (Op("model/dense/Mul", "Mul"), "elementwise"),
    ],
)
def test_the_scope_says_whose_work_it_is(op: Op, family: Family) -> None:
    assert one("Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", op, "(float[8])").family == family


def test_mpprofs_own_copies_are_its_own() -> None:
    op = Op("jit(step)/mpprof/copy", "copy")
    assert one("MemcpyD2D", op, kind=WorkKind.MEMCPY).family == "mpprof"
    assert one("loop_copy_fusion", op).family == "mpprof"


def test_copies_and_memsets_are_what_the_collector_calls_them() -> None:
    assert one("anything", kind=WorkKind.MEMCPY).family == "copy"
    assert one("anything", kind=WorkKind.MEMSET).family == "memset"


# Cards -----------------------------------------------------------------------------------------------------------


def test_a_turing_card_without_tensor_cores_runs_none() -> None:
    verdict = one("turing_fp16_s1688gemm_fp16_128x64_tn", facts=GTX)
    assert verdict.placement == "cuda_core"
    assert "GTX 1660 Ti" in verdict.reason.text


# HLO -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "facts", "placement", "precision"),
    [
        ("bf16", A100, "tensor_core", "bf16"),
        ("f16", V100, "tensor_core", "fp16"),
        ("bf16", V100, "cuda_core", "bf16"),
        ("f32", A100, "unknown", "fp32"),
        ("f16", GTX, "cuda_core", "fp16"),
        ("bf16", MI300, "matrix_core", "bf16"),
        ("bf16", TPU, "matrix_core", "bf16"),
    ],
)
def test_a_triton_product_is_judged_by_its_hlo_and_card(
    dtype: str, facts: DeviceFacts, placement: str, precision: str
) -> None:
    verdict = one(
        "gemm_fusion_dot_3", Op("jit(f)/dot_general", "fusion", fusion(dot(dtype), dtype=dtype)), "", facts
    )
    assert (verdict.placement, verdict.precision, verdict.family) == (placement, precision, "gemm")


@pytest.mark.parametrize(
    ("asked", "facts", "placement", "precision"),
    [
        ("default", A100, "tensor_core", "tf32"),
        ("high", A100, "cuda_core", "fp32"),
        ("highest", A100, "cuda_core", "fp32"),
        ("", A100, "unknown", "fp32"),
        ("default", V100, "cuda_core", "fp32"),
        ("", V100, "cuda_core", "fp32"),
    ],
)
def test_a_float32_product_of_xla_is_tf32_where_card_and_asked_precision_allow_it(
    asked: str, facts: DeviceFacts, placement: str, precision: str
) -> None:
    product = replace(dot("f32"), precision=asked)
    verdict = one(
        "gemm_fusion_dot_3", Op("jit(f)/dot_general", "fusion", fusion(product, dtype="f32")), "", facts
    )
    assert (verdict.placement, verdict.precision) == (placement, precision)


@pytest.mark.parametrize(
    ("inside", "family"),
    [
        (("multiply", "convert"), "elementwise"),
        (("convert",), "cast"),
        (("transpose", "bitcast"), "layout"),
        (("reduce", "add"), "reduce"),
        (("scatter", "add"), "gather_scatter"),
    ],
)
def test_a_fusion_is_what_its_instructions_are(inside: tuple[str, ...], family: Family) -> None:
    op = Op("jit(f)/x", "fusion", fusion(*(step(opcode) for opcode in inside)))
    verdict = one("fusion_5", op)
    assert (verdict.placement, verdict.family, verdict.strength) == ("not_matmul", family, "op")
    assert one("loop_convert_fusion", op).family == family


@pytest.mark.parametrize("leaf", ["convert_element_type", "transpose", "Cast"])
def test_a_fusion_whose_root_converts_is_a_cast_only_if_that_is_all_it_does(leaf: str) -> None:
    """`loop_convert_fusion` of a batch norm on an H100 clamps, multiplies, adds, and converts in the end."""
    norm = fusion(*(step(opcode) for opcode in ("maximum", "convert", "multiply", "add", "convert")))
    assert one("loop_convert_fusion", Op(f"jit(f)/jvp(bn)/{leaf}", "fusion", norm)).family == "elementwise"
    cast = fusion(step("convert"))
    assert one("loop_convert_fusion", Op("jit(f)/convert_element_type", "fusion", cast)).family == "cast"


def test_cudnns_conversions_to_tf32_help_a_convolution_and_others_cast() -> None:
    name = "void cudnn::engines_precompiled::convertTensor_kernel<{}, {}, float, (cudnnKernelDataType_t)2>(float)"
    rounds, casts = one(name.format("float", "float")), one(name.format("__half", "float"))
    assert (rounds.placement, rounds.family, casts.family) == ("not_matmul", "conv_fprop", "cast")


def test_a_library_call_is_not_judged_by_its_hlo() -> None:
    call = HloInstruction(
        "m", "custom-call.1", "custom-call", "", "bf16", (8,), ("bf16",), (), (), "__cublas$gemm"
    )
    assert one("something", Op("jit(f)/dot_general", "custom-call", call)).placement == "unknown"


# The host --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "placement", "family"),
    [
        (Op("m/dense/MatMul", "MatMul"), "cpu", "gemm"),
        (Op("m/conv/Conv2D", "Conv2D"), "cpu", "conv_fprop"),
        (Op("m/relu/Relu", "Relu"), "not_matmul", "elementwise"),
        (Op("dot.3", "dot", dot("f32")), "cpu", "gemm"),
        (Op("m/x/MyOwnOp", "MyOwnOp"), "unknown", "other"),
    ],
)
def test_products_on_a_cpu_have_a_placement_of_their_own(op: Op, placement: str, family: Family) -> None:
    verdict = one(op.name, op, facts=CPU, basis="host")
    assert (verdict.placement, verdict.family) == (placement, family)


# Real traces -------------------------------------------------------------------------------------------------------


def _read(name: str) -> Trace:
    path = SHARED / name
    if not path.exists():
        pytest.skip(NO_TRACES)
    return traces.read(path)


def _shares(made: Trace, placements: Placements) -> Counter[str]:
    total = made.kernels.duration_ns.sum()
    by_verdict = np.bincount(placements.index, made.kernels.duration_ns, len(placements.verdicts)) / total
    shares: Counter[str] = Counter()
    for verdict, share in zip(placements.verdicts, by_verdict.tolist(), strict=True):
        shares[verdict.placement] += share
        shares[verdict.precision] += share
    return shares


def test_the_v100_bert_has_16_bit_work_and_no_matrix_kernel() -> None:
    made = _read("v100-8gpu-bert-fp16/host.xplane.pb")
    shares = _shares(made, place(made))
    assert shares["fp16"] > 0.5
    assert shares["not_matmul"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("jax08_gemm", 0.9),
        ("jax08_attention", 0.4),
        ("jax_conv_minimal_08", 0.4),
        ("te_fused_attention_gfx950", 0.8),
    ],
)
def test_matrix_work_on_mi300_runs_on_matrix_cores(name: str, least: float) -> None:
    made = _read(f"mi300-jax/{name}.xplane.pb")
    shares = _shares(made, place(made))
    assert shares["matrix_core"] > least
    assert shares["tensor_core"] == 0
    assert shares["unknown"] < 0.1  # of precisions; placements are all known
    assert not [v for v in place(made).verdicts if v.placement == "unknown"]


def test_a_gtx_1080_ti_has_no_tensor_core_work() -> None:
    made = _read("gtx1080ti-xla/cyclops.xplane.pb")
    shares = _shares(made, place(made))
    assert shares["tensor_core"] == 0
    assert shares["not_matmul"] == pytest.approx(1)


@pytest.mark.parametrize(
    "run", ["v100-convnet-mixed-float16", "a100-tf32-baseline-float32", "gtx1080ti-mixed-float16"]
)
def test_the_samples_have_nothing_unknown(run: str) -> None:
    root = Path(__file__).resolve().parents[3] / "sample_traces" / run
    found = traces.find_traces(root) if root.exists() else ()
    if not found:
        pytest.skip(f"no trace under {root}")
    made = traces.read(found[-1])
    assert not [v for v in place(made).verdicts if v.placement == "unknown"]
    if run.startswith("gtx"):
        assert not [v for v in place(made).verdicts if v.placement == "tensor_core"]
