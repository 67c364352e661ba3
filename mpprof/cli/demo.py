"""`mpprof demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli.serve import port_number


class Demo:
    """Trains a tiny real model in float32 and in mixed_float16 on the CPU, prints what mpprof says of it
    and of the sample traces, then serves the page.

    Needs TensorFlow (pip install 'mpprof[tensorflow]') for the training."""

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
        parser.add_argument("--port", type=port_number, default=8050, help="of the page (default: 8050)")

    def run(self, args: argparse.Namespace) -> int:
        from mpprof import demo

        demo.run(args.directory, args.main, serve=not args.no_serve, port=args.port)
        return 0
