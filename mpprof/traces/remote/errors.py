"""What went wrong elsewhere, in one line that says what to do: the libraries behind fsspec share no base."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from threading import Thread
from typing import Any, TypeVar

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError

# Where a server of the public network may send a client on to: not into the network that the client is in.
#
# What lies at an address of its own network (127.0.0.1, 10.0.0.1, 169.254.169.254) a machine may read that
# the server could not: with a redirect the server would have it read. What is looked up is what is connected
# to.

_via_public: ContextVar[list[bool]] = ContextVar("_via_public")
"""Of the request that is made: whether it was at a public address; a list, since tasks copy the variable."""


_LONGEST_PAGE = 32 << 20
"""Bytes of an answer that is read as a whole, as a listing is; files are read part by part."""


class IntoOwnNetworkError(OSError):
    """A public address led to one of the own network."""


async def client(**options: Any) -> Any:
    """Return an aiohttp session in which no request that was at a public address follows a redirect to one
    that is not, and no answer that is read as a whole is longer than a listing is."""
    import aiohttp
    from aiohttp.resolver import DefaultResolver
    from yarl import URL

    is_public: dict[str, bool] = {}  # by host; a connection that is used again looks up nothing

    def note(host: str) -> None:
        via = _via_public.get()
        if is_public[host]:
            via[0] = True
        elif via[0]:
            raise IntoOwnNetworkError(f"a redirect leads from a public address to {host}, in the own network")

    class Resolver(DefaultResolver):  # type: ignore[misc, valid-type]
        async def resolve(self, host: str, *more: Any, **other: Any) -> Any:
            found = await super().resolve(host, *more, **other)
            is_public[host] = all(_is_global(one["host"]) for one in found)
            note(host)
            return found

    def at(url: URL) -> None:
        host = url.host or ""
        if (literal := _is_global(host)) is not None:  # an address itself, which nothing looks up
            is_public[host] = literal
        if host in is_public:
            note(host)

    async def started(session: Any, context: Any, given: Any) -> None:
        _via_public.set([False])
        at(given.url)

    async def redirected(session: Any, context: Any, given: Any) -> None:
        at(given.url.join(URL(given.response.headers.get("Location") or "")))

    class Bounded(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                found = bytearray()
                async for part in self.content.iter_any():
                    found += part
                    if len(found) > _LONGEST_PAGE:
                        self.close()
                        raise UnreadableError(
                            f"its listing has more than {_LONGEST_PAGE:,} bytes",
                            next="Give the address of one run",
                        )
                self._body = bytes(found)
                await self._wait_released()
            return self._body

    traced = aiohttp.TraceConfig()
    traced.on_request_start.append(started)
    traced.on_request_redirect.append(redirected)
    connector = aiohttp.TCPConnector(resolver=Resolver(), use_dns_cache=False)
    return aiohttp.ClientSession(
        connector=connector, trace_configs=[traced], response_class=Bounded, **options
    )


def _is_global(address: str) -> bool | None:
    """Return whether an address is of the public network; None for what is no address."""
    try:
        return ip_address(address.partition("%")[0]).is_global
    except ValueError:
        return None


# How long a server elsewhere is waited for. The libraries behind fsspec would wait for minutes.

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


_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of this machine's disk, which carry no file name where writing fails."""
_TIMEOUTS = {"Silent", "TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"}
_BREAKS = {"ClientPayloadError", "ServerDisconnectedError", "ConnectionResetError", "IncompleteReadError",
           "ResponseStreamingError"}  # fmt: skip
"""Of any of the libraries, by the name of the error or of one of its bases."""


@contextmanager
def explained(packages: Mapping[str, str], address: str, place: str) -> Iterator[None]:
    """Turn every error inside the context into one of mpprof's own about `place`; `packages`: what has to be
    installed, by scheme."""
    try:
        yield
    except MpprofError as error:
        if error.where:
            raise
        raise type(error)(error.what, where=place, next=error.next) from error
    except ImportError as error:
        package = packages[address.partition("://")[0]]
        raise UsageError(
            f"fetching from there needs the package {package}", where=place, next=f"pip install {package}"
        ) from error
    # Whatever the libraries raise means that the bytes did not come.
    except Exception as error:
        raise _explanation(error, place) from error


def is_break(error: BaseException) -> bool:
    """Return whether the connection broke or fell silent; False where the server refused."""
    return bool(_kinds(error) & (_BREAKS | _TIMEOUTS))


def no_credentials(error: BaseException) -> bool:
    return type(error).__name__ in ("NoCredentialsError", "DefaultCredentialsError")


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _explanation(error: Exception, place: str) -> MpprofError:
    def said(what: str, next: str, kind: type[MpprofError] = UnreadableError) -> MpprofError:
        return kind(what, where=place, next=next)

    chain = list(_causes(error))
    kinds = set[str]().union(*map(_kinds, chain))
    status = next((code for each in chain if (code := _status(each)) is not None), None)
    lost = next((each for each in chain if _is_connection(each)), None)
    if into := next((each for each in chain if isinstance(each, IntoOwnNetworkError)), None):
        return said(str(into), "Give the address that it leads to, if it is yours")
    if kinds & _TIMEOUTS:
        waited = f"no byte in {SILENCE_S} s, or no whole answer in {ANSWER_S} s"
        return said(f"does not answer: {waited}", "Try again later, or copy the files here")
    if kinds & _BREAKS:
        return said(f"the connection breaks: {_line(error)}", "Try again, or copy the files here")
    if isinstance(error, OSError) and (error.filename or error.errno in _LOCAL):
        return UnreadableError(
            f"cannot be stored on this machine ({error.strerror})", where=error.filename or place,
            next="Set MPPROF_CACHE to another place, or --no-cache",
        )  # fmt: skip
    # gcsfs has no kind of its own for a refusal.
    forbidden = any(isinstance(each, OSError) and str(each).startswith("Forbidden") for each in chain)
    if status in (401, 403) or "PermissionError" in kinds or forbidden:
        return said(f"access denied: {_line(error)}", "Check the credentials of this machine")
    if any(no_credentials(each) for each in chain):
        return said(
            "this machine has no credentials for it",
            "Log in with the store's own tool, or set its environment variables",
        )
    if status is not None and status >= 400 and status not in (404, 410):
        return said(f"the server answers {status}: {_line(chain[-1])}", "Try again later")
    if "TooManyRedirects" in kinds:
        return said("redirect loop", "Check the address")
    if status is None and lost is not None:
        return said(f"cannot be reached: {_line(lost)}", "Check the address and the network")
    if status is not None or isinstance(error, FileNotFoundError):
        return said("nothing was found at this address", "Check it", NotFoundError)
    return said(
        f"cannot be fetched: {type(error).__name__}: {_line(error)}",
        "Check the address and the network, or copy the files here",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what led to it: fsspec reports "not found" for whatever prevented the request."""
    each: BaseException | None = error
    for _ in range(8):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error carries, as aiohttp or gcsfs stores it."""
    value = error.status if hasattr(error, "status") else getattr(error, "code", None)
    return value if isinstance(value, int) and 300 <= value < 600 else None


def _is_connection(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return re.sub(r"(\w+://)[^\s/@]*@", r"\1", re.sub(r"\?\S*", "", text))[:200] or "no reason given"
