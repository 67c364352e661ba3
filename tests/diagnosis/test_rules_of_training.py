"""Rules of the loop, the host, the loss and the device, mostly from records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.model.run import OptimizerFacts
from mpprof.model.steps import HardwareTable
from tests.builders import cases as c
from tests.diagnosis.saying import finding, says

FLOAT32 = (c.layer("dense", dtype="float32"),)
ON_CPU = c.case(
    records=c.facts(device=c.CPU), account=c.account(trace_basis="host"), trace=c.trace(c.CPU, basis="host")
)


def known_loss(*values):
    n = len(values)
    return c.steps(n, loss=np.array(values, dtype=float), loss_known=np.ones(n, dtype=bool))


# --- MP205, MP206


def test_mp205_single_late_skips_are_normal() -> None:
    readings = dict.fromkeys(range(16, 4001, 16), 0)
    late = c.case(table=c.steps(4000, skipped=readings | {2000: 1, 4000: 1}))
    assert says("MP205", late) == "info"
    assert says("MP201", late) == "clear"
    many = c.case(table=c.steps(4000, skipped=readings | {2000: 16, 3200: 16, 4000: 16}))
    assert says("MP205", many) == "clear"
    assert says("MP205", c.case(table=c.steps(4000, skipped=readings))) == "clear"
    assert "were not recorded" in says("MP205", c.case(table=c.steps()))


def test_mp206_a_loss_that_is_not_finite() -> None:
    nan = float("nan")
    assert says("MP206", c.case(table=known_loss(1.0, 0.9, nan, nan))) == "error"
    got = finding("MP206", c.case(table=known_loss(1.0, float("inf"), 0.9)))
    assert (got.severity, got.evidence[0].value) == ("warning", 2)
    assert says("MP206", c.case(table=known_loss(1.0, 0.9))) == "clear"


def test_mp206_calls_a_loss_finite_only_where_that_of_the_last_step_was_read() -> None:
    lost = c.facts(fit={"non_finite_weights": ("dense/kernel",)})
    table = known_loss(1.0, 0.9, 0.8)
    unread = replace(table, loss_known=np.array([True, True, False]))
    for log, said in (
        (table, ", though the loss is"),
        (unread, "; the loss was last read at step 2"),
        (c.steps(), "; the loss was not recorded"),
    ):
        got = finding("MP206", c.case(records=lost, table=log))
        assert got.summary.endswith(f"weights are not finite at the end (dense/kernel){said}")
        assert got.title == "The loss or weights are not finite"


def test_mp206_a_running_mean_tells_the_first_step_alone() -> None:
    """Keras logs the mean of the epoch so far: one bad step leaves it so until the epoch ends."""
    nan = float("nan")
    losses = (1.0, 0.9, nan, nan, nan)
    mean = finding("MP206", c.case(table=known_loss(*losses)))
    assert "not finite on step 3 (a running mean" in mean.summary
    assert "from step" not in mean.summary
    assert [e.name for e in mean.evidence] == ["first step"]
    loop = c.facts(framework={"keras": "3.15.1", "backend": "tensorflow", "loop": "custom"})
    assert "from step 3 on" in finding("MP206", c.case(records=loop, table=known_loss(*losses))).summary
    again = replace(known_loss(1.0, nan, nan, 0.8, nan, nan), epoch=np.array([0, 0, 0, 1, 1, 1]))
    got = finding("MP206", c.case(table=again))
    assert "on step 2 and in 1 later epoch (a running mean" in got.summary
    each = finding("MP206", c.case(table=known_loss(1.0, nan, 0.8, nan, nan)))
    assert "on 3 of 5 recorded steps, first on step 2" in each.summary
    assert "loss was not recorded" in says("MP206", c.case(table=c.steps()))
    of_four = replace(known_loss(1.0, nan, 0.8, nan, nan), covers=np.full(5, 4))
    assert "on 12 of 20 recorded steps" in finding("MP206", c.case(table=of_four)).summary


@pytest.mark.parametrize(("many", "said"), [(19, "and 15 more)"), (20, "and 16 more, at least)")])
def test_mp206_of_lost_weights_no_more_are_counted_than_were_looked_for(many, said) -> None:
    lost = c.facts(fit={"non_finite_weights": tuple(f"dense_{k}/kernel" for k in range(many))})
    got = finding("MP206", c.case(records=lost, table=known_loss(1.0, 0.9)))
    assert said in got.summary
    assert got.evidence[0].name.endswith("at least") == (many == 20)


# --- MP304 loss-scale-overhead, MP305 slow-callbacks, MP308 eager


@pytest.mark.parametrize(("ms", "said"), [(2.9, "clear"), (3.1, "info"), (10.1, "warning"), (25.1, "error")])
def test_mp304_limits(ms, said) -> None:
    assert says("MP304", c.case(account=c.account(c.cell("loss_scale", ms)))) == said


def gaps(ms, **facts):
    table = c.steps(200, gap_ns=np.full(200, int(ms * c.MS)))
    return c.case(table=table, **facts)


@pytest.mark.parametrize(
    ("ms", "said"), [(4.9, "clear"), (5.1, "info"), (9.9, "info"), (10.1, "warning"), (30.1, "error")]
)
def test_mp305_limits(ms, said) -> None:
    assert says("MP305", gaps(ms)) == said


@pytest.mark.parametrize(("us", "said"), [(40, "clear"), (110, "info"), (210, "warning"), (410, "error")])
def test_mp305_of_a_step_of_a_millisecond_a_tenth_is_keras_own_loop(us, said) -> None:
    table = c.steps([1.0] * 200, gap_ns=np.full(200, us * 1000))
    assert says("MP305", c.case(table=table, steps=c.summary(table, median_ns=1 * c.MS))) == said


@pytest.mark.parametrize("count", [7, 8])
def test_mp305_of_a_handful_of_steps_after_warm_up_tells_nothing(count: int) -> None:
    """The first calls of callbacks load and set up: of five steps most of what callbacks take."""
    table = c.steps(count, gap_ns=np.full(count, int(60 * c.MS)))
    said = says("MP305", c.case(table=table, steps=c.summary(table, first_steady=3)))
    assert said == "error" if count == 8 else "too few steps after warm-up" in said


def test_mp305_claims_the_idle_time_between_steps_where_a_trace_shows_it() -> None:
    got = finding("MP305", gaps(20, account=c.account(c.cell("idle_between_steps", 18))))
    assert (got.cost_ns_per_step, got.confidence) == (18 * c.MS - 50_000, "high")  # less the loop itself
    assert "gaps between steps were not recorded" in says("MP305", c.case(table=c.steps()))


def test_mp308_eager_owns_the_idle_time_of_its_launches() -> None:
    records = c.facts(fit={"run_eagerly": True})
    got = finding("MP308", c.case(records=records, account=c.account(c.cell("idle_launch", 60))))
    assert (got.severity, got.cost_ns_per_step) == ("error", 60 * c.MS)
    assert says("MP308", c.case()) == "clear"
    assert "not recorded" in says("MP308", c.case(records=c.facts(fit={"run_eagerly": None})))


# --- MP307 determinism, MP309 xla-off


def test_mp307_by_the_switch() -> None:
    assert says("MP307", c.case(records=c.facts(deterministic_ops=True))) == "warning"
    assert says("MP307", c.case(records=c.facts(deterministic_ops=True, device=c.CPU))) == "info"
    assert says("MP307", c.case()) == "clear"
    assert "not recorded" in says("MP307", c.case(records=c.facts(deterministic_ops=None)))


LSTM = (c.layer("lstm", "LSTM", supports_jit=False), *c.HEALTHY_LAYERS)


def test_mp309_names_what_stands_in_the_way() -> None:
    assert "lstm (LSTM)" in finding("MP309", c.case(records=c.facts(layers=LSTM))).summary
    assert "Mirrored" in finding("MP309", c.case(records=c.facts(distribution="MirroredStrategy"))).summary


def test_mp309_off_by_choice_or_on_is_clear() -> None:
    assert says("MP309", c.case()) == "clear"
    assert says("MP309", c.case(records=c.facts(layers=LSTM, fit={"jit_compile": True}))) == "clear"
    assert "not recorded" in says("MP309", c.case(records=c.facts(layers=LSTM, fit={"jit_compile": None})))
    jax = c.facts(layers=LSTM, framework={"backend": "jax"})
    assert says("MP309", c.case(records=jax)).startswith("not applicable: ")


@pytest.mark.parametrize(("ms", "said"), [(29, "info"), (31, "warning")])
def test_mp309_limit_of_what_xla_would_fuse(ms, said) -> None:
    case = c.case(records=c.facts(layers=LSTM), account=c.account(c.cell("norm", ms)))
    assert says("MP309", case) == said


# --- MP804 bf16-emulated, MP807 throttling


@pytest.mark.parametrize(("capability", "said"), [((7, 5), "error"), ((8, 0), "clear")])
def test_mp804_bfloat16_begins_at_8_0(capability, said) -> None:
    device = c.DeviceFacts("gpu", "card", "nvidia", capability)
    layers = (c.layer("dense", dtype="bfloat16"),)
    assert says("MP804", c.case(records=c.facts("mixed_bfloat16", layers, device))) == said


def test_mp804_is_about_bfloat16_on_nvidia() -> None:
    assert says("MP804", c.case()).startswith("not applicable: ")
    assert "dtype was not recorded" in says("MP804", c.bare())


def drifting(ratio, hardware=None):
    table = c.steps([100.0] * 110 + [100.0 * (1 + ratio)] * 90)
    case = c.case(table=table)
    return c.case(table=table, run=c.run(c.facts(), table, hardware=hardware)) if hardware else case


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.049, "clear"), (0.051, "info"), (0.099, "info"), (0.101, "warning")]
)
def test_mp807_limits(ratio, said) -> None:
    assert says("MP807", drifting(ratio)) == said


def samples(clocks, throttle=()):
    n = len(clocks)
    nan = np.full(n, np.nan)
    return HardwareTable(
        np.arange(n), np.zeros(n, np.int64), nan, nan, nan, np.array(clocks, float), nan, nan, nan, nan,
        tuple(throttle for _ in clocks),
    )  # fmt: skip


def test_mp807_is_sure_only_where_the_hardware_says_so() -> None:
    assert finding("MP807", drifting(0.2)).confidence == "low"
    assert finding("MP807", drifting(0.2, samples([1.4e9] * 8))).confidence == "low"
    assert finding("MP807", drifting(0.2, samples([1.4e9] * 4 + [1.2e9] * 4))).confidence == "high"
    assert finding("MP807", drifting(0.2, samples([1.4e9] * 8, ("sw_power_cap",)))).confidence == "high"
    assert finding("MP807", drifting(0.2, samples([1.4e9] * 8, ("gpu_idle",)))).confidence == "low"


def test_mp807_costs_no_more_than_the_step_and_is_not_judged_of_uneven_steps() -> None:
    grown = c.steps([10.0] * 110 + [40.0] * 90)
    summary = c.summary(grown)
    got = finding("MP807", c.case(table=grown, steps=summary))
    assert got.cost_ns_per_step is not None
    assert got.cost_ns_per_step < 23.5e6  # the mean step; the last quarter is 30 ms above the first
    assert got.cost_ns_per_step == pytest.approx(13.5e6, rel=0.1)
    uneven = c.steps([2.0] * 100 + [2.0, 12.0, 12.0] * 34)
    assert "uneven" in says("MP807", c.case(table=uneven, steps=c.summary(uneven)))
    stalled = c.steps([10.0] * 40 + [2000.0] + [10.0] * 110 + [12.0] * 50)
    assert "uneven" in says("MP807", c.case(table=stalled, steps=c.summary(stalled)))


def test_mp807_needs_steps() -> None:
    few = c.steps(89)
    assert "steady steps" in says("MP807", c.case(table=few, steps=c.summary(few)))
    assert "no step log was recorded" in says("MP807", c.case())


# --- MP902 recompiles, MP903 async-clock, MP904 steps-per-execution


@pytest.mark.parametrize(("ms", "said"), [(1.9, "clear"), (2.1, "info"), (5.1, "warning"), (20.1, "error")])
def test_mp902_limits_in_the_trace(ms, said) -> None:
    assert says("MP902", c.case(account=c.account(c.cell("idle_compile", ms)), table=c.steps())) == said


def test_mp902_by_long_steps_in_the_log() -> None:
    def with_long(number, ms=1000.0):
        times = [100.0] * 200
        for i in range(number):
            times[30 + 40 * i] = ms
        return c.case(table=c.steps(times))

    assert says("MP902", with_long(2)) == "clear"  # an epoch's end or a checkpoint
    assert "neither a trace count nor a compile event shows" in says("MP902", with_long(4))
    assert says("MP902", with_long(4, 499.0)) == "clear"
    times, took = [100.0] * 200, np.full(200, 100 * c.MS)
    times[39::40], took[39::40] = [-1] * 5, 1000 * c.MS  # an epoch's last call, of a smaller batch
    last = c.case(table=c.steps(times, duration_ns=took, epoch=np.arange(200) // 40))
    assert "5 of 200" in says("MP902", last)
    traced = replace(with_long(4), account=c.account(c.cell("idle_compile", 5.1)))
    assert says("MP902", traced) == "warning"
    assert "no step log was recorded" in says("MP902", c.case())


def test_mp903_a_step_shorter_than_its_work() -> None:
    def recorded(ms):
        table = c.steps()
        return c.case(table=table, account=c.account(), steps=c.summary(table, median_ns=ms * c.MS))

    assert says("MP903", recorded(49)) == "error"
    assert says("MP903", recorded(51)) == "clear"
    profiled = c.steps(profiled=np.arange(200) < 5)  # recorded as 100 ms, as the trace shows them
    later = c.case(table=profiled, account=c.account(), steps=c.summary(profiled, median_ns=25 * c.MS))
    assert says("MP903", later) == "clear"
    assert "MP903" not in says("MP905", later)  # it cannot be clear and be pointed at
    assert says("MP903", ON_CPU).startswith("not applicable: ")
    assert "no trace" in says("MP903", c.case(table=c.steps()))
    assert "no step log was recorded" in says("MP903", c.case(account=c.account()))


def test_mp904_by_the_setting_or_by_what_calls_covered() -> None:
    assert says("MP904", c.case(records=c.facts(fit={"steps_per_execution": 4}))) == "info"
    covers = c.steps(10, covers=np.full(10, 8))
    assert finding("MP904", c.case(records=None, table=covers)).evidence[0].value == 8
    assert says("MP904", c.case(table=c.steps())) == "clear"
    assert "not recorded" in says("MP904", c.bare())


# --- MP410 rnn-not-cudnn


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"activation": "tanh", "recurrent_dropout": 0.0}, "clear"),
        ({"activation": "relu"}, "warning"),
        ({"recurrent_dropout": 0.1}, "warning"),
        ({"unroll": True}, "warning"),
        ({"use_bias": False}, "warning"),
    ],
)
def test_mp410_by_the_arguments(config, said) -> None:
    layers = (c.layer("lstm", "LSTM", config=config), *c.HEALTHY_LAYERS)
    assert says("MP410", c.case(records=c.facts(layers=layers))) == said


@pytest.mark.parametrize(
    ("backend", "masked", "jit_compile", "said"),
    [
        ("torch", False, False, "clear"),
        ("torch", True, False, "warning"),
        ("torch", False, True, "warning"),
        ("tensorflow", True, True, "clear"),
        ("jax", True, True, "not applicable"),
    ],
)
def test_mp410_on_torch_a_mask_and_a_compiler_rule_cudnn_out_too(backend, masked, jit_compile, said) -> None:
    layer = replace(c.layer("lstm", "LSTM", config={"activation": "tanh"}), masked=masked)
    records = c.facts(layers=(layer, *c.HEALTHY_LAYERS), fit={"jit_compile": jit_compile})
    records = replace(records, framework={**records.framework, "backend": backend})
    assert says("MP410", c.case(records=records)).split(":")[0] == said


def test_mp410_without_an_rnn_or_without_records() -> None:
    assert says("MP410", c.case()).startswith("not applicable: ")
    assert "not recorded" in says("MP410", c.bare())


def test_rules_of_float32_runs_have_nothing_to_say_of_loss_scaling() -> None:
    records = c.facts("float32", layers=FLOAT32, fits=(c.fit("float32", OptimizerFacts("Adam")),))
    case = c.case(records=records, table=c.steps())
    told = {says(code, case) for code in ("MP201", "MP203", "MP204", "MP205")}
    assert {each.split(":")[0] for each in told} == {"not applicable"}
