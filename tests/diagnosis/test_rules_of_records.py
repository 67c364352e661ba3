"""Rules that need no trace: each fires, is quiet on the near side of its limit, and says what it lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.shared.skips import longest_run
from mpprof.diagnosis.signals import Signals
from mpprof.model.run import FirstBreak, ModelFacts, NumbersLook, OptimizerFacts, ProfileWindow, Timing
from tests.builders import cases as c
from tests.diagnosis.saying import BY_CODE, diagnosed, finding, says

FLOAT32 = (c.layer("dense", dtype="float32"), c.layer("head", dtype="float32"))


def with_layers(*layers, policy="mixed_float16", **facts):
    return c.case(records=c.facts(policy, layers=layers, **facts))


# --- MP101 built-before-policy


def test_mp101_every_layer_is_float32_under_a_mixed_policy() -> None:
    got = finding("MP101", with_layers(*FLOAT32))
    assert got.severity == "error"
    assert got.layers == ("dense", "head")


@pytest.mark.parametrize(
    ("layers", "policy", "said"),
    [
        ((c.layer("dense"), c.layer("head", dtype="float32")), "mixed_float16", "clear"),
        (FLOAT32, "float32", "not applicable"),
        (c.HEALTHY_LAYERS, "mixed_float16", "clear"),
    ],
)
def test_mp101_is_quiet_where_one_layer_is_16_bit_or_nothing_was_asked_for(layers, policy, said) -> None:
    assert says("MP101", with_layers(*layers, policy=policy)).split(":")[0] == said


def test_mp101_costs_the_matrix_work_against_16_bit_and_half_the_memory_bound() -> None:
    account = c.account(c.fallback(80), c.cell("elementwise", 20))
    case = c.case(records=c.facts(layers=FLOAT32), account=account)
    got = finding("MP101", case)
    # V100: 15.7 to 125 TFLOP/s by the peaks, nothing else being known.
    casts = sum(2 * (2000 + 6 * f.parameters / 720e9 * 1e9) for f in FLOAT32 if f.class_name == "Dense")
    assert got.cost_ns_per_step == pytest.approx((80 * (1 - 15.7 / 125) + 10) * c.MS - casts)


def test_mp101_says_that_the_layers_were_given_float32() -> None:
    """A policy that was set first, and `Dense(..., dtype="float32")`: no order of lines is to blame."""
    given = replace(FLOAT32[0], dtype_given=True)
    inner = replace(FLOAT32[1], name="dense/inner")
    got = finding("MP101", with_layers(given, inner))
    assert 'was given dtype="float32"' in got.summary
    assert got.said == 'mixed precision is off: every layer with matrix work was given dtype="float32"'
    assert got.remedies[0].text.startswith('drop dtype="float32"')
    assert got.title == "The layers were given float32"
    one = finding("MP101", with_layers(given, FLOAT32[1]))
    assert one.title == "The model was built before the policy was set"
    assert one.remedies[0].text.startswith("call keras.config.set_dtype_policy")


@pytest.mark.parametrize("code", ["MP101", "MP102", "MP104", "MP106"])
def test_rules_of_the_model_say_that_nothing_was_recorded(code) -> None:
    assert "not recorded" in says(code, c.bare())
    assert "StepRecorder" in says(code, c.bare())


# --- MP102 no-loss-scaling


def test_mp102_float16_layers_with_a_plain_optimizer() -> None:
    records = c.facts("float32", fits=(c.fit("float32", OptimizerFacts("Adam")),), layers=(c.layer("dense"),))
    assert finding("MP102", c.case(records=records)).layers == ("dense",)


@pytest.mark.parametrize(
    "optimizer",
    [OptimizerFacts("LossScaleOptimizer", "Adam", True), OptimizerFacts("Adam", fixed_scale=1024.0)],
)
def test_mp102_is_quiet_where_the_loss_is_scaled(optimizer) -> None:
    records = c.facts(fits=(c.fit("float32", optimizer),), layers=(c.layer("dense"),))
    assert says("MP102", c.case(records=records)) == "clear"


def test_mp102_bfloat16_needs_no_scaling() -> None:
    records = c.facts("mixed_bfloat16", layers=(c.layer("dense", dtype="bfloat16"),))
    assert says("MP102", c.case(records=records)).startswith("not applicable: ")


# --- MP103 custom-loop-scaling


def growing(growths, *, loss=(2.3, 2.3), skipped=0, train_step="own", loop=None, **fit):
    """A run of 200 steps whose scale doubles so many times, from 2^15 on, with the loss on a line."""
    scales = {10: 2.0**15} | {20 + 10 * i: 2.0 ** (16 + i) for i in range(growths)}
    readings = dict.fromkeys(range(10, 201, 10), 0) | {100: skipped}
    table = c.steps(
        200,
        skipped=readings,
        scales=scales,
        loss=np.linspace(*loss, 200),
        loss_known=np.ones(200, dtype=bool),
    )
    model = ModelFacts("model", 1000, c.HEALTHY_LAYERS, train_step=train_step)
    framework = {"keras": "3.15.1", "backend": "tensorflow", **({"loop": loop} if loop else {})}
    return c.case(table=table, records=c.facts(model=model, framework=framework, fit=fit))


def test_mp103_the_scale_only_grows_and_the_loss_does_not_fall() -> None:
    few, many = (finding("MP103", growing(growths)) for growths in (2, 5))
    assert (few.severity, few.confidence) == ("warning", "low")
    assert (many.severity, many.confidence) == ("warning", "medium")
    assert "5 times" in many.summary
    assert says("MP103", growing(2, train_step=None, loop="custom")) == "warning"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (growing(5, train_step=None), "not applicable"),  # Keras' own step
        (growing(5, skipped=1), "clear"),
        (growing(5, optimizer=OptimizerFacts("Adam", fixed_scale=1024.0)), "not applicable"),
    ],
    ids=["keras", "overflow", "fixed"],
)
def test_mp103_is_quiet_where_the_loss_is_scaled(case, said) -> None:
    assert says("MP103", case).split(":")[0] == said


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        (growing(1), "too few"),
        (growing(5, loss=(2.3, 1.9)), "the loss fell"),
        (c.bare(), "not recorded"),
    ],
    ids=["short", "learns", "bare"],
)
def test_mp103_says_what_it_cannot_tell_apart(case, missing) -> None:
    assert missing in says("MP103", case)
    assert says("MP103", case).startswith("unable")


# --- MP106 float16-output


def test_mp106_the_last_layer_gives_float16() -> None:
    assert says("MP106", with_layers(c.layer("dense"), c.layer("softmax", "Activation"))) == "warning"
    assert says("MP106", with_layers(*c.HEALTHY_LAYERS)) == "clear"
    unknown = c.layer("softmax", "Activation", output_dtype=None)
    assert "not recorded" in says("MP106", with_layers(c.layer("dense"), unknown))


# --- MP201, MP204: skipped steps


@pytest.mark.parametrize("code", ["MP201", "MP205"])
def test_a_dozen_steps_without_a_skip_are_too_few_to_be_clear_of_them(code) -> None:
    short = c.case(table=c.steps(14, skipped=dict.fromkeys(range(1, 15), 0)))
    assert says(code, short).startswith("unable")
    long = c.case(table=c.steps(200, skipped=dict.fromkeys(range(1, 201), 0)))
    assert says(code, long) == "clear"


def test_mp902_a_dozen_steps_are_too_few_to_be_clear_of_recompiles() -> None:
    table = c.steps(14)
    assert "train for" in says("MP902", c.case(table=table, steps=c.summary(table, first_steady=2)))


def skipping(count=1000, *, skipped, scales=None, **facts):
    return c.case(table=c.steps(count, skipped=skipped, scales=scales), **facts)


def test_mp201_one_percent_of_late_steps_is_a_warning_and_five_an_error() -> None:
    # 16 steps a reading from step 32 on: 968 steps lie after the first 20 rows that are whole.
    readings = dict.fromkeys(range(1, 33), 0) | dict.fromkeys(range(48, 1001, 16), 0)
    few = skipping(skipped=readings | {512: 9, 48: 0})
    enough = skipping(skipped=readings | {512: 10})
    many = skipping(skipped=readings | {512: 10, 768: 16, 912: 16, 976: 10})
    assert [says("MP201", case) for case in (few, enough, many)] == ["clear", "warning", "error"]


def test_mp201_a_late_skip_or_two_of_a_short_run_make_no_rate() -> None:
    readings = dict.fromkeys(range(1, 49), 0)
    assert "too few to state a rate" in says("MP201", skipping(48, skipped=readings | {3: 1, 30: 1, 40: 1}))
    assert says("MP201", skipping(48, skipped=readings | {30: 1, 35: 1, 40: 1})) == "error"


def test_mp201_a_run_that_ends_in_skipping_is_an_error_whatever_the_share() -> None:
    readings = dict.fromkeys(range(16, 2001, 16), 0) | {2000 - 16: 16, 2000: 16}
    assert says("MP201", skipping(2000, skipped=readings, scales={2000: 0.0625})) == "error"
    got = finding("MP201", skipping(2000, skipped=readings, scales={2000: 0.0625}))
    assert "2^-4" in got.summary
    assert got.cost_ns_per_step == pytest.approx(32 / 1968 * 100 * c.MS, rel=0.02)


@pytest.mark.parametrize(
    ("skipped", "said"),
    [
        ({1: 0, 2: 1, 3: 1, 4: 1, 5: 0}, (3, True)),
        ({16: 0, 32: 14, 48: 0}, (5, False)),  # 14 of 16: at least 5 of them in a row, at most all
        ({16: 0, 32: 2, 48: 16, 64: 12, 80: 0}, (16, False)),
        ({16: 16, 32: 16}, (32, True)),
        ({16: 1, 32: 0, 48: 1}, (1, True)),
    ],
)
def test_the_longest_run_of_skips_is_what_readings_tell_of_it(skipped, said) -> None:
    history = Signals(skipping(max(skipped), skipped=skipped)).skips
    assert longest_run(history) == said


def test_mp201_does_not_state_a_run_of_skips_more_exactly_than_it_was_read() -> None:
    readings = dict.fromkeys(range(1, 33), 0) | dict.fromkeys(range(48, 1001, 16), 0)
    got = finding("MP201", skipping(skipped=readings | {512: 10, 528: 16, 544: 3}))
    (shown,) = [e for e in got.evidence if e.name.startswith("longest run")]
    assert (shown.name, shown.value) == ("longest run of skipped updates, at least", 16)


def test_mp201_says_what_is_missing() -> None:
    assert "were not recorded" in says("MP201", c.case(table=c.steps()))
    assert "only" in says("MP201", skipping(30, skipped={10: 2, 30: 2}))
    assert says("MP201", c.case(records=c.facts("float32", layers=FLOAT32), table=c.steps())).startswith(
        "not applicable: "
    )


def test_mp204_skips_at_the_start_are_normal() -> None:
    readings = {step: int(step < 4) for step in range(1, 33)} | dict.fromkeys(range(48, 1001, 16), 0)
    got = finding("MP204", skipping(skipped=readings))
    assert (got.severity, got.evidence[0].value) == ("info", 3)
    assert says("MP201", skipping(skipped=readings)) == "clear"


def test_mp204_is_not_what_goes_on_and_needs_the_counter() -> None:
    assert says("MP204", skipping(skipped={20: 3, 1000: 400})) == "clear"
    assert says("MP204", skipping(skipped={20: 0, 1000: 0})) == "clear"
    assert "were not recorded" in says("MP204", c.case(table=c.steps()))


# --- MP203 loss-scale-runaway


@pytest.mark.parametrize(
    ("highest", "said"),
    [(2.0**24, "clear"), (2.0**25, "warning"), (2.0**120, "error"), (np.inf, "error")],
)
def test_mp203_limits(highest, said) -> None:
    assert says("MP203", c.case(table=c.steps(scales={1: 2.0**15, 200: highest}))) == said


def test_mp203_without_a_dynamic_scale_or_without_readings() -> None:
    fixed = c.facts(fits=(c.fit(optimizer=OptimizerFacts("Adam", fixed_scale=1024.0)),))
    assert says("MP203", c.case(records=fixed, table=c.steps())).startswith("not applicable: ")
    assert "loss scale was not recorded" in says("MP203", c.case(table=c.steps()))


# --- MP8: the device


@pytest.mark.parametrize(
    ("capability", "said"), [((6, 1), "warning"), ((6, 9), "warning"), ((7, 0), "clear"), ((9, 0), "clear")]
)
def test_mp801_tensor_cores_begin_at_7_0(capability, said) -> None:
    device = c.DeviceFacts("gpu", "card", "nvidia", capability)
    assert says("MP801", c.case(records=c.facts(device=device))) == said


def test_mp801_is_info_for_float32_and_not_asked_of_a_cpu() -> None:
    device = c.DeviceFacts("gpu", "GTX 1080 Ti", "nvidia", (6, 1))
    assert says("MP801", c.case(records=c.facts("float32", layers=FLOAT32, device=device))) == "info"
    assert says("MP801", c.case(records=c.facts(device=c.CPU))) == "not applicable: the run used no GPU"
    nameless = c.DeviceFacts("gpu", None, "nvidia")
    assert "compute capability" in says("MP801", c.case(records=c.facts(device=nameless)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA GeForce GTX 1660 Ti", "warning"),
        ("GeForce GTX1650", "warning"),
        ("NVIDIA T600 Laptop GPU", "warning"),
        ("NVIDIA GeForce MX450", "warning"),
        ("Tesla T4", "clear"),
        ("NVIDIA T4G", "clear"),
        ("NVIDIA GeForce RTX 2080", "clear"),
        ("Quadro RTX 4000", "clear"),
    ],
)
def test_mp802_by_name(name, said) -> None:
    device = c.DeviceFacts("gpu", name, "nvidia", (7, 5))
    assert says("MP802", c.case(records=c.facts(device=device))) == said


@pytest.mark.parametrize(
    ("sm_count", "said"), [(40, "clear"), (30, "clear"), (24, "warning"), (14, "warning")]
)
def test_mp802_without_a_name_by_the_number_of_multiprocessors(sm_count, said) -> None:
    """TensorFlow's traces name no card."""
    device = c.DeviceFacts("gpu", None, "nvidia", (7, 5), sm_count=sm_count)
    assert says("MP802", c.case(records=c.facts(device=device))) == said
    assert says("MP801", c.case(records=c.facts(device=device))) == "clear"  # it speaks of older cards


