"""What was live at the peak, on allocator events put together by hand and on recorded ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.layers import attribution
from mpprof.analysis.memory import blocks, composition
from mpprof.model.memory import MemoryAccount
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder
from tests.paths import NO_TRACES, SHARED


def at_peak(b: TraceBuilder) -> MemoryAccount | None:
    found = composition.at_peak(b.build(), b.ownership())
    if found is not None:
        closes(found)
    return found


def closes(found: MemoryAccount) -> None:
    for by in ("dtype", "op", "layer", "kind"):
        assert sum(item.bytes for item in found.at_peak if item.by == by) == found.peak_bytes
    assert all(item.bytes > 0 for item in found.at_peak)


def items(found: MemoryAccount | None, by: str) -> dict[str, int]:
    return {item.name: item.bytes for item in found.at_peak if item.by == by}


def test_the_live_set_at_the_peak() -> None:
    b = TraceBuilder()
    relu, grad, none = (
        {"op": "d/Relu", "layer": "d", "phase": "forward"},
        {"op": "g", "phase": "backward"},
        {},
    )
    b.allocation(1, 100, 1100, address=1, dtype="half", region="output", **relu)  # type: ignore[arg-type]
    b.allocation(2, 50, 1150, address=2, dtype="float", region="temp", **relu)  # type: ignore[arg-type]
    b.allocation(3, 50, 1100, address=2, free=True)
    b.allocation(4, 200, 1300, address=2, dtype="float", **grad)  # type: ignore[arg-type]
    b.allocation(5, 300, 1000, address=7, free=True)  # older than the window
    b.allocation(6, 400, 1400, address=3, region="temp", **none)  # the peak
    b.allocation(7, 400, 1000, address=3, free=True)
    found = at_peak(b)
    assert found.peak_bytes == 1400
    assert items(found, "kind") == {
        "held before the window": 700, "workspaces": 400, "gradients": 200,
        "activations kept for backward": 100,
    }  # fmt: skip
    older = {"held before the window": 700}
    assert items(found, "dtype") == {"unknown": 400, "float": 200, "half": 100} | older
    assert items(found, "op") == {"unknown": 400, "g": 200, "d/Relu": 100} | older
    assert items(found, "layer") == {"unknown": 600, "d": 100} | older
    assert found.course.parts["dtype"]["held before the window"] == (1000,) * 4 + (700,) * 3
    assert (found.saved_bytes, found.reachable_bytes) == (None, None)


def test_the_fullest_device_allocator_is_taken_before_the_hosts() -> None:
    b = TraceBuilder()
    b.allocation(1, 10, 10_000, address=1, allocator="gpu_host_bfc")
    b.allocation(1, 10, 20_000, address=1, allocator="mklcpu")
    found = at_peak(b)
    assert (found.allocator, found.peak_bytes, found.allocators[0].where) == ("mklcpu", 20_000, "host")
    b.allocation(1, 10, 500, address=1, allocator="GPU_0_bfc")
    b.allocation(2, 10, 700, address=1, allocator="GPU_1_bfc")
    found = at_peak(b)
    assert found.peak_bytes == 700
    assert [each.name for each in found.allocators] == ["GPU_1_bfc", "GPU_0_bfc", "mklcpu", "gpu_host_bfc"]


def test_no_events_say_why() -> None:
    trace = TraceBuilder().build()
    assert blocks.why_none(trace) == "the trace holds no allocator events"
    assert composition.at_peak(trace, TraceBuilder().ownership()) is None


def test_lost_frees_make_everything_unknown_and_not_more_than_the_peak() -> None:
    b = TraceBuilder()
    b.allocation(1, 600, 600, address=1, dtype="half")
    b.allocation(2, 600, 700, address=2, dtype="half")  # the free of the first is not in the trace
    assert items(at_peak(b), "dtype") == {"unknown": 700}


def test_an_address_that_is_given_out_anew_was_freed() -> None:
    b = TraceBuilder()
    b.allocation(1, 600, 600, address=1, dtype="half")
    b.allocation(2, 700, 700, address=1, dtype="float")
    assert items(at_peak(b), "dtype") == {"float": 700}


def test_what_lives_into_the_backward_pass_is_kept_for_it() -> None:
    b = TraceBuilder()
    forward, backward = {"layer": "d", "phase": "forward"}, {"op": "g", "phase": "backward"}
    b.allocation(1, 100, 100, address=1, op="d/MatMul", region="output", **forward)  # type: ignore[arg-type]
    b.allocation(2, 60, 160, address=2, op="d/Relu", region="output", **forward)  # type: ignore[arg-type]
    b.allocation(3, 100, 60, address=1, free=True)
    b.allocation(4, 500, 560, address=3, op="d/Tanh", region="output", **forward)  # type: ignore[arg-type]
    b.allocation(5, 500, 60, address=3, free=True)
    b.allocation(6, 30, 90, address=4, region="output", **backward)  # type: ignore[arg-type]
    b.allocation(7, 60, 30, address=2, free=True)
    assert items(at_peak(b), "kind") == {"other activations": 500, "activations kept for backward": 60}
    found = at_peak(b)
    kinds = found.course.parts["kind"]
    assert found.course.total_bytes == (100, 160, 60, 560, 60, 90, 30)
    assert kinds["activations kept for backward"] == (0, 60, 60, 60, 60, 60, 0)
    assert kinds["gradients"] == (0, 0, 0, 0, 0, 30, 30)


def test_casts_of_weights_are_told_from_casts_of_activations_by_the_batch() -> None:
    b = TraceBuilder()
    where = {"layer": "d", "phase": "forward"}
    b.allocation(1, 800, 800, address=1, dtype="half", shape="[32,64]", op="d/Relu", **where)  # type: ignore[arg-type]
    b.allocation(2, 400, 1200, address=2, dtype="half", shape="[64,64]", op="d/Cast", **where)  # type: ignore[arg-type]
    b.allocation(3, 300, 1500, address=3, dtype="half", shape="[32,64]", op="d/Cast_1", **where)  # type: ignore[arg-type]
    b.allocation(4, 200, 1700, address=4, dtype="float", shape="[64,64]", op="d/Cast_2", **where)  # type: ignore[arg-type]
    b.allocation(5, 0, 1700, address=5, op="g", phase="backward")
    assert items(at_peak(b), "kind") == {
        "activations kept for backward": 1300, "16-bit weight copies": 400,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("g/Conv2DBackpropFilter-0-TransposeNHWCToNCHW-LayoutOptimizer", "other"),
        ("g/Conv2DBackpropFilter_3-0-TransposeNHWCToNCHW-LayoutOptimizer", "other"),
        ("g/Conv2DBackpropFilter-2-TransposeNHWCToNCHW-LayoutOptimizer", "gradients"),
        ("g/Conv2DBackpropInput-1-TransposeHWIOToOIHW-LayoutOptimizer", "other"),
        ("g/SigmoidGrad-1-TransposeNHWCToNCHW-LayoutOptimizer", "gradients"),
        ("g/Conv2DBackpropFilter", "gradients"),
    ],
)
def test_an_operand_in_another_layout_is_a_gradient_only_where_it_holds_one(op: str, kind: str) -> None:
    b = TraceBuilder()
    b.allocation(1, 96, 96, address=1, op=op, phase="backward")
    assert items(at_peak(b), "kind") == {kind: 96}


def test_an_input_transposed_for_the_gradient_does_not_begin_the_backward_pass() -> None:
    """Grappler has the batch transposed before the forward pass and names the copy after the gradient's op."""
    b, transposed = TraceBuilder(), "g/Conv2DBackpropFilter-0-TransposeNHWCToNCHW-LayoutOptimizer"
    b.allocation(1, 40, 40, address=1, op="d/Cast", layer="d", phase="forward")
    b.allocation(2, 96, 136, address=2, op=transposed, phase="backward")
    b.allocation(3, 500, 636, address=3, op="d/Conv2D", layer="d", phase="forward")
    b.allocation(4, 40, 596, address=1, free=True)  # lived while the copy was made, not into the gradients
    b.allocation(5, 30, 626, address=4, op="g/Conv2DBackpropFilter", phase="backward")
    assert items(at_peak(b), "kind") == {
        "activations kept for backward": 500, "other": 96, "other activations": 40,
    }  # fmt: skip


