"""`mpprof check`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import gate, output, paths

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.report.checks import Outcome


FORMATS = ("text", "json", gate.GITHUB)


class Check:
    """Check a run against bounds in a file: exit code 1 if one fails.

    Bounds are the Tensor Core share, the share of skipped steps, the peak memory,
    the step time against a stored report, and findings that must not be there.
    docs/checks.md shows a file. Two runs of one script differ by more than the
    scatter within a run: with --repeat the step is judged by the scatter between
    runs. A directory of runs stands for all of them."""

    name = "check"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        parser.add_argument("--bounds", metavar="FILE", type=Path, required=True, help="a TOML file")
        for option, whose in (("--repeat", "RUN's script"), ("--baseline-repeat", "the baseline's script")):
            parser.add_argument(
                option, metavar="RUN", type=Path, nargs="+", action="extend", default=[],
                help=f"further runs of {whose}",
            )  # fmt: skip
        parser.add_argument(
            "--format", choices=FORMATS, default="text",
            help="github: text, with failed checks as annotations (text does the same where "
                "GITHUB_ACTIONS is true)",
        )  # fmt: skip
        gate.add_allow_unable(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import workflows
        from mpprof.report import bounds_file
        from mpprof.report import json as documents

        bounds = bounds_file.read(args.bounds)
        with paths.opened(args, args.path) as path:
            run = paths.load(args, path, args.run_id)
            document = documents.report(workflows.diagnose(run, strict=args.strict))
            document = paths.renamed(document, path, args.path)
        repeats = [_documents(args, given) for given in (args.repeat, args.baseline_repeat)]
        outcomes = list(bounds_file.judge(document, bounds, *repeats))
        if args.format == "json":
            output.write(documents.dumps(_rows(document, outcomes, bounds.ignore)), None)
            return gate.conclude(args, outcomes)
        dismissed = [
            f"dismissed  {each.code} {each.slug}: {bounds.ignore[each.code]}"
            for each in document.findings
            if each.code in bounds.ignore
        ]
        lines = [f"{each.verdict:<9}  {each.check}: {' '.join(each.text.split())}" for each in outcomes]
        output.write("\n".join([*lines, *dismissed]) or "passed     no forbidden finding", None)
        return gate.conclude(args, outcomes)


def _documents(args: argparse.Namespace, given: Iterable[Path]) -> list[Report]:
    """Return the report of every run at these paths."""
    from mpprof.api import workflows
    from mpprof.report import json as documents

    found: list[Report] = []
    for each in given:
        with paths.opened(args, each) as path:
            analysed = workflows.diagnose_each(workflows.runs(path), strict=args.strict)
            found += map(documents.report, analysed)
    return found


def _rows(
    document: Report, outcomes: Iterable[Outcome], ignore: Mapping[str, str]
) -> list[dict[str, str | None]]:
    """Return a row for each check and each dismissed finding."""
    rows: list[dict[str, str | None]] = [
        {"check": each.check, "verdict": each.verdict, "text": each.text, "cause": each.cause}
        for each in outcomes
    ]
    return rows + [
        {"check": each.code, "verdict": "dismissed", "text": ignore[each.code], "cause": each.code}
        for each in document.findings
        if each.code in ignore
    ]
