"""What a trace alone tells of how a training ran is not called "not recorded", nor is what it cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.diagnosis.outcomes import FORWARD_ALONE
from mpprof.model.finding import Diagnosis
from mpprof.report import json as documents
from tests.builders import keras2, unmarked, windows
from tests.builders import precision_oddities as oddities
from tests.builders.read_back import brief, text, without_finding
from tests.traces import kineto


def diagnosed(path: Path) -> Diagnosis:
    return workflows.diagnose(workflows.load(path))


def of_keras(step: keras2.Step, directory: Path) -> Diagnosis:
    path = directory / "host.xplane.pb"
    path.write_bytes(step.to_bytes())
    return diagnosed(path)


def reasons(found: Diagnosis) -> dict[str, str]:
    return {each.code: each.reason for each in (*found.not_applicable, *found.unable)}


def test_a_call_of_a_function_with_kernels_of_ops_is_neither_eager_nor_xla(tmp_path: Path) -> None:
    found = of_keras(keras2.marker_ends_with_a_callbacks_kernel(), tmp_path)
    assert {"MP308", "MP904"} <= set(found.clear)
    assert "MP309" in {*found.clear, *(each.code for each in found.not_applicable)}
    assert not [each for each in found.unable if "`fit`" in each.reason]


def test_without_a_fetch_the_steps_of_a_call_are_not_known(tmp_path: Path) -> None:
    found = of_keras(keras2.marker_shorter_than_the_call(), tmp_path)
    assert "`fit`" in reasons(found)["MP904"]


def test_the_sums_of_metrics_are_not_the_optimizers(tmp_path: Path) -> None:
    """Keras' metrics add to their totals with the op that an optimizer adds with: 300 us here, 50 of the update."""
    step = keras2.Step()
    step.call(14_000)
    step.kernel(keras2.GEMM, 1_000, 1_020, 4_000, op="model/dense/MatMul:MatMul")
    adds = "AssignAddVariableOp_GPU_DT_FLOAT_DT_FLOAT_kernel"
    step.kernel(adds, 5_000, 5_100, 200, op="AssignAddVariableOp:AssignAddVariableOp")
    step.kernel(adds, 5_350, 5_400, 100, op="AssignAddVariableOp_1:AssignAddVariableOp")
    step.kernel(adds, 5_600, 5_700, 50, op="Adam/Adam/AssignAddVariableOp:AssignAddVariableOp")
    found = of_keras(step, tmp_path)
    took = {part.category: part.ns_per_step for part in found.account.main.slices}
    assert took["optimizer"] == pytest.approx(50e3)
    assert took["elementwise"] == pytest.approx(300e3)


def test_several_fetches_in_a_call_are_several_steps(tmp_path: Path) -> None:
    found = of_keras(keras2.several_steps_of_keras_3(per_call=3), tmp_path)
    several = next(each for each in found.findings if each.code == "MP904")
    assert "up to 3 steps" in several.summary


@pytest.mark.parametrize("xla", [False, True])
def test_a_compiled_function_is_not_said_to_miss_xla(xla: bool, tmp_path: Path) -> None:
    step = keras2.Step()
    step.call(14_000)
    step.kernel(keras2.GEMM, 1_000, 1_020, 4_000, op="model/dense/MatMul:MatMul")
    step.kernel(keras2.ADD, 1_100, 5_020, 8_000, op="model/dense/BiasAdd:BiasAdd")
    if xla:
        step.host("tf_Compute/-1779941186", "XlaLaunch:XlaLaunch", 1_150, 50)
    found = of_keras(step, tmp_path)
    assert ("MP309" in found.clear) is xla
    assert ("MP309" in {each.code for each in found.not_applicable}) is not xla


def test_a_float32_run_needs_no_record_of_its_layers_to_have_none_in_16_bits(tmp_path: Path) -> None:
    found = of_keras(keras2.marker_ends_with_a_callbacks_kernel(), tmp_path)
    moot = {each.code: each.reason for each in found.not_applicable}
    for code in ("MP102", "MP104", "MP106", "MP107", "MP402", "MP403", "MP407", "MP408"):
        assert moot[code] == "the run does not compute in 16 bits"


def test_matrix_work_on_the_cpu_is_a_run_on_a_cpu(tmp_path: Path) -> None:
    found = of_keras(keras2.map_function_on_the_steps_threads(), tmp_path)
    moot = {each.code: each.reason for each in found.not_applicable}
    for code in (
        "MP302",
        "MP306",
        "MP309",
        "MP405",
        "MP601",
        "MP801",
        "MP803",
        "MP805",
        "MP907",
        "MP908",
        "MP912",
    ):
        assert moot[code] == "the run used no GPU"
    assert "On a CPU mixed precision says nothing" in found.verdict
    assert not [each for each in found.unable if "GPU" in each.reason and each.code != "MP906"]


