"""What a step is where nobody marked one: never a layer, always from update to update, a run of a program on a TPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.steps import ranges
from mpprof.analysis.steps.boundaries import Periods, periods
from mpprof.analysis.steps.calls import in_turn
from mpprof.errors import MpprofError
from mpprof.model.trace import HostKind, Trace
from tests.builders import unmarked
from tests.builders.trace import TraceBuilder
from tests.paths import SHARED
from tests.traces.conftest import needs_shared
from tests.traces.kineto import Kineto

US = 1000


def read(tmp_path: Path, k: Kineto) -> Trace:
    return traces.read(k.write(tmp_path / "w.pt.trace.json"))


def steps(tmp_path: Path, k: Kineto) -> Periods:
    return periods(read(tmp_path, k), 0)


def lengths_us(found: Periods) -> list[float]:
    return ((found.end_ns - found.start_ns) / US).tolist()


# --- layers ------------------------------------------------------------------------------------------------


def test_blocks_in_one_call_of_a_module_are_parts_of_a_pass(tmp_path: Path) -> None:
    found = steps(tmp_path, unmarked.layers())
    assert (found.source, found.unit, found.of) == ("module", "pass", "Net_0")
    assert lengths_us(found) == [
        4_160
    ]  # from the call to the end of the last kernel, which is before its return
    assert found.notes == (
        "a pass repeats a sequence of 4 kernels 10 times, 400 µs each: these are parts of it, such as its layers",
    )


def test_each_call_of_the_module_is_one_pass(tmp_path: Path) -> None:
    found = steps(tmp_path, unmarked.layers(3))
    assert (found.unit, lengths_us(found)) == ("pass", [4_160] * 3)
    assert found.pause_ns is not None
    assert (found.pause_ns / US).tolist()[:2] == [10_000 - 4_160] * 2


def test_without_modules_what_repeats_is_a_part_and_no_step(tmp_path: Path) -> None:
    """Where the blocks hold next to nothing outside of them, the sequence alone would pass for a step."""
    found = steps(tmp_path, unmarked.layers(modules=False, kernels=24))
    assert (found.source, found.unit) == ("period", "part")
    assert "may be a layer as well as a whole pass" in found.notes[0]


@pytest.mark.parametrize(
    ("of_each", "unit", "named"),
    [(1, "pass", "jit_f"), (0, "part", ""), (2, "part", "")],  # two repetitions in one run: layers of it
)
def test_a_repetition_that_is_one_run_of_a_program_is_a_pass(of_each: int, unit: str, named: str) -> None:
    """Seen in JAX on an MI300X: five kernels repeat, and each time XLA launches the program once."""
    b, count, us = TraceBuilder(), 12, 1_000
    for run in range(count):
        start = 1_000 * us * run
        if of_each and not run % of_each:
            b.event(HostKind.OTHER, start, start + (of_each * 1_000 - 200) * us, name="jit_f:XLA GPU module")
        for at in range(5):
            launch = start + (10 + 50 * at) * us
            b.kernel(f"fusion_{at}", launch + 5 * us, launch + 45 * us, launch=(launch, launch + 2 * us))
    found = periods(b.build(), 0)
    assert (found.source, found.unit, found.of, len(found) >= count - 2) == ("period", unit, named, True)
    assert ("run of the program jit_f" in found.notes[0]) is bool(named)


def test_a_module_that_launches_little_is_not_the_model(tmp_path: Path) -> None:
    """vLLM's decoding replays a graph outside of any module; the sampler's is the only one in the trace."""
    k = unmarked.layers(modules=False)
    k.module("LogitsProcessor_0", 4_090, 100)
    assert steps(tmp_path, k).source != "module"


def test_in_a_training_a_sequence_within_one_range_is_no_step(tmp_path: Path) -> None:
    k = unmarked.trained(12, whole_first=True, marked=False)
    assert steps(tmp_path, k).unit == "step"
    k.host("user_annotation", "the whole forward", -1, 20_000)
    assert "within one call of a module or range" in steps(tmp_path, k).notes[0]


# --- updates -----------------------------------------------------------------------------------------------


def test_a_step_is_from_the_end_of_an_update_to_the_end_of_the_next(tmp_path: Path) -> None:
    found = steps(tmp_path, unmarked.trained(20))
    assert (found.source, found.unit, len(found)) == ("optimizer", "step", 19)
    assert lengths_us(found) == pytest.approx([unmarked.STEP_US] * 19)
    assert np.bincount(found.work.step).tolist() == [6 + 4 + 1] * 19  # the backward's thread is in it
    assert found.pause_ns is None  # nothing tells what of it lies between two steps


def test_two_networks_that_train_in_turn_share_a_step(tmp_path: Path) -> None:
    """A GAN updates its discriminator and then its generator: their work differs, and is the same every second time."""
    found = steps(tmp_path, unmarked.trained(20, optimizers=2))
    assert (len(found), "a step has 2 updates" in found.notes[0]) == (9, True)
    assert lengths_us(found) == pytest.approx([2 * unmarked.STEP_US] * 9)


def test_several_batches_to_an_update_are_one_step(tmp_path: Path) -> None:
    found = steps(tmp_path, unmarked.trained(8, micro_batches=4))
    assert lengths_us(found) == pytest.approx([4 * 700 + 200] * 7)


def test_a_marked_step_goes_before_the_updates(tmp_path: Path) -> None:
    k = unmarked.trained(6)
    for step in range(6):
        k.host("user_annotation", f"ProfilerStep#{step}", unmarked.STEP_US * step, unmarked.STEP_US)
    assert steps(tmp_path, k).source == "torch"


def test_one_update_is_no_step(tmp_path: Path) -> None:
    assert len(steps(tmp_path, unmarked.trained(1))) == 0


@needs_shared()
def test_the_recorded_training_has_a_step_for_each_update_but_the_first() -> None:
    """30 marks, 321 kernels between two; the raw file's mean from end to end of them is 333.6 ms on the device."""
    found = periods(traces.read(SHARED / "rtx2080ti-torch/resnet_training.json.gz"), 0)
    assert (found.source, len(found)) == ("optimizer", 29)
    counts = np.bincount(found.work.step)
    assert np.median(counts) >= 321
    assert (found.end_ns - found.start_ns).mean() / 1e6 == pytest.approx(333.6, abs=0.5)


