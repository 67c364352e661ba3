"""How long a server elsewhere is waited for. The libraries behind fsspec would wait for minutes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")

CONNECT_S = 10
SILENCE_S = 12
"""Without a byte, of an answer that was asked for or that has begun."""
ANSWER_S = 30
"""For one question (is it there, what lies there), with all tries of the library that asks; for the first
one together with connecting and finding credentials."""
LEAST_BYTES_PER_S, SLOW_S = 1024, 60
"""Of a file that comes: so many bytes a second over so long."""


class Silent(Exception):
    """The server did not answer in time."""


def within(ask: Callable[[], _T], seconds: float | None = None) -> _T:
    """Return what `ask` returns or raise what it raises. Raises Silent where `ask` takes longer than
    that (ANSWER_S); it then continues in a thread that the process does not wait for."""
    answered: Future[_T] = Future()

    def run() -> None:
        try:
            answered.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            answered.set_exception(error)

    Thread(target=run, daemon=True).start()
    done, _ = wait([answered], ANSWER_S if seconds is None else seconds)
    if not done:
        raise Silent
    return answered.result()


def hasten(filesystem: Any, scheme: str) -> None:
    """Set the waiting times of the library behind a filesystem, each in its own way, and how often it tries
    again; `ANSWER_S` bounds what cannot be set."""
    if scheme.startswith("s3"):
        filesystem.connect_timeout, filesystem.read_timeout, filesystem.retries = CONNECT_S, SILENCE_S, 2
        filesystem.config_kwargs.setdefault("retries", {"total_max_attempts": 1})
    elif scheme in ("gs", "gcs"):
        filesystem.requests_timeout = client_timeout()


def client_timeout() -> Any:
    """Return the timeout for aiohttp, which is used for HTTP and Google's storage."""
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
