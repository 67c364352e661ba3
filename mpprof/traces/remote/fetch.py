"""Traces and log directories that lie elsewhere (https, s3, gs, ...): what is needed of them, fetched once.

Of a log directory the records are fetched, and traces when they are read (`lazy_fetch`). A file that was
fetched stays under the given folder, by its address and by what the server says of its version, so a second
look costs no more than asking. Nothing is written outside that folder, whatever names a server lists;
listings, sizes and waiting for an answer are bounded (`answer`), but not a file that goes on coming, however
slowly.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.traces.common import lazy_fetch
from mpprof.traces.remote import listing, local_copies, timeouts
from mpprof.traces.remote.file import File, again

PACKAGES = {
    "http": "aiohttp", "https": "aiohttp", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs",
    "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "memory": "fsspec", "file": "fsspec",
}  # fmt: skip
"""Schemes that are fetched, and the package that fsspec needs for each."""

LIMIT_BYTES = 8 << 30
"""Of everything fetched together; above it what was used longest ago goes."""

_LIBRARIES = ("fsspec", "s3fs", "aiobotocore", "botocore", "gcsfs", "google.auth", "adlfs")
_AT_ONCE = 8
"""Files that are fetched at the same time."""
_LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of this machine's disk, which carry no file name where writing fails."""
_RECORD = re.compile(r"/mpprof/(?:run\.json|steps\.jsonl|hardware\.jsonl)$")
"""One of a run's records, which stands for its run."""
_ADDRESS = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+]*):/+(?P<rest>[^/].*)$")


def address_of(path: Path | str) -> str | None:
    """Return the address that a path stands for ("https:/host/x" too, which is what `Path` makes of one);
    None for a path of this machine. Raises UsageError for a scheme that mpprof does not fetch."""
    match = _ADDRESS.match(path.as_posix() if isinstance(path, Path) else path)
    if match is None or len(match["scheme"]) < 2:  # a Windows drive is no scheme
        return None
    scheme = match["scheme"].lower()
    if scheme not in PACKAGES:
        raise UsageError(
            f"{scheme}:// is not fetched", where=shown(f"{scheme}://{match['rest']}"),
            next=f"Use one of {', '.join(sorted(PACKAGES))}, or copy the files here",
        )  # fmt: skip
    root = "/" if scheme == "file" else ""
    address = f"{scheme}://{root}{_RECORD.sub('', match['rest'])}"
    try:
        parts = urlsplit(address)
        _ = parts.port if scheme.startswith("http") else None
    except ValueError as error:
        where = re.sub(r"//[^/]*@", "//", address)
        raise UsageError("is not an address", where=where, next="Check its brackets and its port") from error
    return address


