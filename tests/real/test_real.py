"""The runner over real traces runs, its oracle reads what was planted, and each of its checks can fail."""

from pathlib import Path
from typing import Any

import pytest

from tests.paths import SAMPLES
from tests.real import expected, invariants, truth
from tests.real.__main__ import main
from tests.real.commands import Outcome

MS = 1_000_000

try:
    truth.protobuf()
except ModuleNotFoundError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def test_the_runner_runs_every_command_over_sample_traces(capsys: pytest.CaptureFixture[str]) -> None:
    """Two whole traces and a cut one: a line for each, and no command that crashes or answers in no JSON."""
    code = main([str(SAMPLES), "--jobs", "2", "--match", "float32-island"])
    code |= main([str(SAMPLES), "--match", "truncated"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("1 files, ") for line in lines) == 2
    assert code == any(line.startswith("        ") for line in lines)
    assert not [line for line in lines if "traceback" in line or "exit code" in line or "JSON" in line]


def plane(space: Any, name: str) -> Any:
    found = space.planes.add()
    found.name = name
    return found


def line(holder: Any, name: str) -> Any:
    found = holder.lines.add()
    found.name, found.id = name, len(holder.lines)
    return found


def stats(holder: Any, event: Any, values: dict[str, int | str]) -> None:
    for key, value in values.items():
        number = next((n for n, one in holder.stat_metadata.items() if one.name == key), None)
        if number is None:
            number = len(holder.stat_metadata) + 1
            holder.stat_metadata[number].id = number
            holder.stat_metadata[number].name = key
        stat = event.stats.add()
        stat.metadata_id = number
        setattr(stat, "str_value" if isinstance(value, str) else "int64_value", value)


def event(holder: Any, on: Any, name: str, start_us: float, us: float, **values: int | str) -> None:
    number = len(holder.event_metadata) + 1
    holder.event_metadata[number].id = number
    holder.event_metadata[number].name = name
    made = on.events.add()
    made.metadata_id, made.offset_ps, made.duration_ps = number, int(start_us * 1e6), int(us * 1e6)
    stats(holder, made, values)


@pytest.fixture
def callbacks_kernel(tmp_path: Path) -> Path:
    """A call of 10 ms whose last kernel ends at 12 ms, and the summary writer's kernel at 60 ms."""
    space = truth.protobuf().XSpace()
    host, device = plane(space, "/host:CPU"), plane(space, "/device:GPU:0")
    python, executor, data = line(host, "python3"), line(host, "tf_Compute/-17"), line(host, "tf_data")
    stream, marked = line(device, "Stream #13(Compute)"), line(device, "Steps")
    event(host, python, "train_function", 0, 10_000, tracing_count=2)
    event(host, python, "EagerLocalExecute: __inference_train_function_12", 1_000, 8_500)
    event(host, python, "FunctionRun", 1_100, 20, id=7)
    event(host, data, "IteratorGetNextOp::DoCompute", 1_200, 500)
    event(host, executor, "IteratorGetNext/_1:_Send", 1_700, 4_000)
    event(host, executor, "ExecutorState::Process", 1_600, 8_000, id=7)
    event(host, executor, "dense/MatMul:MatMul", 6_000, 100, is_eager=0)
    event(host, executor, "volta_sgemm_128x64_nt", 9_000, 10, correlation_id=1)
    event(device, stream, "volta_sgemm_128x64_nt", 9_020, 2_980, correlation_id=1)
    event(host, data, "ExecutorState::Process", 2_000, 3_000, id=8)
    event(host, data, "GatherV2:GatherV2", 2_000, 2_900, is_eager=0)
    event(host, python, "EagerExecute: LogicalAnd", 59_900, 300)
    event(host, python, "EagerLocalExecute: LogicalAnd", 59_905, 290)
    event(host, python, "void and_kernel<bool>(int)", 59_950, 20, correlation_id=2)
    event(device, stream, "void and_kernel<bool>(int)", 60_000, 3, correlation_id=2)
    event(host, python, "EagerLocalExecute: WriteSummary", 60_500, 40)
    event(device, marked, "0", 9_020, 50_983)
    stats(device, device, {"compute_cap_major": 7, "compute_cap_minor": 5, "core_count": 40})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


def test_a_step_ends_with_its_last_kernel_and_not_with_a_callbacks(callbacks_kernel: Path) -> None:
    read = truth.read(callbacks_kernel)
    assert read.step_count == 1
    assert read.function_ns == 12 * MS
    assert read.marked_step_ns == (50_983_000,)
    assert {one.name: (one.host_ns, one.device_ns) for one in read.between} == {
        "LogicalAnd": (300_000, 3_000),
        "WriteSummary": (40_000, 0),
    }


def test_waiting_is_the_iterators_own_event_and_the_pipelines_ops_are_no_step(callbacks_kernel: Path) -> None:
    read = truth.read(callbacks_kernel)
    assert read.iterator_wait_ns == 500_000
    assert {op.type: op.pipeline for op in read.host_ops} == {"MatMul": False, "GatherV2": True}
    assert read.devices[0].sm_count == 40
    assert read.precision == "float32"


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("volta_sgemm_128x64_nt", {"float"}),
        ("volta_gcgemm_64x32_nt", {"float"}),
        ("volta_h884gemm_256x64_ldg8_nn", {"half"}),
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_wgrad", {"half"}),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_nn", {"bfloat16"}),
        ("void scalar_kernel<round_half_to_even_op<float>, 4>(int)", {"float"}),
        ("nvjet_tst_256x128_64x4", set()),
    ],
)
def test_types_stand_where_a_name_states_them(name: str, types: set[str]) -> None:
    assert truth.types_of(name) == types


