"""What the cache gains, in processor time: a second report of a JSON trace, and of an xplane had it been kept.

Run by `make bench`. What is asserted are ratios of our own times on one machine: the choice of the formats that
are kept rests on them.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.traces.cache import entries
from tests.traces.kineto import Kineto
from tools.benchmarks import big_trace

pytestmark = pytest.mark.benchmark

LAUNCHES = 60_000
RUNS = 3


def report_cpu_s(path: Path, folder: Path) -> float:
    """Processor time of a whole `mpprof report`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "mpprof.cli", "report", str(path), "--format", "json"],
        env={**os.environ, "MPPROF_CACHE": str(folder)}, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_a_second_report_of_a_json_trace_takes_half_the_time_at_most(tmp_path: Path) -> None:
    made = Kineto()
    for at in range(LAUNCHES):
        ts = 20.0 * at
        if at % 1000 == 0:
            made.host("user_annotation", f"ProfilerStep#{at // 1000}", ts, 19_990)
        made.op(f"aten::op_{at % 40}", ts, 9)
        made.launch(f"kernel_{at % 200}", ts + 2, ts + 4, 8)
    path = made.write(tmp_path / "large.pt.trace.json.gz")
    assert traces.is_slow(path)
    first = report_cpu_s(path, tmp_path / "cache")
    again = statistics.median(report_cpu_s(path, tmp_path / "cache") for _ in range(RUNS))
    print(
        f"\n{path.stat().st_size / 1e6:.1f} MB, {3 * LAUNCHES} events: first {first:.2f} s, again {again:.2f} s"
    )
    assert again < first / 2


def test_an_xplane_takes_no_multiple_of_what_it_would_take_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In favour of the cache: what keeping costs is left out."""
    path = tmp_path / "large.xplane.pb"
    big_trace.write(path, 350_000)
    kept = entries.Cache(tmp_path / "cache")
    trace = traces.read(path)
    kept.save("key", trace)
    columns: list[float] = []
    column = entries._Entry._column

    def timed(self: entries._Entry, table: str, name: str) -> object:
        began = time.process_time()
        try:
            return column(self, table, name)
        finally:
            columns.append(time.process_time() - began)

    monkeypatch.setattr(entries._Entry, "_column", timed)
    began = time.process_time()
    traces.read(path)
    read = time.process_time() - began
    began = time.process_time()
    entries.digest(path, "1")
    found = kept.load("key", lambda: trace)
    again = time.process_time() - began
    assert found is not None
    monkeypatch.setattr(workflows, "_trace", lambda *_: found)
    workflows.diagnose(workflows.load(path))
    again += sum(columns)
    print(f"\n{path.stat().st_size / 1e6:.1f} MB: read {read:.2f} s, from a cache {again:.2f} s")
    assert read < 4 * again
