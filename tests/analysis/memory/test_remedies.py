"""What is live once a cause's bytes are gone, held against every moment one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.analysis.memory import composition, remedies
from mpprof.analysis.memory.blocks import allocators, blocks
from mpprof.model.memory import PeakParts
from tests.builders.trace import TraceBuilder

PARTS = PeakParts("forward", {}, {}, {}, 0, 0, 0, frozenset(), {})


@pytest.mark.parametrize("seed", range(20))
def test_the_moments_kept_tell_the_peak_after_any_remedy(seed: int) -> None:
    random = np.random.default_rng(seed)
    held = random.integers(0, 100, 200)
    live = held + random.integers(0, 60, 200)
    parts = replace(PARTS, moments={"MP605": remedies.moments(live, held)})
    for removed in (lambda b: b, lambda b: b // 2, lambda b: b - 70, lambda b: 0):
        after = (live - np.maximum(0, [removed(each) for each in held.tolist()])).max()
        assert remedies.lowered(parts, "MP605", removed) == live.max() - after
    assert remedies.lowered(parts, "MP606", lambda b: b) == 0


def test_bytes_held_and_older_ones_follow_the_events() -> None:
    b = TraceBuilder()
    b.allocation(1, 100, 1100, address=1)
    b.allocation(2, 300, 800, address=9, free=True)  # older than the trace
    b.allocation(3, 50, 850, address=2)
    b.allocation(4, 100, 750, address=1, free=True)
    trace = b.build()
    found = blocks(trace.allocations, allocators(trace)[0][1])
    assert remedies.held(found, found.bytes).tolist() == [100, 100, 150, 50]
    assert remedies.held(found, np.array([0, 7])).tolist() == [0, 0, 7, 7]
    assert remedies.older(found).tolist() == [1000, 700, 700, 700]


def test_the_peaks_of_two_steps_fall_together_or_not_at_all() -> None:
    b = TraceBuilder()
    for at, region in ((0, "temp"), (2, "output")):
        b.allocation(at, 100, 100, address=1, op="conv/Conv2D", phase="forward", region=region)
        b.allocation(at + 1, 100, 0, address=1, free=True)
    found = composition.at_peak(b.build(), b.ownership())
    assert found.parts.moments["MP605"] == ((0, 100),)
