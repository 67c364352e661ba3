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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from threading import Event, Lock, Timer

from mpprof import child
from mpprof.api.survey_row import Task, broken, row_of
from mpprof.model.rows import SurveyRow
from mpprof.report import json as documents
from mpprof.report.runs.journal import GIVEN_UP

_FIELDS = ("name", "root", "baseline", "signature")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each worker is one of several: NumPy's own threads would only be in each other's way."""


def rows(left: Sequence[Task], workers: int, time_limit_s: float) -> Iterator[tuple[Task, SurveyRow]]:
    """Yield each task with its row, as they come. Workers end when the iterator does."""
    crew, pool = _Workers(time_limit_s), ThreadPoolExecutor(workers)
    try:
        asked = {pool.submit(crew.row, task): task for task in left}
        for done in as_completed(asked):
            yield asked[done], done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        crew.end()  # also those that work: their threads end then
        pool.shutdown()


class _Workers:
    """Processes, each of which is given one task at a time; one is started where none is idle."""

    def __init__(self, time_limit_s: float) -> None:
        self._limit_s = time_limit_s
        self._idle: list[subprocess.Popen[bytes]] = []
        self._started: set[subprocess.Popen[bytes]] = set()
        self._lock, self._ended = Lock(), False

    def end(self) -> None:
        """End every process, whatever it does."""
        with self._lock:
            self._ended = True
            for process in self._started:
                process.kill()
            for process in self._idle:
                _close(process)

    def row(self, task: Task) -> SurveyRow:
        process = self._process()
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
        with self._lock:
            again = answered and not late.is_set() and not self._ended
            if again:
                self._idle.append(process)
            else:  # the next task gets a process of its own
                self._started.discard(process)
        code = 0 if again else _close(process)
        if answered:
            row: SurveyRow = json.loads(line)
            return row
        why = f"it took longer than {self._limit_s:g} s" if late.is_set() else _ended(code)
        return broken(task, f"{GIVEN_UP}{why}")

    def _process(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            process = subprocess.Popen(
                child.command("-m", __name__),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child.environment(child.places(), **_ONE_THREAD),
            )
            if self._ended:
                process.kill()
            self._started.add(process)
            return process


def _close(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that ends, and close its pipes; returns its exit code."""
    code = process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    return code


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
