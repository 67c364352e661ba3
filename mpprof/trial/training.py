"""One training of the script, in a process of its own that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from mpprof.launch import command
from mpprof.launch.options import Options
from mpprof.trial import switches

_GONE_WITHIN_S = 10.0
_LOOKED_AT_EACH_S = 0.02


class Terminated(KeyboardInterrupt):
    """SIGTERM was received, or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Ended(NamedTuple):
    """`code`: of the process, negative: the signal that ended it; None: it was ended for want of time."""

    code: int | None
    seconds: float


def run(words: Sequence[str], options: Options, output: Path, within_s: float) -> Ended:
    """Run one training to its end. Its output goes into a file. However this function is left, no process of
    the training remains."""
    sets = () if options.trial is None else options.trial.sets
    environment = {**command.environment(options), **switches.environment(sets), "MPPROF_TRY": "1"}
    begun = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            command.arguments(words),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(within_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    return Ended(code, time.monotonic() - begun)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a training with all processes of its group and those that it has started, without a chance for
    their handlers: they would save what is half trained. What it has recorded is on disk but for the last
    second."""
    members = _members(process.pid)
    _kill_group(process)
    for each in members:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()
    # The memory of a GPU is free once the process that held it is gone.
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(_lives(each) for each in members) and time.monotonic() < deadline:
        time.sleep(_LOOKED_AT_EACH_S)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _members(group: int) -> list[psutil.Process]:
    """Return the processes of a group, and those that its first one has started."""
    found = []
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(group).children(recursive=True)
    for each in psutil.process_iter() if hasattr(os, "getpgid") else ():
        with contextlib.suppress(OSError):
            if os.getpgid(each.pid) == group and each not in found:
                found.append(each)
    return found


def _lives(process: psutil.Process) -> bool:
    """Return whether a process runs: one that is dead, and was not waited for, does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM and SIGHUP, so that the running training ends as with Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    numbers = [number for number in ("SIGTERM", "SIGHUP") if hasattr(signal, number)]
    before = {number: signal.signal(getattr(signal, number), raise_it) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(getattr(signal, number), handler if handler is not None else signal.SIG_DFL)
