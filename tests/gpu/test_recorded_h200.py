"""What one H200 recorded under TensorFlow without XLA: the sample runs of 2026-11-28, read as a user's.

Expected values come from TensorFlow's protobuf of the trace and from a clock around a fit without mpprof, not from
mpprof's tables.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests import samples
from tests.paths import SAMPLES

STEPS = 5  # profiled ones
CLOCK_MS = {
    "float32": 35.4,
    "mixed-float16": 88.5,
}  # `clock_step_ns` of tools.gpu.models, printed at the recording


def run(policy: str) -> Path:
    return SAMPLES / f"recorded-h200-transformer-{policy}"


def diagnosed(policy: str, baseline: str | None = None) -> Diagnosis:
    return samples.diagnosed(run(policy).name, run(baseline).name if baseline else None)


@cache
def space(policy: str):  # type: ignore[no-untyped-def]
    """The trace, by TensorFlow's protobuf."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    (path,) = run(policy).rglob("*.xplane.pb.gz")
    found = xplane_pb2.XSpace()
    found.ParseFromString(gzip.decompress(path.read_bytes()))
    return found


@cache
def kernels(policy: str) -> tuple[tuple[str, float], ...]:
    """Name and milliseconds a step of each event of the GPU's streams, by TensorFlow's protobuf."""
    (plane,) = [plane for plane in space(policy).planes if plane.name == "/device:GPU:0"]
    names, streams = plane.event_metadata, [line for line in plane.lines if line.name.startswith("Stream")]
    return tuple((names[e.metadata_id].name, e.duration_ps / 1e9 / STEPS) for s in streams for e in s.events)


def milliseconds(policy: str, wanted: str) -> float:
    return sum(ms for name, ms in kernels(policy) if wanted in name)


@pytest.mark.parametrize("policy", CLOCK_MS)
def test_the_step_is_that_of_the_clock_around_a_fit_without_mpprof(policy: str) -> None:
    steps = diagnosed(policy).steps
    assert steps.mean_ns is not None
    assert steps.mean_ns / 1e6 == pytest.approx(CLOCK_MS[policy], rel=0.03)


@pytest.mark.parametrize("baseline", [None, "float32"])
def test_atomics_that_sum_the_gradients_of_biases_lead_with_their_time(baseline: str | None) -> None:
    """They took 33 times as long as in float32, in a run of 0.40x whose Tensor Core share is 100 %."""
    found = diagnosed("mixed-float16", baseline)
    assert found.answer.code == "MP508"
    assert found.answer.leads == "time"
    (finding,) = [each for each in found.findings if each.code == "MP508"]
    took = milliseconds("mixed-float16", "BiasGradNHWC")
    needs = (
        milliseconds("float32", "BiasGradNHWC")
        if baseline
        else milliseconds("mixed-float16", "BiasNHWCKernel")
    )
    assert finding.cost_ns_per_step is not None
    assert finding.cost_ns_per_step / 1e6 == pytest.approx(took - needs, rel=0.01)
    assert finding.layers[0] == "dense_8"


@pytest.mark.parametrize("baseline", [None, "float32"])
def test_the_odd_head_costs_what_a_padded_one_would_save(baseline: str | None) -> None:
    """Its three products take 6.49 ms and would take 0.86 at the peak; padded ones on an H100 reach 68 to 81 % of it."""
    found = {each.code: each for each in diagnosed("mixed-float16", baseline).findings}
    took, peak = milliseconds("mixed-float16", "align1"), 3 * 2 * 8192 * 33709 * 512 / 989.5e12 * 1e3
    cost = (found["MP402"].cost_ns_per_step or 0.0) / 1e6
    assert took - peak / 0.6 < cost < took - peak / 0.9
    assert found["MP402"].layers == ("dense_8",)


def test_in_float32_they_cost_nothing() -> None:
    assert "MP508" not in [finding.code for finding in diagnosed("float32").findings]


def test_before_the_switch_no_forecast_excludes_what_it_made_of_the_step_and_the_advice_is_xla() -> None:
    """The policy alone made 88.5 of 35.4 ms: 0.40x, where a forecast without the atomics says 1.00x to 1.65x."""
    found = diagnosed("float32")
    could = found.speedup.potential if found.speedup else None
    assert could is not None
    assert could.low == pytest.approx(CLOCK_MS["float32"] / CLOCK_MS["mixed-float16"], rel=0.1)
    assert found.answer.label == "what precision alone gives is not known"
    assert found.answer.do.startswith('keras.config.set_dtype_policy("mixed_float16") with jit_compile=True')
    assert "jit_compile=True" in found.how_to_switch[0].snippet


def test_the_op_on_the_cpu_is_the_check_for_finite_gradients() -> None:
    """Keras fills a tensor with True and scatters the embedding's booleans into it; the float32 run has no such op."""
    (finding,) = [each for each in diagnosed("mixed-float16").findings if each.code == "MP306"]
    assert "check for finite gradients makes those of embeddings dense on the CPU" in finding.summary
    assert "mixed_bfloat16" in finding.remedy
    assert "float32" not in finding.remedy
    assert "MP306" not in [each.code for each in diagnosed("float32").findings]


def test_idle_time_behind_ops_on_the_cpu_leaves_that_of_the_launches_to_its_own_cause() -> None:
    """Of 33.6 ms that the device idles the op takes 11.0, and what profiling added 11.5: launches have the rest. That
    was said to be "counted under MP306", and 12.6 ms after all changes to idle without a known cause."""
    planes = {plane.name: plane for plane in space("mixed-float16").planes}
    lines = [line for line in planes["/device:GPU:0"].lines if line.name.startswith("Stream")]
    spans = sorted(
        (line.timestamp_ns + event.offset_ps / 1e3, event.duration_ps / 1e3)
        for line in lines
        for event in line.events
    )
    idle, end = 0.0, spans[0][0]
    for start, took in spans:
        idle, end = idle + max(0.0, start - end), max(end, start + took)
    names = planes["/host:CPU"].event_metadata
    on_host = sum(
        event.duration_ps / 1e3
        for line in planes["/host:CPU"].lines
        for event in line.events
        if "TensorScatterUpdate" in names[event.metadata_id].name
    )
    added = (end - spans[0][0]) / STEPS / 1e6 - CLOCK_MS["mixed-float16"]
    found = {each.code: each for each in diagnosed("mixed-float16").findings}
    rest = (idle - on_host) / STEPS / 1e6 - added
    assert (found["MP302"].gain_ns_per_step or 0.0) / 1e6 == pytest.approx(rest, rel=0.2)
    moved = milliseconds("mixed-float16", "MemcpyD2H") + milliseconds("mixed-float16", "MemcpyH2D")
    assert on_host / STEPS / 1e6 <= (found["MP306"].cost_ns_per_step or 0.0) / 1e6 + 0.3
    assert (found["MP306"].cost_ns_per_step or 0.0) / 1e6 <= on_host / STEPS / 1e6 + moved


def test_without_the_records_nothing_shows_whose_the_op_is(tmp_path: Path) -> None:
    """A loss scale is not known then, and the op is named by what it does."""
    (trace,) = run("mixed-float16").rglob("*.xplane.pb.gz")
    alone = tmp_path / "alone.xplane.pb.gz"
    alone.write_bytes(trace.read_bytes())
    (finding,) = [each for each in workflows.diagnose(workflows.load(alone)).findings if each.code == "MP306"]
    assert finding.summary.startswith("ops of TensorScatterUpdate run on the CPU")
