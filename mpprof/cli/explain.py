"""`mpprof explain`."""

from __future__ import annotations

import argparse

from mpprof.cli import output


class Explain:
    """Show the manual page of a cause; without CODE, list all causes.

    CODE is as findings print it (MP301), or its name (input-bound)."""

    name = "explain"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "code",
            metavar="CODE",
            nargs="?",
            help="its code or name, as MP301 or input-bound; none: list all",
        )

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.diagnosis import manual

        if args.code is not None:
            output.write(manual.explain(args.code), None)
            return 0
        listed = manual.codes()
        width = max(len(slug) for _, slug, _ in listed)
        lines = [f"{code}  {slug:<{width}}  {title}" for code, slug, title in listed]
        output.write("\n".join(lines), None)
        return 0
