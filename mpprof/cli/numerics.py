"""`mpprof numerics`."""

from __future__ import annotations

import argparse

from mpprof.cli import output, paths
from mpprof.errors import UsageError


class Numerics:
    """Show where 16 bits overflow or flush to zero, by layer.

    A run records looks: one forward and backward pass each. This shows the first
    look in which something breaks, else the last: the first layer and the first
    gradient that break and why, the loss scales at which nothing overflows and
    little is lost, what to do, and the numbers of each layer. Without a run,
    mpprof.numerics(model, x, y) looks at a model."""

    name = "numerics"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        paths.add_path(parser)
        parser.add_argument("--look", metavar="N", type=int, help="the Nth look that the run holds, from 1")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.numbers import files, text
        from mpprof.report import json as documents
        from mpprof.report import words
        from mpprof.store.formats import NUMERICS_SCHEMA

        output.check_output(args.output, force=args.force)
        with paths.opened(args, args.path) as path:
            found, warnings = files.looks(paths.load(args, path, args.run_id).path)
        for warning in warnings:
            output.note(args, warning)
        number = files.telling(found) if args.look is None else args.look
        if not 1 <= number <= len(found):
            raise UsageError(f"--look {number}: the run holds {len(found)}", next="Give a number from 1")
        document = {"schema": NUMERICS_SCHEMA, **files.whole(found[number - 1])}
        if args.format == "json":
            written = documents.dumps(document)
        else:
            lines = text.table(document).splitlines()  # with names from a file
            heading = files.heading(document, number, len(found))
            written = "\n".join(words.plain(line) for line in [heading, *lines])
        output.write(written, args.output, force=args.force)
        return 0
