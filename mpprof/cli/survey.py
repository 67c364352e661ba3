"""`mpprof survey`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

from mpprof.cli import output, paths, progress, values
from mpprof.errors import UsageError

FORMATS = ("table", "csv", "json", "parquet")
ROWS_OF_A_TABLE = 20


_count = values.whole("a whole number from 0 up")


class Survey:
    """Analyse many runs and rank them by the GPU-hours they lose.

    Each run is a row, with an estimate of the GPU-hours lost a day. Runs are
    analysed in several processes at a time, and each 16-bit run is compared with
    the float32 run of the same model, card and batch that its name or directory
    points to. A run that cannot be read, or crashes its process, is listed with the
    reason. A step loses its time above the shortest of three: the step after all
    remedies, the attainable step, and the baseline's. The time of skipped updates
    is added. Hours are per day of training."""

    name = "survey"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", metavar="LOGDIR", type=Path, nargs="+", help=paths.PATH_HELP)
        parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
        parser.add_argument(
            "--limit", metavar="N", type=_count, default=ROWS_OF_A_TABLE,
            help=f"at most N rows of the table, 0: all (default: {ROWS_OF_A_TABLE}); other formats hold all",
        )  # fmt: skip
        parser.add_argument(
            "--workers", metavar="N", type=_count, help="processes (default: one for each CPU)"
        )
        parser.add_argument(
            "--dask",
            metavar="ADDRESS",
            help="tcp://host:port of a Dask scheduler, in place of local processes",
        )
        parser.add_argument(
            "--resume", metavar="FILE", type=Path,
            help="add each row to FILE as soon as it is known, and take from it the rows of unchanged runs",
        )  # fmt: skip
        parser.add_argument(
            "--time-limit", metavar="SECONDS", type=float, default=600.0,
            help="give up a run that takes longer (default: 600)",
        )  # fmt: skip
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import survey

        _check(args)
        progress.say("looking for runs")
        told = _Told()
        with ExitStack() as stack:
            folders = [stack.enter_context(paths.opened(args, path)) for path in args.paths]
            try:
                table = survey.survey(
                    folders, workers=args.workers, dask=args.dask, resume=args.resume,
                    time_limit_s=args.time_limit, progress=told,
                )  # fmt: skip
            except KeyboardInterrupt:
                progress.clear()
                output.note(args, _kept(args.resume, told.done, told.of))
                raise
            rows = [dict(row) for row in table]
            for folder, path in zip(folders, args.paths, strict=True):
                rows = paths.renamed(rows, folder, path)
        _write(rows, args)
        return 0


def _check(args: argparse.Namespace) -> None:
    output.check_output(args.output, force=args.force)
    if args.format == "parquet" and args.output is None:
        raise UsageError("--format parquet needs a file", next="Name it with -o FILE.parquet")
    if args.format == "parquet":
        from mpprof.report.runs.survey import parquet_library

        parquet_library()  # a missing library is said now, and not when all runs are analysed
    if not args.time_limit > 0:
        raise UsageError(
            f"the time limit cannot be {args.time_limit:g} s", next="Give --time-limit seconds above zero"
        )
    if args.dask is not None:
        for path in args.paths:
            paths.refuse_address(path, "Dask's workers must see the same paths")


def _write(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    from mpprof.api.results import Table
    from mpprof.report import json as documents
    from mpprof.report import tables
    from mpprof.report.runs import survey

    if args.format == "parquet":
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "survey.parquet"
            survey.write_parquet(Table("survey", rows).to_dict(), made)
            output.write_bytes(made.read_bytes(), args.output, force=args.force)
        return
    if args.format == "json":
        text = documents.dumps(rows)
    elif args.format == "csv":
        text = tables.to_csv(rows, tables.keys("survey"))
    else:
        ascii_only = output.ascii_only(args)
        width = output.width(80) if output.has_width(args) else None
        text = survey.to_text(rows, width=width, limit=args.limit or len(rows), ascii_only=ascii_only)
    output.write(text, args.output, force=args.force)


class _Told:
    """Shows after each run how far a survey is, and the time that is left. Rows that an
    earlier survey kept took no time, and tell nothing of what the rest will take."""

    def __init__(self, clock_s: Callable[[], float] = monotonic) -> None:
        self._clock_s = clock_s
        self._began: tuple[float, int] | None = None
        self.done = self.of = 0

    def __call__(self, done: int, of: int, problems: int) -> None:
        self.done, self.of = done, of
        if self._began is None:
            self._began = self._clock_s(), done
        began_s, kept = self._began
        rate = (done - kept) / max(1e-9, self._clock_s() - began_s)
        left = f", {(of - done) / rate:,.0f} s left" if rate and done < of else ""
        bad = f", {problems:,} with a problem" if problems else ""
        progress.say(f"{done:,} of {of:,} runs, {rate:,.1f} a second{bad}{left}")


def _kept(resume: Path | None, done: int, of: int) -> str:
    """Return what is left of a survey that was interrupted."""
    if resume is None:
        return f"{done:,} of {of:,} runs were analysed, and their rows are lost; --resume FILE keeps them"
    return (
        f"{done:,} of {of:,} runs are analysed, their rows in {resume}; the same command goes on from there"
    )
