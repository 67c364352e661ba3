"""What the host needs for a step, read off a hand-made trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.breakdown import accounting
from mpprof.analysis.steps import host_floor
from mpprof.model.trace import HostKind
from tests.builders.trace import TraceBuilder


def made(*, wait: bool, steps: int = 4, launches: int = 6) -> TraceBuilder:
    """Steps of 1000 ns: 100 to the first launch, a launch every 20, and the device busy until 900."""
    b = TraceBuilder()
    for n in range(steps):
        begin = 1000 * n
        b.marker(n + 1, begin, begin + 1000)
        for i in range(launches):
            at = begin + 100 + 20 * i
            start = begin + 200 + 100 * i
            b.kernel("k", start, start + 100, op="model/dense/MatMul", launch=(at, at + 5))
        if wait:
            b.event(HostKind.SYNC, begin + 210, begin + 940)
    return b


def need(b: TraceBuilder) -> float | None:
    trace = b.build()
    account = accounting.account(trace, b.placements(), b.ownership(), None)
    return host_floor.need_ns(trace, account)


def test_way_to_the_first_launch_launches_and_way_back() -> None:
    assert need(made(wait=True)) == pytest.approx(100 + 5 * 20 + 60)


def test_without_a_wait_on_record_the_device_still_had_to_finish() -> None:
    assert need(made(wait=False)) == pytest.approx(100 + 5 * 20 + (1000 - 800))


def test_never_more_than_the_step() -> None:
    b = made(wait=False)
    trace = b.build()
    account = accounting.account(trace, b.placements(), b.ownership(), None)
    assert host_floor.need_ns(trace, replace(account, step_ns=300.0)) == 300.0


def test_without_markers_it_is_not_known() -> None:
    b = TraceBuilder()
    for i in range(40):
        b.kernel("a" if i % 4 else "first", 100 * i, 100 * i + 50, op="x")
    trace = b.build()
    other = made(wait=True)
    account = accounting.account(other.build(), other.placements(), other.ownership(), None)
    assert host_floor.need_ns(trace, account) is None
