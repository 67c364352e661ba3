"""How long a server elsewhere is waited for. The libraries behind fsspec would wait for minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")

CONNECT_S = 10
SILENCE_S = 12
"""Without a byte, of an answer that was asked for or that has begun."""
ANSWER_S = 30
"""For one question (is it there, what lies there), with all tries of the library that asks; for the first
one together with connecting and finding credentials. What is not bounded is a file whose bytes go on coming,
however slowly."""

_first_by_s: ContextVar[float | None] = ContextVar("_first_by_s", default=None)
"""By the monotonic clock, when the first answer must have come; None: it came."""


class Silent(Exception):
    """The server did not answer in time."""


def within(ask: Callable[[], _T]) -> _T:
    """Return what `ask` returns or raise what it raises. Raises Silent where `ask` takes longer than
    ANSWER_S; it then continues in a thread that the process does not wait for."""
    answer = before_it(ask)
    _first_by_s.set(None)
    return answer


@contextmanager
def first() -> Iterator[None]:
    """Hold a common limit of ANSWER_S for the first request and what comes before it (`before_it`)."""
    outside = _first_by_s.set(time.monotonic() + ANSWER_S)
    try:
        yield
    finally:
        _first_by_s.reset(outside)


def before_it(ask: Callable[[], _T]) -> _T:
    """Return what `ask` returns, as `within` does, for what is not yet a request: to connect, to find
    credentials."""
    by_s = _first_by_s.get()
    left_s = ANSWER_S if by_s is None else max(by_s - time.monotonic(), 0.0)
    answered: Future[_T] = Future()

    def run() -> None:
        try:
            answered.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            answered.set_exception(error)

    Thread(target=run, daemon=True).start()
    done, _ = wait([answered], left_s)
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


def is_timeout(error: BaseException) -> bool:
    """Return whether a timeout caused this error, by the errors of each library behind fsspec."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"Silent", "TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"})