def test_without_a_backward_pass_nothing_is_kept_for_it_unless_a_training_was_recorded() -> None:
    b = TraceBuilder()
    b.allocation(1, 100, 100, address=1, op="d/dropout/Cast", layer="d", phase="forward")
    assert items(at_peak(b), "kind") == {"other activations": 100}
    recorded = composition.at_peak(b.build(), b.ownership(), c.run(c.facts()))
    assert items(recorded, "kind") == {"activations kept for backward": 100}


@pytest.mark.parametrize(
    ("before", "split"),
    [
        (
            13_000_000,
            {"parameters": 4_000_000, "optimizer slots": 8_000_000, "held before the window": 10**6},
        ),
        (9_000_000, {"parameters": 4_000_000, "optimizer slots": 5_000_000}),
    ],
)
def test_what_is_older_than_the_window_is_split_by_the_records(before: int, split: dict[str, int]) -> None:
    """A million recorded parameters in float32, and Adam's two slots for each."""
    b = TraceBuilder()
    b.allocation(1, 50, before + 50, address=1, op="g", phase="backward")
    found = composition.at_peak(b.build(), b.ownership(), c.run(c.facts()))
    closes(found)
    assert items(found, "kind") == {"gradients": 50, **split}
    assert items(found, "dtype") == items(found, "layer") == {"unknown": 50, **split}
    assert items(found, "op") == {"g": 50, **split}
    for parts in found.course.parts.values():
        of_moments = {name.removesuffix(" (estimated)"): sizes for name, sizes in parts.items()}
        assert {name: of_moments[name] for name in split} == {name: (size,) for name, size in split.items()}
    estimated = {item.name for item in found.at_peak if item.estimated}
    assert estimated == {"parameters", "optimizer slots"}
    bare = at_peak(b)
    assert items(bare, "kind") == {"gradients": 50, "held before the window": before}


