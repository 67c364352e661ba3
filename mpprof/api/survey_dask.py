"""Runs analysed on the workers of a Dask cluster that is there already; they see the same paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mpprof.api.survey_row import Task, broken, row_of
from mpprof.errors import MpprofError
from mpprof.model.rows import SurveyRow
from mpprof.report.runs.journal import GIVEN_UP

CONNECT_S = 30


def rows(left: Sequence[Task], address: str) -> Iterator[tuple[Task, SurveyRow]]:
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
