"""Runs analysed in processes of this machine: one that crashes, or is killed, takes one run with it.

A worker reads tasks from its input and writes rows to its output, one JSON line each. It is started as a
module, so that a survey can be called from any script; a fresh one takes the place of one that has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Event, Lock, Thread, Timer
from typing import Any

from mpprof import child
from mpprof.api.survey_row import Task, broken, row_of
from mpprof.model.document import SurveyRow
from mpprof.report import json as documents
from mpprof.report.runs.journal import GIVEN_UP

_FIELDS = ("name", "root", "baseline", "signature")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each worker is one of several: NumPy's own threads would only be in each other's way."""


def rows(left: Sequence[Task], workers: int, time_limit_s: float) -> Iterator[tuple[Task, SurveyRow]]:
    """Yield each task with its row, as they come. Workers end when the iterator does."""
    waiting: Queue[Task] = Queue()
    done: Queue[tuple[Task, SurveyRow] | BaseException] = Queue()
    for task in left:
        waiting.put(task)
    pool = [_Worker(waiting, done, time_limit_s) for _ in range(min(workers, len(left)))]
    for worker in pool:
        worker.start()
    try:
        for _ in left:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        for worker in pool:
            worker.stop()


class _Worker(Thread):
    """A thread that hands tasks to a process of its own, and starts another where that has ended."""

    def __init__(self, waiting: Queue[Task], done: Queue[Any], time_limit_s: float) -> None:
        super().__init__(daemon=True)
        self._waiting, self._done, self._limit_s = waiting, done, time_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._stopped = Lock(), Event()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    task = self._waiting.get_nowait()
                except Empty:
                    return
                self._done.put((task, self._row(task)))
        except Exception as error:  # noqa: BLE001  the survey must not wait for ever
            self._done.put(error)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._stopped.set()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            _close(process)

    def _row(self, task: Task) -> SurveyRow:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        late = Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = Timer(self._limit_s, give_up)
        timer.start()
        try:
            fields = {name: getattr(task, name) for name in _FIELDS}
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(fields).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()  # it may be about to end the process
        answered = line.endswith(b"\n")
        if late.is_set() or not answered:  # the next task gets a process of its own
            code = _close(process)
            with self._lock:
                self._process = None
        if answered:
            row: SurveyRow = json.loads(line)
            return row
        return broken(task, GIVEN_UP + (_too_long(self._limit_s) if late.is_set() else _ended(code)))

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    child.command("-m", __name__),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=child.environment(child.places(), **_ONE_THREAD),
                )
            return self._process


def _close(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that ends, and close its pipes; returns its exit code."""
    code = process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    return code


def _too_long(limit_s: float) -> str:
    return f"it took longer than {limit_s:g} s"


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        more = ", for example for lack of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{more}"
    return f"its process was ended by signal {-code}"


def main() -> None:
    """Answer each task on the input with its row, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed must not be taken for a row
    for line in sys.stdin.buffer:
        row = row_of(Task(**json.loads(line)))
        answers.write(documents.dumps(row, indent=None).strip().encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
