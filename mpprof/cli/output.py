"""Where a command writes its text: to a file, which is complete or absent, or to the terminal."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import TextIO

from mpprof.cli import progress
from mpprof.errors import MpprofError, UsageError
from mpprof.model.shell import program
from mpprof.report import words

WIDTH_WITHOUT_TERMINAL = 100
UNCUT = 1 << 20

_COMMAND = re.compile(r"^((?:\x1b\[[\d;]*m)*)mpprof (?=[a-z]+(?: |$))", re.MULTILINE)
"""A line that is a command to be copied."""


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `-o FILE` and `--force`."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write to FILE, not to the terminal"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add `-v`."""
    parser.add_argument(
        "-v", "--verbose", action="store_true",
        help="show all of it as text: evidence, notes, what is clear and what could not be judged "
        "(without it, 25 lines)",
    )  # fmt: skip


def check_output(path: Path | None, *, force: bool) -> None:
    """Refuse a file that exists or a place that cannot be written, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError("is a directory, not a file", where=str(path), next="Name a file in it")
    if path.exists() and not force:
        raise UsageError(
            "exists already", where=str(path), next="Choose another name, or --force to replace it"
        )
    folder = Path(os.path.realpath(path)).parent
    if not path.exists() and not folder.is_dir():
        raise UsageError("no such directory", where=str(folder), next="Create it first")


def write(text: str, path: Path | None, *, force: bool = False) -> None:
    """Write the text to `path`, or to stdout where it is None. Raises MpprofError; leaves nothing
    half-written."""
    progress.clear()
    if path is None:
        text = _COMMAND.sub(lambda match: f"{match[1]}{program()} ", text)
        print_all(text if text.endswith("\n") else f"{text}\n")
        return
    write_bytes(text.encode("utf-8", "backslashreplace"), path, force=force)


def print_all(text: str) -> None:
    """Print all of the text to stdout and flush it. A reader who has left (BrokenPipeError) is no error of
    ours: see `main`."""
    try:
        if sys.stdout is None:  # the caller has closed it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise MpprofError(
            f"cannot be written ({error.strerror})", where="standard output", next="Write it somewhere else"
        ) from error


def discard_stdout() -> None:
    """Drop what stdout still holds, and what comes: Python would complain again on flushing at exit."""
    if sys.stdout is not None:
        with suppress(io.UnsupportedOperation):  # no file of the system's: nothing is flushed at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_bytes(content: bytes, path: Path, *, force: bool = False) -> None:
    """Write a whole file or none: it is written beside its place, then renamed into it, with the owner and
    mode of the file that it replaces. Links are followed. What is not a regular file (a device, a pipe, an
    open descriptor such as /dev/stdout) is opened and written into, and stays what it is."""
    check_output(path, force=force)
    try:
        if (descriptor := _descriptor(path)) is not None or (path.exists() and not path.is_file()):
            with open(path if descriptor is None else os.dup(descriptor), "wb", buffering=0) as stream:
                rest = memoryview(content)
                while rest:
                    rest = rest[stream.write(rest) or 0 :]
        else:
            _replace(content, Path(os.path.realpath(path)))
    except OSError as error:
        raise MpprofError(
            f"cannot be written ({error.strerror})", where=str(path), next="Choose another place with -o"
        ) from error


def is_stdout(path: Path) -> bool:
    """Return whether what is written to the path comes out of this process' stdout."""
    return _descriptor(path) == 1


def _replace(content: bytes, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{time_ns():x}.part")
    made = False
    try:
        with temporary.open("xb") as file:
            made = True
            if path.exists() and hasattr(os, "fchmod"):
                replaced = path.stat()
                with suppress(OSError):  # of another user's file: it may be written, and not given away
                    os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(replaced.st_mode))
            file.write(content)
        temporary.replace(path)
    except OSError:
        if made:
            temporary.unlink(missing_ok=True)
        raise


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor of this process that a path stands for (/dev/stdout, /dev/fd/3, or a link to
    one on Linux); None for any other path."""
    place = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(place)
        folder = os.path.realpath(folder)
        if folder == f"/proc/{os.getpid()}/fd" and name.isdecimal():
            return int(name)
        if not os.path.islink(os.path.join(folder, name)):
            return None
        place = os.path.join(folder, os.readlink(os.path.join(folder, name)))
    return None


_MOST_LINKS = 40  # as many as Linux follows


def width(without_terminal: int = WIDTH_WITHOUT_TERMINAL) -> int:
    """Return the columns of the terminal (COLUMNS counts), from 68 to 120; `without_terminal` where there is
    none."""
    import shutil  # not needed where nothing is printed

    return max(68, min(120, shutil.get_terminal_size((without_terminal, 24)).columns))


def width_of_names(args: argparse.Namespace) -> int:
    """Return the columns for a table whose names may be cut: those of the terminal; in a pipe or a file,
    where nothing is cut, as many as there are."""
    return width() if has_width(args) else UNCUT


def has_width(args: argparse.Namespace) -> bool:
    """Return whether the text has a width to fit: a terminal's, or COLUMNS; a pipe or a file has none."""
    to_stdout = args.output is None and sys.stdout is not None
    return to_stdout and (sys.stdout.isatty() or "COLUMNS" in os.environ)


def color(args: argparse.Namespace) -> bool:
    """Return whether to use colours: only on a terminal that has them, and only if neither an option nor the
    environment forbids them."""
    return (
        args.output is None
        and sys.stdout is not None
        and sys.stdout.isatty()
        and not args.no_color
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def ascii_only(args: argparse.Namespace) -> bool:
    """Return whether the text goes to stdout, and its encoding lacks what bars and units need; files are
    UTF-8."""
    return args.output is None and stdout_is_ascii()


def stdout_is_ascii() -> bool:
    try:
        "█▏µ…→×".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return True
    return False


def complain(text: str) -> None:
    """Write the text to stderr. Names in it may come from foreign files: only its line breaks act on the
    terminal."""
    lines = (words.plain(line) for line in f"mpprof: {text}".split("\n"))
    say("\n".join(lines))


def say(text: str) -> None:
    """Write lines to stderr as they are. If it cannot be written (a full disk, a closed pipe), the command
    still ends with its exit code."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = nobody()


def nobody() -> TextIO:
    """Return the file that output goes to if the terminal is gone."""
    return open(os.devnull, "w", encoding="utf-8")


def note(args: argparse.Namespace, text: str) -> None:
    """Write something to know besides the result to stderr; not with --quiet."""
    if not args.quiet:
        complain(text)
