"""The command line: one small file per command, all of them in GROUPS, every known error caught here.

Read GROUPS from top to bottom: this is the tool. A command is an object with a `name`, a docstring that is
its help and whose first line stands in the list of commands, `prepare(parser)` and `run(args) -> exit code`;
whatever is slow to import is imported in `run`. The file of a command is imported where it is called.

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
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, NoReturn, Protocol

from mpprof._version import __version__
from mpprof.cli import output, progress
from mpprof.errors import MpprofError, UsageError, did_you_mean

INTERRUPTED = 130


class Command(Protocol):
    """What every command offers; its docstring is its help."""

    @property
    def name(self) -> str: ...

    def prepare(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


GROUPS = {
    "Record": ("run", "try", "demo", "doctor", "verify", "counters"),
    "Look at a run": (
        "report",
        "serve",
        "kernels",
        "products",
        "ops",
        "layers",
        "memory",
        "numerics",
        "explain",
    ),
    "Compare and check": ("compare", "check"),
    "Before training": ("audit", "forecast"),
    "Many runs": ("ls", "survey"),
    "Files, names and the shell": ("bundle", "classify", "completion"),
}
"""Every command, by heading: the class `Report` of `mpprof.cli.report` and so on."""
NAMES = tuple(name for group in GROUPS.values() for name in group)


def command(name: str) -> Command:
    """Return the command of this name; that of no other is imported."""
    file = f"{name}_" if iskeyword(name) else name
    made: Command = getattr(import_module(f"mpprof.cli.{file}"), name.capitalize())()
    return made


SUMMARY = "Why mixed precision did not give the speedup it promised, and what would."
TALK = ("demo", "run", "serve", "try", "verify")
"""Commands that write while they run, or let another program write, and so show no line of progress."""


_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
"""What argparse says of a word that it does not take."""


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

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Raise UsageError for a path without a name, which would be the current directory."""
        if not arg_string and (action.type is Path or action.metavar == "MODEL"):
            name = "/".join(action.option_strings) or action.metavar
            self.error(f"argument {name}: an empty name", "`.` is the current directory.")
        return super()._get_value(action, arg_string)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version. Raises MpprofError where it cannot be written, which argparse would
        ignore."""
        if file is sys.stdout:
            output.print_all(message)
        else:
            super()._print_message(message, file)


def main(argv: Sequence[str] | None = None, before: Callable[[], None] | None = None) -> int:
    """Run one command; return its exit code. `argv` without the program's name. `before` is called once the
    command line is understood, so that `--version` and `--help` do not wait for it."""
    # Names from foreign files may hold characters that this terminal has no code for.
    # A stream is None in a process that was started without it (`>&-`).
    sys.stdout, sys.stderr = sys.stdout or output.nobody(), sys.stderr or output.nobody()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        words = sys.argv[1:] if argv is None else argv
        given = argparse.Namespace(main=main, build_parser=build_parser, words=tuple(words))
        args = build_parser(words).parse_args(words, given)
        if before is not None:
            before()
        with ExitStack() as stack:
            _prepare(args, stack)
            code: int = args.run(args)
        sys.stdout.flush()
    except MpprofError as error:
        output.complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        output.discard_stdout()  # the reader (`head`) has seen enough
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


def _prepare(args: argparse.Namespace, stack: ExitStack) -> None:
    """Enter what the options of every command ask for."""
    if args.quiet:
        stack.enter_context(_silent_log())
    if args.no_cache:
        from mpprof.traces.cache import folder

        stack.enter_context(folder.switched_off())
    quiet = args.quiet or getattr(args, "talks", False)
    stack.enter_context(progress.shown(quiet=quiet))


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
        description=f"{SUMMARY}\n{_listing()}" if _wanted(words) == NAMES else SUMMARY,
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
    for each in map(command, _wanted(words)):
        text = inspect.cleandoc(each.__doc__ or "")
        named = words is None or each.name in words
        child = commands.add_parser(
            each.name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[shared] if named else [],
            add_help=named,
            allow_abbrev=False,
        )
        if named:
            each.prepare(child)
            child.set_defaults(run=each.run, talks=each.name in TALK)
    return parser


def _wanted(words: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the commands that a parser of this line needs: the first word, or all."""
    return (words[0],) if words and words[0] in NAMES else NAMES


def _listing() -> str:
    """Return every command with the first line of its docstring, in groups."""
    lines = []
    for heading, group in GROUPS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  {name:<11}{(command(name).__doc__ or '').partition(chr(10))[0]}" for name in group]
    return "\n".join(lines)


def _options(default: object) -> _Parser:
    """Return the options that every command takes, before or after its name."""
    parser = _Parser(add_help=False)
    group = parser.add_argument_group("options of every command")
    flags = {
        "--quiet": "no progress and no notes on stderr",
        "--no-color": "no colour, even on a terminal (NO_COLOR does the same)",
        "--no-cache": "neither read nor write the cache of parsed traces (*.xplane.pb is never kept)",
        "--strict": "a cut-off or damaged trace is an error, not a warning",
    }
    for flag, text in flags.items():
        group.add_argument(flag, action="store_true", default=default, help=text)
    group.add_argument("--version", action="version", version=f"mpprof {__version__}")
    return parser