def trained(b: TraceBuilder, at: int, address: int, size: int, shape: str, update: str, live: int) -> None:
    """A variable's gradient, its update, and the gradient's end, as TensorFlow's executor does it."""
    b.allocation(at, size, live + size, address=address, op=f"g{address}", phase="backward", dtype="float",
                 shape=shape, region="output")  # fmt: skip
    b.kernel("update", at + 100, at + 101, op=f"Adam/update_{address}/{update}", op_type=update,
             phase="optimizer", launch=(at + 2, at + 3))  # fmt: skip
    b.allocation(at + 4, size, live, address=address, free=True)
    b.kernel("next", at + 110, at + 111, op=f"next{address}", launch=(at + 5, at + 6))


@pytest.mark.parametrize(
    ("update", "slots"),
    [("ResourceApplyAdam", 2), ("ResourceApplyKerasMomentum", 1), ("ResourceApplyGradientDescent", 0)],
)
def test_the_variables_are_told_by_the_gradients_that_their_updates_free(update: str, slots: int) -> None:
    b, before = TraceBuilder(), 5120 * (1 + slots) + 700
    trained(b, 10, 1, 4096, "[32,32]", update, before)
    trained(b, 30, 2, 1024, "[256]", update, before)
    trained(b, 60, 1, 4096, "[32,32]", update, before)  # the next step
    b.allocation(100, 9000, before + 9000, address=9, op="g", phase="backward")
    found = at_peak(b)
    expected = {
        "gradients": 9000, "parameters": 5120, "optimizer slots": 5120 * slots, "held before the window": 700,
    }  # fmt: skip
    assert items(found, "kind") == {name: size for name, size in expected.items() if size}
    assert {item.name for item in found.at_peak if item.estimated} <= {"parameters", "optimizer slots"}
    assert found.states_from == "updates"
    assert set(found.course.parts["kind"]["parameters (estimated)"]) == {5120}


