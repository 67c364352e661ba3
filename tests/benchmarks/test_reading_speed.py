"""How fast a large trace is read, as a ratio to XProf's converters, and how that grows with its size.

Run by `make bench`, never by `make test`. MPPROF_BENCH_RUNS sets the number of runs. No time is asserted, since
machines differ: only that both sides did the whole work, and ratios of our own times to each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.benchmarks import reading
from tools.benchmarks.big_trace import write

pytestmark = pytest.mark.benchmark

MOST_OVER_LINEAR = 3.0
"""What a megabyte of the largest file may take against one of the smaller. Quadratic growth makes it 4.7; caches
and the system's own zeroing of memory up to 2."""


@pytest.mark.parametrize("label", list(reading.KERNELS))
def test_against_xprof(label: str, tmp_path: Path) -> None:
    pytest.importorskip("xprof", reason="XProf, the peer to compare with, is not installed")
    found = reading.compare(label, tmp_path)
    print(f"\n{found.size_mb:.1f} MB, {found.events} events; median of {found.runs} whole processes")
    for name, one in found.by.items():
        faster = found.times_faster(name)
        print(f"  {name:7} {one.seconds:7.3f} s  {one.peak_mb:5.0f} MB  {faster:5.1f} x XProf")
    assert found.times_faster("report") > 1
    assert found.by["report"].peak_mb < 0.5 * found.by["xprof"].peak_mb


def test_the_walk_alone(tmp_path: Path) -> None:
    for plane, (size_mb, events, speed) in reading.walk_speed(tmp_path).items():
        print(f"\n{plane}: {size_mb:.1f} MB, {events} events, {speed:.0f} MB/s")
        assert events > 0


def test_growth_is_linear_from_1_to_64_mb(tmp_path: Path) -> None:
    """Processor time and memory above those of the smallest file grow no faster than the file does."""
    reading.byte_code()
    measured = []
    for kernels in (11_000, 44_000, 176_000, 704_000):
        path = tmp_path / f"{kernels}.xplane.pb"
        write(path, kernels)
        seconds = min(reading.report_cpu(path, tmp_path / "report.json") for _ in range(5))
        peak = reading.report_peak_mb(path, tmp_path / f"{kernels}.json")
        measured.append((path.stat().st_size / 1e6, seconds, peak))
        print(f"\n{measured[-1][0]:6.1f} MB  {seconds:6.3f} s  {peak:5.0f} MB")
    small, third, large = measured[0], measured[2], measured[3]
    for which in (1, 2):
        per_mb = (third[which] - small[which]) / (third[0] - small[0])
        at_last = (large[which] - third[which]) / (large[0] - third[0])
        assert at_last < MOST_OVER_LINEAR * per_mb, ("processor time", "memory")[which - 1]