def test_mp802_needs_a_name_or_multiprocessors_at_7_5_and_nothing_elsewhere() -> None:
    bare = c.DeviceFacts("gpu", None, "nvidia", (7, 5))
    assert "neither the name nor the number" in says("MP802", c.case(records=c.facts(device=bare)))
    small = c.DeviceFacts("gpu", None, "nvidia", (7, 5), sm_count=24)
    assert (
        "GTX 1660 Ti (24 multiprocessors)" in finding("MP802", c.case(records=c.facts(device=small))).summary
    )
    assert says("MP802", c.case()).startswith("not applicable: ")


def test_mp803_by_the_switch_without_a_baseline() -> None:
    on, off, unknown = (c.case(records=c.facts(device=c.A100, tf32_enabled=v)) for v in (True, False, None))
    assert says("MP803", on) == "info"
    assert says("MP803", off) == "clear"
    assert "TF32 switch" in says("MP803", unknown)
    assert says("MP803", c.case(records=c.facts(tf32_enabled=True))).startswith(
        "not applicable: "
    )  # V100 has no TF32


def test_mp803_by_the_kernels_of_the_baseline() -> None:
    def against(tf32_ms):
        kernels = (c.fallback(100 - tf32_ms), c.healthy(tf32_ms, precision="tf32"))
        baseline = c.case(records=c.facts("float32", device=c.A100), account=c.account(*kernels))
        return c.case(records=c.facts(device=c.A100), baseline=baseline)

    assert says("MP803", against(9.9)) == "clear"
    assert says("MP803", against(10.1)) == "info"


