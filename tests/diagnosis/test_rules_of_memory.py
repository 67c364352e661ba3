"""What mixed precision saved, could have saved, and where the rest went: one cause planted at a time.

The model keeps a convolution's and a norm's activation for the backward pass; a healthy 16-bit run halves both
and adds one copy of the convolution's weight."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mpprof.analysis.memory import composition, saved
from mpprof.api import workflows
from mpprof.diagnosis.signals import Case
from mpprof.model.account import Phase
from mpprof.model.memory import MemoryAccount, MemoryItem, RecordedMemory
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder
from tests.diagnosis.saying import finding, says
from tests.paths import NO_TRACES, SAMPLES, SHARED
from tests.real import truth

MIB = 1 << 20
CODES = ("MP601", "MP603", "MP604", "MP605", "MP606", "MP607")
IMAGE = "[32,64,64,64]"


@dataclass(frozen=True)
class Step:
    """Sizes in MiB."""

    states: int = 100
    conv: tuple[str, int] = ("float", 400)
    norm: tuple[str, int] = ("float", 400)
    copies: int = 0  # of 10 MiB each
    flow: tuple[str, int, str] = ("float", 0, IMAGE)  # gradients in the norm, with their shape
    user: Phase | None = "backward"  # of the op that lets go of them; None: no event tells
    scratch: int = 20
    update: int = 0  # temporaries of the optimizer, after the activations are gone
    rounding: int = 0  # beyond what the convolution asked for


FLOAT32 = Step()
MIXED = Step(conv=("half", 200), norm=("half", 200), copies=1)


def account(step: Step) -> MemoryAccount:
    b, live, clock = TraceBuilder(), step.states * MIB, iter(range(1, 1000))

    def allocate(address, mib, op, *, layer=None, phase="forward", more=0, **facts) -> None:
        nonlocal live
        live += (mib + more) * MIB
        b.allocation(
            next(clock), (mib + more) * MIB, live, address=address, op=op, layer=layer, phase=phase,
            requested=mib * MIB, **facts,
        )  # fmt: skip

    def free(address: int, mib: int, *, phase: Phase | None = None) -> None:
        nonlocal live
        live -= mib * MIB
        b.allocation(
            next(clock), mib * MIB, live, address=address, free=True, requested=mib * MIB,
            op=phase and f"{phase}/op", phase=phase or "other",
        )  # fmt: skip

    half, (dtype, size), (kept, norm) = step.conv[0] == "half", step.conv, step.norm
    for copy in range(step.copies):
        allocate(10 + copy, 10, "conv/Cast", layer="conv", dtype="half", shape="[3,3,64,64]")
    allocate(1, size, "conv/Conv2D", layer="conv", dtype=dtype, shape=IMAGE, more=step.rounding)
    allocate(2, norm, "norm/mul", layer="norm", dtype=kept, shape=IMAGE)
    allocate(6, 0, "norm/Cast", layer="norm", dtype="half" if half else "float", shape="[32,1]")
    allocate(3, step.scratch, "grad/conv", layer="conv", phase="backward", region="temp", dtype="uint8")
    allocate(5, 0, "grad/out", layer="conv", phase="backward", dtype=dtype)
    if step.flow[1]:
        flow, gradient, shape = step.flow
        allocate(7, gradient, "grad/norm/mul", layer="norm", phase="backward", dtype=flow, shape=shape)
        free(7, gradient, phase=step.user)
    free(3, step.scratch)
    free(2, norm)
    free(1, size + step.rounding)
    if step.update:
        allocate(4, step.update, "Adam/mul", phase="optimizer", dtype="float")
        free(4, step.update)
    found = composition.at_peak(b.build(), b.ownership())
    assert found is not None
    return found


def judged(step: Step, base: Step | None = FLOAT32) -> Case:
    mine = account(step)
    if base is not None:
        held = saved.against(mine, None, None, account(base))
        assert held.expected_saving_bytes is not None
        assert held.saved_bytes is not None
        assert held.unexplained_bytes is not None
        gap = held.expected_saving_bytes - held.saved_bytes
        assert sum(part.bytes for part in held.gap) + held.unexplained_bytes == gap
        mine = held
    return c.case(memory=mine)


def test_a_healthy_run_saved_what_could_be_saved() -> None:
    memory = judged(MIXED).memory
    assert memory.saved_bytes == memory.expected_saving_bytes == (200 + 200 - 10) * MIB
    assert (memory.gap, memory.unexplained_bytes, memory.reachable_bytes) == ((), 0, 0)
    for code in CODES:
        assert says(code, judged(MIXED)) == "clear"


PLANTED = {
    "MP603": (replace(MIXED, copies=11), 100),
    "MP604": (replace(MIXED, norm=("float", 400)), 200),
    "MP605": (replace(MIXED, scratch=220), 200),
    "MP607": (replace(MIXED, rounding=150), 150),
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_cause_is_found_with_its_bytes_and_no_other(code: str) -> None:
    step, mib = PLANTED[code]
    case = judged(step)
    assert [(part.code, part.bytes) for part in case.memory.gap] == [(code, mib * MIB)]
    assert case.memory.unexplained_bytes == 0
    assert finding(code, case).cost_bytes == mib * MIB
    for other in set(CODES) - {code}:
        assert says(other, case) == "clear"


def test_what_is_next_to_nothing_is_no_cause() -> None:
    memory = judged(replace(MIXED, rounding=3)).memory
    assert (memory.gap, memory.unexplained_bytes) == ((), 3 * MIB)


def test_mp604_has_a_norms_float32_gradients_too() -> None:
    """The baseline's fused norm holds one gradient; the 16-bit run's two, each half as large in 16 bits."""
    base, two = replace(FLOAT32, flow=("float", 200, IMAGE)), replace(MIXED, flow=("float", 400, IMAGE))
    memory = judged(two, base).memory
    assert [(part.code, part.bytes) for part in memory.gap] == [("MP604", 200 * MIB)]
    assert memory.unexplained_bytes == 0
    found = finding("MP604", judged(two, base))
    assert (found.cost_bytes, found.layers) == (200 * MIB, ("norm",))
    assert "400 MiB of gradients" in found.summary
    assert finding("MP604", judged(two, None)).cost_bytes == 200 * MIB


def test_of_mp604_the_gap_has_what_was_expected_to_be_saved() -> None:
    """Both runs hold 400 MiB of float32 gradients, so 390 MiB were saved as expected. In 16 bits the peak would
    fall by 200 more."""
    flow = ("float", 400, IMAGE)
    case = judged(replace(MIXED, flow=flow), replace(FLOAT32, flow=flow))
    assert (case.memory.gap, case.memory.unexplained_bytes) == ((), 0)
    assert finding("MP604", case).cost_bytes == 200 * MIB


@pytest.mark.parametrize(
    ("flow", "user"),
    [
        (("half", 400, IMAGE), "backward"),
        (("float", 400, "[3,3,64,64]"), "backward"),
        (("float", 400, "[]"), "backward"),
        (("float", 400, "[32,1000]"), "optimizer"),
        (("float", 400, "[32,1000]"), "loss_scale"),
    ],
)
def test_16_bit_gradients_and_those_of_weights_are_not_mp604s(
    flow: tuple[str, int, str], user: Phase
) -> None:
    """Of a dense layer with 32 inputs the kernel's gradient has the batch as its first axis, too."""
    case = judged(replace(MIXED, flow=flow, user=user))
    assert says("MP604", case) == "clear"
    assert (case.memory.gap, case.memory.unexplained_bytes) == ((), 400 * MIB)


