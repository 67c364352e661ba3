"""What is in memory that XLA took for a program: by the sizes that it asked for, and its buffer assignment."""

from __future__ import annotations

import numpy as np
import pytest

from mpprof.analysis.memory import assigned, composition
from mpprof.api import workflows
from mpprof.model.memory import AliveBuffer, Assignment, MemoryAccount, Program, Taken
from mpprof.model.trace import HloInstruction, HostKind
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder
from tests.paths import NO_TRACES, SHARED


def buffer(size: int, dtype: str = "f32", scope: str = "", *, scratch: bool = False) -> AliveBuffer:
    made = HloInstruction("m", f"fusion.{size}", "fusion", scope, dtype, (), (), ())
    return AliveBuffer(made, size, scratch)


def program(name: str, *taken: Taken) -> Program:
    return Program(name, 1, Assignment(0, 0, 0, 0, 0, (), taken))


FORWARD, BACKWARD = "jit(f)/jvp(model)/first/dot", "jit(f)/transpose(jvp(model))/first/dot"
STEP = program(
    "jit_step",
    Taken(400, (buffer(400, "bf16", BACKWARD),), result=True),
    Taken(
        1000, (buffer(600, "bf16", FORWARD), buffer(250, "f32", BACKWARD), buffer(100, "s8", scratch=True))
    ),
)


def account(
    *programs: Program, sizes: tuple[int, ...] = (400, 1000), thread: str = "py_xla"
) -> MemoryAccount:
    """Two blocks that XLA takes at once, the second rounded up by 24 bytes, and one that it does not."""
    b, live = TraceBuilder(), 0
    b.event(HostKind.OTHER, 10, 90, thread="py_xla", name=assigned.TAKES)
    for at, size in enumerate(sizes):
        rounded = size + 24 * at
        live += rounded
        b.allocation(20 + at, rounded, live, address=at, requested=size, thread=thread)
    b.allocation(200, 64, live + 64, address=9, requested=64, thread="py_xla")
    found = composition.at_peak(b.build(), b.ownership(), None, programs)
    assert found is not None
    for by in ("kind", "dtype", "layer", "op"):
        assert sum(item.bytes for item in found.at_peak if item.by == by) == found.peak_bytes
    return found


def items(found: MemoryAccount, by: str) -> dict[tuple[str, bool], int]:
    return {(item.name, item.assigned): item.bytes for item in found.at_peak if item.by == by}


def test_the_programs_assignment_divides_its_blocks() -> None:
    found = account(STEP, program("jit_other", Taken(400, ())))
    assert items(found, "dtype") == {
        ("bf16", True): 1000, ("f32", True): 250, ("s8", True): 100, ("rounding", False): 24,
        ("unknown", False): 64 + 50,
    }  # fmt: skip
    assert items(found, "kind") == {
        ("gradients", True): 650, ("activations kept for backward", True): 600, ("workspaces", True): 100,
        ("rounding", False): 24, ("unknown", False): 64 + 50,
    }  # fmt: skip
    assert items(found, "layer") == {("model", True): 1250, ("rounding", False): 24, ("unknown", False): 214}
    assert found.why_unassigned is None
    assert found.rounding_bytes == 24
    assert "rounding" not in {each.kind for each in found.tensors}
    assert found.course.parts["dtype"]["bf16 (assigned)"][-1] == 1000
    assert found.parts.asked["workspaces"] == 100