def test_a_cpus_ops_beside_the_name_of_a_gpu_are_no_run_on_a_cpu(tmp_path: Path) -> None:
    """A GPU whose events the profiler missed."""
    step = keras2.map_function_on_the_steps_threads()
    step.host("python3", "_Send input 0 from /device:CPU:0 to /device:GPU:0", 400, 1)
    found = of_keras(step, tmp_path)
    assert "device was not recorded" in reasons(found)["MP908"]
    assert "MP302" not in {each.code for each in found.not_applicable}


@pytest.mark.parametrize("code", ["MP101", "MP308", "MP309", "MP904"])
def test_what_keras_is_told_does_not_arise_in_a_trace_of_pytorch(code: str, tmp_path: Path) -> None:
    found = diagnosed(kineto.small().write(tmp_path / "host.pt.trace.json"))
    assert reasons(found)[code] == "the trace shows PyTorch, but not Keras"
    assert code not in {each.code for each in found.unable}
    assert "MP105" in {each.code for each in found.not_applicable}


def test_keras_on_pytorch_is_not_said_to_be_none(tmp_path: Path) -> None:
    trace = kineto.small()
    trace.op("keras/src/backend/torch/trainer.py(254): fit", 2.0, 3.0)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    assert "MP308" in {each.code for each in found.unable}


def test_a_lone_trace_has_one_reason_for_all_that_records_would_tell(tmp_path: Path) -> None:
    document = documents.document(of_keras(keras2.marker_ends_with_a_callbacks_kernel(), tmp_path))
    lines = without_finding.not_judged(document)
    assert sum(without_finding.ONLY_A_TRACE in line for line in lines) == 1
    assert not any("policy was not" in line for line in lines)
    (few,) = [line for line in lines if "step log" in line]
    assert few.startswith("too few steps: 1 in the window")
    said = text.render(document, width=10_000)
    assert said.count("no records of mpprof") == 1
    assert said.count("it is a baseline itself") == 1


def test_a_cpus_report_states_once_that_its_precision_is_not_known(tmp_path: Path) -> None:
    document = documents.document(diagnosed(oddities.cpu_ops_without_types(tmp_path)))
    said = " ".join((*without_finding.not_judged(document), *without_finding.not_applicable(document)))
    assert said.count("precision not known") <= 1


@pytest.mark.parametrize("optimizer", [False, True])
def test_what_only_infers_is_not_asked_for_a_training_in_float32(optimizer: bool, tmp_path: Path) -> None:
    trace = windows.serving()
    if optimizer:
        trace.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 120, 700, 3)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    said = reasons(found)["MP906"]
    assert ("record the same run in float32" in said) is optimizer
    assert ("another run of the same inference" in said) is not optimizer


def test_a_window_without_a_backward_pass_clears_nothing_of_gradients(tmp_path: Path) -> None:
    """A count of a public trace: "optimizer, clipping, loss, exchange of gradients: clear" of a forward pass, in which
    FSDP had only prepared for a backward one."""
    trace = unmarked.layers()
    trace.host("cpu_op", "RegisterPostBackwardFunction", 4_000, 5)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    said = reasons(found)
    assert {said[code] for code in ("MP504", "MP506", "MP507")} == {FORWARD_ALONE.reason}
    assert not {"MP504", "MP506", "MP507"} & set(found.clear)


def remedy(found: Diagnosis, code: str) -> str:
    return next(each.remedy for each in found.findings if each.code == code)


@pytest.mark.parametrize("trains", [False, True])
def test_what_only_infers_is_not_told_to_read_its_loss_less_often(trains: bool, tmp_path: Path) -> None:
    trace = windows.begins_with_an_empty_queue(trains=trains)
    said = remedy(diagnosed(trace.write(tmp_path / "host.pt.trace.json")), "MP311")
    assert ("loss" in said) is trains
    assert ("results" in said) is not trains


@pytest.mark.parametrize(
    ("within", "compiled"),
    [(None, False), ("MyFunction", False), ("CompiledFunction", True), ("CompiledFunctionBackward", True)],
)
def test_what_torch_compile_runs_is_not_told_to_compile(
    within: str | None, compiled: bool, tmp_path: Path
) -> None:
    trace = windows.clones_in_each_step(within=within)
    said = remedy(diagnosed(trace.write(tmp_path / "host.pt.trace.json")), "MP310")
    assert "stay within the device" in said
    assert ("torch.compile" in said) is not compiled


