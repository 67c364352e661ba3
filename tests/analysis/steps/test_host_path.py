"""Which of host and device the step waits for, read off a hand-made trace."""

from __future__ import annotations

import pytest

from mpprof.analysis.breakdown import accounting
from mpprof.analysis.steps.host_floor import QUEUED_NS, host_path
from mpprof.model.account import HostPath
from mpprof.model.trace import HostKind
from tests.builders.trace import TraceBuilder

US = 1000
GAP = 100 * US


def path(b: TraceBuilder) -> HostPath | None:
    trace = b.build()
    return host_path(trace, accounting.account(trace, b.placements(), b.ownership(), None))


def one_call(kernel: int, *, launches: int = 5) -> TraceBuilder:
    """A call of 600 us with a launch of 10 us every 100; kernels run one after the other."""
    b = TraceBuilder()
    b.marker(-1, 0, 600 * US, family="function")
    free = 0
    for n in range(launches):
        at = 50 * US + n * GAP
        start = max(free, at + 10 * US)
        free = start + kernel
        b.kernel("k", start, free, op="dense/MatMul", launch=(at, at + 10 * US))
    return b


def test_of_long_kernels_all_but_the_first_are_queued() -> None:
    assert path(one_call(200 * US)) == HostPath(600 * US, 460 * US, 5 * 200 * US, (1060 - 460) * US)


def test_of_short_kernels_only_the_last_one_counts() -> None:
    assert path(one_call(20 * US)) == HostPath(600 * US, 460 * US, 20 * US, 20 * US)


def test_a_host_that_is_ahead_of_the_step_before_began_with_a_full_queue() -> None:
    b = one_call(200 * US)
    b.kernel("earlier", -300 * US, 30 * US, launch=(-320 * US, -310 * US), stream=1)
    found = path(b)
    assert found.ahead_ns == 0


def test_waits_for_the_device_and_the_copy_of_the_results_are_no_launching() -> None:
    b = one_call(20 * US)
    b.event(HostKind.SYNC, 170 * US, 220 * US)
    b.copy(580 * US, 582 * US, launch=(560 * US, 590 * US))
    found = path(b)
    assert found.launched_ns == pytest.approx((460 - 50) * US)


@pytest.mark.parametrize(
    ("waits_of", "launches_of", "waited"),
    [
        ("main", "main", 150),  # from 170 to 320: all three launches are its own, before and after
        ("main", "executor", 60),  # another thread launches from 250 to 260: what is left after it
        ("executor", "executor", 150),
        ("watchdog", "main", 0),  # launches nothing, and calls nothing
    ],
)
def test_only_waits_of_the_thread_on_the_path_are_no_launching(waits_of, launches_of, waited) -> None:
    b = TraceBuilder()
    b.marker(-1, 0, 600 * US, family="function", thread="main")
    b.kernel("a", 70 * US, 90 * US, op="dense/MatMul", launch=(50 * US, 60 * US), thread="main")
    if launches_of != waits_of:
        b.kernel("b", 270 * US, 290 * US, op="x/MatMul", launch=(250 * US, 260 * US), thread=launches_of)
    b.kernel("c", 470 * US, 490 * US, op="y/MatMul", launch=(450 * US, 460 * US), thread=launches_of)
    b.event(HostKind.SYNC, 170 * US, 320 * US, thread=waits_of)
    found = path(b)
    assert found.launched_ns == pytest.approx((460 - waited) * US)


def test_without_calls_it_is_not_known() -> None:
    b = TraceBuilder()
    for n in range(40):
        b.kernel("a" if n % 4 else "first", 100 * n, 100 * n + 50, op="x")
    other = one_call(20 * US)
    account = accounting.account(other.build(), other.placements(), other.ownership(), None)
    assert host_path(b.build(), account) is None
    assert QUEUED_NS > 10 * US  # the launches above are 10 us long, and their kernels start at once


def test_what_the_host_waits_for_once_the_call_has_returned_stands_apart() -> None:
    b = one_call(200 * US)  # the device works until 1,060 us
    b.event(HostKind.SYNC, 610 * US, 1_050 * US)
    found = path(b)
    assert found.waited_ns == pytest.approx(440 * US)
    assert found.call_ns == 600 * US
