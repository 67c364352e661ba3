"""Real training on JAX. Keras' backend is fixed for a process, so this one has its own."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import Records, read_records
from tests.record import on_demand
from tests.record.processes import done_on_jax, our_lines
from tests.record.training import assert_did_all, on_jax, recurrent_on_jax

pytest.importorskip("jax")
pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("jax")
    said = done_on_jax(on_jax, out)
    assert our_lines(said) == []  # nothing of ours failed
    return out


@pytest.fixture(scope="module")
def answers(folder: Path) -> Any:
    return json.loads((folder / "answers.json").read_text())


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.steps is not None
    assert read.facts is not None
    assert read.finished
    assert read.warnings == ()
    return read


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_weights_are_the_same_bit_by_bit(answers: Any, kind: str) -> None:
    assert answers["identical"][kind]


@pytest.mark.full
def test_weights_of_a_recurrent_model_are_the_same_bit_by_bit(tmp_path: Path) -> None:
    assert our_lines(done_on_jax(recurrent_on_jax, tmp_path)) == []
    assert json.loads((tmp_path / "answers.json").read_text()) == {"recurrent": True}


def test_as_nobody_has_set_it_it_does_all_that_it_can(folder: Path) -> None:
    assert_did_all(folder / "default", (folder / "printed").read_text())


def test_keras_still_dispatches_asynchronously(answers: Any) -> None:
    assert answers["kept_asynchronous"]


def test_nearly_all_steps_between_readings_go_the_short_way(answers: Any) -> None:
    # Of the 100 dispatches and an epoch's end: 32 are read one by one, and of the 68 others four.
    assert answers["whole"] <= 51


def test_tensorflow_is_not_imported_for_it(answers: Any) -> None:
    assert not answers["tensorflow_imported"]


def test_the_state_is_copied_back_no_more_often_than_without_the_callback(answers: Any) -> None:
    without, with_it = answers["copies_of_the_state"]
    assert with_it == without


def test_the_probe_waits_for_lists_that_jax_takes_for_leaves(answers: Any) -> None:
    _, waited = answers["waited"]  # the first is JAX' own answer to such a list
    assert waited


def test_the_peak_of_memory_is_said_to_be_since_the_start(answers: Any) -> None:
    assert "since the start" in answers["reset"]


def test_skips_are_found_at_the_steps_where_gradients_were_infinite(folder: Path) -> None:
    steps = records(folder / "skips").steps
    assert steps.step.tolist() == list(range(1, 71))
    assert int(steps.skipped[steps.skipped > 0].sum()) == 3
    assert steps.skipped[2] == 1  # the first 32 are read one by one
    assert steps.loss_scale[1:4].tolist() == [2.0**15, 2.0**14, 2.0**14]
    later = steps.step[(steps.skipped > 0) & (steps.step > 32)]
    assert later.tolist() == [48]  # read every 16
    assert steps.loss_scale[-1] == 2.0**12


def test_an_input_that_ends_by_itself_ends_with_its_last_step(folder: Path) -> None:
    read = records(folder / "ends")
    assert read.steps.step.tolist() == list(range(1, 48))
    assert set(read.steps.covers.tolist()) == {1}
    assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 1
    assert read.steps.loss_scale[-1] == 2.0**14
    assert "skipped" not in read.facts.absent


def test_only_waits_give_intervals(folder: Path) -> None:
    read = records(folder / "skips")
    steps, facts = read.steps, read.facts
    assert facts.timing.basis == "asynchronous"
    assert steps.step[steps.synced].tolist() == [16, 32, 48, 64, 69]  # the last call begins
    assert (steps.interval_ns >= 0).tolist() == steps.synced.tolist()
    assert (steps.dispatch_ns[:-1] > 0).all()
    # What is read carries the loss, too; the last line is read when the epoch has ended.
    assert steps.loss_known[:-1].tolist() == steps.loss_scale_known[:-1].tolist()
    assert "loss" not in facts.absent
    assert facts.framework["backend"] == "jax"
    assert facts.fits[0].batch_size == 8


def test_a_call_of_several_steps(folder: Path) -> None:
    steps = records(folder / "several").steps
    assert steps.covers.tolist() == [4] * 17 + [2]
    assert steps.step[-1] == 70
    assert int(steps.skipped[steps.skipped > 0].sum()) == 3


def test_several_fits_are_one_run_with_one_window(folder: Path, answers: Any) -> None:
    read = records(folder / "window")
    steps, facts = read.steps, read.facts
    assert [fit.first_step for fit in facts.fits] == [1, 71]
    assert steps.fit.tolist() == [1] * 70 + [2] * 70
    assert 140 - int(steps.skipped[steps.skipped > 0].sum()) == answers["counter"]
    assert len(read.validations.t_ns) == 2
    assert [(window.first_step, window.last_step) for window in facts.profile_windows] == [(20, 24)]
    assert facts.profile_windows[0].status == "done"
    assert steps.step[steps.profiled].tolist() == [20, 21, 22, 23, 24]
    # Nothing of ours runs on the device within the window.
    assert not steps.loss_scale_known[19:24].any()
    assert steps.loss_scale_known[[18, 24]].all()
    # A wait at both edges: without it the trace would hold markers and no work.
    assert {19, 24} <= set(steps.step[steps.synced].tolist())
    assert steps.interval_ns[23] > 0


def test_a_log_directory_whose_name_is_no_text(folder: Path) -> None:
    """JAX's profiler takes text only."""
    root = folder / os.fsdecode(b"log\xff")
    facts = records(root).facts
    assert [window.status for window in facts.profile_windows] == ["done"]
    assert len(list(root.glob("plugins/profile/*/*.xplane.pb"))) == 1
    assert not list(Path(tempfile.gettempdir()).glob("mpprof-*/plugins"))


