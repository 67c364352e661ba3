"""Windows that are asked for while a training runs, by a file and by a signal: the same on each framework."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from mpprof import load
from mpprof.store import Records, writing
from tests.record.training import BATCH, callback, data

STEPS, BY_FILE, BY_SIGNAL = 60, 21, 41
"""Of the training, and the steps before which each asks."""


def train(keras: Any, made: Any, root: Path) -> None:
    """A fit of `keras`, which may be tf_keras, without a planned window. Only what a user can do asks for one:
    make the file, or send the signal."""
    recorded = callback(root, window_signal=signal.SIGUSR1)
    wish, moment = root / "mpprof" / "window-please", threading.Event()

    class Asks(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == BY_FILE - 1:
                wish.touch()
                for _ in range(4000):
                    if not wish.exists() and recorded._session.profiling.plan is not None:
                        break  # the writer's thread has taken it away
                    moment.wait(0.005)
            if batch == BY_SIGNAL - 1:
                os.kill(os.getpid(), signal.SIGUSR1)

    flush_s, writing.FLUSH_SECONDS = writing.FLUSH_SECONDS, 0.01
    try:
        x, y = data(STEPS)
        made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Asks(), recorded])
    finally:
        writing.FLUSH_SECONDS = flush_s
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def check(root: Path, read: Records, late: int = 0) -> None:
    """Both windows were opened, `late` steps after they were asked for, and left whole traces."""
    assert read.steps.step.tolist() == list(range(1, STEPS + 1))
    windows = read.facts.profile_windows
    firsts = [BY_FILE + late, BY_SIGNAL + late]
    assert [(each.first_step, each.last_step, each.status) for each in windows] == [
        (first, first + 4, "done") for first in firsts
    ]
    profiled = [step for first in firsts for step in range(first, first + 5)]
    assert read.steps.step[read.steps.profiled].tolist() == profiled
    assert "profile_windows" not in read.facts.absent
    folders = [root / str(each.trace) for each in windows]
    assert len(set(folders)) == 2
    traces = load(root).traces
    assert [trace.parent for trace in traces] == folders
    assert all(trace.stat().st_size for trace in traces)
