"""Passes told apart by ranges named warm-up and measured: *synthetic* timelines, and the recorded one they follow."""

from __future__ import annotations

from mpprof import traces
from mpprof.analysis.steps.boundaries import Periods, periods
from mpprof.model.trace import HostKind
from tests.builders.trace import TraceBuilder
from tests.paths import SHARED
from tests.traces.conftest import needs_shared

US = 1_000


def passes(*names: tuple[str, ...]) -> TraceBuilder:
    """Passes of the same ten kernels, 100 us each, every one in ranges of these names, the outermost first."""
    b = TraceBuilder()
    for n, ranges in enumerate(names):
        begin = n * 200 * US
        for depth, name in enumerate(ranges):
            b.event(HostKind.OTHER, begin + depth, begin + 100 * US - depth, name=name)
        for k in range(10):
            at = begin + (10 + 8 * k) * US
            b.kernel(f"kernel {k}", at + 3 * US, at + 5 * US, launch=(at, at + US))
    return b


def edges_us(found: Periods) -> list[tuple[int, int]]:
    return [
        (round(start / US), round(end / US))
        for start, end in zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    ]


def test_the_measured_pass_is_the_step_and_the_warm_up_is_none() -> None:
    trace = passes(("net|warmup|forward",) * 2, ("net|measure|forward",) * 2).build()
    found = periods(trace, 0)
    assert edges_us(found) == [(200, 300)]
    assert "net|measure|forward" in found.notes[0]


def test_several_measured_passes_are_steps_of_their_own() -> None:
    """The innermost ranges that say so; an outer one holds them all."""
    b = passes(("warm-up",), ("Measure 1",), ("Measure 2",))
    b.event(HostKind.OTHER, 150 * US, 550 * US, name="measurement")
    assert edges_us(periods(b.build(), 0)) == [(200, 300), (400, 500)]


def test_measured_without_any_warm_up_tells_nothing() -> None:
    assert periods(passes(("measure",), ("measure",), ("measure",)).build(), 0).source == "period"


def test_parts_of_a_measured_pass_are_no_steps() -> None:
    b = passes(("warmup",), ("x",), ("x",), ("x",))
    for n in (1, 2, 3):
        b.event(HostKind.OTHER, (200 * n + 1) * US, (200 * n + 40) * US, name="measure|forward")
        b.event(HostKind.OTHER, (200 * n + 41) * US, (200 * n + 90) * US, name="measure|backward")
    assert periods(b.build(), 0).source == "period"


def test_a_repetition_in_a_warm_up_is_no_step() -> None:
    without, found = (
        periods(passes((first,), ("x",), ("x",), ("x",)).build(), 0) for first in ("x", "model warm_up")
    )
    assert (len(without), len(found)) == (3, 2)
    assert edges_us(found) == edges_us(without)[1:]
    assert "1 of 3 repetitions lie in a range that says warm-up" in found.notes[-1]


def test_where_only_the_warm_up_is_whole_there_is_no_step() -> None:
    found = periods(passes(("warmup",), ("x",)).build(), 0)
    assert len(found) == 0
    assert "warm-up" in found.notes[-1]


def test_words_that_hold_the_word_say_nothing() -> None:
    found = periods(passes(("swarmup",), ("measures",), ("x",)).build(), 0)
    assert (found.source, len(found)) == ("period", 2)


@needs_shared()
def test_of_a_recorded_benchmark_the_measured_pass_is_the_step() -> None:
    """Its annotations: warm-up 12.74 s, measure|forward 36.356 ms."""
    found = periods(traces.read(SHARED / "a100-v100-torch/alexnet_a100.json.gz"), 0)
    assert (found.end_ns - found.start_ns).tolist() == [36_356_000]
