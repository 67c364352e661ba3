"""`mpprof compare`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import gate, output, paths
from mpprof.errors import UsageError

if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns
    from mpprof.model.run import Run

FORMATS = ("text", "json", "markdown", "html")


class Compare:
    """Compare two runs, or many in a row: speedup, gap, causes.

    Many runs are a ladder, in the order given. For each run after the first it
    shows the observed and the attainable speedup, where the gap lies, and the
    kernels that changed most. A path that holds several runs stands for all of
    them, oldest first."""

    name = "compare"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("baseline", metavar="BASELINE", type=Path, help=paths.PATH_HELP)
        parser.add_argument("runs", metavar="RUN", type=Path, nargs="*", help="the runs to compare with it")
        paths.add_step_range(parser)
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        output.add_output(parser)
        output.add_verbose(parser)
        gate.add_min_speedup(gate.add_fail_on(parser))

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import ladder, workflows
        from mpprof.report import dismissals
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        wanted, ignore = gate.forbidden(args, compared=True), gate.ignored(args)
        with ExitStack() as stack:
            given = (args.baseline, *args.runs)
            folders = [stack.enter_context(paths.opened(args, path)) for path in given]
            chosen: list[Run] = [run for folder in folders for run in workflows.runs(folder)]
            if len(chosen) < 2:
                raise UsageError(
                    "a comparison needs two runs",
                    where=str(args.baseline),
                    next="Name both: mpprof compare BASELINE RUN",
                )
            chosen = [workflows.load(run, step_range=args.step_range) for run in chosen]
            compared = ladder.compare(chosen, strict=args.strict, dismissed=ignore)
            document = documents.comparison(compared)
            for folder, path in zip(folders, given, strict=True):
                document = paths.renamed(document, folder, path)
        document = dismissals.applied_to_comparison(document, ignore)
        output.write(_written(document, args), args.output, force=args.force)
        return gate.of_comparison(args, document, wanted)


def _written(document: ComparedRuns, args: argparse.Namespace) -> str:
    if args.format == "json":
        from mpprof.report import json as documents

        return documents.dumps(document)
    if args.format == "markdown":
        from mpprof.report import markdown

        return markdown.render_comparison(document)
    if args.format == "html":
        from mpprof_dashboards import export

        page: str = export.comparison_html(document)
        return page
    color, ascii_only = output.color(args), output.ascii_only(args)
    if args.verbose:
        from mpprof.report import text

        return text.render_comparison(document, color=color, width=output.width(), ascii_only=ascii_only)
    from mpprof.report import brief, brief_comparison

    again = paths.again(args, "compare", [args.baseline, *args.runs], ["step_range", "bounds"])
    return brief_comparison.render(
        document,
        color=color,
        width=output.width(brief.WIDTH),
        ascii_only=ascii_only,
        again=f"{again} -v",
    )