def test_what_other_ops_free_is_no_variable() -> None:
    """The gradient of an activation that is freed before the update, or once the thread has gone on."""
    b = TraceBuilder()
    for at, address in ((3, 1), (30, 2)):
        b.allocation(
            1, 4096, 10**6, address=address, op="g", phase="backward", dtype="float", shape="[64,16]"
        )
        b.allocation(at, 4096, 10**6, address=address, free=True)
    b.kernel("update", 110, 111, op="Adam/update", op_type="ResourceApplyAdam", launch=(5, 6))
    b.kernel("next", 120, 121, op="next", launch=(20, 21))
    found = at_peak(b)
    assert found.states_from is None
    assert "parameters" not in items(found, "kind")


def test_a_window_that_ends_before_the_updates_tells_the_weights_by_their_16_bit_copies() -> None:
    b, where = TraceBuilder(), {"phase": "forward", "dtype": "half"}
    b.allocation(1, 0, 13_000, address=7, op="cond/then/AdamWeightDecay/WarmUp/Cast")
    b.allocation(2, 2048, 15_048, address=1, shape="[32,32]", op="d/Cast", layer="d", **where)  # type: ignore[arg-type]
    b.allocation(3, 4096, 19_144, address=2, shape="[16,128]", op="d/Relu", layer="d", **where)  # type: ignore[arg-type]
    found = at_peak(b)
    assert items(found, "kind") == {
        "optimizer slots": 8192, "parameters": 4096, "16-bit weight copies": 2048, "other activations": 4096,
        "held before the window": 712,
    }  # fmt: skip
    assert found.states_from == "weight_copies"


def test_what_outlives_its_op_is_no_workspace() -> None:
    """TensorFlow's Conv2DBackpropInput frees its output and passes on what it took as temporary."""
    b, where = TraceBuilder(), {"op": "g/Conv2DBackpropInput", "phase": "backward"}
    b.allocation(1, 64, 64, address=1, region="output", **where)  # type: ignore[arg-type]
    b.allocation(2, 96, 160, address=2, region="temp", **where)  # type: ignore[arg-type]
    b.allocation(3, 500, 660, address=3, region="temp", **where)  # type: ignore[arg-type]
    b.allocation(4, 500, 160, address=3, free=True, **where)  # type: ignore[arg-type]
    b.allocation(5, 64, 96, address=1, free=True, **where)  # type: ignore[arg-type]
    b.allocation(6, 96, 0, address=2, free=True)
    assert items(at_peak(b), "kind") == {"workspaces": 564, "gradients": 96}


def test_what_tf_data_makes_is_input_and_no_leak() -> None:
    """As TensorFlow 2.21 writes it on a CPU: rows of an array are gathered by an op without a scope, examples
    copied into a batch by none, both on a thread of tf.data and steps ahead."""
    b, live = TraceBuilder(), 0
    pool = "tf_data_private_threadpool/7"
    for step in range(3):
        b.marker(step, 100 * step, 100 * step + 90)
        for place, facts in enumerate(({"op": "GatherV2", "dtype": "float", "region": "output"}, {})):
            live += 30
            b.allocation(100 * step + 10 + place, 30, live, address=2 * step + place, thread=pool, **facts)
    handing_over = "tf_data_iterator_get_next/3"  # which goes on with the step
    b.allocation(250, 100, live + 100, address=9, op="d/MatMul", phase="forward", thread=handing_over)
    b.allocation(260, 0, live + 100, address=10, op="g", phase="backward")
    found = at_peak(b)
    assert items(found, "kind") == {"input": 180, "activations kept for backward": 100}
    assert found.across_steps == ()