def shown(address: str) -> str:
    """Return the address without passwords and signatures."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def fetch(address: str, folder: Path) -> Path:
    """Return the local copy of a trace file, or of what mpprof reads of a log directory; in a log directory,
    traces are listed by name until `lazy_fetch.complete` is called for them. What lies on this machine
    (file://) is read where it is.

    Raises NotFoundError where nothing lies there, UnreadableError where it cannot be fetched, UsageError
    where the package for the scheme is missing.
    """
    place = shown(address)
    if address.startswith("file://"):
        return _of_this_machine(address)
    with _explained(address, place):
        with timeouts.first():
            filesystem, root = timeouts.before_it(partial(_connect, address))
            files = _listed(filesystem, root, place, address)
        single = files[0].single
        target = folder / _digest(address) / ("" if single else _title(address))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            brought = [pool.submit(_bring, filesystem, file, target, address) for file in files]
            try:
                for done in brought:
                    done.result()
            except BaseException:  # the others would wait in vain, one after the other
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if not single:
            local_copies.keep_only(target, {file.name for file in files})
        local_copies.evict(folder, LIMIT_BYTES)
    return target / files[0].name if single else target


def _of_this_machine(address: str) -> Path:
    path = Path(address.removeprefix("file://"))
    if not path.exists():
        raise NotFoundError("no such file or directory", where=str(path), next="Check the path")
    return path


def _listed(filesystem: Any, root: str, place: str, address: str) -> list[File]:
    """Return the files at an address; a public bucket can be read even where this machine has no credentials
    for S3."""
    try:
        return listing.listed(filesystem, root, place)
    except Exception as error:
        if not _no_credentials(error) or not address.startswith("s3"):
            raise
        filesystem.anon = True
        filesystem.connect(refresh=True)
        try:
            return listing.listed(filesystem, root, place)
        except PermissionError as denied:
            raise UnreadableError(
                "this machine has no credentials for it, and it is not public", where=place,
                next="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from denied  # fmt: skip


def _title(address: str) -> str:
    """Return the name of the local copy of a log directory; its run has that name, too."""
    parts = urlsplit(address)
    name = unquote(PurePosixPath(parts.path.rstrip("/")).name) or parts.netloc.rpartition("@")[2]
    return re.sub(r"[^\w.+@ -]+", "_", name).strip(".") or "logs"


def _bring(filesystem: Any, file: File, target: Path, address: str) -> None:
    here = local_copies.is_here(file, target)
    if file.kind:
        lazy_fetch.list_beside((target / file.name).parent, file.beside)
    if file.later:
        if not here:
            local_copies.stand_in(file, target)
        fetch = partial(_complete, filesystem, file, target, address)
        lazy_fetch.expect(target / file.name, fetch, file.kind)
    elif here:
        local_copies.used(file, target)
    else:
        local_copies.get(filesystem, file, target, _where(address, file))


def _complete(filesystem: Any, file: File, target: Path, address: str) -> None:
    """Fetch the bytes of a trace. The rest of the run is of use without this trace: whatever prevents the
    fetch is raised as an UnreadableError."""
    place = _where(address, file)
    try:
        with _explained(address, place):
            if not local_copies.is_here(file, target):
                file = again(filesystem, file)  # it may have been listed long ago
                local_copies.get(filesystem, file, target, place)
            local_copies.used(file, target)
    except NotFoundError as error:
        raise UnreadableError("was removed after it was listed", where=place, next="Look again") from error


def _where(address: str, file: File) -> str:
    return shown(address) if file.single else f"{shown(address).rstrip('/')}/{file.name}"


def _connect(address: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if address.startswith("http"):
        # A server that packs on the way would make ranges and sizes those of another file.
        headers = {"Accept-Encoding": "identity"}
        options["client_kwargs"] = {"timeout": timeouts.client_timeout(), "headers": headers}
    for library in _LIBRARIES:  # what they would print beside our one line, a traceback among it
        logging.getLogger(library).addHandler(logging.NullHandler())
    filesystem, root = url_to_fs(address, **options)
    timeouts.hasten(filesystem, address.partition("://")[0])
    return filesystem, root


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


# --- what went wrong ---------------------------------------------------------------------------------------


@contextmanager
def _explained(address: str, place: str) -> Iterator[None]:
    """Turn errors of the libraries behind fsspec, each of its own kind, into mpprof's own errors, which say
    what to do, while the context lasts."""
    try:
        yield
    except MpprofError as error:
        if error.where:
            raise
        raise type(error)(error.what, where=place, next=error.next) from error
    except ImportError as error:
        package = PACKAGES[address.partition("://")[0]]
        raise UsageError(
            f"fetching from there needs the package {package}", where=place,
            next=f"pip install {package}",
        ) from error  # fmt: skip
    # aiohttp, botocore, google.auth and their kin share no base: whatever they raise means that the bytes
    # did not come.
    except Exception as error:
        raise _explanation(error, place) from error


def _explanation(error: Exception, place: str) -> MpprofError:
    chain = list(_causes(error))
    status = next((code for each in chain if (code := _status(each)) is not None), None)
    if any(timeouts.is_timeout(each) for each in chain):
        return UnreadableError(
            f"does not answer: no byte in {timeouts.SILENCE_S} s, or no whole answer in "
            f"{timeouts.ANSWER_S} s",
            where=place, next="Try again later, or copy the files here",
        )  # fmt: skip
    if any(local_copies.is_break(each) for each in chain):
        return UnreadableError(
            f"the connection breaks: {_line(error)}", where=place, next="Try again, or copy the files here"
        )
    if isinstance(error, OSError) and (error.filename or error.errno in _LOCAL):
        return UnreadableError(
            f"cannot be stored on this machine ({error.strerror})", where=error.filename or place,
            next="Set MPPROF_CACHE to another place, or --no-cache",
        )  # fmt: skip
    if status in (401, 403) or any(_is_refusal(each) for each in chain):
        return UnreadableError(
            f"access denied: {_line(error)}", where=place, next="Check the credentials of this machine"
        )
    if any(_no_credentials(each) for each in chain):
        return UnreadableError(
            "this machine has no credentials for it",
            where=place,
            next="Log in with the store's own tool, or set its environment variables",
        )
    if status in (404, 410):
        return NotFoundError("nothing was found at this address", where=place, next="Check it")
    if status is not None and status >= 400:
        return UnreadableError(
            f"the server answers {status}: {_line(chain[-1])}", where=place, next="Try again later"
        )
    if any(type(each).__name__ == "TooManyRedirects" for each in chain):
        return UnreadableError("redirect loop", where=place, next="Check the address")
    lost = next((each for each in chain if _is_connection(each)), None)
    if lost is not None:
        return UnreadableError(
            f"cannot be reached: {_line(lost)}", where=place, next="Check the address and the network"
        )
    if isinstance(error, FileNotFoundError):
        return NotFoundError("nothing was found at this address", where=place, next="Check it")
    return UnreadableError(
        f"cannot be fetched: {type(error).__name__}: {_line(error)}", where=place,
        next="Check the address and the network, or copy the files here",
    )  # fmt: skip


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


def _no_credentials(error: BaseException) -> bool:
    return type(error).__name__ in ("NoCredentialsError", "DefaultCredentialsError")


def _is_refusal(error: BaseException) -> bool:
    # gcsfs has no kind of its own for it.
    return isinstance(error, PermissionError) or (
        isinstance(error, OSError) and str(error).startswith("Forbidden")
    )


def _is_connection(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return re.sub(r"(\w+://)[^\s/@]*@", r"\1", re.sub(r"\?\S*", "", text))[:200] or "no reason given"
