"""`mpprof ls`."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import time_ns

from mpprof.cli import output, paths

FORMATS = ("table", "csv", "json")


class Ls:
    """List the runs of a directory: policy, card, step time, state.

    It also shows the batch, and when each run was last written. The oldest comes
    first; runs that cannot be read come last, with the reason. The state is ended
    or failed (with the error's type) if the records hold the end of the training;
    interrupted, or exit after sys.exit; else running, or stopped (killed or
    crashed) if nothing was written for 15 s. A copy from another machine is listed
    as unfinished. Step times are means, with every stall."""

    name = "ls"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", metavar="LOGDIR", type=Path, help=paths.PATH_HELP)
        parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import listing
        from mpprof.report import json as documents
        from mpprof.report import tables
        from mpprof.report.runs import listing as table

        output.check_output(args.output, force=args.force)
        now = time_ns()
        with paths.opened(args, args.path) as path:
            found = listing.listed(path, now_unix_ns=now, elsewhere=path != args.path)
            rows = paths.renamed(found, path, args.path)
        if args.format == "json":
            text = documents.dumps(rows)
        elif args.format == "csv":
            text = tables.to_csv(rows, tables.keys("ls"))
        else:
            ascii_only = output.ascii_only(args)
            width = output.width_of_names(args)
            text = table.to_text(rows, now_unix_ns=now, width=width, ascii_only=ascii_only)
        output.write(text, args.output, force=args.force)
        return 0