@pytest.mark.parametrize("user", [None, "other"])
def test_gradients_that_may_be_of_weights_are_not_mp604s_and_it_says_so(user: Phase | None) -> None:
    open_ = replace(MIXED, flow=("float", 400, "[32,1000]"), user=user)
    case = judged(open_)
    assert says("MP604", case) == (
        "unable: 400 MiB of float32 gradients: of activations or of weights, no event shows which"
    )
    assert (case.memory.gap, case.memory.unexplained_bytes) == ((), 400 * MIB)
    found = finding("MP604", judged(replace(open_, norm=("float", 400))))
    assert found.cost_bytes == 200 * MIB
    assert "not counted: 400 MiB of float32 gradients" in found.summary
    assert says("MP604", judged(replace(open_, flow=("float", 40, "[32,1000]")))) == "clear"


@pytest.mark.parametrize(("capacity", "severity"), [(None, "warning"), (1500, "warning"), (1600, "info")])
def test_mp607_is_a_note_where_most_of_the_memory_is_free(capacity: int | None, severity: str) -> None:
    """The peak is 780 MiB, 250 of them rounding."""
    mine = account(replace(MIXED, rounding=250))
    assert (mine.peak_bytes, mine.rounding_bytes) == (780 * MIB, 250 * MIB)
    (allocator,) = mine.allocators
    sized = replace(allocator, capacity_bytes=None if capacity is None else capacity * MIB)
    assert says("MP607", c.case(memory=replace(mine, allocators=(sized,)))) == severity


