"""What a report on each of the heavy files takes, in a process of its own with a limit; nothing is asserted. Then what
one on each of the heavy runs takes, and a comparison of two.

python -m tests.fuzz bounds [--mib 10] [--only TEXT]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import heavy, heavy_runs, seeds
from tests.fuzz.targets import BY_NAME
from tests.paths import ROOT

LIMIT_SECONDS, LIMIT_BYTES = 120, 12 << 30

_COMMAND = """
import cProfile, json, resource, sys
from mpprof.cli import main
calls = cProfile.Profile(builtins=False)
counted = sys.argv.pop(1) == "counted"
if counted:
    calls.enable()
try:
    code = main(sys.argv[1:])
except SystemExit as exit:
    code = exit.code
calls.disable()
used = resource.getrusage(resource.RUSAGE_SELF)
peak = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
count = sum(entry.callcount for entry in calls.getstats()) if counted else 0
took = {"code": code, "seconds": used.ru_utime + used.ru_stime, "peak_bytes": int(peak) << 10, "calls": count}
print(json.dumps(took), file=sys.stderr)
"""


@dataclass(frozen=True)
class Took:
    """What a command took: processor time, its largest resident size, and how many calls of Python's functions
    it made where they were counted. `code`: its exit status."""

    code: int
    seconds: float
    peak_bytes: int
    calls: int

    def __str__(self) -> str:
        return f"exit {self.code}, {self.seconds:.1f} s, {self.peak_bytes >> 20} MiB"


def command(*arguments: str, counted: bool = False) -> Took:
    """Run a command of mpprof in a process of its own. Raises subprocess.TimeoutExpired."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "counted" if counted else "", *arguments, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES)),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Took(**json.loads(done.stderr.splitlines()[-1]))


def on(folders: list[Path]) -> list[str]:
    """Return the command that reads all of these runs, or this file."""
    return ["report" if len(folders) == 1 else "compare", *map(str, folders)]


def measure(mib: float, only: str = "") -> None:
    """Print a line for each case whose name holds `only`: size, exit status, CPU seconds, peak memory."""
    for case in (*heavy.CASES, *heavy_runs.CASES):
        if only in case.name:
            with tempfile.TemporaryDirectory(prefix="mpprof-bounds-") as folder:
                size = int(mib * (1 << 20))
                given = (
                    [_file(case, size, Path(folder))]
                    if isinstance(case, heavy.Case)
                    else case.make(Path(folder), size)
                )
                bytes_made = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
                try:
                    said = str(command(*on(given)))
                except subprocess.TimeoutExpired:
                    said = f"more than {LIMIT_SECONDS} s"
            print(f"{case.name:50} {bytes_made / (1 << 20):5.1f} MiB: {said}", flush=True)


def _file(case: heavy.Case, size: int, folder: Path) -> Path:
    path = folder / BY_NAME[case.target].file
    path.parent.mkdir(exist_ok=True)
    if path.parent != folder:  # records: a run has facts, whatever else it has
        (path.parent / "run.json").write_bytes(seeds.runs()[0])
    case.write(path, size)
    return path if path.parent == folder else folder
