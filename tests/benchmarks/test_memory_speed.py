"""How long `mpprof memory` takes of a million allocator events, beside XProf's `memory_profile` of the same file.

Run by `make bench`, never by `make test`. No time is asserted, since machines differ: only that both sides read all.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mpprof import traces
from tests.builders.allocations import Allocator, plane_of
from tests.builders.xspace import Space

pytestmark = pytest.mark.benchmark

EVENTS, PARTS, LAYERS = 1_000_000, 20, 50

_PEER = """
import sys
from xprof.convert import raw_to_tool_data
if len(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "memory_profile", {})[0]) < 100:
    sys.exit("an empty answer")
"""


def processor_seconds(*arguments: str) -> float:
    """Processor time of a process of this interpreter, the least of three; it must end without an error."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def write(path: Path, events: int) -> None:
    """So many events on PARTS threads, one after the other: blocks of many ops that are freed again."""
    space = Space()
    plane = space.plane("/host:CPU")
    threads = plane_of(plane, PARTS)
    gpu = Allocator(threads[0])
    pairs = events // PARTS // 2
    for at in range(pairs):
        name = f"model/layer_{at % LAYERS}/MatMul"
        gpu.allocate(100 + 2 * at, 1 << 30 | at << 9, 4096 + 256 * (at % 7), name, dtype=19, shape="[64,32]")
        if at >= 1000:
            gpu.free(101 + 2 * at, 1 << 30 | (at - 1000) << 9)
    for at in range(pairs - 1000, pairs):
        gpu.free(3 * pairs + at, 1 << 30 | at << 9)
    for part, thread in enumerate(threads):
        thread.events, thread.timestamp_ns = threads[0].events, 5 * pairs * part
    path.write_bytes(space.to_bytes())


def test_a_million_events(tmp_path: Path) -> None:
    large, small = tmp_path / "large.xplane.pb", tmp_path / "small.xplane.pb"
    write(large, EVENTS)
    write(small, 50_000)
    assert len(traces.read(large).allocations) == EVENTS
    start_up, whole = (
        processor_seconds("-m", "mpprof.cli", "memory", str(path), "--no-cache") for path in (small, large)
    )
    print(f"\n{EVENTS:,} allocator events, {large.stat().st_size / 1e6:.0f} MB")
    print(f"  mpprof memory  {whole:.2f} s of processor time, {whole - start_up:.2f} s beyond a small trace")
    pytest.importorskip("xprof", reason="XProf, the peer to compare with, is not installed")
    print(f"  XProf          {processor_seconds('-c', _PEER, str(large)):.2f} s")