def test_mp803_by_a_float32_runs_own_kernels() -> None:
    def own(tf32_ms, device=c.A100):
        kernels = (c.fallback(100 - tf32_ms), c.healthy(tf32_ms, precision="tf32"))
        return c.case(records=c.facts("float32", device=device), account=c.account(*kernels))

    assert says("MP803", own(90)) == "info"
    assert finding("MP803", own(90)).evidence[0].value == pytest.approx(0.9)
    assert says("MP803", own(0)) == "clear"
    bare = c.case(records=c.facts("float32", device=c.A100))
    assert says("MP803", bare) == "not applicable: the run does not compute in 16 bits"


def test_mp803_states_what_tf32_kernels_reach_and_what_is_not_in_tf32() -> None:
    """Seen: a pair at 2.46x above a "ceiling of 2x", whose TF32 convolutions ran at 10 to 15 % of their peak, and
    25.5 % of matrix time in TF32 beside `sgemm`s."""
    peaks = device_peaks.peaks(c.A100)
    slow = [
        c.healthy(ms, precision="tf32", family="conv_fprop", flops_per_step=share * 156e12 * ms / 1e3)
        for ms, share in ((20, 0.10), (30, 0.15), (10, 0.80))
    ]
    kernels = (*slow, c.fallback(40))
    baseline = c.case(records=c.facts("float32", device=c.A100), account=c.account(*kernels), peaks=peaks)
    got = finding("MP803", c.case(records=c.facts(device=c.A100), baseline=baseline, peaks=peaks))
    assert "60.0 % of matrix time" in got.summary
    assert "TF32 is off for the dense layers (40.0 % of it)" in got.summary
    assert "two TF32 convolutions of it ran at 10 to 15 % of their peak" in got.summary
    assert [each.value for each in got.evidence if each.unit == "FLOP/s"] == [pytest.approx(15.6e12)]


