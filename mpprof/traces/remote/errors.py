"""What went wrong elsewhere, in one line that says what to do: the libraries behind fsspec share no base."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.traces.remote import timeouts
from mpprof.traces.remote.redirects import IntoOwnNetworkError

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
        waited = f"no byte in {timeouts.SILENCE_S} s, or no whole answer in {timeouts.ANSWER_S} s"
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
