"""A script with its arguments on the command line, as the commands take it that run one."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import NamedTuple

from mpprof.cli.values import whole
from mpprof.errors import NotFoundError, UsageError
from mpprof.model.shell import quoted

LOGS = "mpprof-logs"
_INTERPRETER = re.compile(r"python[\d.]*(\.exe)?")
at_least_one = whole("a number of at least 1", 1)


class Words(NamedTuple):
    """`words`: what stands behind `python`. `name`: of the script, as a user writes it. `stem`: without its
    folders and its suffix."""

    words: tuple[str, ...]
    name: str
    stem: str


def add_script(parser: argparse.ArgumentParser, command: str, logdir: str, default: str) -> None:
    """Add --logdir, and last a script or `-m` and a module. `logdir`: what lies in it. `default`: where it
    is unless it is given."""
    form = f"mpprof {command} [option ...]"
    parser.usage = f"{form} SCRIPT [ARG ...]\n       {form} -m MODULE [ARG ...]"
    parser.add_argument("--logdir", metavar="DIR", type=Path, help=f"{logdir} (default: {default})")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER,
        help="MODULE [ARG ...]: run a module, as `python -m` does",
    )  # fmt: skip
    parser.add_argument("script", metavar="SCRIPT [ARG ...]", nargs=argparse.REMAINDER, help="what to run")


def script_of(args: argparse.Namespace, command: str) -> Words:
    """Return what a command was given to run. Raises UsageError, NotFoundError."""
    script = args.script[1:] if args.script[:1] == ["--"] else args.script
    if args.module:
        return Words(("-m", *args.module), args.module[0], args.module[0])
    if args.module is not None or not script:
        raise UsageError("no script to run", next=f"Write it last: mpprof {command} train.py --epochs 3")
    if script[0] == "-":
        raise UsageError("a script on standard input cannot be run", next="Write it into a file")
    if _INTERPRETER.fullmatch(script[0]) and not Path(script[0]).exists():
        rest = " ".join(map(quoted, script[1:])) or "train.py"
        raise UsageError(f"{script[0]} is not a script", next=f"Leave it out: mpprof {command} {rest}")
    if not Path(script[0]).exists():
        raise NotFoundError(f"there is no script {script[0]}", next="Check the path")
    return Words(tuple(script), script[0], Path(os.path.abspath(script[0])).stem)
