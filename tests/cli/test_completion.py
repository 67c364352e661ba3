"""`mpprof completion`: the script works in the shell that it is for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mpprof.cli import NAMES
from mpprof.cli.completion import SHELLS
from tests.cli.conftest import Mpprof, in_a_process

_ASK_BASH = """
source "$1/mpprof.bash"; shift
function=$(complete -p mpprof | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(mpprof "$@"); COMP_CWORD=$#; COMPREPLY=()
$function mpprof "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
# What <Tab> offers in an interactive zsh that looks for the script where users put it; compadd is where it ends up.
_ASK_ZSH = r"""
zmodload zsh/zpty
folder=$1; shift
zpty shell zsh -f -i
zpty -w shell "fpath=(${(q)folder} \$fpath); autoload -Uz compinit; compinit -D -u
compadd() {
  [[ \"\$*\" == -*[OAD]\ * ]] || { typeset -a hits; builtin compadd -A hits \"\$@\"; print -rl -- offered:\$^hits }
  builtin compadd \"\$@\"
}
ended() { print -r -- end''ed; exit }
comppostfuncs=(ended); bindkey '^I' complete-word; print -r -- rea''dy"
until { zpty -r shell line && [[ $line == *ready* ]] } { }
zpty -n -w shell "mpprof $*"$'\t'
while { zpty -r shell line && [[ $line != *ended* ]] } { print -r -- ${line%%[[:cntrl:]]#} }
"""
_ASK_FISH = """
source $argv[1]/mpprof.fish
complete -C "mpprof $argv[2..]"
"""
_ASK = {"bash": ["bash", "--norc", "-c", _ASK_BASH, "bash"], "zsh": ["zsh", "-f", "-c", _ASK_ZSH, "zsh"],
        "fish": ["fish", "--no-config", "-c", _ASK_FISH]}  # fmt: skip
_SCRIPTS = {"bash": "mpprof.bash", "zsh": "_mpprof", "fish": "mpprof.fish"}


@pytest.fixture(scope="module", params=SHELLS)
def scripts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A shell, and the folder with its script."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder = tmp_path_factory.mktemp(shell)
    (folder / _SCRIPTS[shell]).write_text(in_a_process("completion", shell).out)
    return shell, folder


def offered(scripts: tuple[str, Path], typed: str, folder: Path) -> list[str]:
    """What the shell offers for the last word of `mpprof TYPED`, sorted; of paths their names."""
    shell, place = scripts
    if shell == "bash":  # without a terminal nothing takes the escapes out
        typed = typed.replace("\\ ", "\0")
    words = [word.replace("\0", " ") for word in re.split(r"(?<!\\) ", typed)]
    done = subprocess.run(
        [*_ASK[shell], str(place), *words], capture_output=True, text=True, check=True,
        cwd=folder, env=os.environ | {"HOME": str(folder)}, timeout=60,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    if shell == "zsh":
        lines = [line.partition("offered:")[2] for line in lines if "offered:" in line]
    found = (line.partition("\t")[0].replace("\\ ", " ").rstrip("/") for line in lines)
    return sorted(word.rpartition("/")[2] for word in found if word)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", sorted(NAMES)),
        ("rep", ["report"]),
        ("--quiet rep", ["report"]),
        ("report --form", ["--format"]),
        ("report --format ", ["answer", "html", "json", "markdown", "text"]),
        ("compare --min", ["--min-speedup"]),
        ("report a", ["a directory", "afile"]),
        (r"report a\ d", ["a directory"]),
        (r"report ~/a\ d", ["a directory"]),
        ("report --baseline af", ["afile"]),
        ("forecast af", ["afile"]),
        ("verify -- af", ["afile"]),
        ("explain MP30", [f"MP30{n}" for n in range(1, 10)]),
        ("explain input-", ["input-bound"]),
        ("kernels afile --reason MP", []),
    ],
)
def test_commands_options_values_and_paths_are_completed(
    typed: str, expected: list[str], scripts: tuple[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "a directory").mkdir()
    (tmp_path / "afile").touch()
    assert offered(scripts, typed, tmp_path) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_reads(shell: str, mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof("completion", shell)
    assert done.code == 0
    assert all(word in done.out for word in ("--min-speedup", "survey", "input-bound"))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script is not read")
    (tmp_path / "script").write_text(done.out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_another_shell_is_a_usage_error(mpprof: Mpprof) -> None:
    done = mpprof("completion", "cmd")
    assert done.code == 2
    assert "fish" in done.err