def test_a_float32_inference_is_recorded_in_16_bits_as_inference(tmp_path: Path) -> None:
    each = windows.Request(kernel=windows.WIDE, dtype="float")
    found = diagnosed(windows.serving(each=each).write(tmp_path / "host.pt.trace.json"))
    assert "record the same inference in 16 bits" in reasons(found)["MP906"]


OF_TRAINING = {
    "MP102",
    "MP201",
    "MP203",
    "MP204",
    "MP205",
    "MP206",
    "MP304",
    "MP504",
    "MP506",
    "MP507",
    "MP911",
}


@pytest.mark.parametrize("optimizer", [False, True])
def test_what_trains_nothing_is_not_asked_of_its_loss_scale_updates_or_loss(
    optimizer: bool, tmp_path: Path
) -> None:
    """Twins but for one kernel of an optimizer, which makes a training of the same window."""
    trace = windows.serving()
    if optimizer:
        trace.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 120, 700, 3)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    of_inference = {each.code for each in found.not_applicable if "an inference" in each.reason}
    assert (of_inference >= OF_TRAINING) is not optimizer
    assert bool(of_inference) is not optimizer
    figures = " ".join(brief.figures(documents.document(found), 80))
    assert ("skipped steps" in figures) is optimizer  # in float16, whose loss is scaled


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_scales_no_loss_has_no_scale_to_run_away(dtype: str, tmp_path: Path) -> None:
    each = windows.Request(kernel=windows.WIDE, dtype="float")
    if dtype == "bfloat16":
        each = windows.Request(kernel=windows.HALF.replace("f16f16", "bf16bf16"), dtype="c10::BFloat16")
    trace = windows.serving(each=each)
    trace.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 120, 700, 3)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    assert {"MP201", "MP203", "MP304"} <= {each.code for each in found.not_applicable}
    assert "MP206" in {each.code for each in found.unable}
    assert "skipped" not in " ".join(brief.figures(documents.document(found), 80))


@pytest.mark.parametrize(
    ("python", "op", "infers"),
    [
        ("$lax.py:3378 full", "jit(dot)/dot_general", True),
        ("$lax.py:3378 full", "jit(update)/transpose(jvp(f))/dot_general", False),
        ("$api.py:520 value_and_grad_f", "jit(dot)/dot_general", False),
        ("$lax.py:3378 full", "", False),
        ("PjitFunction(dot)", "jit(dot)/dot_general", False),
    ],
)
def test_of_jax_names_of_products_and_pythons_calls_tell_an_inference(
    python: str, op: str, infers: bool, tmp_path: Path
) -> None:
    """A product without a name, or a window without Python's calls, may hide the gradients."""
    step = keras2.Step()
    step.host("python", python, 1_000, 500)
    step.host("python", "PjitFunction(dot)", 1_010, 100)
    step.kernel(keras2.GEMM, 1_020, 1_040, 4_000, op=op, thread="main")
    found = of_keras(step, tmp_path)
    assert ("MP206" in {each.code for each in found.not_applicable}) is infers


def test_memory_that_the_driver_allocates_in_every_step_is_no_warm_up(tmp_path: Path) -> None:
    """Seen on an AMD card: 292 calls of hipMalloc in each step."""
    found = diagnosed(windows.memory_from_the_driver_in_steps().write(tmp_path / "host.pt.trace.json"))
    (got,) = (each for each in found.findings if each.code == "MP312")
    assert "4 times in every step" in got.summary
    assert got.cost_ns_per_step == pytest.approx(1.2e6, rel=0.05)
    assert "MP901" not in {each.code for each in found.findings}


def test_memory_that_the_driver_allocates_in_the_first_steps_is_warm_up(tmp_path: Path) -> None:
    early = windows.memory_from_the_driver_in_steps(until=3)
    found = {each.code for each in diagnosed(early.write(tmp_path / "host.pt.trace.json")).findings}
    assert ("MP312" in found, "MP901" in found) == (False, True)


@pytest.mark.parametrize("modules", [True, False])
def test_an_evaluation_outside_autocast_is_named(modules: bool, tmp_path: Path) -> None:
    """2 x 4096^3 operations in 5 ms, where the same product takes 0.5 ms in 16 bits: 4.5 of 10 ms to be had."""
    trace = windows.evaluates_outside_autocast(modules=modules)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    (got,) = (each for each in found.findings if each.code == "MP412")
    assert "outside torch.autocast" in got.summary
    assert "no narrower cause" not in got.summary
    assert got.cost_ns_per_step == pytest.approx(4.5e6, rel=0.02)
    assert got.remedies[0].snippet.startswith("with torch.inference_mode(), torch.autocast(")


