"""`mpprof report`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mpprof.cli import gate, output, paths
from mpprof.errors import SeveralRunsError

if TYPE_CHECKING:
    from pathlib import Path

    from mpprof.api.workflows import Analysis
    from mpprof.model import report as written
    from mpprof.model.run import Run

FORMATS = ("text", "json", "markdown", "html", "answer")


class Report:
    """Say where a run's step time goes, why, and what would help.

    PATH is a log directory, a run, or a trace file. With --baseline, a run of the
    same model in float32, it also says what speedup is attainable, and splits the
    gap to it into causes. A directory of two runs, one of them the other's
    float32 baseline, needs no options."""

    name = "report"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        paths.add_host(parser)
        paths.add_baseline(parser)
        paths.add_step_range(parser)
        parser.add_argument("--format", choices=FORMATS, default="text",
            help="default: text; answer: the answer alone as JSON, below 2 kB"
        )  # fmt: skip
        parser.add_argument(
            "--redact", action="store_true", help="take out hosts, users and paths, as `mpprof bundle` does"
        )
        output.add_output(parser)
        output.add_verbose(parser)
        gate.add_fail_on(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import workflows
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        wanted, ignore = gate.forbidden(args), gate.ignored(args)
        with ExitStack() as stack:
            path = stack.enter_context(paths.opened(args, args.path))
            run, baseline = _chosen(args, path)
            if args.baseline is not None:
                folder = stack.enter_context(paths.opened(args, args.baseline))
                baseline = paths.load(args, folder, args.baseline_run)
            mine = workflows.analyse(run, strict=args.strict)
            base = workflows.analyse(baseline, strict=args.strict) if baseline is not None else None
            document = documents.report(workflows.judge(mine, base, dismissed=ignore))
            document = paths.renamed(document, path, args.path)
            if ignore:
                from mpprof.report import dismissals

                document = dismissals.applied(document, ignore)
            if args.redact:
                from mpprof.report.redact import redactor_of

                document = redactor_of(run).record(document)
            output.write(_written(document, mine, base, args), args.output, force=args.force)
        return gate.of_report(args, document, wanted)


def _chosen(args: argparse.Namespace, path: Path) -> tuple[Run, Run | None]:
    """Return the run at a path; of a pair of runs, where none is named, the one and its baseline."""
    try:
        return paths.load(args, path, args.run_id, args.host), None
    except SeveralRunsError:
        pair = _pair(path) if args.run_id is None and args.baseline is None else None
        if pair is None:
            raise
    name, baseline = pair
    output.note(args, f"two runs lie here: {name} is compared with {baseline} (--run shows one alone)")
    return paths.load(args, path, name, args.host), paths.load(args, path, baseline)


def _pair(path: Path) -> tuple[str, str] | None:
    """Return the names of a run and of its baseline, where a directory holds these two and no other run."""
    from mpprof.report.runs.baselines import default_baselines
    from mpprof.runs import loading, run_entries

    at = loading.places(path)
    if len(at) != 2:
        return None
    names = {str(place.root): place.name for place in at}
    baselines = default_baselines(run_entries.entry_at(place, place.name) for place in at)
    pairs = [(names[run], names[baseline]) for run, baseline in baselines.items() if baseline is not None]
    return pairs[0] if pairs else None


def _written(
    document: written.Report, mine: Analysis, base: Analysis | None, args: argparse.Namespace
) -> str:
    if args.format == "json":
        from mpprof.report import json as documents

        return documents.dumps(document)
    if args.format == "markdown":
        from mpprof.report import markdown

        return markdown.render(document)
    if args.format == "html":
        from mpprof_dashboards import export

        from mpprof.api.one_run import OneRun

        source = OneRun(document, mine, base)
        page: str = export.run_html(source, *source.ids, redact=args.redact)
        return page
    color, ascii_only = output.color(args), output.ascii_only(args)
    path = paths.shown(args.path)
    again = paths.again(
        args,
        "report",
        [args.path],
        ["run_id", "host", "baseline", "baseline_run", "step_range", "bounds"],
    )
    if args.format == "answer":
        from mpprof.report import answer

        if args.redact:
            path, again = "PATH", "mpprof report PATH"
        return answer.render(document, path=path, again=again)
    if args.verbose:
        from mpprof.report import text

        return text.render(document, color=color, width=output.width(), ascii_only=ascii_only, path=path)
    from mpprof.report import brief

    width = output.width(brief.WIDTH)
    return brief.render(
        document, color=color, width=width, ascii_only=ascii_only, path=path, again=f"{again} -v"
    )