def report(**changes: Any) -> dict[str, Any]:
    """A report of the planted trace that has no fault, with `changes` to its account."""
    slices = [
        {"class": "matmul", "ns_per_step": 3.0 * MS, "ratio": 0.25},
        {"class": "idle_launch", "ns_per_step": 9.0 * MS, "ratio": 0.75},
    ]
    time = {
        "basis": "window",
        "step_ns": 12.0 * MS,
        "function_ns": 12.0 * MS,
        "between_steps": [{"name": "WriteSummary", "host_ns": 340_000, "device_ns": 3_000}],
        "slices": slices,
        "devices": [],
    }
    return {
        "run": {},
        "time": time | changes,
        "tensor_core": {"ratio": 0.0, "by_precision": {}, "fallback_ns_per_step": 0.0, "unknown_ratio": 0.0},
        "findings": [],
        "unable": [],
        "clear": [],
        "warnings": [],
        "absent": {"time.idle_between_steps": "one step"},
        "verdict": "",
    }


def faults(path: Path, document: dict[str, Any]) -> list[str]:
    read = truth.read(path)
    checks = (invariants.keys, invariants.slices, invariants.findings)
    return [
        *(fault for check in checks for fault in check(document)),
        *invariants.steps(document, read),
        *invariants.between(document, read),
        *invariants.waits(document, read),
        *invariants.words(document, read, ""),
    ]


def test_a_report_that_says_what_is_so_has_no_fault(callbacks_kernel: Path) -> None:
    assert faults(callbacks_kernel, report()) == []


def test_a_step_that_ends_with_a_callbacks_kernel_is_a_fault(callbacks_kernel: Path) -> None:
    length = 60.0 * MS
    slices = [{"class": "idle_other", "ns_per_step": length, "ratio": 1.0}]
    found = faults(
        callbacks_kernel, report(step_ns=length, function_ns=length, slices=slices, between_steps=[])
    )
    assert any("function_ns is 60.000 ms" in fault for fault in found)
    assert any("between_steps is empty" in fault for fault in found)


def test_a_copy_of_the_batch_is_no_wait_for_input(callbacks_kernel: Path) -> None:
    slices = [
        {"class": "idle_input", "ns_per_step": 4.5 * MS, "ratio": 4.5 / 12},
        {"class": "idle_launch", "ns_per_step": 7.5 * MS, "ratio": 7.5 / 12},
    ]
    assert any("idle_input is 4.500 ms" in fault for fault in faults(callbacks_kernel, report(slices=slices)))


