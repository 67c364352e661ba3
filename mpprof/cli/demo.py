"""`mpprof demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli.serve import port_number


class Demo:
    """Train small models on the CPU, find a slow input and fix it.

    First `mpprof run` and `mpprof try` are shown on a script. Each command is
    printed before it runs, to be copied. The demo needs TensorFlow (pip install
    'mpprof[demo]') and takes under three minutes; then it serves the page."""

    name = "demo"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--directory",
            type=Path,
            default=Path("mpprof-demo"),
            help="where to write (default: mpprof-demo)",
        )
        parser.add_argument(
            "--no-serve", action="store_true", help="print and return without serving the page"
        )
        parser.add_argument("--port", type=port_number, default=8050, help="port of the page (default: 8050)")

    def run(self, args: argparse.Namespace) -> int:
        from mpprof import demo

        demo.run(args.directory, args.main, serve=not args.no_serve, port=args.port)
        return 0
