"""Run mpprof's commands as a user does: each in a process of its own, with a time limit."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MPPROF = (sys.executable, "-m", "mpprof.cli")
LIMIT_S = 120.0
TABLES = ("kernels", "ops", "layers", "memory")
FORMATS = ("text", "json", "markdown")


@dataclass(frozen=True)
class Outcome:
    """What a command did; `exit_code` is None where the time limit ended it."""

    command: str
    exit_code: int | None
    out: str
    err: str

    def document(self) -> Any:
        """Return the printed JSON, None where the command failed or printed something else."""
        try:
            return json.loads(self.out, parse_constant=_refuse) if self.exit_code == 0 else None
        except ValueError:
            return None

    def lines(self) -> list[Any]:
        """Return the printed JSON lines."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines() if line.strip()]


def run(command: str, arguments: Sequence[str], given: str = "", limit_s: float = LIMIT_S) -> Outcome:
    """Run one command to its end."""
    try:
        done = subprocess.run(
            [*MPPROF, *arguments], input=given, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(command, None, "", "")
    return Outcome(command, done.returncode, done.stdout, done.stderr)


def of_trace(path: Path, names: Sequence[str]) -> dict[str, Outcome]:
    """Run every command that takes one trace, and `classify` over its kernel `names`."""
    wanted: dict[str, list[str]] = {
        f"report {kind}": ["report", str(path), "--format", kind] for kind in FORMATS
    } | {table: [table, str(path), "--format", "json", "--limit", "0"] for table in TABLES}
    outcomes = {name: run(name, [*arguments, "--no-cache", "--quiet"]) for name, arguments in wanted.items()}
    if names:
        outcomes["classify"] = run("classify", ["classify"], "\n".join(names))
    return outcomes


def of_pair(baseline: Path, path: Path) -> Outcome:
    """Compare two traces."""
    arguments = ["compare", str(baseline), str(path), "--format", "json", "--no-cache", "--quiet"]
    return run("compare", arguments)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