def test_slices_that_do_not_sum_and_ones_above_the_step_are_faults(callbacks_kernel: Path) -> None:
    slices = [{"class": "profiling", "ns_per_step": 13.0 * MS, "ratio": 13 / 12}]
    found = faults(callbacks_kernel, report(slices=slices))
    assert any("sum to" in fault for fault in found)
    assert any("profiling" in fault for fault in found)


def test_a_window_that_does_not_close_or_that_costs_a_step_is_a_fault() -> None:
    part = {"class": "idle_other", "ns": 5.0 * MS, "ratio": 0.5}
    window = {"span_ns": 10.0 * MS, "device": "run", "slices": [part, part], "devices": []}
    whole = report() | {"time": None, "window": window}
    assert not [*invariants.window(whole)]
    cost = {"code": "MP310", "cost_ns_in_window": 1.0, "cost_ns_per_step": 1.0}
    open_ = report() | {"window": window | {"slices": [part]}, "findings": [cost]}
    assert len([*invariants.window(open_)]) == 3


def test_a_missing_key_and_advice_for_the_other_precision_are_faults(callbacks_kernel: Path) -> None:
    document = report()
    del document["time"]["function_ns"]
    document["unable"] = [{"code": "MP802", "reason": "record the same training in float32"}]
    document["clear"] = ["MP802"]
    found = faults(callbacks_kernel, document)
    assert "missing key time.function_ns" in found
    assert "MP802 has several outcomes" in found
    assert any("advice to record float32" in fault for fault in found)
    assert any("no GTX 16" in fault for fault in found)


def row(name: str, placement: str, total_ns: float, ratio: float) -> dict[str, Any]:
    return {
        "name": name, "placement": placement, "total_ns": total_ns, "ratio": ratio, "calls": 1, "device": "/device:GPU:0"
    }  # fmt: skip


def test_a_tensor_core_without_evidence_and_a_total_that_is_not_the_raw_sum_are_faults(
    callbacks_kernel: Path,
) -> None:
    read = truth.read(callbacks_kernel)
    rows = [
        row("volta_sgemm_128x64_nt", "cuda_core", 2_980_000, 0.999),
        row("void and_kernel<bool>(int)", "not_matmul", 3_000, 0.001),
    ]
    assert list(invariants.kernels(rows, read)) == []
    rows[0]["placement"], rows[1]["total_ns"] = "tensor_core", 9_000
    found = list(invariants.kernels(rows, read))
    assert any("without evidence" in fault for fault in found)
    assert any("raw events" in fault for fault in found)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (Outcome("kernels", None, "", ""), "no end"),
        (Outcome("kernels", 1, "", "IndexError"), "exit code 1"),
        (Outcome("kernels", 1, "", "Traceback (most recent call last)\nIndexError"), "traceback: IndexError"),
        (Outcome("memory", 2, "", "one\ntwo"), "2 lines"),
        (Outcome("report json", 0, '{"a": NaN}', ""), "no strict JSON"),
        (Outcome("report text", 0, "a step takes nan ms", ""), "prints nan"),
        (Outcome("report text", 2, "", "no step"), "healthy trace is refused"),
    ],
)
def test_a_command_that_ends_badly_is_a_fault(outcome: Outcome, fault: str) -> None:
    assert any(fault in found for found in invariants.outcome(outcome, healthy=True))


def test_an_observed_speedup_of_single_steps_is_a_fault(callbacks_kernel: Path) -> None:
    read = truth.read(callbacks_kernel)
    assert list(invariants.compared({"steps": [{"observed": 0.77}]}, [read, read]))
    assert not list(invariants.compared({"steps": [{"observed": None}]}, [read, read]))


def test_the_expectations_name_their_sources_and_hold_a_report_to_them() -> None:
    wanted = expected.expectations()
    assert len(wanted) == 8
    assert all("/" in one["repository"] and one["directory"].startswith("logs/") for one in wanted.values())
    known = next(sha256 for sha256, one in wanted.items() if one["main_reason"] == "launch")
    document = report() | {"findings": [{"code": "MP801", "title": "", "cost_ns_per_step": None}]}
    found = list(expected.check(known, document, []))
    assert "MP302 is not found" in found
    assert any(fault.startswith("MP801 is found") for fault in found)
    assert list(expected.check("unknown", document, [])) == []
