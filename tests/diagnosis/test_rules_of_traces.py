"""Rules that read the account: each fires, is quiet on the near side of its limit, and says what it lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.model.account import HostPath
from mpprof.model.trace import HostKind
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder
from tests.diagnosis.saying import BY_CODE, finding, says


def with_cells(*cells, **facts):
    return c.case(account=c.account(*cells), **facts)


ON_CPU = c.case(
    records=c.facts(device=c.CPU), account=c.account(trace_basis="host"), trace=c.trace(c.CPU, basis="host")
)


@pytest.mark.parametrize(
    "code", ["MP301", "MP302", "MP401", "MP503", "MP905", "MP907", "MP908", "MP909", "MP912"]
)
def test_without_a_trace_they_say_what_to_record(code) -> None:
    said = says(code, c.case())
    assert said.startswith("unable: there is no trace of this run")
    assert "profile_steps" in said


@pytest.mark.parametrize("code", ["MP302", "MP401", "MP907", "MP908", "MP912", "MP801", "MP802"])
def test_rules_of_gpus_do_not_apply_to_a_cpu(code) -> None:
    assert says(code, ON_CPU) == "not applicable: the run used no GPU"


OF_ACCELERATOR = [code for code, rule in BY_CODE.items() if getattr(rule, "OF_ACCELERATOR", False)]


@pytest.mark.parametrize("code", OF_ACCELERATOR)
def test_rules_of_an_accelerators_work_do_not_apply_to_a_cpu_without_a_trace(code) -> None:
    assert says(code, c.case(records=c.facts(device=c.CPU))) == "not applicable: the run used no GPU"


def test_the_trace_problem_is_the_reason() -> None:
    case = c.case(trace=c.trace(), trace_problem="more than 1 % of the steps have no kernels")
    assert "more than 1 %" in says("MP301", case)


# --- MP301 input-bound, MP302 launch-bound


@pytest.mark.parametrize(
    ("ms", "said"), [(4.9, "clear"), (5.1, "warning"), (19.9, "warning"), (20.1, "error")]
)
def test_mp301_limits(ms, said) -> None:
    assert says("MP301", with_cells(c.cell("idle_input", ms))) == said


def test_mp301_does_not_guess_at_idle_time_without_a_cause() -> None:
    assert "does not show what for" in says("MP301", with_cells(c.cell("idle_other", 40)))
    assert says("MP301", with_cells(c.cell("idle_other", 4))) == "clear"
    assert says("MP301", with_cells(c.cell("idle_launch", 40))) == "clear"


def test_mp301_from_the_records_of_a_recorder() -> None:
    def waiting(ms):
        table = c.steps(200, input_wait_ns=c.steps(200).interval_ns * 0 + int(ms * c.MS))
        return c.case(table=table)

    assert says("MP301", waiting(4.9)) == "clear"
    assert says("MP301", waiting(25)) == "error"
    assert finding("MP301", waiting(25)).cost_ns_per_step == 25 * c.MS
    assert "not measured separately" in says("MP301", c.case(table=c.steps()))


@pytest.mark.parametrize(
    ("ms", "said"), [(2.9, "clear"), (3.1, "info"), (14.9, "info"), (15.1, "warning"), (30.1, "error")]
)
def test_mp302_limits(ms, said) -> None:
    assert says("MP302", with_cells(c.cell("idle_launch", ms))) == said


@pytest.mark.parametrize(("calls", "confidence"), [(5000, "high"), (4000, "medium")])
def test_mp302_is_sure_where_kernels_are_short(calls, confidence) -> None:
    # 85 ms in so many kernels: 17 µs or 21 µs each.
    got = finding("MP302", with_cells(c.cell("idle_launch", 15), c.healthy(85, calls_per_step=calls)))
    assert got.confidence == confidence


def test_mp302_does_not_charge_what_the_profiler_added() -> None:
    added = (c.cell("idle_launch", 40), c.cell("profiling", -25))
    account = replace(c.account(*added, step_ms=75, wall_ms=75), window_ns=100 * c.MS)
    got = finding("MP302", c.case(account=account))
    assert got.cost_ns_per_step == pytest.approx(15 * c.MS)  # 25 of the 40 ms came with the profiler


@pytest.mark.parametrize(("idle_ms", "cost_ms"), [(2, 17), (4, 19)], ids=["not launch-bound", "launch-bound"])
def test_mp302_leaves_what_a_call_costs_a_baseline_too(idle_ms: float, cost_ms: float) -> None:
    """Around the call, not between launches; a baseline that is launch-bound itself tells no price of a call."""
    front = c.cell("idle_launch", idle_ms, cause="calling the function")
    baseline = c.case(records=c.facts("float32"), account=c.account(front))
    mine = c.account(
        c.cell("idle_launch", 4, cause="calling the function"),
        c.cell("idle_launch", 15, cause="between launches"),
    )
    assert finding("MP302", c.case(account=mine, baseline=baseline)).cost_ns_per_step == pytest.approx(
        cost_ms * c.MS
    )


def test_mp302_in_a_distorted_window_leaves_the_time_of_the_devices_work() -> None:
    cells = (c.cell("idle_launch", 80), c.cell("profiling", -45), c.healthy(20, calls_per_step=2000))
    account = c.account(*cells, step_ms=55, wall_ms=55)
    got = finding("MP302", c.case(account=replace(account, window_ns=100 * c.MS, device_ns=20 * c.MS)))
    assert got.whatif_step_ns == pytest.approx(20 * c.MS)
    assert got.cost_ns_per_step == pytest.approx(35 * c.MS)
    assert "the 16.4 % that profiling added" in got.evidence[0].name
    assert got.severity == "warning"  # 64 % of the step, but the window is to be mended first
    assert got.confidence == "low"


def ahead(ms: float) -> HostPath:
    return HostPath(call_ns=60 * c.MS, launched_ns=60 * c.MS, queued_ns=30 * c.MS, ahead_ns=ms * c.MS)


@pytest.mark.parametrize(("wall_ms", "waited_ms"), [(100, 70), (95, 65), (70, 40)])
def test_no_wait_is_longer_than_what_the_step_has_beside_the_devices_work(wall_ms, waited_ms) -> None:
    """Profiled steps of 100 ms wait for 70 ms; the recorded ones are shorter, and the 30 ms of work are not."""
    cells = c.cell("idle_input", 70), c.healthy(30), c.cell("profiling", wall_ms - 100)
    account = replace(c.account(*cells, step_ms=wall_ms, wall_ms=wall_ms), window_ns=100 * c.MS)
    got = finding("MP301", c.case(account=account))
    assert got.cost_ns_per_step == pytest.approx(waited_ms * c.MS)
    stated = {each.name: each.value for each in got.evidence}
    assert stated["step spent waiting for input"] == pytest.approx(waited_ms / wall_ms)
    assert stated.get("the same in a profiled step") == (70 * c.MS if waited_ms < 70 else None)


@pytest.mark.parametrize(("ms", "mp302", "mp311"), [(19, "warning", "clear"), (21, "clear", "warning")])
def test_idle_time_that_a_full_queue_would_hide_is_mp311s(ms: float, mp302: str, mp311: str) -> None:
    account = replace(c.account(c.cell("idle_launch", 20), c.healthy(80)), host_path=ahead(ms))
    assert (says("MP302", c.case(account=account)), says("MP311", c.case(account=account))) == (mp302, mp311)


def test_a_kernel_longer_than_a_launch_has_no_limit_in_evidence() -> None:
    """What is no evidence for short kernels must not look like it."""
    for calls, limit in ((5000, 20_000.0), (2000, None)):
        got = finding("MP302", with_cells(c.cell("idle_launch", 20), c.healthy(80, calls_per_step=calls)))
        assert next(each.limit for each in got.evidence if each.name == "median kernel") == limit


def test_mp302_does_not_claim_driver_calls_that_did_not_return() -> None:
    """Three calls of 10 to 17 ms are no launch overhead, and their cause is known: nothing is left to guess."""
    blocked = c.cell("idle_other", 40, cause="blocked driver calls")
    case = with_cells(blocked, c.cell("idle_launch", 2), c.healthy(58, calls_per_step=39))
    assert says("MP302", case) == "clear"
    assert says("MP301", case) == "clear"


def test_mp302_spreads_what_profiling_added_over_its_parts() -> None:
    parts = [
        c.cell("idle_launch", ms, cause=cause) for ms, cause in ((30, "between launches"), (10, "calling"))
    ]
    account = c.account(*parts, c.cell("profiling", -25), step_ms=75, wall_ms=75)
    got = finding("MP302", c.case(account=replace(account, window_ns=100 * c.MS)))
    assert got.cost_ns_per_step == pytest.approx(15 * c.MS)


@pytest.mark.parametrize(
    ("ms", "limit"), [(4, 0.03), (16, 0.15), (31, 0.30)], ids=["info", "warning", "error"]
)
def test_the_limit_that_is_shown_was_reached(ms: float, limit: float) -> None:
    for code, category in (("MP302", "idle_launch"), ("MP301", "idle_input")):
        shown = finding(code, with_cells(c.cell(category, ms + 5))).evidence[0]
        assert shown.value >= shown.limit
    assert finding("MP302", with_cells(c.cell("idle_launch", ms))).evidence[0].limit == limit


LAUNCHES = c.account(c.cell("idle_launch", 30), c.healthy(70, calls_per_step=5000))


@pytest.mark.parametrize(
    ("records", "left_out"),
    [
        (c.facts(), ()),
        (c.facts(fit={"jit_compile": True}), ("jit_compile=True",)),
        (c.facts(fit={"steps_per_execution": 8}), ("steps_per_execution",)),
        (c.facts(framework={"backend": "torch"}), ("steps_per_execution", "TF_GPU_THREAD_MODE")),
        (c.facts(framework={"backend": "jax"}), ("TF_GPU_THREAD_MODE",)),
    ],
    ids=["plain", "compiled", "several-steps", "torch", "jax"],
)
def test_no_remedy_that_is_on_already_or_that_the_backend_refuses(records, left_out) -> None:
    said = finding("MP302", c.case(records=records, account=LAUNCHES)).remedy
    options = ("jit_compile=True", "a larger batch", "steps_per_execution", "TF_GPU_THREAD_MODE")
    assert tuple(o for o in options if o not in said) == left_out


@pytest.mark.parametrize("code", ["MP304", "MP405", "MP502", "MP503", "MP504"])
@pytest.mark.parametrize("compiled", [False, True])
def test_no_rule_asks_for_xla_where_it_is_on(code: str, compiled: bool) -> None:
    work = [c.cell(category, 12) for category in ("loss_scale", "layout", "cast", "optimizer")]
    account = c.account(*work, c.cell("elementwise", 45))
    remedy = finding(code, c.case(records=c.facts(fit={"jit_compile": compiled}), account=account)).remedy
    assert remedy
    assert ("jit_compile=True" in remedy) is not compiled


def test_mp405_channels_last_is_for_convolutions() -> None:
    layout = c.cell("layout", 10)
    conv = c.healthy(90, family="conv_fprop", kernel="s884cudnn")
    assert "channels_last" in finding("MP405", with_cells(layout, conv)).remedy
    assert "channels_last" not in finding("MP405", with_cells(layout)).remedy


def test_mp302_with_graphs_there_is_nothing_to_blame() -> None:
    assert "command" in says("MP302", with_cells(c.cell("idle_other", 30)))


# --- MP104 float32-island

ISLAND = (
    c.layer("dense"),
    c.layer("custom", "Custom", "float16", output_dtype="float32"),
    *c.HEALTHY_LAYERS[1:],
)
WEIGHTS = 2 * (
    2000 + 6 * 1000 / 720e9 * 1e9
)  # casting the island's 1000 weights there and back, once it is none


def test_mp104_names_the_island_without_a_trace() -> None:
    got = finding("MP104", c.case(records=c.facts(layers=ISLAND)))
    assert (got.severity, got.layers, got.cost_ns_per_step) == ("warning", ("custom",), None)


def test_mp104_costs_its_kernels_its_bytes_and_its_casts() -> None:
    cells = (
        c.fallback(40, layer="custom"),
        c.cell("cast", 4, layer="custom"),
        c.cell("elementwise", 2, layer="custom"),
    )
    case = c.case(records=c.facts(layers=ISLAND), account=c.account(*cells))
    got = finding("MP104", case)
    casts = 2 * (2000 + 6 * 1000 / 720e9 * 1e9)  # those of its thousand weights come in their place
    assert got.cost_ns_per_step == pytest.approx((40 * (1 - 15.7 / 125) + 4 + 1) * c.MS - casts)
    assert (got.severity, got.confidence) == ("error", "low")  # by the peaks: a ceiling


@pytest.mark.parametrize(("ms", "said"), [(0.9, "clear"), (1.1, "info"), (2.9, "info"), (3.1, "warning")])
def test_mp104_limits(ms, said) -> None:
    case = c.case(records=c.facts(layers=ISLAND), account=c.account(c.cell("cast", ms, layer="custom")))
    assert says("MP104", case) == said


def test_mp104_the_end_of_the_model_is_float32_by_right() -> None:
    assert says("MP104", c.case()) == "clear"
    head = (c.layer("dense"), c.layer("logits", dtype="float32"))
    assert says("MP104", c.case(records=c.facts(layers=head))) == "clear"
    costly = c.case(records=c.facts(layers=head), account=c.account(c.fallback(30, layer="logits")))
    assert says("MP104", costly) == "error"


def test_mp104_uses_the_rate_of_16_bit_kernels_in_the_same_trace_first() -> None:
    cells = (
        c.fallback(40, layer="custom", flops_per_step=4e11),
        c.healthy(10, flops_per_step=4e11),
        c.healthy(20, flops_per_step=4e9),  # a hundredth of the size: says nothing
    )
    got = finding("MP104", c.case(records=c.facts(layers=ISLAND), account=c.account(*cells)))
    assert got.cost_ns_per_step == pytest.approx(30 * c.MS - WEIGHTS)
    assert got.confidence == "high"


def test_mp104_then_the_comparison_with_the_baseline() -> None:
    speedup = c.speedup(c.gap_slice("matmul", 40, 40, 5.0, "custom"))
    account = c.account(c.fallback(40, layer="custom"))
    case = c.case(records=c.facts(layers=ISLAND), account=account, speedup=speedup)
    got = finding("MP104", case)
    assert got.cost_ns_per_step == pytest.approx(32 * c.MS - WEIGHTS)
    assert got.gap_ratio == pytest.approx(1.0 - WEIGHTS / (32 * c.MS))


# --- MP401 unaligned-shape

ODD, EVEN = "(half[512,1000];half[1000,1001])", "(half[512,1000];half[1000,1008])"


def unaligned(ms=30.0, shapes=ODD, **facts):
    given = {
        "precision": "fp16",
        "kernel": "volta_fp16_sgemm_fp16_128x64_nn",
        "shapes": shapes,
        "op": "d/MatMul",
    }
    return with_cells(c.fallback(ms, **{**given, **facts}))


def test_mp401_an_odd_size_on_ordinary_arithmetic() -> None:
    got = finding("MP401", unaligned())
    assert "1001" in got.summary
    assert "1000" not in got.evidence[0].value
    assert got.cost_ns_per_step == pytest.approx(30 * (1 - 15.7 / 125) * c.MS)


def test_mp401_is_quiet_where_sizes_or_kernels_are_right() -> None:
    assert says("MP401", unaligned(shapes=EVEN)) == "clear"
    assert says("MP401", unaligned(placement="tensor_core", kernel="volta_fp16_s884gemm")) == "clear"
    assert says("MP401", unaligned(precision="fp32", shapes="(float[512,1001];float[1001,3])")) == "clear"
    assert says("MP401", ON_CPU).startswith("not applicable")


def test_mp401_narrow_loads_on_tensor_cores_have_a_cost_only_with_something_to_compare() -> None:
    narrow = {"placement": "tensor_core", "kernel": "cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn_align1"}
    assert finding("MP401", unaligned(**narrow)).cost_ns_per_step is None
    twin = c.healthy(10, flops_per_step=1e11)
    case = with_cells(c.fallback(30, precision="fp16", shapes=ODD, flops_per_step=1e11, **narrow), twin)
    assert finding("MP401", case).cost_ns_per_step == pytest.approx(20 * c.MS)


def test_mp401_by_the_sizes_of_the_layer_and_without_any() -> None:
    layers = (c.layer("dense", config={"units": 1001}, input_shape=[None, 512]), c.layer("head"))
    account = c.account(c.fallback(30, precision="fp16", layer="dense"))
    assert "1001" in finding("MP401", c.case(records=c.facts(layers=layers), account=account)).summary
    assert "neither their shapes" in says("MP401", unaligned(shapes=None))
    half_known = c.facts(layers=(c.layer("dense", config={"units": 1000}), c.layer("head")))
    assert "neither their shapes" in says("MP401", c.case(records=half_known, account=account))
    assert "sizes are not known" in says("MP409", c.case(records=half_known, account=account))


@pytest.mark.parametrize(("ms", "said"), [(1.1, "clear"), (1.2, "info"), (3.4, "info"), (3.5, "warning")])
def test_mp401_limits(ms, said) -> None:
    assert says("MP401", unaligned(ms)) == said  # 1 % and 3 % of the step, at 87.4 % of the kernel's time


# --- MP503 casts


@pytest.mark.parametrize(
    ("ms", "said"), [(2.9, "clear"), (3.1, "info"), (14.9, "info"), (15.1, "warning"), (30.1, "error")]
)
def test_mp503_limits(ms, said) -> None:
    assert says("MP503", with_cells(c.cell("cast", ms), peaks=None)) == said


def test_mp503_leaves_the_cast_of_the_weights() -> None:
    # A layer of a million parameters, 6 bytes each, at 80 % of 900 GB/s, and 2 µs for the kernel to start.
    layers = (c.layer("dense", parameters=1_000_000), c.layer("head"))
    account = c.account(c.cell("cast", 20, layer="dense", phase="forward"))
    got = finding("MP503", c.case(records=c.facts(layers=layers), account=account))
    assert got.cost_ns_per_step == pytest.approx(20 * c.MS - 6e6 / 720e9 * 1e9 - 2000)


# --- MP905 to MP912: is the trace to be trusted


@pytest.mark.parametrize(
    ("wall_ms", "said"), [(91.0, "clear"), (90.0, "info"), (67.0, "info"), (66.0, "warning")]
)
def test_mp905_limits(wall_ms, said) -> None:
    assert says("MP905", c.case(account=c.account(wall_ms=wall_ms))) == said


def test_mp905_compares_functions_and_blames_the_profiler_for_no_stall() -> None:
    """The mean step is 3 times the median, and profiled steps are as long as the median."""
    stalled = c.account(wall_ms=300, usual_ns=100 * c.MS, function_ns=95 * c.MS)
    assert says("MP905", c.case(account=stalled)) == "clear"
    slow = c.account(wall_ms=300, usual_ns=60 * c.MS, function_ns=60 * c.MS)
    assert says("MP905", c.case(account=slow)) == "warning"


def test_mp905_is_unable_where_steps_are_timed_in_groups() -> None:
    assert "timed in groups" in says("MP905", c.case(account=c.account(wall_ms=50, grouped=True)))


def test_mp905_says_nothing_of_a_clock_that_timed_launches() -> None:
    table = c.steps(200)
    short = c.case(account=c.account(wall_ms=20), table=table, steps=c.summary(table, median_ns=20 * c.MS))
    assert "MP903" in says("MP905", short)
    assert says("MP903", short) == "error"


def beside(times: dict[range, float], **summary):
    """A case whose steps 101 to 105 are profiled and take 100 ms, the others 50, but where `times` says."""
    ms = np.full(200, 50.0)
    ms[100:105] = 100.0
    for steps, each in times.items():
        ms[steps.start - 1 : steps.stop - 1] = each
    table = c.steps(ms, profiled=(np.arange(1, 201) >= 101) & (np.arange(1, 201) <= 105))
    given = {"median_ns": 50 * c.MS, **summary}
    return c.case(account=c.account(wall_ms=50), table=table, steps=c.summary(table, **given))


def test_mp905_the_steps_around_a_window_tell_why_its_own_are_longer() -> None:
    profiler = finding("MP905", beside({range(100, 101): 300.0, range(106, 107): 300.0}))
    assert "part of the idle time in the window is the profiler's" in profiler.summary
    loaded = finding("MP905", beside({range(90, 101): 100.0, range(106, 120): 90.0}))
    assert "the steps around it do, too (90.0 ms or more): the machine was busy then" in loaded.summary
    assert loaded.remedy.startswith("record the window again while nothing else runs")
    one_side = finding("MP905", beside({range(90, 101): 100.0}))
    assert "in the window is the profiler's" in one_side.summary
    early = beside({range(1, 120): 100.0}, first_steady=121)
    assert "lie in warm-up" in says("MP905", early)


@pytest.mark.parametrize("idle_ms", [30, 60])
def test_mp905_on_a_cpu_ops_take_longer_where_idle_time_is_too_short_for_it(idle_ms) -> None:
    """Recorded on a CPU: steps of 3 ms take 21 ms while they are profiled, and idle for 3 ms of them."""
    idle = c.cell("idle_launch", idle_ms)
    account = replace(c.account(idle, wall_ms=50, trace_basis="host"), window_ns=100 * c.MS)
    summary = finding("MP905", c.case(account=account)).summary
    assert ("its work takes longer, too" in summary) is (idle_ms < 50)
    assert ("part of the idle time in the window is the profiler's" in summary) is (idle_ms > 50)


def test_mp905_what_is_compiled_in_the_window_is_not_the_profilers() -> None:
    compiled = c.account(c.cell("idle_compile", 45), wall_ms=55)
    assert says("MP905", c.case(account=compiled)) == "clear"


def test_mp905_needs_unprofiled_steps() -> None:
    assert "no unprofiled steps" in says("MP905", c.case(account=c.account()))


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.019, "clear"), (0.021, "info"), (0.11, "warning"), (0.51, "error")]
)
def test_mp907_limits(ratio, said) -> None:
    assert says("MP907", c.case(account=c.account(), unknown_ratio=ratio)) == said


def test_mp908_a_gpu_without_events() -> None:
    host = c.trace(c.CPU, basis="host")
    assert says("MP908", c.case(trace=host)) == "error"
    assert says("MP908", c.case(account=c.account())) == "clear"
    assert "device was not recorded" in says("MP908", c.case(records=None, trace=host))


def test_mp908_does_not_blame_permissions_for_a_damaged_file() -> None:
    cut = c.trace(basis="device", graphs=(), warnings=("cut off at byte 512",))
    assert "damaged" in says("MP908", c.case(trace=cut))
    assert says("MP909", c.case(trace=cut)) == "error"


def test_mp909_the_warnings_of_the_trace() -> None:
    cut = c.trace(warnings=("cut off at byte 512",))
    assert "byte 512" in finding("MP909", c.case(account=c.account(), trace=cut)).summary
    assert says("MP909", c.case(account=c.account())) == "clear"


@pytest.mark.parametrize(("ms", "said"), [(1.9, "clear"), (2.1, "info"), (49.9, "info"), (50.1, "warning")])
def test_mp912_limits(ms, said) -> None:
    account = c.account(c.cell("other", ms), c.healthy(100 - ms, op="d/MatMul"))
    assert says("MP912", c.case(account=account, trace=c.trace(graphs=(7, -1)))) == said


def test_mp912_takes_the_name_of_a_buffer_for_no_op() -> None:
    """XLA's profiler gives the kernels of cuBLAS and cuDNN in a command buffer its name."""
    buffer = c.cell("matmul", 10, kernel="nvjet_hsh", op="command_buffer_1")
    account = c.account(buffer, c.healthy(90, op="d/MatMul"))
    assert says("MP912", c.case(account=account, trace=c.trace(graphs=(7, -1)))) == "info"


