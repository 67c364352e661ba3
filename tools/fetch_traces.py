"""Fetch the public traces that tests read, by the table of CONTRIBUTING.md, into build/traces.

    python tools/fetch_traces.py

What is there already stays. Needs git 2.25 or newer and a network; only the named files of each repository
are downloaded. Exit 1 where a file could not be had.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GITHUB = "https://github.com"
_ROW = re.compile(r"^\| `(\S+)` \| (\S+/\S+) \| `([0-9a-f]{40})` \| `(\S+)` \| ([\w.-]+) \|$", re.MULTILINE)


class PublicTrace(NamedTuple):
    """`name` is the file's below build/traces, `path` its own in the repository at that commit."""

    name: str
    repository: str
    commit: str
    path: str
    licence: str


def listed(text: str) -> Iterator[PublicTrace]:
    """Yield the rows of CONTRIBUTING.md's table."""
    return (PublicTrace(*row) for row in _ROW.findall(text))


def fetch(traces: list[PublicTrace], into: Path, host: str) -> list[str]:
    """Write each of one repository's traces that is not there yet; return what failed."""
    wanted = [trace for trace in traces if not (into / trace.name).exists()]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for trace in wanted:
            try:
                content = _content(trace, Path(folder), host)
            except subprocess.CalledProcessError as error:
                said = error.stderr.decode(errors="replace").strip().splitlines()
                failed.append(f"{trace.name}: {said[-1] if said else error}")
                continue
            target = into / trace.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return failed


def _content(trace: PublicTrace, folder: Path, host: str) -> bytes:
    """Return the file's bytes; `folder` becomes a clone of that repository without its files."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True).stdout

    if not (folder / ".git").exists():
        git("init", "--quiet")
        git("remote", "add", "origin", f"{host}/{trace.repository}")
    git("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", trace.commit)
    return git("cat-file", "blob", f"{trace.commit}:{trace.path}")


def main(into: Path = ROOT / "build" / "traces", host: str = GITHUB) -> int:
    """Fetch all of them, print what failed, and return the exit code."""
    by_repository = defaultdict(list)
    for trace in listed((ROOT / "CONTRIBUTING.md").read_text()):
        by_repository[trace.repository].append(trace)
    failed = []
    for repository, traces in by_repository.items():
        print(f"{repository}: {len(traces)} files")
        failed += fetch(traces, into, host)
    print(*failed, sep="\n", file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