def test_mp806_a_cpu_and_other_vendors() -> None:
    assert says("MP806", c.case(records=c.facts(device=c.CPU))) == "info"
    cpu = finding("MP806", c.case(records=c.facts("mixed_bfloat16", device=c.CPU)))
    assert cpu.remedy.startswith("compare with float32 on this CPU: bfloat16 pays only with instructions")
    amd = c.DeviceFacts("gpu", "MI300X", "amd")
    assert says("MP806", c.case(records=c.facts(device=amd))) == "info"
    for policy, other in (("mixed_float16", "mixed_bfloat16"), ("mixed_bfloat16", "mixed_float16")):
        assert (
            f'"{other}"' in finding("MP806", c.case(records=c.facts(policy, device=amd))).remedies[0].snippet
        )
    tpu = c.DeviceFacts("tpu", "TPU v4", "google")
    assert says("MP806", c.case(records=c.facts(device=tpu))) == "warning"
    assert says("MP806", c.case()).startswith("not applicable: ")
    assert says("MP806", c.case(records=c.facts("float32", layers=FLOAT32, device=c.CPU))).startswith(
        "not applicable: "
    )
    assert "not recorded" in says("MP806", c.bare())


# --- MP9: is the measurement valid


def test_mp901_never_settled_and_mostly_warm_up() -> None:
    table = c.steps([5000.0] * 10 + [100.0] * 190)
    assert says("MP901", c.case(table=table, steps=c.summary(table))) == "info"  # 50 of 69 s
    short = c.steps([1700.0] * 10 + [100.0] * 190)  # 17 of 36 s
    assert says("MP901", c.case(table=short, steps=c.summary(short))) == "clear"
    assert says("MP901", c.case(table=table, steps=c.summary(table, first_steady=None))) == "warning"
    few = c.steps(19)
    assert "only 19 steps" in says("MP901", c.case(table=few, steps=c.summary(few)))
    assert "no step log was recorded" in says("MP901", c.case())


