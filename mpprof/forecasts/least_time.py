"""The least time that work can take on a card: a bound that no measurement can undercut.

A kernel must move its operands through the L2 cache once, and through memory what the cache cannot hold; and
it must do its matrix operations at no more than the peak rate of the units that may run them. What another
kernel left in the L2 cache need not be read from memory, so as many bytes as it holds are free each time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from mpprof.analysis.attainable.work import roofline
from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.eligibility import multiplies
from mpprof.forecasts.targets import Card
from mpprof.model.kernels import Placement, Precision
from mpprof.traces.common.hlo_program import Launch, Value

L2_BYTES_PER_CLOCK_PER_SM = 64
"""More than one SM can get from the L2 cache in a clock on the two cards for which NVIDIA states it (A100
whitepaper: 5,120 bytes for 108 SMs, 2,048 for V100's 80); for the others it is taken to hold."""

BETWEEN_KERNELS_NS = 1000.0
"""Ideal time of a kernel below which no ratio to it is assumed of a float32 step: what lies between a kernel
and the next is of that size (NVIDIA, "Getting Started with CUDA Graphs": kernels of 2.9 microseconds on V100
took 3.8 each one after the other, 3.4 in a graph)."""


LAUNCH_NS = 3800.0
"""In which time a host launched one kernel after the other there; it launches no faster than that."""


def with_launches_ns(ideal_ns: float, kernels: int) -> float:
    """Return the least time of this many kernels with this ideal time, launched one by one."""
    return max(ideal_ns + kernels * BETWEEN_KERNELS_NS, kernels * LAUNCH_NS)


def stated_rates(card: Card) -> Mapping[str, float]:
    peaks = device_peaks.peaks(card.facts)
    assert peaks is not None  # every card of `targets` is a product of the table
    return peaks.flops_per_s


def fastest_rate(placement: Placement, precision: Precision, card: Card, rates: Mapping[str, float]) -> float:
    """Return the highest of these rates, in FLOP/s, at which the card may do these products."""
    ordinary = rates.get("fp16_cuda", 0.0) if precision == "fp16" else 0.0
    ordinary = max(ordinary, rates.get("fp32_cuda", 0.0))
    if placement == "cuda_core":
        return ordinary
    wanted = "tf32" if precision == "fp32" else precision
    if multiplies(wanted, card.compute_capability):
        return max(ordinary, rates.get(wanted, 0.0))
    return max([ordinary, *rates.values()]) if precision in ("unknown", "mixed") else ordinary


def slowest_rate(placement: Placement, precision: Precision, card: Card, rates: Mapping[str, float]) -> float:
    """Return the rate if the card chooses the slower of the units that may run these products."""
    if placement == "unknown":
        return rates.get("fp32_cuda", 0.0) or fastest_rate(placement, precision, card, rates)
    return fastest_rate(placement, precision, card, rates)


def at_least_ns(work: Launch, rate: float, card: Card) -> float:
    """Return the bound for all executions of one launch; a loop of unknown length counts once."""
    moved = work.read_bytes + work.written_bytes
    through_cache = moved / (L2_BYTES_PER_CLOCK_PER_SM * card.sm_count * card.highest_clock_khz * 1e3)
    from_memory = sum(max(0.0, part - card.l2_bytes) for part in (work.read_bytes, work.written_bytes))
    through_memory = from_memory / card.bandwidth_bytes_per_s
    return max(through_cache, through_memory, _computing_s(work, rate, card)) * 1e9 * times(work)


def _computing_s(work: Launch, rate: float, card: Card) -> float:
    """Return the least time of the operations, by the best algorithm that a library may take.

    That is a product of every tap but for convolutions of stride 1. For those cuDNN has Winograd's transform
    (filters of 3 and 5, on any unit; its kernels' names state tiles of 4 x 4, and of 9 x 9 for filters of 5,
    which along each axis need 6 multiplications for 12, and 9 for 25) and Fourier transforms, computed in
    float32 on ordinary units: 4 multiplications for a complex one, of which a real image has half as many as
    elements (cuDNN API reference, algorithms of the convolution functions).
    """
    flops = work.flops or 0.0
    if not flops or not rate:
        return 0.0
    best = flops / rate
    sizes = [size for size, _ in work.window]
    if not sizes or max(sizes) == 1 or any(stride != 1 for _, stride in work.window):
        return best
    if all(size in _WINOGRAD for size in sizes):
        best = min(best, flops / prod(_WINOGRAD[size] for size in sizes) / rate)
    ordinary = card.highest_rates["fp32_cuda"]
    return min(best, flops * _FOURIER / prod(sizes[-2:]) / ordinary)


_WINOGRAD = {1: 1.0, 3: 12 / 6, 5: 25 / 9}  # by size of the filter along an axis
_FOURIER = 2.0  # multiplications for each output and pair of channels, however large the filter


def times(work: Launch) -> int:
    """Return how often a launch runs in a step; a loop of unknown length counts once."""
    return 1 if work.count is None else work.count


def traffic_bytes(launches: Sequence[Launch], l2_bytes: float) -> float:
    """Return the least bytes that a step reads from memory, if the L2 cache always kept what is needed
    soonest.

    Belady's rule, on parts of values: when more is held than fits, what is used again latest goes first. No
    cache does better. Loops are left out, and so is what is written: the bound stays a bound.
    """
    uses: dict[Value, list[int]] = {}
    flat = [work for work in launches if not work.in_loop]
    for at, work in enumerate(flat):
        for value, _ in (*work.reads, *work.writes):
            uses.setdefault(value, []).append(at)
    held: dict[Value, float] = {}
    next_use: dict[Value, int] = {}
    total = 0.0
    for at, work in enumerate(flat):
        for value, size in work.reads:
            total += max(0.0, size - held.get(value, 0.0))
        touched = (*work.reads, *work.writes)
        for value, size in touched:
            held[value] = max(held.get(value, 0.0), size)
            next_use[value] = _next(uses[value], at)
        for value, _ in touched:
            if next_use[value] == _NEVER:
                held.pop(value, None)
        if (over := sum(held.values()) - l2_bytes) > 0:
            _evict(held, next_use, over)
    return total


_NEVER = -1


def _next(uses: Sequence[int], at: int) -> int:
    place = bisect_right(uses, at)
    return uses[place] if place < len(uses) else _NEVER


def _evict(held: dict[Value, float], next_use: Mapping[Value, int], over: float) -> None:
    """Take this many bytes out of what is held, those used latest first."""
    for value in sorted(held, key=lambda value: -next_use[value]):
        gone = min(over, held[value])
        held[value] -= gone
        over -= gone
        if over <= 0:
            return


def ideal_ns(work: Launch, rate: float, card: Card) -> float:
    """Return the roofline time of all executions of one launch: all bytes from memory, all operations at
    `rate`. On ordinary units a convolution is computed by the best algorithm that cuDNN has; on matrix units
    by a product."""
    found = roofline(work.flops, work.read_bytes + work.written_bytes, rate, card.bandwidth_bytes_per_s)
    if found is None:
        return 0.0
    ns, bound_by = found
    if bound_by == "compute" and work.window and rate <= stated_rates(card).get("fp32_cuda", 0.0):
        moved = roofline(None, work.read_bytes + work.written_bytes, None, card.bandwidth_bytes_per_s)
        ns = max(_computing_s(work, rate, card) * 1e9, moved[0] if moved else 0.0)
    return ns * times(work)


def of_either(own: Iterable[tuple[object, float]], library: Iterable[tuple[object, float]] | None) -> float:
    """Return the bound of a step whose parts may each come from either program: for each part the lesser."""
    first = _summed(own)
    if library is None:
        return sum(first.values())
    second = _summed(library)
    return sum(min(first.get(part, 0.0), second.get(part, 0.0)) for part in first.keys() | second.keys())


def _summed(parts: Iterable[tuple[object, float]]) -> dict[object, float]:
    sums: dict[object, float] = {}
    for part, ns in parts:
        sums[part] = sums.get(part, 0.0) + ns
    return sums
