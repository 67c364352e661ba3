"""A signal asks for a further window: only where the user has chosen one that means nothing else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import UsageError
from mpprof.record import StepRecorder
from mpprof.store import read_records

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
QUIET: Any = {"hardware": False, "verbose": 0, "announce": None, "profile_steps": None}


@pytest.fixture(autouse=True)
def no_handler_is_left() -> Iterator[None]:
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    yield
    left = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert left is signal.SIG_DFL


def absent(root: Path) -> dict[str, str]:
    facts = read_records(root).facts
    return facts.absent


@pytest.mark.framework
def test_a_signal_in_a_running_fit_opens_a_window(keras: Any, tmp_path: Path) -> None:
    from tests.record.training import BATCH, callback, data, model

    class Send(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch in (10, 25):
                os.kill(os.getpid(), signal.SIGUSR1)

    x, y = data(40)
    recorded = callback(tmp_path, window_signal=signal.SIGUSR1)
    model().fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Send(), recorded])
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    facts = read_records(tmp_path).facts
    assert [(w.first_step, w.last_step, w.status) for w in facts.profile_windows] == [
        (11, 15, "done"),
        (26, 30, "done"),
    ]


def test_a_handler_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with StepRecorder(tmp_path, window_signal=signal.SIGUSR1, **QUIET) as recorder:
            for _ in range(3):
                with recorder.step():
                    os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert seen == [signal.SIGUSR1] * 3
    assert absent(tmp_path)["signal"] == "SIGUSR1 has a handler already"


def test_one_that_is_set_meanwhile_is_not_taken_away(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, window_signal=signal.SIGUSR1, **QUIET) as recorder:
        assert callable(signal.getsignal(signal.SIGUSR1))
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        with recorder.step():
            pass
    assert signal.signal(signal.SIGUSR1, signal.SIG_DFL) is signal.SIG_IGN


def test_in_another_thread_there_is_none(tmp_path: Path) -> None:
    def train() -> None:
        with StepRecorder(tmp_path, window_signal=signal.SIGUSR1, **QUIET) as recorder, recorder.step():
            pass

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert "main thread" in absent(tmp_path)["signal"]


def test_an_error_in_the_loop_restores_it(tmp_path: Path) -> None:
    recorder = StepRecorder(tmp_path, window_signal=signal.SIGUSR1, **QUIET)
    with pytest.raises(ZeroDivisionError), recorder, recorder.step():
        raise ZeroDivisionError


@pytest.mark.parametrize("wrong", [signal.SIGKILL, signal.SIGSTOP, 0, -1, True, "SIGUSR1", 1000])
def test_what_is_no_signal_is_wrong_usage(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match="window_signal"):
        StepRecorder(tmp_path, window_signal=wrong, **QUIET)
