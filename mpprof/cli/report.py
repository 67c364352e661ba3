"""`mpprof report`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import gate, output, paths

if TYPE_CHECKING:
    from mpprof.model import document as doc
    from mpprof.model.run import Run
    from mpprof.model.steps import StepTable

FORMATS = ("text", "json", "markdown", "html")


class Report:
    """The verdict on one run: where its step's time went, why, and what each remedy would give back.

    PATH is a log directory, a run, or a trace file. With --baseline, a run of the same model in float32,
    it also says what speedup was to be expected, and splits the gap to it into causes."""

    name = "report"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        parser.add_argument("--baseline", metavar="PATH", type=Path, help="the float32 run to compare with")
        parser.add_argument(
            "--baseline-run", metavar="ID|latest", help="which run, where the baseline's path holds several"
        )
        paths.add_step_range(parser)
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        output.add_output(parser)
        output.add_verbose(parser)
        gate.add_fail_on(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import workflows
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        wanted = gate.forbidden(args)
        with ExitStack() as stack:
            path = stack.enter_context(paths.opened(args, args.path))
            run = paths.load(args, path, args.run_id)
            baseline: Run | None = None
            if args.baseline is not None:
                folder = stack.enter_context(paths.opened(args, args.baseline))
                baseline = paths.load(args, folder, args.baseline_run)
            document = documents.document(workflows.diagnose(run, baseline, strict=args.strict))
            document = paths.renamed(document, path, args.path)
            output.write(_written(document, args, run.steps), args.output, force=args.force)
        return gate.of_report(args, document, wanted)


def _written(document: doc.Report, args: argparse.Namespace, steps: StepTable | None) -> str:
    if args.format == "json":
        from mpprof.report import json as documents

        return documents.dumps(document)
    if args.format == "markdown":
        from mpprof.report import markdown

        return markdown.render(document)
    if args.format == "html":
        from mpprof_dashboards import export

        page: str = export.report_html(document, steps=steps)
        return page
    to_file = args.output is not None
    color, ascii_only = not to_file and output.color(args), not to_file and output.ascii_only()
    path = paths.shown(args.path)
    if args.verbose:
        from mpprof.report import text

        return text.render(document, color=color, width=output.width(), ascii_only=ascii_only, path=path)
    from mpprof.report import brief

    width = output.width(brief.WIDTH)
    again = paths.again(args, "report", [args.path], ["run_id", "baseline", "baseline_run", "step_range"])
    return brief.render(
        document, color=color, width=width, ascii_only=ascii_only, path=path, again=f"{again} -v"
    )
