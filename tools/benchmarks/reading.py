"""Measures reading, whole process against whole process: `mpprof report` and XProf's converters on one file.

Processes of both sides take turns, the median counts. The time is the wall's, from the start of the process to
its end. The peak of memory is that of one more process each, which asks the system for it at its end.
"""

from __future__ import annotations

import compileall
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import mpprof
from tools.benchmarks.big_trace import write

RUNS = int(os.environ.get("MPPROF_BENCH_RUNS", "3"))
TOOLS = ("kernel_stats", "framework_op_stats", "overview_page", "input_pipeline_analyzer")
KERNELS = {"2 MB": 22_000, "64 MB": 700_000}
"""Kernels that make a trace of this size."""

_PEER = """
import sys
from xprof.convert import raw_to_tool_data
for tool in sys.argv[2:]:
    if not len(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})[0]):
        sys.exit(f"{tool} gave an empty answer")
"""
_READ = """
import sys
from pathlib import Path
from mpprof import traces
trace = traces.read(Path(sys.argv[1]))
if len(trace.kernels) + len(trace.host) != int(sys.argv[2]):
    sys.exit("events are missing")
"""
_REPORT = """
import sys
from mpprof.cli import main
if main(["report", sys.argv[1], "--no-cache", "--format", "json", "-o", sys.argv[2]]):
    sys.exit("no report")
"""
# Not the parent's view of its child: that holds what the parent itself had taken when it forked.
_PEAK = """
print("\\n" + open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@dataclass(frozen=True)
class Process:
    """A program's process, from its start to its end."""

    seconds: float
    peak_mb: float


@dataclass(frozen=True)
class Reading:
    """Medians over the processes of each program on one file."""

    label: str
    size_mb: float
    events: int
    runs: int
    by: dict[str, Process]  # "xprof", "read", "report"

    def times_faster(self, program: str = "report") -> float:
        return self.by["xprof"].seconds / self.by[program].seconds


def seconds(*arguments: str) -> float:
    """Run a program of this interpreter; it must end without an error."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    taken = time.perf_counter() - start
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return taken


def peak_mb(code: str, *arguments: str) -> float:
    """The most memory that a process of this code had."""
    done = subprocess.run([sys.executable, "-c", code + _PEAK, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1]) / 1024


def report(path: Path, to: Path) -> float:
    """Seconds of a whole `mpprof report`."""
    return seconds(
        "-m", "mpprof.cli", "report", str(path), "--no-cache", "--format", "json", "--force", "-o", str(to)
    )


def report_cpu(path: Path, to: Path) -> float:
    """Seconds of processor time of a whole `mpprof report`: what other programs and the disk do is not in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report(path, to)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def report_peak_mb(path: Path, to: Path) -> float:
    return peak_mb(_REPORT, str(path), str(to))


def compare(label: str, folder: Path, runs: int = RUNS) -> Reading:
    """Both programs, and our reading alone, on a trace made for the purpose; each did the whole work."""
    path = folder / "big.xplane.pb"
    events = write(path, KERNELS[label])
    byte_code()
    peaks = {
        "xprof": peak_mb(_PEER, str(fresh(path)), *TOOLS),
        "read": peak_mb(_READ, str(path), str(events)),
        "report": report_peak_mb(path, folder / "peak.json"),
    }
    taken: dict[str, list[float]] = {name: [] for name in peaks}
    for run in range(runs):
        taken["xprof"].append(seconds("-c", _PEER, str(fresh(path)), *TOOLS))
        taken["read"].append(seconds("-c", _READ, str(path), str(events)))
        taken["report"].append(report(path, folder / f"{run}.json"))
        assert json.loads((folder / f"{run}.json").read_text())["time"]["slices"], "the report has no account"
    by = {name: Process(statistics.median(taken[name]), peaks[name]) for name in peaks}
    return Reading(label, path.stat().st_size / 1e6, events, runs, by)


def fresh(path: Path) -> Path:
    """A copy of the trace in a folder without the cache that XProf leaves beside its input."""
    folder = path.parent / "peer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return Path(shutil.copy(path, folder))


def byte_code() -> None:
    """As after an installation: the modules of an editable one may have none."""
    compileall.compile_dir(str(Path(mpprof.__file__).parent), quiet=2)


def walk_speed(folder: Path) -> dict[str, tuple[float, int, float]]:
    """The compiled walk over each plane's lines, in this process: MB, events, MB/s (the best of five)."""
    import numpy as np

    from mpprof.traces.common import walk
    from mpprof.traces.common.planes import read_space, slots

    path = folder / "walk.xplane.pb"
    write(path)
    buffer = np.fromfile(path, np.uint8)
    found = {}
    for plane in read_space(buffer).planes:
        keys, rows, column_of, ints, texts = slots(
            plane, ("correlation_id", "step_num"), ("tf_op", "tensor_shapes")
        )
        starts = np.array([line.start for line in plane.lines], np.int64)
        ends = np.array([line.end for line in plane.lines], np.int64)
        marked = np.zeros(len(plane.metadata_ids), np.uint8)
        best, events = float("inf"), 0
        for _ in range(5):
            start = time.perf_counter()
            columns = walk.events(
                buffer,
                starts,
                ends,
                *plane.metadata_lookup(),
                keys,
                rows,
                column_of,
                len(ints),
                len(texts),
                marked,
            )
            best, events = min(best, time.perf_counter() - start), len(columns.metadata)
        size = int((ends - starts).sum())
        found[plane.name] = (size / 1e6, events, size / best / 1e6)
    return found
