"""A survey of 1,000 runs of 2 to 10 MB: runs a second on one process and on two, processor time, and memory.

Run by `make bench`. The runs share a few files by hard links, so that the disk holds them; each is read anew."""

from __future__ import annotations

import os
import re
import resource
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import mpprof
from tests.cli.conftest import MIXED
from tools.benchmarks import big_trace

pytestmark = [pytest.mark.benchmark, pytest.mark.full]

RUNS = int(os.environ.get("MPPROF_SURVEY_RUNS", "1000"))
KERNELS = (20_000, 45_000, 70_000, 100_000)


def laid_out(root: Path) -> int:
    """So many runs, each with records and a trace of one of four sizes; returns the bytes of all traces."""
    records = MIXED / "mpprof"
    sizes = []
    for number, kernels in enumerate(KERNELS):
        big_trace.write(root.parent / f"{number}.xplane.pb", kernels)
        sizes.append((root.parent / f"{number}.xplane.pb").stat().st_size)
    for number in range(RUNS):
        run = root / f"{number // 100:02d}" / f"run-{number:04d}"
        shutil.copytree(records, run / "mpprof", copy_function=os.link)
        (window,) = (each.parent for each in MIXED.rglob("*.xplane.pb"))
        folder = run / window.relative_to(MIXED)
        folder.mkdir(parents=True)
        os.link(root.parent / f"{number % len(KERNELS)}.xplane.pb", folder / "host.xplane.pb")
    return sum(sizes[number % len(KERNELS)] for number in range(RUNS))


def processor_s() -> float:
    """Processor time of this process and of those that it started, once they have ended."""
    for thread in threading.enumerate():  # the survey's own threads wait for its processes
        if thread is not threading.current_thread():
            thread.join(10)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak_mib(pid: int | str) -> float:
    """The most memory that a process had since its program started, unlike `ru_maxrss`; 0 where it is gone."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def children() -> list[str]:
    """Process ids of the processes that this one started; a thread that ends meanwhile has none."""
    found: list[str] = []
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += each.read_text().split()
    return found


def test_a_thousand_runs(tmp_path: Path) -> None:
    peaks = [0.0]

    def told(_done: int, _of: int, _problems: int) -> None:
        peaks.extend(map(peak_mib, children()))

    size = laid_out(tmp_path / "runs")
    rates, spent_s = {}, {}
    for workers in (1, 2):
        began, before_s = time.perf_counter(), processor_s()
        rows = mpprof.survey(tmp_path / "runs", workers=workers, progress=told)
        rates[workers] = RUNS / (time.perf_counter() - began)
        spent_s[workers] = (processor_s() - before_s) / RUNS
        assert len(rows) == RUNS
        assert not [row["problem"] for row in rows if row["problem"]]
    print(
        f"\n{RUNS} runs, {size / RUNS / 1e6:.1f} MB of trace each: {rates[1]:.1f} a second on one process, "
        f"{rates[2]:.1f} on two ({rates[2] / rates[1]:.2f}x), {spent_s[1]:.3f} and {spent_s[2]:.3f} s of "
        f"processor time a run at a load of {os.getloadavg()[0]:.1f}; at most {max(peaks):.0f} MiB a worker, "
        f"{peak_mib(os.getpid()):.0f} MiB here (with pytest and what made the traces)"
    )
