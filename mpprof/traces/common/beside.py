"""A call that runs beside its caller: for work that lets other threads run, such as the compiled walk."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def start(call: Callable[[], T]) -> Callable[[], T]:
    """Begin the call in a thread of its own; return what waits for its end and gives its result, or raises
    its error. Where the system gives no thread, the call itself is returned."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            errors.append(error)

    def result() -> T:
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    thread = Thread(target=run, daemon=True)  # not waited for where the caller fails meanwhile
    try:
        thread.start()
    except RuntimeError:  # a container may allow no more
        return call
    return result
