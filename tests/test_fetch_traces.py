"""Public traces are fetched by the table of CONTRIBUTING.md, each at its commit; here from a repository on this disk."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import NO_TRACES, ROOT, SHARED

_spec = importlib.util.spec_from_file_location("fetch_traces", ROOT / "tools" / "fetch_traces.py")
tool = importlib.util.module_from_spec(_spec)
sys.modules["fetch_traces"] = tool
_spec.loader.exec_module(tool)

ROWS = list(tool.listed((ROOT / "CONTRIBUTING.md").read_text()))


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_each_file_is_had_at_its_own_commit_and_what_fails_is_named(tmp_path: Path) -> None:
    host, into = tmp_path / "host", tmp_path / "into"
    repository = host / "someone" / "traces"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet")
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    commits = []
    for text in ("first", "second"):
        (repository / "a.pb").write_text(text)
        git(repository, "add", "a.pb")
        git(repository, "commit", "--quiet", "--message", text)
        commits.append(git(repository, "rev-parse", "HEAD"))
    rows = [
        tool.PublicTrace("x/old.pb", "someone/traces", commits[0], "a.pb", "MIT"),
        tool.PublicTrace("x/lost.pb", "someone/traces", commits[0], "b.pb", "MIT"),
        tool.PublicTrace("new.pb", "someone/traces", commits[1], "a.pb", "MIT"),
    ]
    (failed,) = tool.fetch(rows, into, f"file://{host}")
    assert failed.startswith("x/lost.pb: ")
    assert (into / "x/old.pb").read_text() == "first"
    assert (into / "new.pb").read_text() == "second"
    (into / "new.pb").write_text("mine")
    assert len(tool.fetch(rows, into, f"file://{host}")) == 1
    assert (into / "new.pb").read_text() == "mine"  # what is there stays


def test_every_row_of_the_table_is_read() -> None:
    table = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("| `")]
    assert len(ROWS) == len(table) > 20
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.skipif(not SHARED.is_dir(), reason=NO_TRACES)
def test_the_traces_here_are_in_the_table() -> None:
    suffixes = (".xplane.pb", ".json.gz", ".sqlite")
    here = {path.relative_to(SHARED).as_posix() for path in SHARED.rglob("*") if path.name.endswith(suffixes)}
    assert here <= {row.name for row in ROWS}
