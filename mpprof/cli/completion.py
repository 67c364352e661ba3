"""`mpprof completion`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli import output

SHELLS = ("bash", "zsh", "fish")


class Completion:
    """Print the completion script for bash, zsh or fish.

    It completes commands, options, their values and paths. It belongs where the shell looks for it:

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
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if action.metavar == "CODE":
                action.choices = [name for code, slug, _ in manual.codes() for name in (code, slug)]
        output.write(shtab.complete(parser, args.shell), None)
        return 0


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Those of the parser and of its commands."""
    found = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [each for command in action.choices.values() for each in _actions(command)]
    return found
