"""Steps told by the repetition of the kernel sequence: on recorded traces whose steps are known, and on lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps import unmarked
from mpprof.analysis.steps.boundaries import Periods, periods
from mpprof.analysis.steps.repetition import Repetition, begins, repetition
from mpprof.model.trace import MarkerTable, Trace
from tests.paths import SHARED
from tests.traces.conftest import needs_shared

STEPS = ("a100-v100-torch/control_a100.json.gz", "a100-v100-torch/test_v100.json.gz")
WITHIN_ONE_STEP = (  # of each, a single step or none was recorded; what repeats are the model's layers
    "b200-torch/eager_trace.json.gz",
    "h100-torch/Falconsai_nsfw_image_detection__1016002.json.gz",
    "h100-torch/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "h100-torch/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
)
JAX_CALLS = {"jax08_attention": 1, "jax08_elementwise": 4, "te_fused_attention_gfx950": 3}


def without_markers(trace: Trace, *, at_all: bool = True) -> Trace:
    """The trace without step markers; `at_all`: and without the ranges that PyTorch puts round updates and modules."""
    wide, small = np.empty(0, np.int64), np.empty(0, np.int32)
    bare = replace(trace, markers=MarkerTable(wide, wide, wide, small, small, small))
    if not at_all:
        return bare
    own = (unmarked.UPDATE, unmarked.MODULE_CALL)
    return replace(bare, strings=tuple("-" if text.startswith(own) else text for text in bare.strings))


def numbers(names: str) -> np.ndarray:
    return np.array([ord(character) for character in names])


def per_step(trace: Trace, found: Periods, stream: int) -> list[int]:
    start = trace.kernels.start_ns[trace.kernels.stream == stream]
    return (np.searchsorted(start, found.end_ns) - np.searchsorted(start, found.start_ns)).tolist()


@needs_shared()
@pytest.mark.parametrize("name", STEPS)
def test_without_its_markers_a_recorded_trace_has_the_same_steps(name: str) -> None:
    marked = traces.read(SHARED / name)
    bare = without_markers(marked)
    truth, found = periods(marked, 0), periods(bare, 0)
    assert (truth.source, found.source) == ("torch", "period")
    assert (len(truth), len(found)) == (6, 5)  # what precedes the first step's sequence has no beginning
    busiest = int(np.bincount(marked.kernels.stream).argmax())
    on_busiest = marked.kernels.stream[truth.work.row] == busiest
    counts = np.bincount(truth.work.step[on_busiest]).tolist()
    assert len(set(counts)) == 1, "kernels of the next step were counted into a step"
    assert per_step(bare, found, busiest) == counts[1:]
    assert median(found.end_ns - found.start_ns) == pytest.approx(
        median(truth.end_ns - truth.start_ns), rel=0.02
    )


@needs_shared()
@pytest.mark.parametrize("name", STEPS)
def test_steps_from_update_to_update_are_as_long_as_the_marked_ones(name: str) -> None:
    marked = traces.read(SHARED / name)
    truth, found = periods(marked, 0), periods(without_markers(marked, at_all=False), 0)
    assert (found.source, found.unit, len(found)) == ("optimizer", "step", len(truth) - 1)
    assert (found.end_ns - found.start_ns) / (truth.end_ns - truth.start_ns)[1:] == pytest.approx(
        1.0, rel=0.005
    )


@needs_shared()
@pytest.mark.parametrize("name", WITHIN_ONE_STEP)
def test_the_layers_of_one_recorded_step_are_not_taken_for_steps(name: str) -> None:
    found = periods(without_markers(traces.read(SHARED / name)), 0)
    assert len(found) == 0
    assert "no step can be told apart" in found.notes[0]
    assert "repeats, but" in found.notes[0]


@needs_shared()
@pytest.mark.parametrize("name", JAX_CALLS)
def test_equal_calls_are_steps(name: str) -> None:
    found = periods(traces.read(SHARED / "mi300-jax" / f"{name}.xplane.pb"), 0)
    assert (found.source, len(found)) == ("period", JAX_CALLS[name])


@pytest.mark.parametrize(
    ("names", "expected"),
    [("ab" * 10, 2), ("aabaabaab", 3), ("aaaaaaa", None), ("ab", None), ("abcde", None)],
)
def test_repetition(names: str, expected: int | None) -> None:
    found = repetition(numbers(names))
    assert (found.length if found else None) == expected


def test_repetition_of_equal_layers_is_not_taken_for_the_step() -> None:
    step = "i" + "qkv" * 12 + "l" + "rst" * 12 + "oooo"
    assert repetition(numbers(step * 5)) == Repetition(len(step), 0, steps=True)


def test_two_hundred_equal_layers_are_a_step_where_the_step_repeats_too() -> None:
    step = "embd" + "qkvp" * 200 + "head"
    assert repetition(numbers(step * 3)) == Repetition(len(step), 0, steps=True)
    alone = repetition(numbers(step))
    assert (alone.length, alone.outside, alone.steps) == (4, 8, False)


def test_a_step_that_logs_is_a_step_still_and_the_others_begin_where_they_did() -> None:
    step = "abcdefghijklmnopqrstuvwxyz0123456789"
    names = numbers(step * 7 + "LL" + step * 7)
    assert repetition(names) == Repetition(len(step), 2, steps=True)
    start = 10 * np.arange(len(names), dtype=np.int64)
    first = begins(names, start, start + 10, len(step))
    assert np.diff(first).tolist() == [36] * 6 + [38] + [36] * 6
    assert len(set(names[first].tolist())) == 1


def test_micro_batches_are_not_taken_for_steps() -> None:
    """The optimizer runs once in four: the whole is the step where it is there twice."""
    step = "forwaBACKd" * 4 + "optimizer!"
    assert repetition(numbers(step * 4)) == Repetition(len(step), 0, steps=True)
    once = repetition(numbers("forwaBACKd" * 12 + "optimizer!" + "forwaBACKd" * 12))
    assert (once.length, once.steps) == (10, False)
