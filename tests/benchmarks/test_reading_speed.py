"""How fast a large trace is read, as a ratio to XProf's converter: whole process against whole process.

Run by `make bench`, never by `make test`. MPPROF_BENCH_RUNS sets the number of runs (interleaved, the median
counts). Nothing here fails on a slow machine: what is asserted is that both sides did the whole work.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.big_trace import write

pytestmark = pytest.mark.benchmark

TOOLS = ("kernel_stats", "framework_op_stats", "overview_page", "input_pipeline_analyzer")

_PEER = """
import json, sys
from xprof.convert import raw_to_tool_data
sizes = [len(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})[0]) for tool in sys.argv[2:]]
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) // 1024
print("\\n" + json.dumps({"answer": min(sizes), "peak_mb": peak}))
"""
_READ = """
import json, sys
from pathlib import Path
from mpprof import traces
trace = traces.read(Path(sys.argv[1]))
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) // 1024
print(json.dumps({"answer": len(trace.kernels) + len(trace.host), "peak_mb": peak}))
"""
_REPORT = """
import json, sys
from mpprof.cli import main
code = main(["report", sys.argv[1], "--no-cache", "--format", "json", "-o", sys.argv[2]])
from pathlib import Path
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) // 1024
answer = 0 if code else len(json.loads(Path(sys.argv[2]).read_text())["time"]["slices"])
print(json.dumps({"answer": answer, "peak_mb": peak}))
"""


def timed(*arguments: str) -> tuple[float, dict[str, int]]:
    """Wall seconds of a process from its start to its end, and what it says of itself."""
    import time

    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, timeout=600)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr[-3000:]
    return seconds, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kernels", [22_000, 700_000], ids=["2 MB", "64 MB"])
def test_against_xprof(kernels: int, tmp_path: Path) -> None:
    pytest.importorskip("xprof", reason="XProf, the peer to compare with, is not installed")
    path = tmp_path / "big.xplane.pb"
    events = write(path, kernels)
    size_mb = path.stat().st_size / 1e6
    seconds: dict[str, list[float]] = {"xprof": [], "read": [], "report": []}
    peaks: dict[str, int] = {}
    for run in range(int(os.environ.get("MPPROF_BENCH_RUNS", "3"))):
        peer = tmp_path / f"peer{run}" / path.name  # XProf leaves a cache beside its input
        peer.parent.mkdir()
        shutil.copy(path, peer)
        for name, arguments in {
            "xprof": (_PEER, str(peer), *TOOLS),
            "read": (_READ, str(path)),
            "report": (_REPORT, str(path), str(tmp_path / f"report{run}.json")),
        }.items():
            taken, said = timed(*arguments)
            assert said["answer"] > 0, f"{name} gave an empty answer"
            assert name != "read" or said["answer"] == events
            seconds[name].append(taken)
            peaks[name] = max(peaks.get(name, 0), said["peak_mb"])
        shutil.rmtree(peer.parent)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"\n{size_mb:.1f} MB, {events} events; median of {len(seconds['read'])} whole processes")
    for name in median:
        ratio = median["xprof"] / median[name]
        print(f"  {name:7} {median[name]:7.2f} s  {peaks[name]:5} MB  {ratio:5.1f} x XProf")


def test_the_walk_alone(tmp_path: Path) -> None:
    """Megabytes per second of the walk over the host plane's lines, in this process."""
    import time

    import numpy as np

    from mpprof.traces import walk
    from mpprof.traces.planes import read_space, slots

    path = tmp_path / "big.xplane.pb"
    write(path)
    buffer = np.fromfile(path, np.uint8)
    for plane in read_space(buffer).planes:
        keys, rows, ints, texts = slots(plane, ("correlation_id", "step_num"), ("tf_op", "tensor_shapes"))
        starts = np.array([line.start for line in plane.lines], np.int64)
        ends = np.array([line.end for line in plane.lines], np.int64)
        marked = np.zeros(len(plane.metadata_ids), np.uint8)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            found = walk.events(
                buffer, starts, ends, *plane.metadata_lookup(), keys, rows, len(ints), len(texts), marked
            )
            best = min(best, time.perf_counter() - start)
        size = int((ends - starts).sum())
        print(
            f"\n{plane.name}: {size / 1e6:.1f} MB, {len(found.metadata)} events, {size / best / 1e6:.0f} MB/s"
        )
        assert len(found.metadata) > 0
