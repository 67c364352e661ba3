"""The sample runs, read as a user's: every account closes, every planted cause is named."""

import json
import re
from pathlib import Path

import pytest

from mpprof.report import json as documents
from tests.builders.simulate import write
from tests.paths import SAMPLES
from tests.samples import NAMES as CASES
from tests.samples import diagnosed
from tests.shares import shares

PAIRS = {
    "v100-convnet-mixed-float16": "v100-convnet-float32",
    "v100-float32-island": "v100-convnet-float32",
    "v100-odd-vocabulary-mixed-float16": "v100-odd-vocabulary-float32",
    "v100-input-bound-mixed-float16": "v100-input-bound-float32",
    "a100-launch-bound-mixed-float16": "a100-launch-bound-float32",
    "v100-loss-scale-thrash": "v100-convnet-float32",
    "a100-tf32-baseline-mixed-float16": "a100-tf32-baseline-float32",
    "gtx1080ti-mixed-float16": "gtx1080ti-float32",
    "recorded-cpu-mixed-float16": "recorded-cpu-float32",
}


def test_every_sample_says_where_it_comes_from() -> None:
    assert len(CASES) >= 18
    for name in CASES:
        origin = json.loads((SAMPLES / name / "origin.json").read_text())
        assert origin["kind"] in ("recorded", "synthetic")
        assert origin["oddity"]
        assert origin["made_by"]
        assert origin["never_compared_with"]


@pytest.mark.parametrize("name", CASES)
def test_the_slices_sum_to_the_step(name: str) -> None:
    document = documents.document(diagnosed(name))
    time, steps = document["time"], document["steps"]
    assert time["step_ns"] == steps["mean_ns"]
    assert sum(s["ns_per_step"] for s in time["slices"]) == pytest.approx(time["step_ns"], abs=1.0)
    for device in time["devices"]:
        assert sum(s["ns_per_step"] for s in device["slices"]) == pytest.approx(device["step_ns"], abs=1.0)


@pytest.mark.parametrize(("name", "baseline"), [*((name, None) for name in CASES), *PAIRS.items()])
def test_no_share_is_above_the_whole(name: str, baseline: str | None) -> None:
    document = documents.document(diagnosed(name, baseline))
    assert {path: value for path, value in shares(document) if not 0 <= value <= 1 + 1e-9} == {}
    time = document["time"]
    assert sum(max(0.0, part["ratio"]) for part in time["slices"]) == pytest.approx(1.0)
    assert all(part["ratio"] <= 1 for part in time["slices"])
    assert all((part["ratio"] < 0) == (part["ns_per_step"] < 0) for part in time["slices"])
    costs = [found["cost_ns_per_step"] or 0.0 for found in document["findings"]]
    assert sum(costs) <= time["step_ns"] * 1.001
    percent = [float(said) for said in re.findall(r"([\d.]+) %", " ".join(document["explanation"]))]
    assert all(value <= 100 for value in percent), document["explanation"]


@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_matmul_sum_to_its_slice(name: str) -> None:
    time = documents.document(diagnosed(name))["time"]
    matmul = [s for s in time["slices"] if s["class"] == "matmul"]
    assert matmul
    for part in matmul:
        assert sum(share["ns_per_step"] for share in part["by"]) == pytest.approx(
            part["ns_per_step"], abs=1.0
        )


@pytest.mark.parametrize(("name", "baseline"), PAIRS.items())
def test_the_slices_of_a_comparison_sum_to_the_gap(name: str, baseline: str) -> None:
    speedup = diagnosed(name, baseline).speedup
    assert speedup.observed == pytest.approx(speedup.baseline_step_ns / diagnosed(name).account.step_ns)
    if any(
        diagnosed(run).unlike for run in (name, baseline)
    ):  # a window that is not like its run splits no gap
        assert not speedup.slices
    elif speedup.gap_ns is not None:
        assert sum(s.ns_per_step for s in speedup.slices) == pytest.approx(speedup.gap_ns, abs=1.0)