def test_mp901_counts_all_steps_of_a_group() -> None:
    """Where steps are timed in groups of ten, a group's line has the mean of its steps: two epochs of a
    hundred, of which the first ten steps take 5 s each."""
    timed = np.arange(200) % 10 == 9
    ns = np.where(np.arange(200) < 10, 5_000, 100) * c.MS
    columns = {
        "interval_ns": np.where(timed, ns, -1),
        "epoch": np.repeat([0, 1], 100),
        "dispatch_ns": ns // 100,
    }
    table = c.steps(200, duration_ns=np.full(200, -1), t_ns=np.cumsum(ns), **columns)
    summary = replace(c.summary(table, first_steady=20), mean_ns=100.0 * c.MS)
    facts = c.facts(timing=Timing("asynchronous", 10, ""))
    got = finding("MP901", c.case(records=facts, table=table, steps=summary))
    assert got.summary.startswith("warm-up took 50.0 s, 72.5 % of the recorded time")


def test_mp901_a_window_within_warm_up() -> None:
    def window(before_ms, first_steady=108):
        table = c.steps([100.0] * 95 + [before_ms] * 5 + [100.0] * 200)
        account = c.account(steps=(101, 102, 103))
        return c.case(table=table, account=account, steps=c.summary(table, first_steady=first_steady))

    assert says("MP901", window(126)) == "warning"
    remedy = finding("MP901", window(126)).remedy
    assert "profile_steps=(108, 112)" in remedy  # "auto" may have been what was given
    assert says("MP901", window(124)) == "clear"  # settled enough for a trace
    assert says("MP901", window(126, first_steady=103)) == "clear"


def test_mp910_a_window_that_never_opened_closed_or_started() -> None:
    def windows(*statuses, **absent):
        got = tuple(ProfileWindow(None, None, 10, None, 0, 0, 0, s) for s in statuses)
        return c.case(records=c.facts(profile_windows=got, absent=absent), table=c.steps(8))

    assert says("MP910", windows()) == "warning"
    told = {}
    for launched in (False, True):
        facts = replace(windows().run.facts, launched=launched, script="src/train.py")
        case = windows()
        told[launched] = finding("MP910", replace(case, run=replace(case.run, facts=facts))).remedies[0]
    assert "profile_steps=(12, 16)" in told[False].text
    assert told[True].text == "train longer, or open the window earlier: --profile 12:16"
    assert told[True].snippet == "mpprof run --profile 12:16 src/train.py"
    assert says("MP910", windows("open")) == "warning"
    assert "CUPTI" in finding("MP910", windows("failed: no CUPTI")).summary
    assert "doctor" in finding("MP910", windows("failed: no CUPTI")).remedy
    assert "train longer" in finding("MP910", windows("open")).remedy
    assert "ask for one" in finding("MP910", windows(profile_windows="no window was asked for")).remedy
    assert says("MP910", windows("done")) == "clear"
    assert says("MP910", windows(profile_windows="not wanted (profile_steps=None)")).startswith(
        "not applicable: "
    )
    assert says("MP910", c.case(account=c.account())) == "clear"
    assert "no facts of the run were recorded" in says("MP910", c.bare())


