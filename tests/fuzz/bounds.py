"""What a report on each of the heavy files takes, in a process of its own with a limit; nothing is asserted.

python -m tests.fuzz bounds [--mib 10] [--only TEXT]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import seeds
from tests.fuzz.harness import ROOT
from tests.fuzz.heavy import CASES, Case
from tests.fuzz.targets import BY_NAME

LIMIT_SECONDS, LIMIT_BYTES = 120, 12 << 30

_REPORT = """
import sys
from mpprof.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as exit:
    code = exit.code
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
peak = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
print(f"exit {code}, {used.ru_utime + used.ru_stime:.1f} s, {int(peak) >> 10} MiB", file=sys.stderr)
"""


def measure(mib: float, only: str = "") -> None:
    """Print a line for each case whose name holds `only`: size, exit status, CPU seconds, peak memory."""
    for case in CASES:
        if only in case.name:
            with tempfile.TemporaryDirectory(prefix="mpprof-bounds-") as folder:
                print(f"{case.name:40} {_took(case, mib, Path(folder))}", flush=True)


def _took(case: Case, mib: float, folder: Path) -> str:
    path = folder / BY_NAME[case.target].file
    path.parent.mkdir(exist_ok=True)
    if path.parent != folder:  # records: a run has facts, whatever else it has
        (path.parent / "run.json").write_bytes(seeds.runs()[0])
    case.write(path, int(mib * (1 << 20)))
    size = path.stat().st_size / (1 << 20)
    given = path if path.parent == folder else folder
    command = [sys.executable, "-c", _REPORT, "report", str(given), "--no-cache"]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES)),
        )
    except subprocess.TimeoutExpired:
        return f"{size:5.1f} MiB: more than {LIMIT_SECONDS} s"
    return f"{size:5.1f} MiB: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}"
