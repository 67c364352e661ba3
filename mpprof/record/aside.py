"""Work that may hang is done aside: in a thread of our own, for which training waits a limited time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
"""Longer than a slow network file system takes to make a file, shorter than what one would call a hang."""

FAILURES = (Exception, SystemExit)
"""What counts as a failure of ours. An interrupt is not: it is meant for the training."""


def aside(work: Callable[..., T], *arguments: Any, deadline_s: float | None = None) -> T:
    """The result of `work(*arguments)`, or its error. Raises `TimeoutError` after the deadline; the thread is
    then left behind, and what it may still return is dropped."""
    limit = DEADLINE_SECONDS if deadline_s is None else deadline_s
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            errors.append(error)

    thread = threading.Thread(target=run, name="mpprof aside", daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {limit:g} s")
    return results[0]
