"""From a path on the command line to a run: a directory, a trace file, or a bundle that is unpacked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from mpprof.cli import output, progress
from mpprof.errors import MpprofError, SeveralRunsError, UsageError
from mpprof.model.frozen import mapped
from mpprof.model.shell import quoted

if TYPE_CHECKING:
    from mpprof.model.run import Run

T = TypeVar("T")
PATH_HELP = "log directory, run, trace file, or bundle (.zip); also at https://, s3:// or gs://"
_FLAGS = {"run_id": "--run"}
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+]+:/")


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add PATH and `--run`."""
    parser.add_argument("path", metavar="PATH", type=Path, help=PATH_HELP)
    add_run(parser)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add `--run`, as `args.run_id`."""
    parser.add_argument("--run", dest="run_id", metavar="ID|latest", help="which run, if PATH holds several")


def add_baseline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baseline", metavar="PATH", type=Path, help="the float32 run to compare with")
    parser.add_argument(
        "--baseline-run", metavar="ID|latest", help="which run, if the baseline's path holds several"
    )


def add_imports(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add `--import`, as `args.imports`, and `--trust`: what is to be run of a saved model."""
    parser.add_argument(
        "--import", metavar="MODULE", dest="imports", action="append", default=[],
        help="a module that defines classes of a saved model (repeat for more)",
    )  # fmt: skip
    parser.add_argument(
        "--trust", action="store_true",
        help="load all of a saved model, also the code in it (a SavedModel, a Lambda layer): only for a file "
        "whose maker you trust",
    )  # fmt: skip


