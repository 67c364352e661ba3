"""The account of steps whose traces have the oddities of real ones (tests/builders/keras2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.analysis.breakdown import accounting
from mpprof.analysis.kernels import placement
from mpprof.analysis.layers import attribution
from mpprof.api import workflows
from mpprof.model.account import Account
from tests.builders import keras2
from tests.builders.windows import HALF
from tests.traces.kineto import Kineto

US = 1_000.0
MS = 1_000_000.0


@pytest.fixture
def account(tmp_path: Path) -> Callable[[keras2.Step], Account]:
    def of(step: keras2.Step) -> Account:
        path = tmp_path / "host.xplane.pb"
        path.write_bytes(step.to_bytes())
        trace = traces.read(path)
        return accounting.account(trace, placement.place(trace), attribution.attribute(trace, None), None)

    return of


Of = Callable[[keras2.Step], Account]


def idle(found: Account) -> dict[tuple[str, str | None], float]:
    """Idle microseconds by class and cause."""
    cells = [cell for cell in found.main.cells if cell.category.startswith("idle")]
    return {(cell.category, cell.cause): round(cell.ns_per_step / US, 1) for cell in cells}


def summed(found: Account, category: str) -> float:
    return sum(us for (of, _), us in idle(found).items() if of == category)


def test_marker_ends_with_a_callbacks_kernel(account: Of) -> None:
    found = account(keras2.marker_ends_with_a_callbacks_kernel())
    assert (found.step_source, len(found.steps)) == ("function", 1)
    assert found.function_ns == found.step_ns == pytest.approx(15.1 * MS)
    assert found.between_ns is None
    assert not any(cell.op == "LogicalAnd" for cell in found.main.cells)
    assert found.between is not None
    by_name = {part.name: part for part in found.between}
    writer = next(part for name, part in by_name.items() if name.startswith("TensorBoard's summary writer ("))
    assert "LogicalAnd, FlushSummaryWriter, WriteSummary, Identity" in writer.name
    assert writer.device_ns == pytest.approx(2.9 * US)
    assert writer.host_ns == pytest.approx((160 + 40 + 60 + 75) * US)
    logs = next(part for name, part in by_name.items() if name.startswith("reading the logs ("))
    assert logs.device_ns == pytest.approx(2 * 1.5 * US)
    rest = by_name["other work of the host (Python)"]  # 53 ms between the logs and the writer
    assert rest.host_ns == pytest.approx(53.5 * MS, rel=0.01)


def test_marker_shorter_than_the_call(account: Of) -> None:
    found = account(keras2.marker_shorter_than_the_call())
    assert found.function_ns == pytest.approx(20.0 * MS)


def test_device_runs_on_after_the_call(account: Of) -> None:
    found = account(keras2.device_runs_on_after_the_call())
    assert found.function_ns == pytest.approx(35.02 * MS)
    assert found.device_ns == pytest.approx(34.0 * MS)
    assert summed(found, "idle_sync") == 0  # the log read waits for the step's own work


@pytest.mark.parametrize(("last_us", "cause"), [(6_000, "MP311"), (300, "MP302")])
def test_queue_fills_after_the_start(last_us: float, cause: str, tmp_path: Path) -> None:
    """Is it launching, or the empty queue, that the device waits for? What is queued in the end decides."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(keras2.queue_fills_after_the_start(last_us).to_bytes())
    found = workflows.diagnose(workflows.load(path)).findings
    assert [each.code for each in found if each.code in ("MP302", "MP311")] == [cause]


def test_batch_copy_is_named_like_the_iterator(account: Of) -> None:
    found = account(keras2.batch_copy_is_named_like_the_iterator())
    assert summed(found, "idle_input") <= 140 + 25
    assert idle(found)["idle_other", "blocked driver calls"] == pytest.approx(3_700, rel=0.05)
    assert {part.category: part.ns_per_step for part in found.main.slices}["copy"] == pytest.approx(31 * US)


def test_blocking_first_driver_calls(account: Of) -> None:
    found = account(keras2.blocking_first_driver_calls())
    by_cause = idle(found)
    assert by_cause["idle_input", None] == 6_300 + 25
    assert by_cause["idle_other", "blocked driver calls"] == pytest.approx(17_000, rel=0.01)
    assert summed(found, "idle_launch") < 0.5 * found.step_ns / US
    (note,) = [note for note in found.notes if "did not return" in note]
    assert "3 calls of 10.0 ms to 17.1 ms" in note


def test_map_function_on_the_steps_threads(account: Of) -> None:
    found = account(keras2.map_function_on_the_steps_threads())
    assert (found.trace_basis, found.step_source) == ("host", "function")
    assert found.function_ns == pytest.approx(80.694 * MS)
    assert not any((cell.op or "").startswith("GatherV2") for cell in found.main.cells)
    assert found.device_ns == pytest.approx((24_830 + 49_000) * US)
    assert summed(found, "idle_input") <= 463 + 25
    assert found.between is not None
    assert sum(part.device_ns for part in found.between) == 0


def test_strategys_iterator(account: Of) -> None:
    found = account(keras2.strategys_iterator())
    assert found.function_ns == pytest.approx(12.0 * MS)
    assert summed(found, "idle_input") <= 350 + 25  # not the pipeline's own iterator, of 1.2 ms


def test_steps_of_keras_3_are_its_calls_and_the_callback_lies_between(account: Of) -> None:
    found = account(keras2.several_steps_of_keras_3())
    assert found.main.steps == 4
    assert found.function_ns == pytest.approx(10.0 * MS)
    assert (found.between_ns, found.step_ns) == (pytest.approx(10.0 * MS), pytest.approx(20.0 * MS))
    assert found.between is not None
    names = [part.name for part in found.between]
    assert any(name.startswith("reading the logs (OptionalHasValue") for name in names)
    assert sum(part.host_ns for part in found.between) == pytest.approx(10.0 * MS)
    assert sum(part.device_ns for part in found.between) == pytest.approx(2.9 * US)


def test_a_call_of_several_steps_is_divided_by_them(account: Of) -> None:
    found = account(keras2.several_steps_of_keras_3(count=3, per_call=5))
    assert found.main.steps == 15
    assert found.function_ns == pytest.approx(2.0 * MS)
    assert found.between_ns == pytest.approx(2.0 * MS)


def test_a_wait_behind_a_step_reads_no_logs(tmp_path: Path) -> None:
    """PyTorch's profiler synchronises when it stops: seen as "reading the logs"."""
    k = Kineto()
    k.host("user_annotation", "ProfilerStep#1", 0, 1_000)
    k.launch(HALF, 10, 30, 900)
    k.host("cuda_runtime", "cudaDeviceSynchronize", 1_010, 14)
    found = workflows.diagnose(k.write(tmp_path / "w.pt.trace.json"))
    by_name = {part.name: part.host_ns for part in found.account.between}
    assert by_name["waiting for the device (cudaDeviceSynchronize)"] == 14_000
    assert not any("logs" in name for name in by_name)
