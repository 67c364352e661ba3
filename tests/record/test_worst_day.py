"""A training whose day goes wrong around it: signals wherever ours runs, loaders in processes, closed streams,
forks, and a hundred fits. It ends as it would have without the callback, and no step is lost without a word."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mpprof.record import recorder
from mpprof.record.run_with_timeout import is_signalled
from mpprof.store import find_runs, read_records
from tests.paths import ROOT
from tests.record.on_tensorflow import keras
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework

STEPS, WINDOW = 12, (6, 8)


@pytest.fixture(scope="module")
def made() -> Any:
    return model(kind="linear", optimizer="sgd")


def fit(made: Any, *callbacks: Any, steps: int = STEPS) -> Any:
    x, y = data(steps)
    return made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=list(callbacks))


def told(root: Path) -> tuple[list[int], list[str], list[str]]:
    """The steps of a run, how its fits ended, and what became of its windows. Nothing in it is damaged."""
    read = read_records(root)
    assert read.warnings == ()
    steps = [] if read.steps is None else read.steps.step.tolist()
    lines = map(json.loads, (root / "mpprof" / "steps.jsonl").read_text().splitlines())
    ends = [line["reason"] for line in lines if line.get("kind") == "fit_end"]
    return steps, ends, [window.status for window in read.facts.profile_windows]


_BEFORE: set[int | None] = set()


@pytest.fixture(autouse=True)
def threads_before() -> None:
    """Other tests of this process may have left some, such as a sink that hangs."""
    _BEFORE.clear()
    _BEFORE.update(thread.ident for thread in threading.enumerate())


def our_threads() -> list[str]:
    """But for those that are left behind by name: what they do, nobody waits for."""
    names = [thread.name for thread in threading.enumerate() if thread.ident not in _BEFORE]
    return [name for name in names if name.startswith("mpprof") and name != "mpprof timeout"]


# --- signals -----------------------------------------------------------------------------------------------


class Preempted(Exception):
    """What a handler may raise where a machine is taken away."""


def leave(number: int, frame: FrameType | None) -> None:
    sys.exit(3)


def preempt(reason: str, number: int, frame: FrameType | None) -> None:
    raise Preempted(reason)


class Handler:
    def method(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError("by a method")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Preempted("by an object")


HANDLERS: dict[str, tuple[Any, type[BaseException]]] = {
    "exit": (leave, SystemExit),
    "method": (Handler().method, TimeoutError),
    "interrupt": (signal.default_int_handler, KeyboardInterrupt),
    "partial": (functools.partial(preempt, "now"), Preempted),
    "object": (Handler(), Preempted),
}
PHASES = (
    "recorder.Recorder.open", "recorder.Recorder.resume", "session.FitSession._describe_process",
    "session.FitSession._describe_layers", "recorder.Recorder.save", "calls.CallLog.begin", "calls.CallLog.end",
    "observer.Observer.read", "profile.window.Window._prepare", "profile.window.Window.start",
    "backends.tensorflow.TensorFlowProbe.start_trace", "profile.window.Window.stop",
    "backends.tensorflow.TensorFlowProbe.stop_trace", "profile.window.Window._keep",
    "session.FitSession._end_fit", "session.describe_weights", "recorder.Recorder.pause", "callback.last_line",
    "callback.audit_lines", "callback.tell",
)  # fmt: skip
EACH = [
    pytest.param(phase, how, marks=[] if n % len(HANDLERS) == k else pytest.mark.full)
    for n, phase in enumerate(PHASES)
    for k, how in enumerate(HANDLERS)
]


@pytest.fixture
def handled(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    handler, raised = HANDLERS[request.param]
    before = signal.signal(signal.SIGUSR2, handler)
    yield raised
    signal.signal(signal.SIGUSR2, before)


def comes(monkeypatch: pytest.MonkeyPatch, phase: str) -> list[bool]:
    """A signal, once, as the function of ours at `phase` begins; in a thread of ours, while that is waited for."""
    module, _, name = phase.partition(".")
    while not name[0].isupper() and "." in name:
        module, name = f"{module}.{name.partition('.')[0]}", name.partition(".")[2]
    holder: Any = importlib.import_module(f"mpprof.record.{module}")
    *outer, name = name.split(".")
    for each in outer:
        holder = getattr(holder, each)
    works, came = getattr(holder, name), []
    main = threading.get_ident()

    def signalled(*arguments: Any, **more: Any) -> Any:
        if not came:
            came.append(True)
            signal.pthread_kill(main, signal.SIGUSR2)
        return works(*arguments, **more)

    monkeypatch.setattr(holder, name, signalled)
    return came


@pytest.mark.parametrize(("phase", "handled"), EACH, indirect=["handled"])
def test_what_a_signals_handler_raises_ends_the_training(
    made: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    handled: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    more = {"profile_steps": WINDOW, "hardware": True, "verbose": 1, "audit": True}
    monkeypatch.setattr(
        recorder, "DEADLINE_SECONDS", 600.0
    )  # a busy machine's disk is late by more than five
    recorded = callback(tmp_path, announce=lambda root: "said", **more)
    with monkeypatch.context() as world:
        came = comes(world, phase)
        with pytest.raises(handled):
            fit(made, recorded)
        assert came
    recorded.close()
    assert our_threads() == []
    if recorded.root is not None and (recorded.root / "mpprof" / "run.json").exists():
        steps, ends, windows = told(recorded.root)
        assert steps == list(range(1, len(steps) + 1))
        assert len(ends) <= 1
        assert "open" not in windows
    else:
        steps, ends = [], []
    fit(made, recorded)
    again = told(recorded.root)
    assert again[0] == list(range(1, len(steps) + STEPS + 1))
    assert again[1] == [*ends, "finished"]
    fit(made, fresh := callback(tmp_path / "fresh", profile_steps=WINDOW))
    assert told(fresh.root) == (list(range(1, STEPS + 1)), ["finished"], ["done"])
    ours = {each.getMessage() for each in caplog.records if each.name.partition(".")[0] == "mpprof"}
    assert ours <= {"mpprof has no trace of this run: it was interrupted as it opened"}


@pytest.mark.parametrize("handled", HANDLERS, indirect=True)
def test_a_failure_of_ours_is_none_of_a_signals(handled: type[BaseException]) -> None:
    for fails in (lambda: 1 / 0, lambda: signal.Signals(99), lambda: sys.exit(3)):
        with pytest.raises((ArithmeticError, ValueError, SystemExit)) as caught:
            fails()
        assert not is_signalled(caught.value)
    with pytest.raises(handled) as caught:
        signal.raise_signal(signal.SIGUSR2)
    assert is_signalled(caught.value) or handled is KeyboardInterrupt


# --- processes ---------------------------------------------------------------------------------------------


def child(work: Callable[[], object]) -> None:
    """Runs in a forked process, which has to end well."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def hooks(recorded: Any, steps: int, between: Callable[[], object] = int) -> None:
    """As Keras calls them; in a forked process its own threads are gone."""
    recorded.on_train_begin()
    recorded.on_epoch_begin(0)
    for step in range(steps):
        between()
        recorded.on_train_batch_begin(step)
        recorded.on_train_batch_end(step, {"loss": 1.0})
    recorded.on_epoch_end(0, {"loss": 1.0})
    recorded.on_train_end()


