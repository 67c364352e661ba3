"""`mpprof where`."""

from __future__ import annotations

import argparse
from pathlib import Path

import mpprof
from mpprof.cli import output


class Where:
    """Print the directory that mpprof is installed in."""

    name = "where"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Add nothing: the command takes no arguments."""

    def run(self, args: argparse.Namespace) -> int:
        output.write(str(Path(mpprof.__file__).parent), None)
        return 0
