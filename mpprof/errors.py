"""Every error that mpprof raises on purpose.

    MpprofError                 what happened, where, and what to do next
    |-- UsageError              the call or the command line is wrong
    |-- NotFoundError           no such path, run, device or cause
    |-- SeveralRunsError        a path holds several runs and one is needed
    |-- UnreadableError         the bytes are there, but are not what they should be
    |   `-- TooNewError         written by a newer mpprof
    `-- UnableError             an answer was asked for that the evidence cannot give

All of them end a command with exit code 2 and one line; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import PurePath
from typing import Any


class MpprofError(Exception):
    """An error that a user can act on.

    `what` happened, `where` (a path, a field, a byte offset; empty if nowhere in particular) and
    what to do `next`. `str()` is the one line that a command prints.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", next: str = "") -> None:
        self.what, self.where, self.next = what, where, next
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}. {next}" if next else line)


def with_file_name(line: str) -> str:
    """Return the line of an error with the name of its file in place of the path, which takes lines."""
    where, colon, what = line.partition(": ")
    return f"{PurePath(where).name}{colon}{what}" if colon and is_of_file(line) else line


def is_of_file(line: str) -> bool:
    """Return whether the line of an error begins with the path of a file."""
    where, colon, _ = line.partition(": ")
    return bool(colon) and PurePath(where).name != where


class UsageError(MpprofError):
    """The call or the command line is wrong."""


class NotFoundError(MpprofError):
    """No such path, run, device or cause."""


class SeveralRunsError(MpprofError):
    """A path holds several runs and one is needed."""


class UnreadableError(MpprofError):
    """The bytes are there, but are not what they should be."""


class TooNewError(UnreadableError):
    """The file was written by a newer mpprof."""


class UnableError(MpprofError):
    """An answer was asked for that the evidence cannot give."""


def own_baseline(run: str, where: str) -> UsageError:
    """Return the error that a run is to be compared with itself."""
    return UsageError(f"{run} is its own baseline", where=where, next="Name another run of the same model")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the question whether the name nearest to `word` was meant; empty where none is near."""
    from difflib import get_close_matches  # only where a name was not found

    near = get_close_matches(word.lower(), list(names), n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else ""


def optional_package(name: str) -> Any:
    """Import a package that mpprof does not require. Raises MpprofError, which says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MpprofError(f"{name} is not installed", next=f"pip install {name}") from error