def test_blocks_that_outlive_the_next_step_are_named() -> None:
    b = TraceBuilder()
    for step in range(3):
        b.marker(step, 100 * step, 100 * step + 90)
        b.allocation(100 * step + 10, 50, 50 * (step + 1) + 7, address=step, op="cache", dtype="float")
        b.allocation(100 * step + 20, 7, 50 * (step + 1) + 14, address=10, op="passing")
        b.allocation(100 * step + 30, 7, 50 * (step + 1) + 7, address=10, free=True)
    found = at_peak(b)
    assert found.across_steps is not None
    assert [(held.op, held.count, held.bytes) for held in found.across_steps] == [("cache", 2, 100)]
    one = TraceBuilder()
    one.marker(1, 0, 90)
    one.allocation(10, 50, 50, address=1)
    single = at_peak(one)
    assert single.across_steps is None


def test_what_a_callback_keeps_between_the_calls_is_of_the_step_before_and_no_activation() -> None:
    """A callback that keeps a tensor of each batch, and a loop that replaces its batch between the calls."""
    b, live = TraceBuilder(), 0

    def allocated(at: int, size: int, address: int, op: str, *, phase: str = "other") -> None:
        nonlocal live
        live += size
        b.allocation(at, size, live, address=address, op=op, dtype="float", phase=phase)  # type: ignore[arg-type]

    def freed(at: int, size: int, address: int) -> None:
        nonlocal live
        live -= size
        b.allocation(at, size, live, address=address, free=True)

    for step in range(4):
        now = 100 * step
        b.marker(step, now, now + 50)
        allocated(now + 10, 300, 1, "d/Relu", phase="forward")
        allocated(now + 20, 40, 2, "g", phase="backward")
        freed(now + 30, 300, 1)
        freed(now + 40, 40, 2)
        allocated(now + 60, 1000, 10 + step, "AddV2")  # by the callback, which keeps it
        allocated(now + 70, 500, 20 + step, "batch")
        if step:
            freed(now + 80, 500, 19 + step)
    found = at_peak(b)
    assert found.across_steps is not None
    assert [(held.op, held.count, held.bytes) for held in found.across_steps] == [("AddV2", 2, 2000)]
    assert items(found, "kind") == {"other": 5000}
    assert found.parts.kept == {}


def test_more_moments_than_are_drawn_keep_their_highest() -> None:
    b, live = TraceBuilder(), 0
    for n in range(5000):
        free = n % 2 == 1
        size = 1000 + n // 2 if n // 2 != 1234 else 9_999
        live += -size if free else size
        b.allocation(n, size, live, address=5, free=free, dtype="half")
    found = at_peak(b)
    assert len(found.course.time_ns) == 240
    assert max(found.course.total_bytes) == found.peak_bytes == 9_999
    for parts in found.course.parts.values():
        sums = [sum(values) for values in zip(*parts.values(), strict=True)]
        assert sums == list(found.course.total_bytes)


def test_many_names_are_drawn_together() -> None:
    b = TraceBuilder()
    for n in range(500):
        b.allocation(n, 10, 10 * (n + 1), address=n, op=f"op{n}")
    found = items(at_peak(b), "op")
    assert len(found) == 201
    assert found["300 smaller ones"] == 3000


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 50)), max_size=60), st.integers(0, 100))
def test_whatever_is_allocated_the_items_sum_to_the_peak(moves: list[tuple[int, int]], before: int) -> None:
    b, held, live = TraceBuilder(), {}, before
    for time, (address, size) in enumerate(moves):
        free = address in held
        size = held.pop(address) if free else size
        live += -size if free else size
        if not free:
            held[address] = size
        b.allocation(time, size, live, address=address, free=free, dtype="half", op=f"op{address}")
    found = at_peak(b)
    assert (found is None) == (not moves)
    if found is not None and before:
        assert items(found, "kind")["held before the window"] == before


@pytest.mark.skipif(not SHARED.exists(), reason=NO_TRACES)
def test_a_recorded_bert_on_v100() -> None:
    from mpprof import traces

    trace = traces.read(SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb")
    found = composition.at_peak(trace, attribution.attribute(trace, None))
    closes(found)
    assert found.peak_bytes < 16 << 30
    assert items(found, "dtype").get("half", 0) > 0
