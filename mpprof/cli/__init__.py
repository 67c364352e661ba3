"""The command line: one small file per command, all of them in GROUPS, every known error caught here.

Read GROUPS from top to bottom: this is the tool. A command is an object with a `name`, a docstring that is
its help and whose first line stands in the list of commands, `prepare(parser)` and `run(args) -> exit code`;
whatever is slow to import is imported in `run`.

Exit codes: 0 done, 1 a check failed, 2 wrong usage or unreadable input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, Protocol, TextIO

from mpprof._version import __version__
from mpprof.cli import output, progress
from mpprof.cli.audit import Audit
from mpprof.cli.bundle import Bundle
from mpprof.cli.check import Check
from mpprof.cli.classify import Classify
from mpprof.cli.compare import Compare
from mpprof.cli.completion import Completion
from mpprof.cli.counters import Counters
from mpprof.cli.demo import Demo
from mpprof.cli.doctor import Doctor
from mpprof.cli.explain import Explain
from mpprof.cli.forecast import Forecast
from mpprof.cli.kernels import Kernels
from mpprof.cli.layers import Layers
from mpprof.cli.ls import Ls
from mpprof.cli.memory import Memory
from mpprof.cli.numerics import Numerics
from mpprof.cli.ops import Ops
from mpprof.cli.report import Report
from mpprof.cli.run import Run
from mpprof.cli.serve import Serve
from mpprof.cli.survey import Survey
from mpprof.cli.try_ import Try
from mpprof.cli.verify import Verify
from mpprof.errors import MpprofError, UsageError, did_you_mean

INTERRUPTED = 130


class Command(Protocol):
    """What every command offers; its docstring is its help."""

    @property
    def name(self) -> str: ...

    def prepare(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


GROUPS: dict[str, tuple[Command, ...]] = {
    "Record": (Run(), Try(), Demo(), Doctor(), Verify(), Counters()),
    "Look at a run": (Report(), Serve(), Kernels(), Ops(), Layers(), Memory(), Numerics(), Explain()),
    "Compare and check": (Compare(), Check()),
    "Before training": (Audit(), Forecast()),
    "Many runs": (Ls(), Survey()),
    "Files, names and the shell": (Bundle(), Classify(), Completion()),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


SUMMARY = "Why mixed precision did not give the speedup it promised, and what would."
TALK = ("demo", "run", "serve", "try", "verify")
"""Commands that write while they run, or let another program write: no line of progress stands below that."""


_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
"""What argparse says of a word that is none of those it takes."""


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors among ours: one line, what was perhaps meant, and where to read more."""

    def error(self, message: str, meant: str = "") -> NoReturn:
        if choice := _CHOICE.search(message):
            meant = did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        raise UsageError(message, next=f"{meant} See `{self.prog} --help`".lstrip())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Raise UsageError for what a command does not take: argparse would name the help of mpprof alone."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            wrong = unknown[0].partition("=")[0]
            meant = did_you_mean(wrong, self._option_string_actions) if wrong.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}", meant)
        return found, unknown


def main(argv: Sequence[str] | None = None, before: Callable[[], None] | None = None) -> int:
    """Run one command; return its exit code. `argv` without the program's name. `before` is called once the
    command line is understood, so that `--version` and `--help` do not wait for it."""
    # Names from foreign files may hold characters that this terminal has no code for.
    sys.stdout, sys.stderr = sys.stdout or _nobody(), sys.stderr or _nobody()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        words = sys.argv[1:] if argv is None else argv
        args = build_parser(words).parse_args(words, argparse.Namespace(main=main, build_parser=build_parser))
        if before is not None:
            before()
        code = _run(args)
        sys.stdout.flush()
    except MpprofError as error:
        output.complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader (`head`) has seen enough. Python would complain again on flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            output.complain("the working directory is gone. Change into one that exists")
            return MpprofError.exit_code
        if error.filename is None:  # no file of the user's: a bug, which keeps its traceback
            raise
        output.complain(f"{error.filename}: {error.strerror}. Check the path and its permissions")
        return MpprofError.exit_code
    except KeyboardInterrupt:
        output.complain("interrupted")
        return INTERRUPTED
    return code


def _is_nowhere() -> bool:
    """Return whether the working directory was removed: `.` still names it, and it has no path."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _nobody() -> TextIO:
    """Return the file that output goes to in a process that was started without it (`>&-`)."""
    return open(os.devnull, "w", encoding="utf-8")


def _run(args: argparse.Namespace) -> int:
    code: int
    with ExitStack() as stack:
        if args.quiet:
            stack.enter_context(_silent_log())
        if args.no_cache:
            from mpprof.traces.cache import folder

            stack.enter_context(folder.switched_off())
        quiet = args.quiet or getattr(args, "talks", False)
        stack.enter_context(progress.shown(quiet=quiet, color=not args.no_color))
        code = args.run(args)
    return code


@contextmanager
def _silent_log() -> Iterator[None]:
    """Silence the package's warnings while the context lasts."""
    import logging

    log = logging.getLogger("mpprof")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def build_parser(words: Sequence[str] | None) -> argparse.ArgumentParser:
    """Return the parser of a command line of these words: of the command that is the first of them; else of
    every command, with the options of those that they name. None: of all with all options."""
    shared = _options(argparse.SUPPRESS)  # after the command: must not reset what stood before it
    parser = _Parser(
        prog="mpprof",
        usage="mpprof [option ...] COMMAND ...",
        description=f"{SUMMARY}\n{_listing()}",
        epilog="`mpprof COMMAND --help` says more about a command.\n"
        "Exit codes: 0 done, 1 a check failed, 2 wrong usage or unreadable input.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_options(False)],
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, parser_class=_Parser, prog="mpprof",
        help=None if words is None else argparse.SUPPRESS,  # the description lists them, in groups
    )  # fmt: skip
    for command in [each for each in COMMANDS if words and each.name == words[0]] or COMMANDS:
        text = inspect.cleandoc(command.__doc__ or "")
        named = words is None or command.name in words
        child = commands.add_parser(
            command.name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[shared] if named else [],
            add_help=named,
            allow_abbrev=False,
        )
        if named:
            command.prepare(child)
            child.set_defaults(run=command.run, talks=command.name in TALK)
    return parser


def _listing() -> str:
    """Return every command with the first line of its docstring, in groups."""
    lines = []
    for heading, group in GROUPS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  {each.name:<11}{(each.__doc__ or '').partition(chr(10))[0]}" for each in group]
    return "\n".join(lines)


def _options(default: object) -> _Parser:
    """Return the options that every command takes, before or after its name."""
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("options of every command")
    flags = {
        "--quiet": "no progress and no notes on stderr",
        "--no-color": "no colour, even on a terminal (NO_COLOR does the same)",
        "--no-cache": "read every trace anew and keep nothing (*.xplane.pb is never kept)",
        "--strict": "a cut-off or damaged trace is an error, not a warning",
    }
    for flag, text in flags.items():
        group.add_argument(flag, action="store_true", default=default, help=text)
    group.add_argument("--version", action="version", version=f"mpprof {__version__}")
    return parser
