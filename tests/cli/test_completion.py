"""`mpprof completion`: the script works in the shell that it is for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mpprof.cli.completion import SHELLS
from tests.cli.conftest import Mpprof

_ASK = """
source "$1"; shift
function=$(complete -p mpprof | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(mpprof "$@"); COMP_CWORD=$#; COMPREPLY=()
$function mpprof "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("rep",), ["report"]),
        (("report", "--form"), ["--format"]),
        (("report", "--format", ""), ["text", "json", "markdown", "html"]),
        (("compare", "--min"), ["--min-speedup"]),
        (("report", "a d"), ["a directory"]),
        (("explain", "MP30"), ["MP301", "MP302", "MP303", "MP304", "MP305"]),
        (("explain", "input-"), ["input-bound"]),
    ],
)
def test_bash_completes_commands_options_values_and_paths(
    typed: tuple[str, ...],
    offered: list[str],
    mpprof: Mpprof,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = tmp_path / "mpprof.bash"
    script.write_text(mpprof("completion", "bash").out)
    (tmp_path / "a directory").mkdir()
    done = subprocess.run(
        ["bash", "--norc", "-c", _ASK, "bash", str(script), *typed],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.split("\n")[: len(offered)] == offered


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