@pytest.mark.parametrize("name", ["wished", "wished-twice"])
def test_the_line_before_a_window_that_was_wished_for_says_that_there_was_a_wait(
    folder: Path, name: str
) -> None:
    read = records(folder / name)
    steps, facts = read.steps, read.facts
    assert steps.step.tolist() == list(range(1, 61))
    (window,) = facts.profile_windows
    assert window.status == "done"
    assert window.first_step == 43  # the wish came within the begin of step 41, behind our own hook
    assert window.last_step == window.first_step + 4
    first = window.first_step
    assert steps.step[steps.profiled].tolist() == list(range(first, first + 5))
    assert steps.step[steps.synced].tolist() == [16, 32, first - 1, first + 4, 48, len(steps)]
    lines = map(json.loads, (folder / name / "mpprof" / "steps.jsonl").read_text().splitlines()[1:])
    calls = {line["step"]: line["interval_calls"] for line in lines if "interval_calls" in line}
    # Since the wait before; after the window's edges, where the profiler starts and stops, counting is anew.
    assert calls == {16: 16, 32: 16, first - 1: first - 33, first + 4: 5, 48: 48 - first - 4, 60: 12}
    assert (steps.interval_ns >= 0).tolist() == steps.synced.tolist()


@pytest.mark.parametrize(("then", "steps"), [("close", 10), ("fit", 30)])
def test_after_a_step_that_ran_out_of_memory_the_allocators_state_is_on_disk(
    folder: Path, answers: Any, then: str, steps: int
) -> None:
    assert len(answers["out_of_memory"]) == 2
    assert all(text.startswith("RESOURCE_EXHAUSTED") for text in answers["out_of_memory"])
    read = records(folder / f"memory-{then}")
    assert read.steps.step.tolist() == list(range(1, steps + 1))
    log = (folder / f"memory-{then}" / "mpprof" / "steps.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in log]
    (end,) = (k for k, line in enumerate(lines) if line.get("reason") == "out_of_memory")
    assert lines[end]["kind"] == "fit_end"
    peaks = [line["memory"][0]["peak_bytes"] for line in lines[:end] if line.get("kind") == "step"]
    assert peaks == sorted(set(peaks))  # of each step
    assert len(peaks) == 10
    assert lines[end]["memory"][0]["peak_bytes"] > peaks[-1]


def test_a_file_and_a_signal_open_further_windows(folder: Path) -> None:
    root = folder / "on-demand"
    on_demand.check(root, records(root), late=2)


@pytest.mark.parametrize("order", ["1", "-1"])
def test_an_evaluation_in_the_midst_of_an_epoch_loses_no_step(folder: Path, answers: Any, order: str) -> None:
    read = records(folder / "within" / order)
    steps, facts = read.steps, read.facts
    assert steps.step.tolist() == list(range(1, 41))
    assert steps.batch.tolist() == [*range(20), *range(20)]
    assert len(read.validations.t_ns) == 6
    assert int(steps.skipped[steps.skipped > 0].sum()) == 40 - answers["evaluated_within"] == 6
    assert "skipped" not in facts.absent


def test_the_window_holds_our_markers_and_real_work(folder: Path) -> None:
    (trace,) = (folder / "window" / "plugins" / "profile").glob("*/*")
    events = events_of(trace)
    assert sorted(step for name, step in events if name == "mpprof_step") == [20, 21, 22, 23, 24]
    assert sum("dot" in name or "fusion" in name for name, _ in events) >= 5


def test_the_trace_of_keras_tensorboard_callback_is_the_runs(folder: Path) -> None:
    if not (folder / "board").is_dir():
        pytest.skip("Keras' TensorBoard callback profiles JAX with TensorFlow, from Python 3.12 on")
    facts = records(folder / "board").facts
    (window,) = facts.profile_windows
    assert (window.status, window.first_step, window.last_step) == ("foreign", 12, 16)
    assert window.trace is not None
    (trace,) = (folder / "board" / window.trace).glob("*.xplane.pb")
    assert {f"Profiled batch {batch}" for batch in range(11, 16)} <= {name for name, _ in events_of(trace)}


def events_of(trace: Path) -> list[tuple[str, int | None]]:
    """Every event of an xplane file with its step_num, read with TensorFlow's own protobuf classes."""
    xplane = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane.XSpace.FromString(trace.read_bytes())
    found = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                numbers = [
                    stat.int64_value
                    for stat in event.stats
                    if plane.stat_metadata[stat.metadata_id].name == "step_num"
                ]
                name = plane.event_metadata[event.metadata_id].name
                found.append((name, numbers[0] if numbers else None))
    return found