@pytest.mark.parametrize(("steady", "said"), [(30, "clear"), (29, "info"), (10, "info"), (9, "warning")])
def test_mp911_limits(steady, said) -> None:
    table = c.steps()
    assert says("MP911", c.case(table=table, steps=c.summary(table, steady=steady))) == said


def test_mp911_of_many_short_fits_asks_for_longer_ones() -> None:
    table = replace(c.steps(320), fit=np.repeat(np.arange(1, 41), 8))
    got = finding("MP911", c.case(table=table, steps=c.summary(table, steady=0)))
    assert got.summary.startswith("of 320 steps in 40 fits none is a steady one")
    assert "longer fits: 60 steps or more" in got.remedy
    one = finding("MP911", c.case(table=c.steps(320), steps=c.summary(c.steps(320), steady=0)))
    assert "steady steps" in one.remedy


def test_mp911_needs_steps() -> None:
    assert "no step log was recorded" in says("MP911", c.case())


# --- looks at the numbers by layer name the layer


def looked(case, *, forward=None, backward=None, trigger="skipped", **scale):
    """The case with one look, at step 18."""
    banded = bool(scale.keys() - {"updates"})
    look = NumbersLook(trigger, 18, forward, backward, banded=banded, **scale)
    return replace(case, run=replace(case.run, looks=(NumbersLook("start", 0, None, None), look)))


OVERFLOWS = FirstBreak("dense_3", "gradient", "it overflows at a loss scale of 2^15", "loss scale")
SUM = FirstBreak(
    "head",
    "output",
    "a sum of values up to 99.9 overflows; in float32 the output's largest is 409,028",
    "sum",
)


def test_mp201_names_the_layer_whose_gradient_overflows_and_the_scales_that_are_good() -> None:
    skips = skipping(80, skipped=dict.fromkeys(range(1, 81), 0) | dict.fromkeys(range(61, 79), 1))
    got = finding("MP201", looked(skips, backward=OVERFLOWS, now=2.0**15, low=2.0**-3, high=2.0**9))
    assert got.layers == ("dense_3",)
    told = {each.name: each.value for each in got.evidence}
    assert (
        told["first to break at step 18"] == "the gradient of dense_3: it overflows at a loss scale of 2^15"
    )
    assert told["good loss scales"] == "2^-3 to 2^9"
    told = {"advice": "Start the loss scale at 2^9: so it is.", "snippet": "initial_scale=512.0"}
    case = looked(skips, backward=replace(OVERFLOWS, **told), now=2.0**15, high=2.0**9)
    answer = compose(diagnosed(case, [BY_CODE["MP201"]]))
    said = "updates were skipped: the gradient of dense_3 overflows above a loss scale of 2^9"
    assert said in answer.sentence
    assert answer.do == "start the loss scale at 2^9: so it is"
    assert finding("MP201", case).remedies[0].snippet == "initial_scale=512.0"


def test_mp201_a_gradient_that_follows_from_an_output_names_the_output() -> None:
    skips = skipping(80, skipped=dict.fromkeys(range(1, 81), 0) | dict.fromkeys(range(61, 79), 1))
    follows = FirstBreak("head", "gradient", "the forward pass broke before, in head", "forward")
    assert finding("MP201", looked(skips, backward=follows)).layers == ()
    got = finding("MP201", looked(skips, forward=SUM, backward=follows, now=1.0))
    assert got.layers == ("head",)
    assert {each.name: each.value for each in got.evidence}["good loss scales"].startswith("none: ")