@pytest.mark.parametrize(
    ("shape", "dtype", "batch", "kind"),
    [
        ((512, 300), "f16", 32, "16-bit weight copies"),
        ((32, 300), "f16", 32, "activations kept for backward"),  # the batch itself
        ((512, 300), "f32", 32, "activations kept for backward"),
        ((512, 300), "f16", None, "activations kept for backward"),
    ],
)
def test_an_argument_in_16_bits_that_does_not_grow_with_the_batch_is_a_weights_copy(
    shape: tuple[int, ...], dtype: str, batch: int | None, kind: str
) -> None:
    """Seen on an H100: of 1.02 GiB "activations kept for backward" 55 MiB were the casts of the weights."""
    cast = HloInstruction("m", "wrapped_convert", "fusion", FORWARD, dtype, shape, ("f32",), (shape,))
    step = program(
        "jit_step", Taken(1000, (AliveBuffer(cast, 600, recasts=True), buffer(250, "f16", BACKWARD)))
    )
    b = TraceBuilder()
    b.event(HostKind.OTHER, 10, 90, thread="py_xla", name=assigned.TAKES)
    b.allocation(20, 1000, 1000, address=1, requested=1000, thread="py_xla")
    run = c.run(c.facts(fits=(c.fit(batch_size=batch),)))
    found = composition.at_peak(b.build(), b.ownership(), run, (step,))
    assert found is not None
    assert {item.name: item.bytes for item in found.at_peak if item.by == "kind"}[kind] == 600
    assert found.parts is not None
    assert found.parts.copies_once_bytes == (600 if "copies" in kind else 0)


def test_an_activation_without_a_backward_buffer_beside_it_is_of_no_known_kind() -> None:
    alone = program(
        "jit_step",
        Taken(400, (buffer(400, "bf16", BACKWARD),), result=True),
        Taken(1000, (buffer(900, "f32", FORWARD),)),
    )
    found = items(account(alone), "kind")
    assert found[("gradients", True)] == 400
    assert (found[("unknown", False)], found[("rounding", False)]) == (64 + 1000, 24)
    inference = program("jit_f", Taken(400, (buffer(400, "f32", FORWARD),)), Taken(1000, ()))
    assert items(account(inference), "kind")[("other activations", True)] == 400


@pytest.mark.parametrize(
    ("programs", "sizes", "why"),
    [
        ((), (400, 1000), assigned.NO_ASSIGNMENT),
        ((STEP,), (1000, 400), assigned.NO_MATCH),
        ((STEP,), (400,), assigned.NO_MATCH),
        ((STEP, program("jit_g", Taken(400, ()), Taken(1000, ()))), (400, 1000), assigned.SEVERAL),
        ((program("jit_g", Taken(400, ()), Taken(1000, ())),), (400, 1000), assigned.NOT_STATED),
        ((program("jit_g", Taken(400, (buffer(1 << 63),))),), (400,), assigned.NOT_STATED),
        (
            (
                program(
                    "jit_g",
                    Taken(400, (buffer(1 << 64), buffer(-(1 << 64)))),
                ),
            ),
            (400,),
            assigned.NOT_STATED,
        ),
    ],
)
def test_what_is_not_divided_has_a_reason(
    programs: tuple[Program, ...], sizes: tuple[int, ...], why: str
) -> None:
    found = account(*programs, sizes=sizes)
    assert set(items(found, "dtype")) == {("unknown", False)}
    assert found.why_unassigned == why


def test_programs_that_agree_are_one() -> None:
    assert items(account(STEP, STEP), "dtype")[("bf16", True)] == 1000


def test_what_another_thread_takes_meanwhile_is_not_xlas() -> None:
    found = account(STEP, thread="python")
    assert set(items(found, "dtype")) == {("unknown", False)}
    assert found.why_unassigned is None


@pytest.mark.skipif(not SHARED.exists(), reason=NO_TRACES)
@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("jax08_gemm", {"bf16": 3 << 27, "s8": 79_691_776}),
        ("te_fused_attention_gfx950", {"f32": 302_514_216, "bf16": 218_103_808}),
        ("jax_conv_minimal_08", {"bf16": 1_151_098_880}),
    ],
)
def test_recorded_traces_of_jax_on_mi300(name: str, dtypes: dict[str, int]) -> None:
    """By hand from the HloProtos of the programs whose sizes the events have."""
    mine = workflows.analyse(workflows.load(SHARED / "mi300-jax" / f"{name}.xplane.pb")).memory
    found = {item.name: item.bytes for item in mine.at_peak if item.by == "dtype" and item.assigned}
    assert {dtype: found[dtype] for dtype in dtypes} == dtypes
    known = np.sum(list(found.values()))
    before = sum(i.bytes for i in mine.at_peak if i.by == "dtype" and i.name == "held before the window")
    assert known > 0.9 * (mine.peak_bytes - before - (mine.rounding_bytes or 0))
