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


@pytest.mark.parametrize(("thread", "held"), [("main", 50), ("another", 0)])
def test_what_the_launching_thread_waits_for_the_device_is_no_need(thread: str, held: int) -> None:
    b = made(wait=True)
    for n in range(4):
        b.event(HostKind.SYNC, 1000 * n + 10, 1000 * n + 60, thread=thread)
    assert need(b) == pytest.approx(100 - held + 5 * 20 + 60)


def test_waits_between_launches_are_no_need_either() -> None:
    b = made(wait=True)
    for n in range(4):
        for i in range(5):
            at = 1000 * n + 100 + 20 * i
            b.event(HostKind.SYNC, at + 6, at + 18)
    assert need(b) == pytest.approx(100 + 5 * (20 - 12) + 60)


@pytest.mark.parametrize(("copied", "held"), [((80, 88), 80), ((80, 99), 0)])
def test_a_call_that_returns_after_its_copy_waited_until_that_began(
    copied: tuple[int, int], held: int
) -> None:
    """A copy that ends after its call returned held nobody up."""
    b = TraceBuilder()
    for n in range(4):
        b.marker(n + 1, 1000 * n, 1000 * n + 1000)
        for i in range(6):
            at = 1000 * n + 100 * (i + 1)
            b.copy(at + copied[0], at + copied[1], launch=(at, at + 90))
        b.kernel(
            "k",
            1000 * n + 700,
            1000 * n + 990,
            op="model/dense/MatMul",
            launch=(1000 * n + 695, 1000 * n + 697),
        )
    assert need(b) == pytest.approx(100 + 6 * (100 - held) + 10)


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
