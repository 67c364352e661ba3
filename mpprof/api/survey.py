"""Many runs at once: each analysed on its own, a row for each, ranked by the GPU time that it loses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any, cast

from mpprof import child
from mpprof.api.results import Table
from mpprof.api.survey_row import Task, broken, row_of
from mpprof.errors import MpprofError, UsageError
from mpprof.model.rows import SurveyRow
from mpprof.report import json as documents
from mpprof.report.runs.baselines import default_baselines
from mpprof.report.runs.journal import GIVEN_UP, Journal, signature_of
from mpprof.runs import loading
from mpprof.runs.run_entries import entry_at

# Runs analysed in processes of this machine: one that crashes, or is killed, takes one run with it.
#
# A worker reads tasks from its input and writes rows to its output, one JSON line each. It is started as a
# module, so that a survey can be called from any script; a fresh one takes the place of one that has ended.

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


TIME_LIMIT_S = 600.0
"""A run that takes longer to analyse is given up."""

Progress = Callable[[int, int, int], None]
"""Is told how many runs are done, of how many, and how many of them could not be read."""


def survey(
    *paths: str | os.PathLike[str] | loading.Several,
    workers: int | None = None,
    dask: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    progress: Progress = lambda done, of, problems: None,
) -> Table:
    """Analyse every run under these paths, in several processes, and rank them.

    Args:
        paths: log directories, traces, or lists of them.
        workers: processes at a time; None: one for each CPU that this process may use.
        dask: the address of a Dask scheduler, to use in place of local processes; its workers must see the
            same paths.
        resume: a file to which each row is added as soon as it is known. Rows that it holds already are not
            worked out again, unless the run's files, its baseline's or mpprof have changed.
        time_limit_s: seconds for each run, in local processes.
        progress: called after each run with three counts: runs done, runs in all, and runs that could not be
            read.

    A 16-bit run is compared with the same float32 run as on the page, if it is among those given. Returns a
    table of `SurveyRow`, the largest `lost_gpu_hours_per_day` first. Then come rows that rest on a single
    profiled step, whose loss is an upper bound, then rows with no known loss, and last the runs that could
    not be read. A run that fails, crashes its process or takes too long is a row with its `problem`. Raises
    `NotFoundError` where a path holds no run.
    """
    given = [path for each in paths for path in (each if isinstance(each, list | tuple) else [each])]
    wanted = tasks([loading.as_path(path) for path in given])
    journal = Journal(Path(resume) if resume is not None else None)
    known = {task.signature: row for task in wanted if (row := journal.row(task.signature)) is not None}
    rows = [{**row, "run": task.name} for task in wanted if (row := known.get(task.signature)) is not None]
    left = [task for task in wanted if task.signature not in known]
    problems = sum(row["problem"] is not None for row in rows)
    progress(len(rows), len(wanted), problems)
    for task, found in _analysed(left, workers, dask, time_limit_s):
        journal.add(task.signature, found)
        rows.append(cast("dict[str, Any]", found))
        problems += found["problem"] is not None
        progress(len(rows), len(wanted), problems)
    return Table("survey", ranked(cast("list[SurveyRow]", rows)))


def _analysed(
    left: Sequence[Task], workers: int | None, dask: str | None, time_limit_s: float
) -> Iterator[tuple[Task, SurveyRow]]:
    if dask is not None:
        return _on_dask(left, dask)
    count = (
        workers if workers is not None else len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count()
    )
    if not count or count < 1:
        raise UsageError(
            f"a survey cannot run in {count} processes", next="Give --workers a number above zero"
        )
    return rows(left, count, time_limit_s)


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


def ranked(rows: Iterable[SurveyRow]) -> list[SurveyRow]:
    """Return the rows, those that lose most first; then those with an upper bound from a single profiled
    step; then those with no known loss, and last the runs that could not be read."""

    def rank(row: SurveyRow) -> tuple[bool, bool, bool, float, str]:
        lost = row["lost_gpu_hours_per_day"]
        return row["problem"] is not None, lost is None, row["one_step"], -(lost or 0.0), row["run"]

    return sorted(rows, key=rank)


# --- which runs --------------------------------------------------------------------------------------------


def tasks(paths: Sequence[Path]) -> list[Task]:
    """Return the tasks under these paths: what there is to analyse, neighbours with one baseline together."""
    found = {}
    for path in paths:
        for place in _places(path):
            inside = f"{path}/{place.name}" if place.root != path else str(path)
            found[str(place.root)] = place, place.name if len(paths) == 1 else inside
    baselines = default_baselines(entry_at(place, name) for place, name in found.values())
    made = []
    for root, (place, name) in found.items():
        baseline = baselines[root]
        files = (*place.files, *(found[baseline][0].files if baseline else ()))
        signature = signature_of(place.root, Path(baseline) if baseline else None, files)
        made.append(Task(name, root, baseline, signature))
    return sorted(made, key=lambda task: (task.baseline or "", task.name))


def _places(path: Path) -> Sequence[loading.Place]:
    at = loading.places(path)
    if not at:
        loading.runs(path)  # raises what says why
    return (*at, *loading.lone_beside(path, at))


# --- on the workers of a Dask cluster that is there already; they see the same paths ------------------------

CONNECT_S = 30


def _on_dask(left: Sequence[Task], address: str) -> Iterator[tuple[Task, SurveyRow]]:
    """Yield each task with its row, as they come. Dask gives the task of a worker that died to another
    worker; a run that ends several workers is given up. Raises MpprofError without Dask, or where nothing
    answers."""
    try:
        import distributed  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise MpprofError("Dask is not installed", next="pip install 'mpprof[dask]'") from error
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise MpprofError(
            f"no Dask scheduler answers: {error}", where=address, next="Start one with `dask scheduler`"
        ) from error
    with client:
        asked: dict[Any, Task] = {client.submit(row_of, task, pure=False): task for task in left}
        for future in distributed.as_completed(list(asked), loop=client.loop):
            task = asked.pop(future)
            failed = future.exception()
            yield task, (future.result() if failed is None else broken(task, f"{GIVEN_UP}{failed}"))
            future.release()
