"""What the commands that print a table share: `kernels`, `products`, `ops`, `layers` and `memory`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mpprof.cli import output, paths, values

if TYPE_CHECKING:
    from mpprof.api.workflows import Analysis
    from mpprof.model.rows import Row

FORMATS = ("table", "csv", "json")
ROWS_OF_A_TABLE = 20
FILTERS = ("placement", "precision", "reason")


class Table:
    """What they have in common; each says of which kind it is."""

    name: Literal["kernels", "products", "ops", "layers", "memory"]
    by_help: str

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        paths.add_host(parser)
        parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
        parser.add_argument("--sort", metavar="COLUMN[:asc|:desc]", help="default: longest or largest first")
        parser.add_argument(
            "--limit",
            metavar="N",
            type=values.whole("a number of rows: give 0 (all) or more"),
            help=f"at most N rows, 0: all (default: {ROWS_OF_A_TABLE} in a table, all in csv and json)",
        )
        parser.add_argument("--by", metavar="COLUMN", help=self.by_help)
        if self.name != "memory":
            parser.add_argument(
                "--steps", metavar="FIRST:LAST", type=_steps, help="only these steps of the profiler window"
            )
            paths.add_step_range(parser)
        if self.name in ("kernels", "ops"):
            _add_filters(parser)
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import workflows

        output.check_output(args.output, force=args.force)
        with paths.opened(args, args.path) as path:
            run = paths.load(args, path, args.run_id, args.host)
            if run.hosts:
                others = ", ".join(each.host for each in run.hosts[1:])
                output.note(args, f"this is {run.hosts[0].host}; --host shows another one: {others}")
            mine = workflows.analyse(replace(run, hosts=()), strict=args.strict)
            _say(mine, args)
            text = self._text(mine, args)
        output.write(text, args.output, force=args.force)
        return 0

    def _text(self, mine: Analysis, args: argparse.Namespace) -> str:
        return self._written(*self._rows(mine, args), args)

    def _rows(self, mine: Analysis, args: argparse.Namespace) -> tuple[Sequence[Row], Sequence[Row]]:
        """Return the rows that are asked for, grouped and in order; and all rows as they were."""
        from mpprof.api import workflows
        from mpprof.report import tables

        tables.keys(self.name, args.by)  # refuses a column that is not there
        steps = getattr(args, "steps", None)
        whole = workflows.rows_of(mine, self.name, by_stream=args.by == "stream", steps=steps)
        wanted = {key: values for key in FILTERS if (values := getattr(args, key, None))}
        rows: Sequence[Row] = tables.filtered(whole, wanted) if wanted else whole
        if args.by and args.by != "stream":
            rows = self._by(rows, args.by)
        return tables.ordered(rows, args.sort, tables.keys(self.name, args.by)), whole

    def _by(self, rows: Sequence[Row], by: str) -> Sequence[Row]:
        from mpprof.report import tables

        return tables.aggregate(rows, self.name, by)

    def _written(self, rows: Sequence[Row], whole: Sequence[Row], args: argparse.Namespace) -> str:
        from mpprof.report import json as documents
        from mpprof.report import tables

        default = ROWS_OF_A_TABLE if args.format == "table" else 0
        limit = (default if args.limit is None else args.limit) or len(rows)
        shown = rows[:limit]
        if args.format == "json":
            return documents.dumps(shown)
        if args.format == "csv":
            return tables.to_csv(shown, tables.keys(self.name, args.by))
        ascii_only = output.ascii_only(args)
        width = output.width_of_names(args)
        text = tables.to_text(shown, self.name, width=width, ascii_only=ascii_only, whole=rows)
        return _head(self.name, args) + text + _foot(rows, len(shown), whole)


def _say(mine: Analysis, args: argparse.Namespace) -> None:
    """Note what was passed over or is damaged, and why there may be no kernels: a table has no place for
    these notes."""
    if mine.trace is None:
        return
    missing = [mine.trace.missing["kernels"]] if "kernels" in mine.trace.missing else []
    for warning in (*mine.run.warnings, *mine.trace.warnings, *missing):
        one_line = warning.replace("\n", "\\n")  # some are a profiler's own words
        output.note(args, f"warning: {one_line}")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    filters = parser.add_argument_group(
        "filters", "each may be repeated: rows with any of its values are listed"
    )
    placements = "tensor_core, matrix_core, cuda_core, cpu, not_matmul, unknown"
    filters.add_argument("--placement", action="append", metavar="P", help=f"where it ran: {placements}")
    filters.add_argument(
        "--precision", action="append", metavar="P", help="precision: fp16, bf16, tf32, fp32 ..."
    )
    filters.add_argument(
        "--reason", action="append", metavar="CODE", help="the code of the evidence that decided it"
    )


def _head(kind: str, args: argparse.Namespace) -> str:
    """Return what the times of the table below are summed over; memory has no times."""
    if kind == "memory":
        return ""
    of = "the whole trace"
    if args.steps is not None:
        first, last = args.steps
        of = f"steps {first} to {last}" if first != last else f"step {first}"
    elif args.step_range is not None:
        of = "the ranges that were taken as steps"
    return f"Sums over {of}:\n"


def _foot(rows: Sequence[Row], shown: int, whole: Sequence[Row]) -> str:
    """Return what the table leaves out, and the unknown share of all, which always stands beside the known
    share."""
    from mpprof.report import words

    lines = []
    if shown < len(rows):
        lines.append(f"{shown:,} of {len(rows):,} rows; --limit 0 shows all")
    if whole and "placement" in whole[0] and "ratio" in whole[0]:
        unknown: dict[str, float] = {}
        for row in whole:
            share = row["ratio"] if row["placement"] == "unknown" else 0.0
            unknown[str(row["device"])] = unknown.get(str(row["device"]), 0.0) + share
        lines += [
            f"unknown: {words.percent(ratio)} of the time on {words.plain(device)}"
            for device, ratio in unknown.items()
        ]
    return "".join(f"{line}\n" for line in ["", *lines]) if lines else ""


def _steps(text: str) -> tuple[int, int]:
    parts = re.fullmatch(r"(\d+):(\d+)", text)
    if not parts or int(parts[1]) > int(parts[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of steps: give FIRST:LAST, such as 12:14")
    return int(parts[1]), int(parts[2])