def test_mp912_without_graphs_nothing_is_lost_to_them() -> None:
    account = c.account(c.cell("other", 50), c.healthy(50, op="d/MatMul"))
    assert says("MP912", c.case(account=account)) == "clear"


def test_mp907_is_ranked_by_its_share_of_the_step() -> None:
    """Seen: half of the kernel time of a device that idles 96 % led a report with 2 % of the step."""
    idles = c.case(account=c.account(c.cell("idle_launch", 96)), unknown_ratio=0.51)
    assert says("MP907", idles) == "info"


def test_a_long_name_is_cut_in_evidence() -> None:
    kernel = c.cell("unknown", 60, kernel="_ZN" + "4what" * 500, placement="unknown")
    (_, stated) = finding("MP907", c.case(account=c.account(kernel), unknown_ratio=0.6)).evidence
    assert len(str(stated.value)) < 250


@pytest.mark.parametrize(("threads", "devices", "said"), [(8, 1, "info"), (8, 8, "clear"), (1, 1, "clear")])
def test_mp908_a_program_on_more_devices_than_have_kernels(threads: int, devices: int, said: str) -> None:
    """Seen: JAX executes a program on 8 devices, a thread for each, and the kernels of one are in the trace."""
    b = TraceBuilder()
    for thread in range(threads):
        b.event(
            HostKind.OTHER,
            10,
            20,
            thread=f"py_xla_execute/{thread}",
            name="PjRtStreamExecutorLoadedExecutable::ExecuteHelper",
        )
    for device in range(devices):
        b.kernel("loop_transpose_fusion", 30, 40, device=device)
    case = c.case(records=None, trace=b.build(), account=c.account())
    assert says("MP908", case) == said
    others = "unable: the host executes programs on 8 devices, and the trace has kernels of 1"
    assert (says("MP704", case) == others) is (said == "info")