@pytest.mark.parametrize(
    ("backend", "capacity", "loose", "first", "snippet"),
    [
        ("tensorflow", 1500, 0.3, "let CUDA place the blocks", "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py"),
        ("jax", 1500, 0.3, "let CUDA place the blocks", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python train.py"),
        ("jax", 1600, 0.3, "none needed: most of the allocator's memory is free", ""),
        ("jax", 1600, 0.9, "none needed: most of the allocator's memory is free", ""),
        ("jax", 800, 0.9, "batches of one shape: drop the remainder, pad to few lengths", ""),
    ],
)  # fmt: skip
def test_mp607_advises_one_shape_only_where_free_memory_is_in_small_pieces(
    backend: str, capacity: int, loose: float, first: str, snippet: str
) -> None:
    """Each step asks for the same sizes here: batches of one shape are what it has."""
    mine = account(replace(MIXED, rounding=250))
    (allocator,) = mine.allocators
    sized = replace(
        mine, allocators=(replace(allocator, capacity_bytes=capacity * MIB),), fragmentation_ratio=loose
    )
    found = finding(
        "MP607", c.case(records=c.facts(framework={"keras": "3.15.1", "backend": backend}), memory=sized)
    )
    assert (found.remedies[0].text, found.remedies[0].snippet) == (first, snippet)
    assert ("batches of one shape" in found.remedy) == ("fragmentation" in found.title) == (capacity == 800)


@pytest.mark.parametrize(
    "path", ["recorded-h100-convnet-mixed-bfloat16", "mi300-jax/jax08_attention.xplane.pb"]
)
def test_mp607_counts_what_the_peak_would_fall_by_and_advises_nothing_where_memory_is_free(path: str) -> None:
    """Counted from the allocator's raw events, without a line of mpprof: 98.0 and 99.7 % of the memory is free, the
    sizes asked for are the same in every step."""
    recorded = SAMPLES / path
    file = next(recorded.rglob("*.xplane.pb.gz"), None) or SHARED / path
    if not file.exists():
        pytest.skip(NO_TRACES)
    found = {
        each.code: each
        for each in workflows.diagnose(workflows.load(recorded if recorded.exists() else file)).findings
    }
    assert found["MP607"].cost_bytes == truth.lowered_by_exact_blocks(file, "GPU_0_bfc")
    assert (found["MP607"].severity, found["MP607"].remedy) == (
        "info", "none needed: most of the allocator's memory is free",
    )  # fmt: skip


NEAR = {
    "MP603": replace(MIXED, copies=5),
    "MP604": replace(MIXED, norm=("float", 230)),
    "MP605": replace(MIXED, scratch=60),
    "MP606": replace(MIXED, update=410),
    "MP607": replace(MIXED, rounding=40),
}


@pytest.mark.parametrize("code", NEAR)
def test_a_near_miss_is_silent(code: str) -> None:
    assert says(code, judged(NEAR[code])) == "clear"


def test_mp605_is_no_cause_where_the_baseline_has_the_same_workspace() -> None:
    assert says("MP605", judged(replace(MIXED, scratch=300), replace(FLOAT32, scratch=300))) == "clear"


def test_mp606_is_a_peak_in_the_optimizers_update() -> None:
    """100 + 10 + 800 MiB in the update, 100 + 10 + 200 + 200 + 20 in the backward pass."""
    case = judged(replace(MIXED, update=800))
    found = finding("MP606", case)
    assert found.cost_bytes == (910 - 530) * MIB
    assert "optimizer phase" in found.summary
    assert [(part.code, part.bytes) for part in case.memory.gap] == [("MP606", 380 * MIB)]
    assert case.memory.unexplained_bytes == 0
    assert finding("MP606", judged(replace(MIXED, update=800), None)).cost_bytes == 380 * MIB


FULL = Step(900, ("half", 200), ("half", 200), copies=11, scratch=220, update=800)
"""In MiB 900 + 110 + 200 + 200 + 220 = 1630 in the backward pass, 900 + 110 + 800 = 1810 in the update."""
NEXT = {
    "MP603": (FULL, 100),  # of both moments
    "MP604": (replace(FULL, norm=("float", 600), scratch=50), 50),  # 1860, 1560 of half; 1810 in the update
    "MP605": (replace(FULL, scratch=420), 20),  # 1830
    "MP606": (FULL, 180),
    "MP607": (replace(FULL, rounding=300), 120),  # 1930
}


@pytest.mark.parametrize("base", [None, Step(states=900, scratch=700, update=800)])
@pytest.mark.parametrize("code", NEXT)
def test_a_remedy_saves_no_more_than_down_to_the_next_moment(code: str, base: Step | None) -> None:
    step, mib = NEXT[code]
    if code == "MP605" and base is not None:
        base = replace(base, scratch=20, conv=("float", 900))  # whose workspaces are smaller
    parts, mine = account(step).parts, judged(step, base).memory
    assert parts is not None
    limit = 0.05 * mine.whole_bytes
    assert mine.of_gap(code) in (None, mib * MIB)
    if code == "MP605" and base is None:
        assert says(code, judged(step, None)) == "clear"  # not most of the peak
    elif mib * MIB < limit:
        assert says(code, judged(step, base)) == "clear"
    else:
        assert finding(code, judged(step, base)).cost_bytes == mib * MIB


def test_mp606_of_records_is_a_peak_before_training_settled() -> None:
    def early(steady: int) -> Case:
        readings = RecordedMemory(1000 * MIB, steady * MIB, None, None, None, None)
        return c.case(steps=c.summary(memory=readings), memory=account(MIXED))

    assert finding("MP606", early(700)).cost_bytes == 300 * MIB
    assert says("MP606", early(960)) == "clear"


def test_mp601_is_a_peak_of_what_stays_in_float32() -> None:
    found = finding("MP601", judged(replace(MIXED, states=900), replace(FLOAT32, states=900)))
    assert found.cost_bytes == 900 * MIB
    assert says("MP601", judged(replace(MIXED, states=400), replace(FLOAT32, states=400))) == "clear"


def test_states_that_grew_are_part_of_the_gap() -> None:
    memory = judged(replace(MIXED, states=150)).memory
    assert [(part.code, part.bytes) for part in memory.gap] == [("MP601", 50 * MIB)]


def test_what_else_shrank_is_named_by_its_kind() -> None:
    """Of states, of an allocator's rounding and of scratch space no saving was expected; 9.2 MiB are 1 %."""
    base = Step(states=140, scratch=29, rounding=100)
    memory = judged(replace(MIXED, norm=("float", 400)), base).memory
    assert [(part.code, part.bytes) for part in memory.gap] == [("MP604", 200 * MIB)]
    assert memory.unexplained_bytes == -149 * MIB
    assert [(part.kind, part.bytes) for part in memory.shrank] == [
        ("rounding", 100 * MIB), ("held before the window", 40 * MIB),
    ]  # fmt: skip
    healthy = judged(MIXED).memory
    assert healthy.shrank == ()


def test_without_a_baseline_the_run_alone_is_judged() -> None:
    assert finding("MP604", judged(replace(MIXED, norm=("float", 400)), None)).cost_bytes == 200 * MIB
    assert finding("MP603", judged(replace(MIXED, copies=11), None)).cost_bytes == 100 * MIB
    assert says("MP605", judged(replace(MIXED, scratch=220), None)) == "clear"
    assert says("MP605", judged(replace(MIXED, scratch=700), None)) == "info"


def test_a_float32_run_and_one_without_events_are_not_judged() -> None:
    for code in CODES:
        wide = c.case(records=c.facts("float32"), memory=account(FLOAT32))
        assert says(code, wide) == "not applicable: the run does not compute in 16 bits"
        assert "no allocator events" in says(code, c.case())


def test_another_batch_is_no_expectation() -> None:
    run, other = c.run(c.facts(fits=(c.fit(batch_size=64),))), c.run(c.facts(fits=(c.fit(batch_size=32),)))
    held = saved.against(account(MIXED), None, None, account(FLOAT32), run, other)
    assert held.saved_bytes == 390 * MIB
    assert held.expected_saving_bytes is None
    assert "batches differ" in (held.why_no_expectation or "")


def test_memory_in_16_bits_of_no_known_layer_is_not_said_to_be_absent() -> None:
    run, mine = c.run(c.facts(fits=(c.fit(batch_size=64),))), account(MIXED)
    assert mine is not None
    assert mine.parts is not None
    nameless = replace(mine, parts=replace(mine.parts, half_layers=frozenset()))
    wide = [item for item in nameless.at_peak if (item.by, item.name) != ("dtype", "half")]
    assigned = MemoryItem("dtype", "f16", 100 * MIB, assigned=True)

    def why(*items: MemoryItem) -> str | None:
        held = saved.against(replace(nameless, at_peak=items), None, None, account(FLOAT32), run, run)
        return held.why_no_expectation

    assert why(*wide, assigned) == "which layers hold its memory in 16 bits is not known"
    assert why(*wide) == "no layer of this run is known to allocate in 16 bits"