def test_mp206_mp202_and_mp203_name_the_layer() -> None:
    loss = np.array([1.0, np.nan])
    lost = c.case(table=c.steps(2, loss=loss, loss_known=np.ones(2, dtype=bool)))
    got = finding("MP206", looked(lost, forward=SUM, trigger="loss"))
    assert got.layers == ("head",)
    assert got.summary.endswith(": the output of head is not finite (a sum of values up to 99.9 overflows)")
    fixed = OptimizerFacts("LossScaleOptimizer", "Adam", dynamic=False, fixed_scale=8.0)
    records = c.facts(fits=(c.fit("mixed_float16", fixed),), layers=(c.layer("dense"),))
    small = FirstBreak("dense", "gradient", "98 % of it rounds to 0 at a loss scale of 8", "underflow")
    got = finding("MP202", looked(c.case(records=records), backward=small, trigger="start", now=8.0))
    assert (got.layers, got.confidence) == (("dense",), "high")
    assert got.summary.endswith(": 98 % of the gradient of dense rounds to 0 at a loss scale of 2^3")
    unscaled = finding("MP202", looked(c.case(records=records), backward=small, trigger="start"))
    assert unscaled.summary.endswith(": 98 % of the gradient of dense rounds to 0")
    runaway = c.case(table=c.steps(scales={200: 2.0**30}))
    assert finding("MP203", runaway).layers == ()
    got = finding("MP203", looked(runaway, backward=OVERFLOWS, high=2.0**29))
    assert got.layers == ("dense_3",)
    assert "first to break at step 18" in [each.name for each in got.evidence]


HIDDEN = FirstBreak(
    "norm",
    "output",
    "100 % of it is 0 and is not in float32: within it the square (of a variance or a norm) of 300 overflows",
    "underflow",
    None,
    "norm needs bfloat16 or float32.",
    'Norm(..., dtype="float32")  # norm',
)
IS_ZERO = (
    "100 % of the output of norm is 0 because the square (of a variance or a norm) of 300 overflows within it"
)
DYNAMIC = OptimizerFacts("LossScaleOptimizer", "Adam", dynamic=True, initial_scale=2.0**15)


def test_an_output_that_is_0_is_told_whatever_the_loss_scale() -> None:
    """Dynamic, and fixed and large: no scale brings back what the forward pass has lost, and none is advised."""
    large = OptimizerFacts("LossScaleOptimizer", "Adam", dynamic=False, fixed_scale=1024.0)
    for optimizer in (DYNAMIC, large):
        records = c.facts(fits=(c.fit("mixed_float16", optimizer),), layers=(c.layer("norm"),))
        case = looked(c.case(records=records), forward=HIDDEN, trigger="start")
        got = finding("MP202", case)
        assert (got.layers, got.severity) == (("norm",), "warning")
        assert got.summary == f"{IS_ZERO}, which no loss scale changes"
        assert [each.snippet for each in got.remedies[:1]] == ['Norm(..., dtype="float32")  # norm']
        answer = compose(diagnosed(case, [BY_CODE["MP202"]]))
        assert answer.sentence == f"{IS_ZERO}."
        assert answer.do == "norm needs bfloat16 or float32"
    small = replace(large, fixed_scale=8.0)
    records = c.facts(fits=(c.fit("mixed_float16", small),), layers=(c.layer("norm"),))
    assert (
        "no loss scale changes" in finding("MP202", looked(c.case(records=records), forward=HIDDEN)).summary
    )


@pytest.mark.parametrize(
    ("low", "ran", "severity", "until"),
    [
        (2.0**6, 40, "warning", "until the scale has doubled 3 times (about 6,000 steps; this run has 40)"),
        (
            2.0**6,
            60_001,
            "info",
            "until the scale has doubled 3 times (about 6,000 steps; this run has 60,001)",
        ),
        (
            2.0**4,
            19_999,
            "warning",
            "until the scale has doubled once (about 2,000 steps; this run has 19,999)",
        ),
        (None, 40, "info", "which a dynamic scale leaves as it grows"),
    ],
)
def test_a_gradient_that_rounds_to_0_at_a_dynamic_scale_costs_the_steps_until_it_has_grown(
    low: float | None, ran: int, severity: str, until: str
) -> None:
    optimizer = replace(DYNAMIC, growth_steps=2000)
    records = c.facts(fits=(c.fit("mixed_float16", optimizer),), layers=(c.layer("embedding"),))
    small = FirstBreak("embedding", "gradient", "98 % of it rounds to 0 at a loss scale of 2^3", "underflow")
    case = c.case(records=records, table=c.steps(ran))
    got = finding("MP202", looked(case, backward=small, now=8.0, low=low, high=2.0**20))
    lost = "98 % of the gradient of embedding rounds to 0 at a loss scale of 2^3"
    assert (got.severity, got.summary) == (severity, f"{lost}, {until}")


