"""`mpprof run`."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import NoReturn

from mpprof.errors import NotFoundError, UsageError

LOGS = "mpprof-logs"
_PROFILE = re.compile(r"(\d+):(\d+)")


class Run:
    """Run an unchanged training script and report on it.

    Write SCRIPT and its arguments as after `python`, or `-m MODULE`; options of
    mpprof stand before. Each Keras `fit` gets a callback that records it, and the
    report's first screen is printed on stderr at the end. Output, exit code and
    results are the script's own, unless --steps, --policy or --jit ask for another
    training. Files are written only below the log directory."""

    name = "run"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "mpprof run [option ...] SCRIPT [ARG ...]\n       mpprof run [option ...] -m MODULE [ARG ...]"
        )
        parser.add_argument(
            "--logdir", metavar="DIR", type=Path,
            help=f"where the records go (default: {LOGS}/ and the script's name)",
        )  # fmt: skip
        parser.add_argument(
            "--steps", metavar="N", type=at_least_one,
            help="end the process once N steady steps are recorded: what follows them does not happen",
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
            "-m", dest="module", nargs=argparse.REMAINDER,
            help="MODULE [ARG ...]: run a module, as `python -m` does",
        )  # fmt: skip
        parser.add_argument(
            "script", metavar="SCRIPT [ARG ...]", nargs=argparse.REMAINDER, help="what to run"
        )

    def run(self, args: argparse.Namespace) -> NoReturn:
        from mpprof.launch import command
        from mpprof.launch.options import Options

        words, name, stem = script_of(args, "run")
        logdir = os.path.abspath(args.logdir or os.path.join(LOGS, stem))
        jit = None if args.jit is None else args.jit == "on"
        command.become(
            words, Options(logdir, name, args.steps, args.profile, args.policy, jit, bool(args.quiet))
        )


def script_of(args: argparse.Namespace, command: str) -> tuple[list[str], str, str]:
    """Return what stands behind `python`, the script's name as a user writes it, and without its folders.
    Raises UsageError, NotFoundError."""
    script = args.script[1:] if args.script[:1] == ["--"] else args.script
    words = script if args.module is None else ["-m", *args.module]
    if not (args.module or script):
        raise UsageError("no script to run", next=f"Write it last: mpprof {command} train.py --epochs 3")
    if args.module is None and not Path(script[0]).exists():
        raise NotFoundError(f"there is no script {script[0]}", next="Check the path")
    name = args.module[0] if args.module else script[0]
    return words, name, name if args.module else Path(os.path.abspath(name)).stem


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _profile(text: str) -> tuple[int, int]:
    found = _PROFILE.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, counted from 1")
    return int(found[1]), int(found[2])