def test_the_truncated_sample_is_read_with_a_warning_that_names_the_byte() -> None:
    diagnosis = diagnosed("v100-truncated")
    assert diagnosis.account is not None
    size = next((SAMPLES / "v100-truncated").rglob("*.xplane.pb")).stat().st_size
    assert any(
        "byte" in w
        and any(part.strip(",.:;").isdigit() and int(part.strip(",.:;")) <= size for part in w.split())
        for w in diagnosis.warnings
    )


def test_the_tensor_core_share_of_the_samples() -> None:
    assert diagnosed("v100-convnet-mixed-float16").tensor_core.ratio == pytest.approx(1.0)
    assert diagnosed("v100-convnet-float32").tensor_core.ratio == pytest.approx(0.0)
    assert diagnosed("a100-tf32-baseline-float32").tensor_core.by_precision.keys() == {"tf32"}
    assert diagnosed("gtx1080ti-mixed-float16").tensor_core.ratio == pytest.approx(0.0)
    assert diagnosed("v100-xla-convnet-mixed-float16").tensor_core.ratio == pytest.approx(1.0)
    assert diagnosed("v100-xla-convnet-float32").tensor_core.ratio == pytest.approx(0.0)
    island = diagnosed("v100-float32-island").tensor_core
    assert 0.05 < island.ratio < 0.95
    assert diagnosed("recorded-cpu-mixed-float16").tensor_core.ratio is None


def test_the_allocator_events_of_a_sample_show_the_planted_memory_cause() -> None:
    """As its gradient is computed a batch norm holds three float32 tensors of 64 x 112 x 112 x 64 values: its
    input, which it kept, and two gradients. 16 bits would save half of each."""
    name = "gtx1080ti-mixed-float16"
    diagnosis = diagnosed(name, PAIRS[name])
    memory, steps = diagnosis.memory, diagnosis.steps
    assert (memory.peak_bytes, memory.allocator) == (steps.peak_memory_bytes, "GPU_0_bfc")
    largest = memory.gap[0]
    assert (largest.code, largest.bytes) == ("MP604", pytest.approx(3 * 64 * 112 * 112 * 64 * 2, rel=0.1))
    wide = {
        tensor.op: tensor.bytes
        for tensor in memory.tensors
        if tensor.dtype == "float" and "/batch_norm" in tensor.op
    }
    assert sorted(wide.values())[-3:] == 3 * [64 * 112 * 112 * 64 * 4]
    assert memory.expected_saving_bytes is not None
    assert memory.unexplained_bytes is not None
    assert memory.unexplained_bytes < 0.05 * memory.expected_saving_bytes
    assert sum(part.bytes for part in memory.gap) + (memory.unexplained_bytes or 0) == (
        memory.expected_saving_bytes - (memory.saved_bytes or 0)
    )
    kinds = {item.name: item.bytes for item in memory.at_peak if item.by == "kind"}
    assert {"parameters", "optimizer slots", "gradients", "activations kept for backward"} <= set(kinds)
    assert not {"unknown", "held before the window"} & set(kinds)


def test_a_compiled_sample_says_so_and_names_its_program() -> None:
    from mpprof.traces.common.hlo_program import launches
    from tests.forecasts.make_programs import Case, stored

    for policy in ("float32", "mixed_float16"):
        folder = SAMPLES / f"v100-xla-convnet-{policy.replace('_', '-')}"
        assert "as XLA compiled" in json.loads((folder / "origin.json").read_text())["made_by"]
        program = stored(Case("published_convnet", "v100", policy, 128)).programs["own"]
        (trace,) = folder.rglob("*.xplane.pb")
        written = trace.read_bytes()
        assert program in written
        for work in launches(program):
            assert work.hlo.name.encode() in written


def test_the_synthetic_samples_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    from sample_traces.make import cases

    for name, case in cases().items():
        if case.cut_at is not None:
            continue
        made = write(case.training, tmp_path / name)
        for file in sorted(made.rglob("*.*")):
            if file.is_file():
                assert file.read_bytes() == (SAMPLES / name / file.relative_to(made)).read_bytes(), file
