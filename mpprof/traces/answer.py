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
"""For one question (is it there, what lies there), with all tries of the library that asks."""


class Silent(Exception):
    """The server did not answer in time."""


def within(ask: Callable[[], _T]) -> _T:
    """What `ask` returns or raises. Raises Silent where that takes longer than ANSWER_S; it then goes on in a
    thread that the process does not wait for."""
    answered: Future[_T] = Future()

    def run() -> None:
        try:
            answered.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked
            answered.set_exception(error)

    Thread(target=run, daemon=True).start()
    done, _ = wait([answered], ANSWER_S)
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
    """Of aiohttp, which HTTP and Google's storage are asked with."""
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)


def is_timeout(error: BaseException) -> bool:
    """Whether waiting ended this, as each library behind fsspec calls it."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"Silent", "TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"})
