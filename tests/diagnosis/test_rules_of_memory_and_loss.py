"""Rules about small batches, embeddings, the loss, fixed scales and memory-bound products, on both sides of
their limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.diagnosis.signals import Case
from mpprof.model.device import DevicePeaks
from mpprof.model.memory import Allocator, MemoryAccount
from mpprof.model.run import LayerFacts, OptimizerFacts
from tests.builders import cases as c
from tests.diagnosis.saying import finding, says


def of(layers, *cells, **changed):
    return c.case(records=c.facts(layers=(*layers, *c.HEALTHY_LAYERS)), account=c.account(*cells), **changed)


# --- MP202 loss-scale-underflow


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (OptimizerFacts("LossScaleOptimizer", "Adam", False, fixed_scale=1.0), "warning"),
        (OptimizerFacts("LossScaleOptimizer", "Adam", False, fixed_scale=127.0), "warning"),
        (OptimizerFacts("LossScaleOptimizer", "Adam", False, fixed_scale=128.0), "clear"),
        (OptimizerFacts("LossScaleOptimizer", "Adam", True, 2.0**15, 2000), "not applicable"),
    ],
)
def test_mp202_limits(optimizer, said) -> None:
    records = c.facts(fits=(c.fit(optimizer=optimizer),))
    assert says("MP202", c.case(records=records)).split(":")[0] == said


def test_mp202_is_about_float16() -> None:
    fit = c.fit("mixed_bfloat16", OptimizerFacts("Adam", fixed_scale=1.0))
    assert says("MP202", c.case(records=c.facts("mixed_bfloat16", fits=(fit,)))).startswith(
        "not applicable: "
    )


# --- MP303 batch-not-raised


@pytest.mark.parametrize(("peak_gib", "said"), [(8.1, "clear"), (7.9, "info")])
def test_mp303_limits(peak_gib, said) -> None:
    summary = c.summary(peak_memory_bytes=int(peak_gib * 2**30))
    assert says("MP303", c.case(steps=summary)) == said


def test_mp303_needs_a_peak_and_holds_in_float32_too() -> None:
    assert "not on record" in says("MP303", c.case(steps=c.summary()))
    summary = c.summary(peak_memory_bytes=1 << 30)
    assert says("MP303", c.case(records=c.facts("float32"), steps=summary)) == "info"


@pytest.mark.parametrize(
    ("category", "ms", "said"), [("idle_input", 60, False), ("copy", 25, False), ("copy", 10, True)]
)
def test_mp303_is_no_advice_where_input_or_copies_bind(category: str, ms: float, said: bool) -> None:
    """Of 100 ms: twice the batch waits twice as long."""
    cells = (c.cell(category, ms), c.healthy(100 - ms))
    case = c.case(account=c.account(*cells), steps=c.summary(peak_memory_bytes=1 << 30))
    found = says("MP303", case)
    if said:
        assert found == "info"
    else:
        assert f"input and copies take {ms}.0 % of the step" in found


def test_mp303_by_the_allocators_own_peak_in_the_trace() -> None:
    """A window holds 50 MiB at most; before it the process held 12 GiB, of 14."""

    def held(before: int | None) -> MemoryAccount:
        mine = Allocator("GPU_0_bfc", "device", 50 << 20, before, 14 << 30, 100)
        return MemoryAccount(50 << 20, (), allocator="GPU_0_bfc", allocators=(mine,))

    case = c.case(records=c.facts("float32"), steps=None)
    assert says("MP303", replace(case, memory=held(12 << 30))) == "clear"
    found = finding("MP303", replace(case, memory=held(102 << 20)))
    assert "99.3 % of the available memory is free at the peak" in found.summary


def test_mp303_holds_a_recorded_peak_against_what_the_allocator_may_take() -> None:
    """The card of 16 GiB has room for twice the batch; the allocator was given 14 GiB of it, and has not."""
    mine = Allocator("GPU_0_bfc", "device", 7 << 30, None, 14 << 30, 100)
    case = c.case(steps=c.summary(peak_memory_bytes=int(7.5 * 2**30)))
    assert says("MP303", case) == "info"
    known = MemoryAccount(7 << 30, (), allocator="GPU_0_bfc", allocators=(mine,))
    assert says("MP303", replace(case, memory=known)) == "clear"
    on_host = replace(known, allocators=(replace(mine, where="host"),))
    assert says("MP303", replace(case, memory=on_host)) == "info"


def test_mp303_does_not_trust_the_peak_of_a_window_without_a_whole_step() -> None:
    """Before the model ran nothing of it was allocated; a higher peak in earlier steps counts."""

    def held(before: int) -> MemoryAccount:
        mine = Allocator("GPU_0_bfc", "device", 5 << 30, before, 14 << 30, 100)
        return MemoryAccount(5 << 30, (), allocator="GPU_0_bfc", allocators=(mine,))

    case = c.case(steps=None, window=c.account(c.healthy(10), step_ms=950))
    assert "no whole step" in says("MP303", replace(case, memory=held(5 << 30)))
    assert says("MP303", replace(case, memory=held(6 << 30))) == "info"


# --- MP404 low-intensity


def product(flops_per_byte: float, ms: float = 30.0):
    facts = {"flops_per_step": flops_per_byte * 1e9, "bytes_per_step": 1e9, "layer": "dense"}
    return c.healthy(ms, **facts)


def test_mp404_is_a_ceiling_below_the_ridge() -> None:
    ridge = 125e12 / 900e9  # about 139 FLOP per byte
    rest = c.cell("optimizer", 70)
    assert says("MP404", c.case(account=c.account(product(ridge * 0.9), rest))) == "info"
    assert says("MP404", c.case(account=c.account(product(ridge * 1.1), rest))) == "clear"
    assert says("MP404", c.case(account=c.account(product(1.0, 19.0), c.cell("optimizer", 81)))) == "clear"
    assert finding("MP404", c.case(account=c.account(product(1.0), rest))).cost_ns_per_step is None
    assert "states no shapes" in says("MP404", c.case(account=c.account()))


# --- MP505 sparse-embedding

TABLE = c.layer("embedding", "Embedding", parameters=2_000_000)
UPDATE = {"shapes": "(float[2000000])", "phase": "optimizer"}


def test_mp505_has_the_scatter_and_the_update_of_the_table() -> None:
    scatter = c.cell("gather_scatter", 6, layer="embedding", phase="backward")
    gather = c.cell("gather_scatter", 5, layer="embedding", phase="forward")
    other = c.cell("optimizer", 7, shapes="(float[1000])", phase="optimizer")
    got = finding("MP505", of((TABLE,), scatter, gather, c.cell("optimizer", 8, **UPDATE), other))
    assert got.cost_ns_per_step == pytest.approx(14 * c.MS)
    assert got.layers == ("embedding",)


@pytest.mark.parametrize(("ms", "said"), [(2.9, "clear"), (3.1, "info"), (10.1, "warning"), (40.1, "error")])
def test_mp505_limits(ms, said) -> None:
    assert says("MP505", of((TABLE,), c.cell("optimizer", ms, **UPDATE))) == said


def test_mp505_small_tables_and_traces_without_shapes() -> None:
    small = c.layer("embedding", "Embedding", parameters=999_999)
    assert says("MP505", of((small,), c.cell("optimizer", 30, **UPDATE))).startswith("not applicable: ")
    assert "states no shapes" in says("MP505", of((TABLE,), c.cell("optimizer", 30, phase="optimizer")))


# --- MP507 loss-float32

LOSS = {"op": "StatefulPartitionedCall/compile_loss/sparse/Softmax", "precision": "fp32"}
LOGITS = "(float[4096,33709])"


def loss(
    *ms: float, peaks: DevicePeaks | None = c.V100_PEAKS, step_ms: float = 100.0, **facts: object
) -> Case:
    """A loss of kernels of so many milliseconds."""
    cells = [c.cell("elementwise", each, **LOSS | facts) for each in ms]
    return c.case(account=c.account(*cells, step_ms=step_ms), peaks=peaks)


@pytest.mark.parametrize(
    ("ms", "said"), [(5.7, "clear"), (5.9, "info"), (25.7, "info"), (25.9, "warning"), (50.9, "error")]
)
def test_mp507_limits(ms, said) -> None:
    """One pass over 4,096 x 33,709 logits at 4 bytes each takes 0.767 ms at 0.8 x 900 GB/s."""
    assert says("MP507", loss(ms, shapes=LOGITS)) == said


@pytest.mark.parametrize("kernels_ms", [(10.0,), (4.0, 5.0, 1.0)])
def test_mp507_gains_what_is_beyond_one_pass_over_the_logits(kernels_ms) -> None:
    pass_ns = 4096 * 33_709 * 4 / (0.8 * 900e9) * 1e9
    found = finding("MP507", loss(*kernels_ms, shapes=LOGITS))
    assert found.gain_ns_per_step == pytest.approx(10e6 - pass_ns)


def test_mp507_has_nothing_to_gain_of_a_loss_that_is_one_pass() -> None:
    assert says("MP507", loss(0.9, step_ms=1.0, shapes=LOGITS)) == "info"
    assert says("MP507", loss(0.76, step_ms=1.0, shapes=LOGITS)) == "clear"


@pytest.mark.parametrize(("peaks", "logits"), [(c.V100_PEAKS, None), (None, LOGITS)])
def test_mp507_halves_the_loss_where_its_bytes_are_not_known(peaks, logits) -> None:
    found = finding("MP507", loss(20.0, peaks=peaks, shapes=logits))
    assert found.gain_ns_per_step == pytest.approx(10e6)
    assert [each.name for each in found.evidence] == ["kernels of the loss", "kernels per step"]


ENTROPY = "jit(train_step)/jvp(compile_loss)/sparse_categorical_crossentropy"
PROBABILITIES = c.fusion(
    "exponential", "divide", "clamp", "log", operands=[("f16", (4096, 33712))], results=[("f32", (4096, 33712))]
)  # fmt: skip


def of_probabilities(head: LayerFacts, op: str = f"{ENTROPY}/reduce_sum", backend: str = "jax") -> Case:
    """20 ms of a loss, and 15 ms of the softmax before it and of its gradient."""
    cells = (
        c.cell("reduce", 20, op=op, precision="mixed", hlo=PROBABILITIES),
        c.cell("elementwise", 8, op="jit(train_step)/transpose(jvp())/mul", layer="probabilities"),
        c.cell("reduce", 7, op="jit(train_step)/jvp(probabilities)/reduce_max"),
    )
    records = c.facts(layers=(c.layer("logits"), head))
    records = replace(records, framework={**records.framework, "backend": backend})
    return c.case(records=records, account=c.account(*cells))


SOFTMAX = c.layer("probabilities", "Activation", "float32", config={"activation": "softmax"})


def test_mp507_a_loss_on_probabilities_has_the_softmax_too_and_asks_for_logits() -> None:
    """Seen on an H100: 3.2 of 8.8 ms, of which clipping alone wrote 552 MB."""
    got = finding("MP507", of_probabilities(SOFTMAX))
    least = 4096 * 33_712 * 8 / (0.8 * 900e9) * 1e9
    assert got.severity == "warning"
    assert got.cost_ns_per_step == pytest.approx(35e6 - least)
    assert "from_logits=True" in got.remedies[0].text
    assert "keras.losses.SparseCategoricalCrossentropy(from_logits=True)" in got.remedies[0].snippet


@pytest.mark.parametrize(("ms", "severity"), [(9.0, "clear"), (19.0, "info"), (21.0, "warning")])
def test_mp507_what_the_code_chose_leads_from_a_tenth_of_the_step_on(ms: float, severity: str) -> None:
    """On an H100 1.32 of 5.59 ms were worth a mention only, and the first thing to do was to measure. Half the bytes
    of a cell without shapes are what it could give back."""
    clip = c.cell("elementwise", ms, op=f"{ENTROPY}/jit(clip)/min", precision="fp32")
    judged = c.case(account=c.account(clip))
    assert says("MP507", judged) == severity


@pytest.mark.parametrize(
    "op", [f"{ENTROPY}/jit(clip)/min", "compile_loss/sparse_categorical_crossentropy/clip_by_value/Minimum"]
)
def test_mp507_tells_clipping_by_its_name_where_there_is_no_body(op) -> None:
    case = c.case(account=c.account(c.cell("elementwise", 20, op=op, precision="fp32", shapes=LOGITS)))
    assert "probabilities" in finding("MP507", case).summary


def test_mp507_a_head_that_multiplies_keeps_its_product() -> None:
    dense = c.layer("probabilities", "Dense", config={"activation": "softmax"})
    least = 4096 * 33_712 * 8 / (0.8 * 900e9) * 1e9
    assert finding("MP507", of_probabilities(dense)).gain_ns_per_step == pytest.approx(20e6 - least)


def test_mp507_other_float32_work_is_not_the_loss() -> None:
    other = c.cell("elementwise", 30, op="model/dense/Relu", precision="fp32")
    assert says("MP507", c.case(account=c.account(other))) == "clear"
    compiled = c.cell("reduce", 30, op="jit(train_step)/jvp(compile_loss)/crossentropy", precision="fp32")
    assert says("MP507", c.case(account=c.account(compiled))) == "info"


# --- MP310 exposed-copies


@pytest.mark.parametrize(
    ("ms", "said"), [(9.9, "clear"), (10.1, "info"), (19.9, "info"), (20.1, "warning"), (38.0, "error")]
)
def test_mp310_limits(ms, said) -> None:
    assert says("MP310", c.case(account=c.account(c.cell("copy", ms)))) == said


@pytest.mark.parametrize(("ms", "said"), [(2.9, "clear"), (3.1, "info"), (9.9, "info")])
def test_mp310_mentions_the_batch_s_way_to_the_device_earlier(ms, said) -> None:
    """Seen on an H100: 0.56 of 9.5 ms, more than all that was named, and a prefetch hides it."""
    sent, other = c.cell("copy", ms, kernel="MemcpyH2D"), c.cell("copy", 9.9 - ms, kernel="MemcpyD2D")
    case = c.case(account=c.account(sent, other))
    assert says("MP310", case) == said
    if said == "info":
        assert finding("MP310", case).gain_ns_per_step == pytest.approx(ms * 1e6)


def test_mp310_is_a_ceiling() -> None:
    """Up to where it would be a cause of its own: a float32 run has the same copies."""
    got = finding("MP310", c.case(account=c.account(c.cell("copy", 14))))
    assert got.cost_ns_per_step is None
    assert got.gain_ns_per_step == pytest.approx(14 * c.MS)
    assert finding("MP310", c.case(account=c.account(c.cell("copy", 21)))).cost_ns_per_step == 21 * c.MS


@pytest.mark.parametrize(
    ("kernel", "megabytes", "ms", "said"),
    [
        ("MemcpyH2D", 50, 50 / 1.8, "moves 47.7 MiB at 1.80 GB/s, as slow as pageable (unpinned) memory"),
        ("MemcpyH2D", 240, 20, "moves 229 MiB at 12.0 GB/s"),
        ("Memcpy HtoD (Pageable -> Device)", 150, 30, "at 5.00 GB/s, from pageable memory"),
        ("Memcpy HtoD (Pinned -> Device)", 50, 20, "at 2.50 GB/s, from pinned memory"),
    ],
)
def test_mp310_states_the_rate_of_the_largest_copy(kernel, megabytes, ms, said) -> None:
    cell = c.cell("copy", ms, kernel=kernel, bytes_per_step=megabytes * 1e6)
    small = c.cell("copy", 1, kernel="MemcpyH2D", bytes_per_step=256.0)
    got = finding("MP310", c.case(account=c.account(cell, small)))
    assert got.summary.endswith(said)
    assert ("bytes/s", pytest.approx(megabytes / ms * 1e9)) in [(e.unit, e.value) for e in got.evidence]


def test_mp310_states_no_rate_where_no_copy_is_large_or_states_its_bytes() -> None:
    small = c.cell("copy", 20, kernel="MemcpyH2D", bytes_per_step=1e6)
    for cell in (small, c.cell("copy", 20, kernel="MemcpyH2D")):
        assert "the largest cop" not in finding("MP310", c.case(account=c.account(cell))).summary


@pytest.mark.parametrize(
    ("kernel", "within"),
    [
        ("MemcpyH2D", False),
        ("Memcpy HtoD (Pageable -> Device)", False),
        ("Memcpy HtoD (Pinned -> Device)", False),
        ("[CUDA memcpy Device-to-Device]", True),
        ("MemcpyD2D", True),
        ("Memcpy DtoD (Device -> Device)", True),
        (None, False),
    ],
)
def test_copies_within_the_device_are_not_mended_by_sending_less(kernel, within) -> None:
    account = c.account(c.cell("copy", 20, kernel=kernel), c.cell("copy", 2, kernel="MemcpyH2D"))
    got = finding("MP310", c.case(account=account))
    assert ("stay within the device" in got.remedy) is within
    assert ("uint8" in got.remedy) is not within


def test_mp310_names_an_op_whose_tensor_goes_to_the_host_and_back() -> None:
    """Then the op runs on the CPU, and no prefetch helps."""
    there = c.cell("copy", 11, kernel="MemcpyD2H", op="m/gelu/Erfinv")
    back = c.cell("copy", 11, kernel="MemcpyH2D", op="m/gelu/Erfinv")
    got = finding("MP310", c.case(account=c.account(there, back)))
    assert "to the host and back for m/gelu/Erfinv" in got.summary
    assert "runs on the CPU" in got.remedy
    assert "prefetch" not in got.remedy
    batch = c.cell("copy", 30, kernel="MemcpyH2D", op="IteratorGetNext/_2")
    assert "uint8" in finding("MP310", c.case(account=c.account(batch, there, back))).remedy


def test_mp310_copies_that_go_both_ways_are_no_input() -> None:
    """Offloaded activations: what is copied down in the forward pass comes up in the backward one."""
    down = c.cell("copy", 20, kernel="MemcpyD2H", bytes_per_step=240e6, calls_per_step=4.0)
    up = c.cell("copy", 20, kernel="MemcpyH2D", bytes_per_step=240e6, calls_per_step=4.0)
    batch = c.cell("copy", 4, kernel="MemcpyH2D", bytes_per_step=48e6)
    got = finding("MP310", c.case(account=c.account(down, up, batch)))
    assert got.remedy.startswith("offload less")
    counted = {each.name: each.value for each in got.evidence if each.name.startswith("copies")}
    assert counted == {"copies to the host per step": 4, "copies from the host per step": 5}
    logs = replace(down, ns_per_step=1e6, busy_ns_per_step=1e6)
    assert "uint8" in finding("MP310", c.case(account=c.account(logs, up, batch))).remedy


def test_mp310_hides_copies_behind_the_work_that_there_is() -> None:
    """70 of 100 ms copy, 30 work: 70 stay, however well they overlap."""
    got = finding("MP310", c.case(account=c.account(c.cell("copy", 70, kernel="MemcpyH2D"))))
    assert "for 70.0 ms a step (70.0 %); other work could hide 30.0 ms of that" in got.summary
    assert got.whatif_step_ns == pytest.approx(70e6)
    assert got.severity == "error"


# --- MP304: the wait for the flag


def test_mp304_has_the_waits_that_the_baseline_does_not_have() -> None:
    baseline = c.case(records=c.facts("float32"), account=c.account(c.cell("idle_sync", 2)))
    cells = c.cell("loss_scale", 8), c.cell("idle_sync", 9)
    got = finding("MP304", c.case(account=c.account(*cells), baseline=baseline))
    assert got.cost_ns_per_step == pytest.approx(15 * c.MS)
    alone = finding("MP304", c.case(account=c.account(c.cell("loss_scale", 12), c.cell("idle_sync", 9))))
    assert alone.cost_ns_per_step == pytest.approx(12 * c.MS)


def waiting(own: float, others: float, *further, **account):
    waits = c.cell("idle_launch", own, cause="between launches of the loss scale")
    return c.account(
        c.cell("loss_scale", 8),
        waits,
        c.cell("idle_launch", others, cause="between launches"),
        *further,
        **account,
    )


def test_mp304_has_the_waits_for_its_own_launches_but_what_the_profiler_added() -> None:
    assert finding("MP304", c.case(account=waiting(10, 2))).cost_ns_per_step == pytest.approx(18 * c.MS)
    account = waiting(10, 2, c.cell("profiling", -6), step_ms=94, wall_ms=94)
    profiled = c.case(account=replace(account, window_ns=100 * c.MS))
    assert finding("MP304", profiled).cost_ns_per_step == pytest.approx(13 * c.MS)  # half of the 12 ms


def test_mp304_has_the_finite_check_that_xla_fused_into_a_sum() -> None:
    """Seen on an H100: 0.49 ms a step at 67 GB/s, and the rule was clear."""
    partial, whole = ("f32", (8, 4096, 4096)), ("f32", (4096, 4096))
    hlo = c.fusion("reduce", "is-finite", "reduce", operands=[partial], results=[("pred", (4096,)), whole])
    moved = 9 * 4096 * 4096 * 4 + 4096
    check = c.cell("reduce", 10, hlo=hlo, bytes_per_step=moved, kernel="input_reduce_fusion_65")
    got = finding("MP304", c.case(account=c.account(check)))
    assert got.severity == "info"
    assert got.gain_ns_per_step == pytest.approx(10e6 - moved / (0.8 * 900e9) * 1e9)
    plain = replace(check, hlo=c.fusion("reduce", operands=[partial], results=[whole]))
    assert says("MP304", c.case(account=c.account(plain))) == "clear"
    float32 = c.case(records=c.facts("float32"), account=c.account(check))
    assert says("MP304", float32).startswith("not applicable")


def test_mp304_leaves_the_waits_of_a_launch_bound_run_to_mp302() -> None:
    case = c.case(account=waiting(10, 11))
    assert finding("MP304", case).gain_ns_per_step == pytest.approx(8 * c.MS)
    assert finding("MP302", case).cost_ns_per_step == pytest.approx(21 * c.MS)


def test_removing_the_loss_scales_launches_relieves_the_host_too() -> None:
    bound = replace(waiting(10, 2), host_ns=95.0 * c.MS)
    assert finding("MP304", c.case(account=bound)).whatif_step_ns == pytest.approx(82 * c.MS)
