"""The profile window in real training on TensorFlow (CPU): when it opens, what it holds, who else profiles."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from mpprof.analysis.steps.boundaries import periods
from mpprof.model.run import ProfilePlan
from mpprof.traces import read
from tests.record.fits import fit, records
from tests.record.on_tensorflow import keras, tf
from tests.record.test_fit_jax import events_of
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework


def test_a_reason_goes_away_with_what_it_was_the_reason_for(trained: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path, profile_steps="auto")
    fit(trained, *data(4), recorded)
    fit(trained, *data(40), recorded)
    facts = records(tmp_path).facts
    assert [window.status for window in facts.profile_windows] == ["done"]
    assert "profile_windows" not in facts.absent


def test_the_window_holds_our_markers_and_lies_in_tensorboards_layout(trained: Any, tmp_path: Path) -> None:
    x, y = data(30)
    fit(trained, x, y, callback(tmp_path, profile_steps=(10, 14)))
    read = records(tmp_path)
    (window,) = read.facts.profile_windows
    assert (window.status, window.first_step, window.last_step) == ("done", 10, 14)
    assert window.trace is not None
    assert window.start_cost_ns is not None
    assert window.stop_cost_ns is not None
    assert window.start_cost_ns > 0
    (trace,) = (tmp_path / window.trace).glob("*.xplane.pb")
    assert trace.parent.parent == tmp_path / "plugins" / "profile"
    assert trace.name == f"{window.host}.xplane.pb"
    events = events_of(trace)
    assert sorted(step for name, step in events if name == "mpprof_step") == [10, 11, 12, 13, 14]
    assert any("MatMul" in name for name, _ in events)
    assert read.steps.step[read.steps.profiled].tolist() == [10, 11, 12, 13, 14]


def test_an_automatic_window_opens_by_itself_once(trained: Any, tmp_path: Path) -> None:
    x, y = data(150)
    fit(trained, x, y, callback(tmp_path, profile_steps="auto"))
    facts = records(tmp_path).facts
    (window,) = facts.profile_windows
    assert window.status == "done"
    assert 10 <= window.first_step <= 50
    assert window.last_step == window.first_step + 4
    assert facts.profile_plan == ProfilePlan(10, None, automatic=True)


def test_a_window_never_goes_across_a_validation(trained: Any, tmp_path: Path) -> None:
    x, y = data(6)
    fit(trained, x, y, callback(tmp_path, profile_steps=(5, 9)), epochs=2, validation_data=(x, y))
    facts = records(tmp_path).facts
    assert [(window.first_step, window.last_step) for window in facts.profile_windows] == [(5, 6)]


def test_a_training_that_is_too_short_says_why_there_is_no_window(trained: Any, tmp_path: Path) -> None:
    x, y = data(4)
    fit(trained, x, y, callback(tmp_path, profile_steps="auto"))
    facts = records(tmp_path).facts
    assert facts.profile_windows == ()
    assert "step 4" in facts.absent["profile_windows"]


def test_a_profiler_that_runs_already_is_left_alone(trained: Any, tmp_path: Path) -> None:
    x, y = data(10)
    tf.profiler.experimental.start(str(tmp_path / "theirs"))
    try:
        fit(trained, x, y, callback(tmp_path / "ours", profile_steps=(3, 5)))
    finally:
        tf.profiler.experimental.stop()
    facts = records(tmp_path / "ours").facts
    assert facts.profile_windows[0].status.startswith("failed: ")
    (trace,) = (tmp_path / "theirs").glob("plugins/profile/*/*.xplane.pb")
    assert sorted(step for name, step in events_of(trace) if name == "mpprof_step") == [3, 4, 5]


def test_recording_that_ends_within_a_window_stops_the_profiler(trained: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path, profile_steps=(3, 900))

    class Vanish(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 5:
                recorded._session.recorder.on = False  # as after a full disk

    x, y = data(12)
    fit(trained, x, y, recorded, Vanish())
    tf.profiler.experimental.start(str(tmp_path / "after"))  # raises where one still runs
    tf.profiler.experimental.stop()
    assert [*(tmp_path / "after").rglob("*.xplane.pb")]


def test_a_further_window_opens_when_it_is_asked_for(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.store.writing.FLUSH_SECONDS", 0.01)
    wish, begun = tmp_path / "mpprof" / "window-please", threading.Event()
    recorded = callback(tmp_path, profile_steps=(3, 5))

    class Ask(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 20:
                wish.touch()
                while wish.exists():
                    begun.wait(0.005)  # the writer's thread takes it away
                while recorded._session.profiling.plan is None:
                    begun.wait(0.005)

    x, y = data(40)
    fit(trained, x, y, Ask(), recorded)
    facts = records(tmp_path).facts
    assert [(w.first_step, w.last_step, w.status) for w in facts.profile_windows] == [
        (3, 5, "done"),
        (21, 25, "done"),
    ]


def test_a_callback_that_stands_in_the_list_twice_profiles_its_window_whole(
    trained: Any, tmp_path: Path
) -> None:
    x, y = data(60)
    recorded = callback(tmp_path / "ours", profile_steps="auto")
    fit(trained, x, y, recorded, recorded)
    read = records(tmp_path / "ours")
    (window,) = read.facts.profile_windows
    assert window.last_step == window.first_step + 4
    profiled = read.steps.step[read.steps.profiled].tolist()
    assert profiled == list(range(window.first_step, window.last_step + 1))
    recorded = callback(tmp_path / "theirs", profile_steps="auto")
    board = keras.callbacks.TensorBoard(str(tmp_path / "theirs"), profile_batch=(12, 16), write_graph=False)
    fit(trained, x, y, recorded, board, recorded)
    facts = records(tmp_path / "theirs").facts
    assert [(w.status, w.first_step, w.last_step) for w in facts.profile_windows] == [("foreign", 12, 16)]


def test_validation_in_a_profiled_window_is_no_training_step(tmp_path: Path) -> None:
    """Keras 3 gives training and validation functions of one name: a window over two epochs' edges holds both."""
    x, y = data(4)

    class Profiled(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                tf.profiler.experimental.start(str(tmp_path))

        def on_train_end(self, logs: Any = None) -> None:
            tf.profiler.experimental.stop()

    fit(model(), x, y, Profiled(), epochs=3, validation_data=(x[: 3 * BATCH], y[: 3 * BATCH]))
    trace = read(next(tmp_path.rglob("*.xplane.pb")))
    found = periods(trace, 0)
    assert len(found) == 2 * 4
    assert found.source == "function"
    assert any(note.startswith("6 of 14 calls left out: validation (") for note in found.notes)