# --- markers -----------------------------------------------------------------------------------------------


def test_markers_of_old_versions_are_markers(tmp_path: Path) -> None:
    found = steps(tmp_path, unmarked.old_markers())
    assert (found.source, found.number.tolist()) == ("torch", [5, 6, 7, 8, 9])


def test_markers_that_overlap_by_a_rounding_are_all_steps() -> None:
    start, end = np.array([0, 1000, 2000]), np.array([1004, 2004, 3004])
    kept, until = in_turn(start, end)
    assert (kept.tolist(), until.tolist()) == ([True] * 3, [1000, 2000, 3004])


def test_a_marker_within_another_is_none() -> None:
    kept, until = in_turn(np.array([0, 500, 1000]), np.array([1000, 900, 2000]))
    assert (kept.tolist(), until.tolist()) == ([True, False, True], [1000, 2000])


def test_a_run_of_a_program_on_a_tpu_is_a_pass(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(unmarked.tpu_programs().to_bytes())
    found = periods(traces.read(path), 0)
    assert (found.source, found.unit, found.of, len(found)) == ("program", "pass", "jit_f", 20)
    assert set(lengths_us(found)) == {780.0}
    assert found.pause_ns is not None
    assert sorted(set((found.pause_ns / US).tolist())) == [-0.001, 20.0, 26.0]


def test_a_program_that_is_named_a_training_step_is_one(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(unmarked.tpu_programs(name="jit_train_step").to_bytes())
    assert periods(traces.read(path), 0).unit == "step"


@needs_shared()
def test_the_recorded_tpu_runs_its_program_100_times() -> None:
    """78,415.44 ms in 100 events of `jit_f` on device 0, by the raw file."""
    found = periods(traces.read(SHARED / "tpu-v6e-jax/inference.xplane.pb"), 0)
    assert (found.unit, found.of, len(found)) == ("pass", "jit_f", 100)
    assert (found.end_ns - found.start_ns).sum() / 1e6 == pytest.approx(78_415.44, abs=0.01)


@needs_shared()
def test_the_recorded_window_of_a_transformer_holds_no_step() -> None:
    found = periods(traces.read(SHARED / "hopper-nsys/transformer_window.sqlite"), 0)
    assert (found.unit, len(found)) == ("part", 16)


# --- what may be a step ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["training_step", "train_batch", "execute_context_0(1)", "step[DECODE bs=32]"]
)
def test_ranges_that_loops_and_servers_call_steps_are_offered(tmp_path: Path, name: str) -> None:
    k = unmarked.layers(2, modules=False)
    for call in range(2):
        k.host("user_annotation", name, 10_000.0 * call, 900)  # not even half of the launches
    trace = read(tmp_path, k)
    offered = [each.name for each in ranges.suggested(trace)]
    assert offered == [name]
    assert len(periods(ranges.with_steps_of(trace, offered[0]), 0)) == 2


def test_a_number_that_counts_nothing_is_no_step_number(tmp_path: Path) -> None:
    k = Kineto()
    for row, batch in enumerate((32, 31, 31)):
        k.host("user_annotation", f"step[DECODE bs={batch}]", 1000.0 * row, 900)
        k.launch(unmarked.ADD, 1000.0 * row + 10, 1000.0 * row + 20, 100)
    trace = read(tmp_path, k)
    (offered,) = ranges.suggested(trace)
    assert periods(ranges.with_steps_of(trace, offered.name), 0).number.tolist() == [-1, -1, -1]


def test_modules_are_not_offered_as_steps(tmp_path: Path) -> None:
    assert ranges.suggested(read(tmp_path, unmarked.layers(2))) == []
    with pytest.raises(MpprofError, match="no range is named"):
        ranges.with_steps_of(read(tmp_path, unmarked.layers(2)), "Block_3")
