"""Traces of a gigabyte, and one past protobuf's limit of 2 GiB. Run by `make soak`: minutes and gigabytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.benchmarks import reading
from tools.benchmarks.huge_trace import write

pytestmark = pytest.mark.soak

MOST_OVER_LINEAR = 1.5
_READ = """
import sys
from pathlib import Path
from mpprof import traces
trace = traces.read(Path(sys.argv[1]), strict=True)
found = len(trace.kernels) + len(trace.host)
if found != int(sys.argv[2]) or (trace.kernels.launch < 0).any():
    sys.exit(f"{found} of {sys.argv[2]} events")
"""


def room(folder: Path, disk: int, memory: int) -> None:
    free = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    if shutil.disk_usage(folder).free < disk or free < memory:
        pytest.skip(f"needs {disk / 1e9:.0f} GB of disk and {memory / 1e9:.0f} GB of memory")


def test_a_report_grows_linearly_to_a_gigabyte(tmp_path: Path) -> None:
    room(tmp_path, 2 << 30, 8 << 30)
    reading.byte_code()
    measured = []
    for size in (64_000_000, 1_000_000_000):
        path = tmp_path / f"{size}.xplane.pb"
        events = write(path, size)
        seconds = min(reading.report_cpu(path, tmp_path / "report.json") for _ in range(2))
        peak = reading.report_peak_mb(path, tmp_path / f"{size}.json")
        measured.append((path.stat().st_size / 1e6, seconds, peak))
        print(f"\n{measured[-1][0]:7.1f} MB, {events} events: {seconds:6.2f} s  {peak:6.0f} MB")
        path.unlink()
    (small, *first), (large, *last) = measured
    for least, most, what in zip(first, last, ("processor time", "memory"), strict=True):
        assert most < MOST_OVER_LINEAR * least * large / small, what


def test_a_file_past_2_gib_is_read_whole(tmp_path: Path) -> None:
    room(tmp_path, 3 << 30, 10 << 30)
    path = tmp_path / "huge.xplane.pb"
    events = write(path, 2_260_000_000)
    assert path.stat().st_size > 2.1 * 2**30
    seconds = reading.seconds("-c", _READ, str(path), str(events))
    peak = reading.peak_mb(_READ, str(path), str(events))
    print(f"\n{path.stat().st_size / 2**30:.2f} GiB, {events} events: read in {seconds:.1f} s, {peak:.0f} MB")
