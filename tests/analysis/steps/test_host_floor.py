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


@pytest.mark.parametrize(("copied", "held"), [((80, 88), 88), ((80, 99), 0)])
def test_a_call_that_returns_after_its_copy_waited_until_that_was_done(
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


@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [(HostKind.INPUT, 10, 60), (HostKind.ALLOCATE, 10, 60), (HostKind.ALLOCATE, 110, 115)],
)
def test_waits_for_a_batch_or_for_memory_are_no_need(kind: HostKind, begin: int, end: int) -> None:
    """Of the way to the first launch, 100, 50 are left; one allocation changes no median between launches."""
    b = made(wait=True)
    for n in range(4):
        b.event(kind, 1000 * n + begin, 1000 * n + end)
    assert need(b) == pytest.approx((50 if begin < 100 else 100) + 5 * 20 + 60)


def test_a_batch_fetched_by_another_thread_after_the_last_work_is_no_need() -> None:
    b = made(wait=True)
    for n in range(4):
        b.event(HostKind.INPUT, 1000 * n + 950, 1000 * n + 990, thread="input")
    assert need(b) == pytest.approx(100 + 5 * 20 + (60 - 40))


def test_memory_allocated_before_every_launch_is_no_need() -> None:
    b = made(wait=True)
    for n in range(4):
        for i in range(5):
            at = 1000 * n + 100 + 20 * i
            b.event(HostKind.ALLOCATE, at + 6, at + 18)
    assert need(b) == pytest.approx(100 + 5 * (20 - 12) + 60)


@pytest.mark.parametrize("code_ns", [0, 5_800_000])
def test_what_takes_longer_than_launching_counts_as_far_as_something_shows_it(code_ns: int) -> None:
    """Launches 20 µs apart, 6 ms before the first and 2 ms after the last work: neither is launching. A
    function of the host's code in the 6 ms is executing, and so a need."""
    b = TraceBuilder()
    for n in range(4):
        begin = 20_000_000 * n
        b.marker(n + 1, begin, begin + 20_000_000)
        if code_ns:
            b.event(HostKind.CODE, begin + 100_000, begin + 100_000 + code_ns, name="preprocess")
        for i in range(6):
            at = begin + 6_000_000 + 20_000 * i
            start = begin + 12_000_000 + 1_000_000 * i
            b.kernel("k", start, start + 1_000_000, op="model/dense/MatMul", launch=(at, at + 5_000))
    assert need(b) == pytest.approx((6_000_000 if code_ns else 0) + 5 * 20_000)
