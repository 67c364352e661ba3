"""`mpprof completion`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli import output

SHELLS = ("bash", "zsh", "fish")
MAY_BE_PATHS = ("MODEL", "PATH", "-- COMMAND")
"""Arguments that stand for a path but may be something else: a module's function, a command."""
PATHS = {
    "bash": "_mpprof_files",
    "fish": "(__fish_complete_suffix '')",
    "preamble": {"bash": '_mpprof_files() { compgen -f -- "$1"; }'},
}
"""In place of shtab's own, which lose a path at a space and, in fish, at `~`."""


class Completion:
    """Print the completion script for bash, zsh or fish.

    It completes commands, options, their values and paths. It belongs where the
    shell looks for it:

        mpprof completion bash > ~/.local/share/bash-completion/completions/mpprof
        mpprof completion zsh > "${fpath[1]}/_mpprof"
        mpprof completion fish > ~/.config/fish/completions/mpprof.fish
    """

    name = "completion"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))

    def run(self, args: argparse.Namespace) -> int:
        import shtab

        from mpprof.diagnosis import manual

        parser: argparse.ArgumentParser = args.build_parser(None)
        for action in _actions(parser):
            if action.type is Path or action.metavar in MAY_BE_PATHS:
                action.complete = shtab.FILE | PATHS  # type: ignore[attr-defined]
            if action.dest == "code":
                action.choices = [name for code, slug, _ in manual.codes() for name in (code, slug)]
        output.write(shtab.complete(parser, args.shell), None)
        return 0


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the actions of the parser and of its commands."""
    found = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [each for command in action.choices.values() for each in _actions(command)]
    return found