def test_a_gradient_that_rounds_to_0_at_a_dynamic_scale_that_is_never_large_enough() -> None:
    records = c.facts(fits=(c.fit("mixed_float16", DYNAMIC),), layers=(c.layer("dense"),))
    small = FirstBreak("dense", "gradient", "98 % of it rounds to 0 at a loss scale of 2^3", "underflow")
    got = finding("MP202", looked(c.case(records=records), backward=small, now=8.0))
    assert (got.severity, got.layers) == ("info", ("dense",))
    probable = replace(small, source="sigmoid")
    got = finding("MP202", looked(c.case(records=records), backward=probable, now=8.0))
    assert got.severity == "warning"
    assert got.summary.startswith(
        "the gradient of dense rounds to 0 at every loss scale because the output of sigmoid"
    )


def test_what_an_update_loses_of_16_bit_weights_is_told_with_its_remedy() -> None:
    lost = FirstBreak(
        "head", "update", "an update leaves 92.1 % of the bfloat16 weights as they are", "underflow", None,
        "Keep the weights in float32: so.", 'keras.config.set_dtype_policy("mixed_bfloat16")',
    )  # fmt: skip
    records = c.facts("bfloat16", fits=(c.fit("bfloat16"),), layers=(c.layer("head"),))
    got = finding("MP202", looked(c.case(records=records), updates=lost))
    assert "92.1 %" in got.summary
    assert [each.snippet for each in got.remedies[:1]] == ['keras.config.set_dtype_policy("mixed_bfloat16")']


def test_gradients_that_follow_from_the_forward_pass_are_not_said_to_overflow() -> None:
    skipped = dict.fromkeys(range(1, 81), 0) | dict.fromkeys(range(1, 23), 1)
    scales = {step: 2.0 ** (15 - min(step, 22)) for step in range(1, 81)}
    follows = FirstBreak("head", "gradient", "the forward pass broke before, in norm", "forward")
    skips = skipping(80, skipped=skipped, scales=scales)
    assert finding("MP201", skips).summary.endswith(
        "fell to 2^-7: the gradients are not finite even unscaled"
    )
    for forward, words in ((SUM, "the output of head is not finite (a sum of values up to 99.9 overflows)"),
                           (HIDDEN, IS_ZERO)):  # fmt: skip
        got = finding("MP201", looked(skips, forward=forward, backward=follows))
        assert got.summary.endswith(f", and the loss scale fell to 2^-7: {words}")
        assert "unscaled" not in got.summary


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ("out", " (a sum of values up to 636 x 578 overflows)"),
        ("decoder/attention", " (a sum overflows)"),
        ("decoder/block_11/self_attention", ""),
        ("decoder/block_11/self_attention/a_product_of_all_the_queries_with_the_keys", ""),
    ],
)
def test_the_answer_names_the_layer_also_where_its_sentence_has_no_room_for_why(layer: str, why: str) -> None:
    loss = np.full(30, np.nan)
    skipped = dict.fromkeys(range(1, 31), 1)
    case = c.case(table=c.steps(30, skipped=skipped, loss=loss, loss_known=np.ones(30, dtype=bool)))
    reason = "a sum of values up to 636 x 578 overflows; in float32 the output's largest is 267"
    follows = FirstBreak("out", "gradient", f"the forward pass broke before, in {layer}", "forward")
    broken = looked(case, forward=FirstBreak(layer, "output", reason, "sum"), backward=follows)
    sentence = compose(diagnosed(broken, [BY_CODE["MP206"]])).sentence
    assert sentence.endswith(f" the output of {layer} is not finite{why}.")
    assert len(sentence) <= 150
    assert "636 x 578" in finding("MP206", broken).summary


def test_a_scale_that_runs_away_has_the_output_that_is_0_for_its_reason() -> None:
    runaway = c.case(table=c.steps(scales={200: 2.0**30}))
    got = finding("MP203", looked(runaway, forward=HIDDEN))
    assert got.summary.endswith(f"and nothing stops it: {IS_ZERO}")
    assert got.remedies[0].snippet == 'Norm(..., dtype="float32")  # norm'


def test_mp106_tells_of_a_break_in_the_output_alone() -> None:
    model = c.facts(layers=(c.layer("dense"), c.layer("head", output_dtype="float16")))
    case = c.case(records=model)
    named = [each.name for each in finding("MP106", looked(case, forward=SUM)).evidence]
    elsewhere = replace(SUM, layer="dense")
    other = [each.name for each in finding("MP106", looked(case, forward=elsewhere)).evidence]
    assert "first to break at step 18" in named
    assert "first to break at step 18" not in other
    zeros = looked(case, forward=replace(HIDDEN, layer="head"))
    assert "first to break at step 18" in [each.name for each in finding("MP106", zeros).evidence]
