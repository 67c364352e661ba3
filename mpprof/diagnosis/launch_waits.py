"""Idle time in which the device waited for launches, and how much of it is the run's own.

What the profiler does for every launch falls there, too, and so does what any call of a training function
costs, a float32 one's as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpprof.analysis.attainable.work import LAUNCH_LIMITED_RATIO
from mpprof.analysis.steps import host_waits
from mpprof.analysis.steps.idle import CALLING, CHECKING, LAUNCHING, LEAVING
from mpprof.diagnosis.outcomes import Claim, Scale, known
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

OF_THE_LOSS_SCALE = CHECKING[1]
_PER_LAUNCH = (LAUNCHING[1], CHECKING[1])
_PER_CALL = (CALLING[1], LEAVING[1])
SCALE = Scale(info_ratio=0.03, warning_ratio=LAUNCH_LIMITED_RATIO, error_ratio=0.30, normal=True)
"""XProf calls 3 % of launch time moderate and 15 % high. Ours is the idle time that launches leave, of which
a healthy unfused step on a fast card has 3 to 12 %: a mention, and a warning from XProf's "high"."""
NOTABLE_RATIO = 0.01
"""What profiling added is named from a hundredth of the step on."""
PRICE_OF_A_CALL_RATIO = 0.03
"""XProf calls 3 % of launch time in a step moderate: a baseline below that is not bound by launches, and what
it idles around a call is what a call costs."""


def claims(signals: Signals) -> tuple[Claim, ...]:
    """Return a claim on each cell of `idle_launch`, less what the profiler added to it, and less what the
    baseline idles around the cell's call where the baseline is not bound by launches itself. Empty without an
    account."""
    rows = signals.of("idle_launch")
    added, price = _by_row(signals, rows), _price_of_a_call(signals)
    return tuple(Claim(row, max(added[row], price.get(signals.cells[row].cause, 0.0))) for row in rows)


def between(signals: Signals) -> tuple[int, ...]:
    """Return the cells of idle time between two launches of a step."""
    return signals.select(lambda cell: cell.cause in _PER_LAUNCH)


def added_ns(signals: Signals) -> float:
    """Return the ns that profiling added to this idle time of a step. The profiler's work is host work for
    the most part, and so time without launches; what it adds between two steps does not belong to this time.
    Where profiling distorted the step, it is the idle time beyond what an unprofiled step leaves beside the
    device's work, which profiling does not change. 0 without unprofiled steps to compare with."""
    account = signals.case.measured
    if account is None or not (usual_ns := account.unprofiled_ns):
        return 0.0
    idle_ns = signals.time(signals.of("idle_launch"))
    if signals.distorted:
        return max(0.0, idle_ns - (usual_ns - account.device_ns) / signals.undistorted)
    return account.added_by_profiling_ns


def with_the_profilers(signals: Signals) -> bool:
    """Return whether no unprofiled step is known, so that launches are as slow as the profiler makes them."""
    account = signals.case.measured
    return account is not None and not account.wall_ns


def left_out(signals: Signals) -> str:
    """Return in brackets what the share of this idle time leaves out, or what it could not leave out; ""
    where profiling added nothing worth saying."""
    added = added_ns(signals)
    if added >= NOTABLE_RATIO * signals.whole_ns:
        return f" (without the {format_ratio(added / signals.whole_ns)} that profiling added)"
    return " (including what profiling added)" if with_the_profilers(signals) else ""


def in_mid_step(signals: Signals) -> tuple[str, ...]:
    """Return the driver's calls in which the host waits for the device in mid-step, and whose they are: those
    that take as much of the step as a mention needs, the longest first."""
    trace, account = signals.case.trace, signals.case.measured
    if trace is None or account is None:
        return ()
    return tuple(
        each.words
        for each in host_waits.in_mid_step(trace, account)
        if each.ns_per_step >= SCALE.info_ratio * signals.whole_ns
    )


def host_gets_ahead(signals: Signals) -> bool:
    """Return whether a step that began with an empty queue ends with more work queued than it idled for.
    Where no step is marked, the work between two waits for the device takes its place. The host then launches
    fast enough, and the cost is that of the empty queue."""
    ahead_ns = signals.host_ahead_ns
    return ahead_ns is not None and ahead_ns > signals.time(signals.of("idle_launch"))


def _by_row(signals: Signals, rows: tuple[int, ...]) -> dict[int, float]:
    """Return by cell how much profiling added. The profiler works for every launch, so that the time between
    launches gets the added time before the rest."""
    left_ns = added_ns(signals)
    split: dict[int, float] = {}
    per_launch = between(signals)
    for part in (per_launch, [row for row in rows if row not in per_launch]):
        split |= _spread(signals, part, left_ns)
        left_ns -= sum(split[row] for row in part)
    return split


def _spread(signals: Signals, rows: Iterable[int], ns: float) -> dict[int, float]:
    """Return `ns` divided among these cells by their size, to none more than it has."""
    sizes = {row: signals.cells[row].ns_per_step for row in rows}
    whole = sum(sizes.values())
    share = min(1.0, max(0.0, ns) / whole) if whole > 0 else 0.0
    return {row: size * share for row, size in sizes.items()}


def _price_of_a_call(signals: Signals) -> dict[str | None, float]:
    baseline = known(signals.baseline)
    if baseline is None or baseline.case.account is None or not baseline.whole_ns:
        return {}
    price: dict[str | None, float] = dict.fromkeys(_PER_CALL, 0.0)
    for row in baseline.select(lambda cell: cell.cause in _PER_CALL):
        price[baseline.cells[row].cause] += baseline.cells[row].ns_per_step
    return price if sum(price.values()) < PRICE_OF_A_CALL_RATIO * baseline.whole_ns else {}