def test_a_fit_in_a_forked_process_is_a_run_of_its_own(made: Any, tmp_path: Path) -> None:
    """Between two fits there is nothing that the child could have seen to be another's."""
    recorded = callback(tmp_path)
    fit(made, recorded)
    child(lambda: hooks(recorded, 3))
    fit(made, recorded)
    assert told(tmp_path)[:2] == (list(range(1, 2 * STEPS + 1)), ["finished", "finished"])
    (other,) = set(find_runs(tmp_path)) - {tmp_path}
    assert told(other)[:2] == ([1, 2, 3], ["finished"])


class Loaded(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    """A data set that its worker processes inherit or unpickle, with the callback in it."""

    def __init__(self, recorded: Any, **more: Any) -> None:
        super().__init__(**more)
        self.recorded, (self.x, self.y) = recorded, data(STEPS)

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        part = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[part], self.y[part]


def test_processes_that_load_data_leave_the_run_to_the_training(made: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path, hardware=True, profile_steps=WINDOW)
    loaded = Loaded(recorded, workers=2, use_multiprocessing=True)
    made.fit(loaded, epochs=2, verbose=0, callbacks=[recorded])
    assert told(tmp_path) == (list(range(1, 2 * STEPS + 1)), ["finished"], ["done"])
    assert find_runs(tmp_path) == (tmp_path,)


def _part(index: int) -> Any:
    x, y = data(STEPS)
    part = slice(index * BATCH, (index + 1) * BATCH)
    return x[part], y[part]


def test_a_generator_that_forks_its_workers_while_it_is_asked(made: Any, tmp_path: Path) -> None:
    """They are copies of the training's process, with a fit, a window and our threads in it."""
    recorded = callback(tmp_path, hardware=True, profile_steps=WINDOW)

    def batches() -> Iterator[Any]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            yield from pool.imap(_part, range(STEPS))
            pool.close()
            pool.join()

    made.fit(batches(), steps_per_epoch=STEPS, shuffle=False, verbose=0, callbacks=[recorded])
    assert told(tmp_path) == (list(range(1, STEPS + 1)), ["finished"], ["done"])
    assert find_runs(tmp_path) == (tmp_path,)


def test_a_log_directory_whose_name_is_no_text(made: Any, tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"log\xff")
    fit(made, recorded := callback(root, profile_steps=WINDOW))
    assert told(recorded.root) == (list(range(1, STEPS + 1)), ["finished"], ["done"])
    assert len(list(root.glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_a_process_that_is_spawned_gets_a_callback_of_its_own(made: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path)
    sent: list[bytes] = []
    sending = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: sent.append(pickle.dumps(recorded)))
    fit(made, recorded, sending)
    fit(made, other := pickle.loads(sent[0]))
    assert set(find_runs(tmp_path)) == {tmp_path, other.root}
    assert told(tmp_path)[0] == told(other.root)[0] == list(range(1, STEPS + 1))


# --- streams, many fits ------------------------------------------------------------------------------------


def test_what_is_written_to_a_closed_standard_error_goes_into_no_record(made: Any, tmp_path: Path) -> None:
    def writes() -> None:
        os.close(2)
        recorded = callback(tmp_path, hardware=True, tensorboard=True)
        recorded.set_model(made)
        hooks(recorded, STEPS, _noise)

    child(writes)
    assert told(tmp_path)[:2] == (list(range(1, STEPS + 1)), ["finished"])
    assert not [
        file for file in (tmp_path / "mpprof").iterdir() if file.is_file() and b"noise" in file.read_bytes()
    ]


def _noise() -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"noise of a library\n")


@pytest.mark.parametrize("fits", [20, pytest.param(100, marks=pytest.mark.full)])
def test_many_fits_leave_nothing_open(made: Any, tmp_path: Path, fits: int) -> None:
    recorded = callback(tmp_path, hardware=True)
    fit(made, recorded, steps=2)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(fits - 1):
        fit(made, recorded, steps=2)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert our_threads() == []
    steps, ends, _ = told(tmp_path)
    assert steps == list(range(1, 2 * fits + 1))
    assert ends == ["finished"] * fits


SCRIPT = """
import pathlib, sys, warnings
from tests.record.training import callback, data, model
made, (x, y) = model(kind="linear", optimizer="sgd"), data(12)
warnings.simplefilter("error")
recorded = callback(
    pathlib.Path(sys.argv[1]), profile_steps=(6, 8), hardware=True, verbose=1, audit=True,
    announce="mpprof.api.workflows:announce",
)
made.fit(x, y, batch_size=8, verbose=0, callbacks=[recorded])
"""


@pytest.mark.full
def test_without_docstrings_with_warnings_as_errors_and_with_nobody_at_stdout(tmp_path: Path) -> None:
    """A pipe whose reader has gone: what could not be printed changes no exit status."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, "-OO", "-c", SCRIPT, str(tmp_path)],
        env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    os.close(writer)
    assert ended.returncode == 0, ended.stderr
    assert "mpprof" not in ended.stderr
    assert told(tmp_path) == (list(range(1, STEPS + 1)), ["finished"], ["done"])
