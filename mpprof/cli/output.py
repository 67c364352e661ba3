"""Where a command's words go: a file that appears whole or not at all, or the terminal as it is."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from pathlib import Path
from time import time_ns

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
    if not path.parent.is_dir():
        raise UsageError("no such directory", where=str(path.parent), next="Create it first")


def write(text: str, path: Path | None, *, force: bool = False) -> None:
    """Write the text to `path`, or to stdout where it is None. Raises MpprofError; leaves nothing
    half-written."""
    progress.clear()
    if path is None:
        text = _COMMAND.sub(lambda match: f"{match[1]}{program()} ", text)
        _print(text if text.endswith("\n") else f"{text}\n")
        return
    write_bytes(text.encode("utf-8", "backslashreplace"), path, force=force)


def _print(text: str) -> None:
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
        raise MpprofError(
            f"cannot be written ({error.strerror})", where="standard output", next="Write it somewhere else"
        ) from error


def write_bytes(content: bytes, path: Path, *, force: bool = False) -> None:
    """Write a whole file or none: it is written beside its place, then renamed into it."""
    check_output(path, force=force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{time_ns():x}.part")
    made = False
    try:
        with temporary.open("xb") as file:
            made = True
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        if made:
            temporary.unlink(missing_ok=True)
        raise MpprofError(
            f"cannot be written ({error.strerror})", where=str(path), next="Choose another place with -o"
        ) from error


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
    """Return whether to use colours: only on a terminal that has them, and only where nobody objects."""
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
    print("\n".join(lines), file=sys.stderr)


def note(args: argparse.Namespace, text: str) -> None:
    """Write something to know besides the result to stderr; not with --quiet."""
    if not args.quiet:
        complain(text)
