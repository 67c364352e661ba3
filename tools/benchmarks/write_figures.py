"""Measures reading and writes the figures into docs/reading.md: `python -m tools.benchmarks.write_figures`.

MPPROF_BENCH_RUNS sets the number of runs (7).
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.paths import ROOT
from tools.benchmarks import reading

PAGE = ROOT / "docs" / "reading.md"
BEGIN, END = "<!-- figures:reading -->", "<!-- /figures -->"
RUNS = int(os.environ.get("MPPROF_BENCH_RUNS", "7"))


def machine() -> str:
    """The processor by name and the cores that this process may use."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def table(found: list[reading.Reading], walk: dict[str, tuple[float, int, float]]) -> str:
    rows = [
        "| trace | XProf, four converters | `mpprof report` | |",
        "| --- | --- | --- | --- |",
    ]
    for one in found:
        peer, ours = one.by["xprof"], one.by["report"]
        rows.append(
            f"| {one.size_mb:.0f} MB, {one.events:,} events | {peer.seconds:.2f} s, {peer.peak_mb:,.0f} MB "
            f"| {ours.seconds:.2f} s, {ours.peak_mb:,.0f} MB "
            f"| {one.times_faster():.1f} times as fast, {ours.peak_mb / peer.peak_mb:.0%} of the memory |"
        )
    speeds = " and ".join(f"{speed:,.0f} MB/s ({plane})" for plane, (_, _, speed) in walk.items())
    rows += [
        "",
        f"Median of {found[0].runs} whole processes each, in turns; memory is the peak. The walk alone reads "
        f"{speeds}. {machine()}; Python {platform.python_version()}, XProf {metadata.version('xprof')}, "
        f"{datetime.now(UTC):%Y-%m-%d}. Measured by `python -m tools.benchmarks.write_figures`.",
    ]
    return "\n".join(rows)


def main() -> int:
    text = PAGE.read_text()
    if BEGIN not in text:
        print(f"{PAGE} has no {BEGIN}", file=sys.stderr)
        return 1
    found = []
    for label in reading.KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(reading.compare(label, Path(folder), RUNS))
    with tempfile.TemporaryDirectory() as folder:
        walk = reading.walk_speed(Path(folder))
    text = PAGE.read_text()  # again: it may have changed meanwhile
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    figures = table(found, walk)
    PAGE.write_text(f"{head}{BEGIN}\n{figures}\n{END}{tail}")
    print(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
