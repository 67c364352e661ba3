"""`mpprof check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli import gate, output, paths


class Check:
    """Hold a run against the bounds of a file; exit code 1 where one is broken.

    Bounds are the Tensor Core share, the share of skipped steps, the peak memory, the step time against a
    stored report, and findings that must not be there. docs/checks.md shows a file."""

    name = "check"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        parser.add_argument("--bounds", metavar="FILE", type=Path, required=True, help="a TOML file")
        gate.add_allow_unable(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import workflows
        from mpprof.report import bounds_file
        from mpprof.report import json as documents

        bounds = bounds_file.read(args.bounds)
        with paths.opened(args, args.path) as path:
            run = paths.load(args, path, args.run_id)
            document = documents.document(workflows.diagnose(run, strict=args.strict))
            document = paths.renamed(document, path, args.path)
        outcomes = list(bounds_file.judge(document, bounds))
        dismissed = [
            f"dismissed  {each['code']} {each['slug']}: {bounds.ignore[each['code']]}"
            for each in document["findings"]
            if each["code"] in bounds.ignore
        ]
        lines = [f"{each.verdict:<9}  {each.check}: {' '.join(each.text.split())}" for each in outcomes]
        output.write("\n".join([*lines, *dismissed]) or "passed     no forbidden finding", None)
        return gate.conclude(args, outcomes)