@pytest.mark.parametrize(("dtype", "gradient"), [("c10::Half", False), ("float", True)])
def test_an_evaluation_in_16_bits_and_a_training_in_float32_are_not_outside_autocast(
    dtype: str, gradient: bool, tmp_path: Path
) -> None:
    trace = windows.evaluates_outside_autocast(dtype=dtype, gradient=gradient)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    said = [each.summary for each in found.findings if each.code == "MP412"]
    assert bool(said) is gradient
    assert not any("autocast" in each for each in said)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("cudaStreamSynchronize", "cudaStreamSynchronize of aten::item"),
        ("cudaMemcpyAsync", "cudaMemcpyAsync of aten::to"),
    ],
)
def test_a_wait_for_the_device_in_mid_step_is_named_by_its_call_and_op(
    call: str, named: str, tmp_path: Path
) -> None:
    """The 60 launches behind it leave the device idle 28 of 30 us each: 1.7 of 10 ms, and the way to them."""
    found = diagnosed(windows.waits_in_mid_step(call=call).write(tmp_path / "host.pt.trace.json"))
    (got,) = (each for each in found.findings if each.code == "MP311")
    assert got.summary.endswith(f"in mid-step the host waits for it, in {named}")
    assert got.gain_ns_per_step == pytest.approx(1.9e6, rel=0.15)
    assert ".item()" in got.remedies[0].text


def test_a_step_bound_by_its_launches_names_the_wait_in_its_evidence(tmp_path: Path) -> None:
    trace = windows.waits_in_mid_step(small=180)  # 5 ms of launching, more than the device works behind them
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    (got,) = (each for each in found.findings if each.code == "MP302")
    assert "cudaStreamSynchronize of aten::item" in [each.value for each in got.evidence]


def test_a_wait_before_a_step_s_first_kernel_is_none_in_mid_step(tmp_path: Path) -> None:
    """Seen in a Qwen inference: what it waits for is the step before."""
    said = []
    for leading in (True, False):
        trace = windows.waits_in_mid_step(call="cudaMemcpyAsync", small=180, leading=leading)
        found = diagnosed(trace.write(tmp_path / f"{leading}.pt.trace.json"))
        said.append([each.value for finding in found.findings for each in finding.evidence])
    assert "cudaMemcpyAsync of aten::to" in said[0]
    assert "cudaMemcpyAsync of aten::to" not in said[1]


def test_a_wait_at_a_step_s_end_is_none_in_mid_step(tmp_path: Path) -> None:
    trace = windows.begins_with_an_empty_queue(trains=True)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    (got,) = (each for each in found.findings if each.code == "MP311")
    assert "mid-step" not in got.summary


@pytest.mark.parametrize(("product", "cause"), [(1_300.0, "MP311"), (300.0, "MP302")])
@pytest.mark.parametrize("ops", [True, False])
def test_between_two_waits_a_launching_host_that_gets_ahead_is_not_what_limits(
    ops: bool, product: float, cause: str, tmp_path: Path
) -> None:
    """Seen in an export of Nsight Systems: parts that repeat, each with a wait. 20 kernels of 5 us, launched every
    30, leave the device idle 504 us, and the way to the first 86; the wait is for a product of this length."""
    trace = windows.begins_with_an_empty_queue(trains=False, marked=False, ops=ops, product=product, steps=8)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    assert found.account.unit == "part"
    (got,) = (each for each in found.findings if each.code in ("MP302", "MP311"))
    assert got.code == cause
    assert got.cost_ns_per_step == pytest.approx(590e3, rel=0.02)
    if cause == "MP311":
        assert "begins to wait for it (cudaDeviceSynchronize)" in got.summary
        assert ".item()" in got.remedies[0].text
        assert found.answer.code == "MP311"
        (read,) = (each.text for each in got.remedies if each.text.startswith("read no value"))
        assert "where more is to be launched" in read  # no step and no loss: nothing trains here


def test_a_wait_that_ends_while_the_device_works_did_not_empty_its_queue(tmp_path: Path) -> None:
    trace = windows.begins_with_an_empty_queue(trains=False, marked=False, steps=8, early=1_000.0)
    found = diagnosed(trace.write(tmp_path / "host.pt.trace.json"))
    assert "MP302" in [each.code for each in found.findings]
    assert "MP311" not in [each.code for each in found.findings]
