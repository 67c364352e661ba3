"""`mpprof run`."""

from __future__ import annotations

import argparse
import os
import re
from typing import NoReturn

from mpprof.cli.script import LOGS, add_script, at_least_one, script_of

_PROFILE = re.compile(r"(\d+):(\d+)")


class Run:
    """Run an unchanged training script and report on it.

    Write SCRIPT and its arguments as after `python`, or `-m MODULE`; options of
    mpprof come before them. Each Keras `fit` gets a callback that records it, and
    the report's first screen is printed on stderr at the end. Output, exit code and
    results are the script's own, unless --steps, --policy or --jit change the
    training. Files are written only below the log directory."""

    name = "run"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        add_script(parser, self.name, "where the records go", f"{LOGS}/NAME, of NAME.py")
        parser.add_argument(
            "--steps", metavar="N", type=at_least_one,
            help="end the process once N steady steps are recorded; the rest of the script is not run",
        )  # fmt: skip
        parser.add_argument(
            "--profile", metavar="FIRST:LAST", type=_profile,
            help="the steps to profile, counted from 1 (default: 5 steps once step times have settled)",
        )  # fmt: skip
        parser.add_argument(
            "--policy", metavar="NAME", help="train under this dtype policy instead of the script's own"
        )
        parser.add_argument("--jit", choices=("on", "off"), help="compile models with XLA, or without")
        parser.add_argument(
            "--numerics", action="store_true",
            help="look at the numbers by layer as it trains (`mpprof numerics` shows them)",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> NoReturn:
        from mpprof.launch import command
        from mpprof.launch.options import Options

        words, name, stem = script_of(args, self.name)
        logdir = os.path.abspath(args.logdir or os.path.join(LOGS, stem))
        jit = None if args.jit is None else args.jit == "on"
        options = Options(logdir, name, args.steps, args.profile, args.policy, jit, bool(args.quiet))
        command.become(words, options._replace(numerics=args.numerics))


def _profile(text: str) -> tuple[int, int]:
    found = _PROFILE.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, counted from 1")
    return int(found[1]), int(found[2])
