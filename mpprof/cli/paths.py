"""From a path on the command line to a run: a directory, a trace file, or a bundle that is unpacked."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import output

if TYPE_CHECKING:
    from mpprof.model.run import Run

PATH_HELP = "log directory, run, trace file, or bundle (.zip)"


def add_path(parser: argparse.ArgumentParser) -> None:
    """PATH and `--run`."""
    parser.add_argument("path", metavar="PATH", type=Path, help=PATH_HELP)
    add_run(parser)


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", dest="run_id", metavar="ID|latest", help="which run, where PATH holds several"
    )


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The path itself, or the directory that a bundle was unpacked to for as long as it is needed."""
    if path.suffix.lower() != ".zip" or not path.is_file():
        yield path
        return
    from mpprof.cli.bundle_reading import unpacked

    with unpacked(path) as folder:
        yield folder


def load(args: argparse.Namespace, path: Path, run_id: str | None) -> Run:
    """The one run at `path`; the errors are those of `workflows.load`."""
    from mpprof import workflows

    run = workflows.load(path, run=run_id)
    if run.traces:
        output.progress(args, run.traces[-1])
    return run