def add_step_range(parser: argparse.ArgumentParser) -> None:
    """Add `--step-range`, as `args.step_range`."""
    parser.add_argument(
        "--step-range",
        metavar="NAME",
        help="take these ranges of the trace as its steps (NVTX, record_function, TraceMe): a name, or a "
        "regular expression between slashes whose first group is the step's number",
    )


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add `--host`, as `args.host`."""
    parser.add_argument("--host", metavar="NAME", help="show only this host of a run on several")


@contextmanager
def opened(args: argparse.Namespace, path: Path) -> Iterator[Path]:
    """Give the path itself, or the directory that a bundle was unpacked to, for as long as it is needed.

    Errors within the context name the bundle, not the directory that is gone when they are read. What lies
    at an address is fetched into the cache; with --no-cache, for as long as it is needed. On a terminal, a
    long fetch says how far it is.
    """
    if _is_address(path):
        with _watched(), _fetched(args, path) as local:
            yield local
        return
    if not _is_bundle(path):
        if path.is_dir():
            progress.say(f"looking for runs in {path} and below")
        yield path
        return
    from mpprof.cli.bundle_reading import unpacked

    with unpacked(path) as folder, _named(folder, path):
        yield folder


def _is_bundle(path: Path) -> bool:
    """Return whether the path is a bundle: by its first bytes; a bundle that lost them is told by its name,
    unless it is a trace in spite of that."""
    try:
        if not path.is_file():  # to open a pipe would be to wait for its writer
            return False
        with path.open("rb") as file:
            begins = file.read(2)
    except OSError:  # whoever reads it says so
        return False
    if begins == b"PK" or path.suffix.lower() != ".zip":
        return begins == b"PK"
    from mpprof import traces
    from mpprof.traces.common import file_head

    return traces.reader_of(path.name, file_head.of(path)) is None


@contextmanager
def _named(folder: Path, given: Path) -> Iterator[None]:
    """Rewrite the errors raised inside, so that they name the path that was given and not the place where its
    files were put."""
    try:
        yield
    except MpprofError as error:
        what, where, next_ = (renamed(text, folder, given) for text in (error.what, error.where, error.next))
        raise type(error)(what, where=where, next=next_) from error


def _watched() -> AbstractContextManager[None]:
    if (told := progress.fetching()) is None:
        return nullcontext()
    from mpprof.traces.remote.progress import watched

    return watched(told)


@contextmanager
def _fetched(args: argparse.Namespace, path: Path) -> Iterator[Path]:
    from mpprof.traces.cache import folder as cache
    from mpprof.traces.remote import fetch

    address = fetch.address_of(path)
    if address is None:
        yield path
        return
    from tempfile import TemporaryDirectory

    kept = cache.usable_folder()
    with TemporaryDirectory(prefix="mpprof-") if kept is None else nullcontext(str(kept)) as folder:
        local = fetch.fetch(address, Path(folder) / "fetched")
        with _named(local, path), opened(args, local) as run:
            yield run


def refresher(args: argparse.Namespace, path: Path, folder: Path) -> Callable[[], None] | None:
    """Return a function that looks again at the address whose copy `folder` is; None for a path of this
    machine. Where the address can no longer be reached, the function says so, and what was fetched stays."""
    if not _is_address(path) or path.suffix.lower() == ".zip":
        return None
    from mpprof.traces.remote import fetch

    address = fetch.address_of(path)
    assert address is not None
    kept = folder.parent.parent

    def again() -> None:
        try:
            fetch.fetch(address, kept)
        except MpprofError as error:
            output.note(args, f"shown as it was: {error}")

    return again


def shown(path: Path) -> str:
    """Return a path as it was given; an address without passwords and signatures."""
    if not _is_address(path):
        return str(path)
    from mpprof.traces.remote import fetch

    return fetch.shown(_ADDRESS.sub(lambda match: f"{match[0]}/", path.as_posix()))


def again(args: argparse.Namespace, command: str, given: Iterable[Path], options: Iterable[str]) -> str:
    """Return the same command with these options of it that were given, to be copied into a shell."""
    parts = ["mpprof", command, *(quoted(shown(path)) for path in given)]
    for option in options:
        value = getattr(args, option)
        if value is not None:
            text = shown(value) if isinstance(value, Path) else value
            parts += [_FLAGS.get(option, f"--{option.replace('_', '-')}"), quoted(text)]
    return " ".join(parts)


def _is_address(path: Path) -> bool:
    return _ADDRESS.match(path.as_posix()) is not None and not path.exists()


def renamed(document: T, folder: Path, given: Path) -> T:
    """Return a document in whose texts the unpacked directory is named by the path that was given."""
    made: T = document if folder == given else _renamed(document, folder, given)
    return made


def _renamed(value: Any, folder: Path, given: Path) -> Any:
    if isinstance(value, str):
        in_a_command = rf"(mpprof \w+|--baseline) {re.escape(quoted(folder))}"
        value = re.sub(in_a_command, lambda match: f"{match[1]} {quoted(shown(given))}", value)
        return value.replace(str(folder), shown(given))
    return mapped(value, lambda _, each: _renamed(each, folder, given))


def is_elsewhere(path: Path) -> bool:
    """Return whether the run of this path has to be fetched or unpacked first."""
    return _is_address(path) or (path.suffix.lower() == ".zip" and _is_bundle(path))


def refuse_address(path: Path, why: str) -> None:
    """Raise UsageError for an address, where a command can do nothing with one."""
    if _is_address(path):
        raise UsageError(
            f"is not on this machine: {why}", where=shown(path), next="Copy it to this machine first"
        )


def _table(path: Path, *, elsewhere: bool) -> str:
    """Return the newest runs under a path as `mpprof ls` shows them, with whole names for `--run`."""
    from mpprof.api import listing
    from mpprof.report.runs import listing as table
    from mpprof.runs.loading import MOST_LISTED

    now = time_ns()
    rows = listing.listed(path, now_unix_ns=now, elsewhere=elsewhere)
    read = [row for row in rows if not row["problem"]][-MOST_LISTED:]
    rows = [*read, *[row for row in rows if row["problem"]][:MOST_LISTED]]
    text = table.to_text(rows, now_unix_ns=now, width=output.UNCUT, ascii_only=output.stdout_is_ascii())
    return text.rstrip("\n")


def load(args: argparse.Namespace, path: Path, run_id: str | None, host: str | None = None) -> Run:
    """Return the one run at `path`, of several hosts `host` alone; the errors are those of
    `workflows.load`, that of several runs with the table of `mpprof ls`."""
    from mpprof.api import workflows

    try:
        run = workflows.load(path, run=run_id, step_range=getattr(args, "step_range", None))
    except SeveralRunsError as error:
        asked = (
            f"Choose one with --run NAME or --run latest:\n{_table(path, elsewhere=is_elsewhere(args.path))}"
        )
        raise SeveralRunsError(error.what, where=error.where, next=asked) from error
    if host is not None:
        from mpprof.runs import hosts

        run = hosts.alone(run, host)
    if run.traces:
        trace = run.traces[-1]
        progress.say(f"reading {trace} ({trace.stat().st_size / (1 << 20):,.0f} MiB)")
    return run
