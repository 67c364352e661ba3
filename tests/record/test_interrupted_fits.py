"""Real training on TensorFlow (CPU) that is stopped, interrupted or broken: what was recorded is whole."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mpprof.record.end_of_fit import last_line
from tests.paths import ROOT
from tests.record.fits import Interrupt, broken, counter, fit, reasons, records
from tests.record.on_tensorflow import keras
from tests.record.training import callback, data, model

pytestmark = pytest.mark.framework


def test_a_training_that_stops_early_says_so(trained: Any, tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 3

    x, y = data(10)
    fit(trained, x, y, callback(tmp_path), Stop(), epochs=5)
    assert reasons(tmp_path) == ["stopped"]
    steps = records(tmp_path).steps
    assert len(steps) == 4


def test_after_an_interrupted_fit_another_one_is_recorded(trained: Any, tmp_path: Path) -> None:
    x, y = data(20)
    made, recorded, interrupt = trained, callback(tmp_path, profile_steps=(12, 18)), Interrupt()
    with pytest.raises(KeyboardInterrupt):
        fit(made, x, y, recorded, interrupt)
    interrupt.armed = False
    fit(made, x, y, recorded)
    assert reasons(tmp_path) == ["interrupted", "finished"]
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 35))
    assert [window.status for window in read.facts.profile_windows] == ["done"]
    assert read.facts.profile_windows[0].last_step == 14


def test_an_evaluation_after_an_interrupted_fit_is_no_validation_of_it(trained: Any, tmp_path: Path) -> None:
    x, y = data(20)
    recorded = callback(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(trained, x, y, recorded, Interrupt(), validation_data=(x, y))
    trained.evaluate(x, y, verbose=0, callbacks=[recorded])
    assert reasons(tmp_path) == ["interrupted"]
    assert '"validation"' not in (tmp_path / "mpprof" / "steps.jsonl").read_text()
    fit(trained, x, y, recorded, validation_data=(x, y))
    assert reasons(tmp_path) == ["interrupted", "finished"]
    assert (tmp_path / "mpprof" / "steps.jsonl").read_text().count('"validation"') == 1


def test_an_error_in_the_users_code_within_a_window_leaves_the_profiler_to_the_next_training(
    trained: Any, tmp_path: Path
) -> None:
    x, y = data(20)
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt):
        fit(trained, x, y, callback(tmp_path / "a", profile_steps=(12, 18)), interrupt)
    fit(model(), x, y, callback(tmp_path / "b", profile_steps=(6, 8)))  # another model, another callback
    for name in ("a", "b"):
        facts = records(tmp_path / name).facts
        assert [window.status for window in facts.profile_windows] == ["done"], name


def test_an_interrupted_process_ends_its_run(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from tests.record.fits import Interrupt\n"
        "from tests.record.training import callback, data, model\n"
        "x, y = data(20)\n"
        "cb = callback(pathlib.Path(sys.argv[1]), profile_steps=(12, 30), hardware=True)\n"
        "model().fit(x, y, batch_size=8, verbose=0, callbacks=[cb, Interrupt()])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "KeyboardInterrupt" in ended.stderr
    assert reasons(tmp_path) == ["interrupted"]
    read = records(tmp_path)
    assert len(read.steps) == 14
    assert read.facts.profile_windows[0].status == "done"


def test_a_directory_that_cannot_be_made_stops_no_training(
    trained: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    x, y = data(4)
    before = counter(trained)
    fit(trained, x, y, callback(tmp_path / "file" / "run", profile_steps=(2, 3)))
    assert counter(trained) == before + 4
    assert len(caplog.records) == 1
    assert "records nothing" in caplog.text


def test_the_last_line_has_the_verdict_and_the_command(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(4)
    fit(
        trained, x, y, callback(tmp_path / "a", verbose=1, announce=lambda root: f"A verdict on {root.name}.")
    )
    fit(trained, x, y, callback(tmp_path / "quiet"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("mpprof: 4 steps, 0 skipped. A verdict on a. More: mpprof report ")
    assert line.endswith(f"{os.sep}a")
    for useless in (broken, "no.such.module:verdict", "mpprof.errors:no_such_name", None):
        said = last_line(useless, tmp_path, lambda step_time: f"4 steps{', mean 2 ms' if step_time else ''}")
        assert said == f"mpprof: 4 steps, mean 2 ms. More: mpprof report {tmp_path}"
    said = last_line(
        lambda root: "A verdict.", tmp_path, lambda step_time: "4 steps, mean" if step_time else "4 steps"
    )
    assert said.startswith("mpprof: 4 steps. A verdict.")  # one figure of the step time is enough


def test_an_error_closes_the_recording_and_another_fit_can_follow(trained: Any, tmp_path: Path) -> None:
    class Breaks(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise ZeroDivisionError

    x, y = data(6)
    recorded = callback(tmp_path, hardware=True)
    recorded.close()  # nothing is open
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        fit(trained, x, y, recorded, Breaks())
    assert records(tmp_path).finished  # its log is closed
    recorded.close()  # nothing is open, again
    assert set(threading.enumerate()) <= before
    assert '"reason":"error"' in (tmp_path / "mpprof" / "steps.jsonl").read_text()
    assert (recorded.result().steps, recorded.result().finished) == (3, False)
    fit(trained, x, y, recorded)
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 10))


@pytest.mark.parametrize(
    "error", [ValueError("I/O operation on closed file"), RuntimeError("the widget has been deleted")]
)
def test_a_closed_stdout_stops_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    x, y = data(4)
    made = model()  # has sizes that the audit speaks of
    monkeypatch.setattr("sys.stdout", Closed())
    fit(made, x, y, callback(tmp_path, verbose=1, audit=True))
    read = records(tmp_path)
    assert (len(read.steps), read.finished) == (4, True)
    assert "recording" not in read.facts.absent
