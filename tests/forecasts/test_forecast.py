"""Forecasts from programs that XLA compiled for cards that are not here (`make_programs`)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from math import isclose
from unittest import mock

import pytest

from mpprof.analysis.kernels.placement import _card, on_device
from mpprof.analysis.kernels.placement import products as products_of
from mpprof.errors import UsageError
from mpprof.forecasts import deciding, forecasting, judging, least_time, rendering, targets
from mpprof.forecasts.judging import Compiled
from mpprof.model.forecast import CardForecast, Forecast, ForecastKernel
from mpprof.model.run import ModelFacts
from mpprof.model.trace import Op
from mpprof.report.to_json import to_json
from mpprof.store.facts import facts_of
from mpprof.traces.common import hlo_program
from tests.forecasts.make_calibration import measured
from tests.forecasts.make_programs import CASES, stored

CASE = {case.name: case for case in CASES}
launches = cache(hlo_program.launches)
"""Each program is walked once, whoever asks: several are needed by two forecasts, all by the tests of the verdicts."""


@cache
def forecast(name: str) -> CardForecast:
    case = CASE[name]
    compiled = stored(case)
    plain = f"{case.model}-{case.card}-float32-{case.batch_size}"
    float32 = stored(CASE[plain]) if plain in CASE and case.policy != "float32" else None
    model = facts_of({"run_id": "forecast", "model": compiled.result["model"]}).model
    return judged(compiled, case.card, model, float32)


def judged(
    compiled: Compiled, card: str, model: ModelFacts | None = None, float32: Compiled | None = None
) -> CardForecast:
    with mock.patch.object(judging, "launches", launches):
        return judging.card_forecast(compiled, targets.card(card), model, float32)


def products(run: CardForecast) -> list[ForecastKernel]:
    return [kernel for kernel in run.kernels if kernel.flops]


# --- operations and bytes ----------------------------------------------------------------------------------


def conv_flops(batch: int, size: int, layers: list[tuple[int, int, int]], channels: int) -> float:
    """Forward, and the two gradients; the first layer's input needs none. Filters without padding, stride 2."""
    total = 0.0
    for at, (filters, taps, stride) in enumerate(layers):
        size = (size - taps) // stride + 1
        total += 2.0 * batch * size**2 * filters * taps**2 * channels * (2 if at == 0 else 3)
        channels = filters
    return total + 3 * 2.0 * batch * channels * 10


def test_the_models_operations_equal_the_hand_formula() -> None:
    by_hand = conv_flops(128, 256, [(32, 5, 2), (64, 7, 2), (128, 11, 2)], 3)
    for policy in ("float32", "mixed_float16"):
        run = forecast(f"published_convnet-v100-{policy}-128")
        assert isclose(run.model_flops, by_hand, rel_tol=1e-9)


def test_padding_counts_as_executed_and_not_as_the_models() -> None:
    plain, narrow = (forecast(f"published_convnet-v100-{p}-128") for p in ("float32", "mixed_float16"))
    assert plain.executed_flops == plain.model_flops
    first = next(k for k in products(narrow) if k.layers == ("conv2d",) and k.family == "conv_wgrad")
    assert isclose(first.executed_flops or 0, (first.flops or 0) * 4 / 3)  # 3 channels are made 4


def test_every_kind_of_convolution_counts_by_its_formula() -> None:
    """Outputs x taps x input channels of a group, for each direction; the first layer's input needs none."""
    run = forecast("convolutions-a100-mixed_float16-16")
    forward = {
        "strided": 16**2 * 32 * 9 * 16, "padded": 16**2 * 32 * 25 * 32, "grouped": 16**2 * 64 * 9 * 8,
        "dilated": 12**2 * 32 * 9 * 64, "transposed": 12**2 * 32 * 16 * 16,
        "separable": 24**2 * (16 * 9 + 16 * 24), "one": 192 * 32 * 7 * 24, "three": 192 * 16 * 27 * 32,
        "head": 16 * 8,
    }  # fmt: skip
    for layer, products_of_one in forward.items():
        counted = sum(k.flops or 0.0 for k in products(run) if k.layers[:1] == (layer,))
        assert isclose(counted, 2.0 * 16 * products_of_one * (2 if layer == "strided" else 3)), layer
    assert {one.code: one.layers for one in run.obstacles} == {
        "grouped": ("grouped",), "depthwise": ("separable",), "small": ("head",),
    }  # fmt: skip


def test_dense_layers_count_two_operations_a_weight_and_example() -> None:
    run = forecast("dense-a100-mixed_float16-64")
    assert run.model_flops == 2.0 * 64 * (1024 * 512 * 2 + 512 * 256 * 3)


def test_the_operations_of_a_model_do_not_depend_on_the_card() -> None:
    cards = [forecast(f"transformer-{card}-mixed_bfloat16-8") for card in ("l4", "h100", "b200", "rtx_5090")]
    assert len({run.model_flops for run in cards}) == 1


def test_memory_is_what_xla_assigned() -> None:
    for case in CASES:
        run, result = forecast(case.name), stored(case).result["programs"]
        assert run.memory.arguments_bytes == result["own"]["arguments_bytes"]
        temporaries = [one["temporaries_bytes"] for one in result.values()]
        assert run.memory.temporaries_bytes.low == min(temporaries)
        assert run.memory.temporaries_bytes.high == max(temporaries)
        assert run.memory.peak_bytes.low >= max(run.memory.arguments_bytes, run.memory.temporaries_bytes.low)


def test_what_is_alive_at_the_peak_is_told_by_layer_and_type() -> None:
    run = forecast("transfer-t4-mixed_float16-64")
    alive = run.memory.alive
    assert sum(one.bytes for one in alive) == pytest.approx(run.memory.temporaries_bytes.low, rel=0.15)
    assert sum(one.bytes for one in alive if one.layer) > 0.9 * sum(one.bytes for one in alive)
    by_type = {dtype: sum(one.bytes for one in alive if one.dtype == dtype) for dtype in ("f16", "f32")}
    assert by_type["f16"] > 9 * by_type["f32"]
    text = rendering.text(Forecast("m", (run,), {}))
    assert "What fills memory at the peak" in text
    largest = max(alive, key=lambda one: one.bytes)
    assert largest.layer in text
    assert not forecast("recurrent-a100-mixed_float16-16").memory.alive


def test_an_account_of_the_peak_that_misses_most_of_it_is_not_told() -> None:
    """XLA's account can leave out values of gigabytes."""
    compiled = stored(CASE["transfer-t4-mixed_float16-64"])
    own = compiled.result["programs"]["own"]
    programs = {**compiled.result["programs"], "own": {**own, "alive": own["alive"][-3:]}}
    cut = replace(compiled, result={**compiled.result, "programs": programs})
    assert not judged(cut, "t4").memory.alive


def test_what_a_library_works_in_is_told_as_a_workspace() -> None:
    """cuBLAS' calls declare it as int8, which no layer of the model computes in."""
    compiled = stored(CASE["dense-a100-mixed_float16-64"])
    call = next(w.hlo.name for w in launches(compiled.programs["library"]) if w.hlo.opcode == "custom-call")
    held = {**compiled.result["programs"]["library"], "alive": [(call, "s8", 4 << 20)]}
    held["temporaries_bytes"] = 4 << 20
    alone = replace(
        compiled,
        result={**compiled.result, "programs": {"own": held}},
        programs={"source": compiled.programs["source"], "own": compiled.programs["library"]},
    )
    (one,) = judged(alone, "a100").memory.alive
    assert (one.dtype, one.bytes) == ("workspace", 4 << 20)


def test_float16_halves_the_temporaries_and_bfloat16_on_volta_saves_none() -> None:
    plain, narrow = (forecast(f"published_convnet-v100-{p}-128").memory for p in ("float32", "mixed_float16"))
    assert narrow.temporaries_bytes.high < 0.6 * plain.temporaries_bytes.low
    plain, wide = (forecast(f"convnet-v100-{p}-32").memory for p in ("float32", "mixed_bfloat16"))
    assert wide.temporaries_bytes.low > 0.9 * plain.temporaries_bytes.high


# --- where products can run --------------------------------------------------------------------------------


def test_every_share_of_the_operations_is_told() -> None:
    for case in CASES:
        run = forecast(case.name)
        shares = (run.can_ratio, run.cannot_ratio, run.open_ratio)
        assert isclose(sum(share or 0.0 for share in shares), 1.0), case.name


@pytest.mark.parametrize(
    ("case", "code", "layers", "ratio"),
    [
        ("convnet-v100-float32-32", "float32", {"conv2d", "conv2d_1", "conv2d_2", "dense"}, 1.0),
        ("convnet-v100-mixed_bfloat16-32", "bfloat16", {"conv2d", "conv2d_1", "conv2d_2", "dense"}, 1.0),
        ("convnet-h100-float32-32", "tf32", {"conv2d", "conv2d_1", "conv2d_2", "dense"}, 1.0),
        ("dense-a100-mixed_float16-1", "loop", {"hidden", "head"}, 1.0),
    ],
)
def test_what_is_in_the_way(case: str, code: str, layers: set[str], ratio: float) -> None:
    found = {one.code: one for one in forecast(case).obstacles}
    assert isclose(found[code].flops_ratio, ratio, rel_tol=1e-3)
    assert set(found[code].layers) == layers


def test_an_odd_vocabulary_is_padded_on_turing_and_left_to_the_card_from_ampere_on() -> None:
    turing, ampere = forecast("transformer-t4-mixed_float16-8"), forecast("transformer-a100-mixed_float16-8")
    assert not turing.obstacles
    assert turing.executed_flops > turing.model_flops
    assert {one.code: one.layers for one in ampere.obstacles} == {"size": ("head",)}


def test_a_depthwise_convolution_is_open_and_its_neighbour_can() -> None:
    run = forecast("depthwise-t4-mixed_float16-16")
    assert {one.code: one.layers for one in run.obstacles} == {
        "depthwise": ("depthwise",), "small": ("head",),
    }  # fmt: skip
    assert {k.placement for k in products(run) if k.layers == ("pointwise",)} == {"tensor_core"}


def test_what_cudnn_would_run_is_not_forecast() -> None:
    run = forecast("recurrent-a100-mixed_float16-16")
    inside = [k for k in products(run) if k.layers and k.layers[0].startswith("lstm") and k.count == 10]
    assert inside
    assert {(k.placement, k.evidence) for k in inside} == {("unknown", "decided on the card")}
    assert any("lstm" in line and "cuDNN" in line for line in run.unknown)
    assert run.speedup is None
    assert run.at_least_ns < sum(k.at_least_ns for k in run.kernels)
    assert {one.time_ratio for one in run.obstacles} == {None}  # the loop's time is not cuDNN's
    assert "of the model's matrix operations (lstm" in rendering.text(Forecast("m", (run,), {}, ()))


def test_tf32_is_never_said_to_be_used() -> None:
    for name in ("convnet-h100-float32-32", "dense-a100-float32-64"):
        run = forecast(name)
        assert run.decided_ratio == 0.0
        assert {k.placement for k in products(run)} == {"unknown"}


@pytest.mark.parametrize("name", CASE)
def test_every_product_has_its_layer_and_most_bytes_have_an_owner(name: str) -> None:
    """By the program's metadata: a layer, or the part of the step that is no layer's. What a loop does in place of
    products may be fused with the optimizer's update."""
    run = forecast(name)
    for kernel in products(run):
        assert kernel.layers or kernel.obstacle == "loop", kernel.op
    owned = sum(k.bytes for k in run.kernels if k.layers or k.phase in ("optimizer", "loss_scale"))
    assert owned > 0.75 * sum(k.bytes for k in run.kernels)


def test_a_stated_unit_has_its_evidence() -> None:
    for case in CASES:
        for kernel in products(forecast(case.name)):
            if kernel.evidence == "ptx" and kernel.placement == "tensor_core":
                assert kernel.instruction, kernel
            if kernel.placement == "unknown":
                assert kernel.evidence == "decided on the card", kernel


# --- the verdicts of traces, held to the machine code ------------------------------------------------------


def test_verdicts_by_name_and_hlo_agree_with_the_machine_code() -> None:
    """What a trace of these programs would be judged by, against the PTX of each kernel that XLA made."""
    compared = 0.0
    for case in CASES:
        compiled, card = stored(case), targets.card(case.card)
        for which in ("own", "library"):
            if which not in compiled.programs:
                continue
            used = compiled.result["programs"][which]["kernels"]
            for work in launches(compiled.programs[which]):
                if work.hlo.opcode != "fusion" or work.hlo.name not in used:
                    continue
                op = Op(work.hlo.op_name, "fusion", work.hlo)
                said = on_device(work.hlo.name.replace(".", "_"), op, "", _card(card.facts))
                told = (case.name, which, work.hlo.name, said)
                if used[work.hlo.name]:
                    assert said.placement == "tensor_core", told
                    compared += work.flops or 0.0
                else:
                    assert said.placement != "tensor_core", told
    assert compared > 0


# --- time --------------------------------------------------------------------------------------------------

PUBLISHED_NS = {
    name: step.step_ns
    for step in measured()
    if (name := f"{step.model}-{step.card}-{step.policy}-{step.batch_size}") in CASE
}
"""Of the measured steps those whose programs are stored: ResNet-50 and a convnet on V100, ResNet-50 on T4."""


@pytest.mark.parametrize(("case", "measured_ns"), PUBLISHED_NS.items())
def test_published_steps_lie_within_what_is_forecast(case: str, measured_ns: float) -> None:
    run = forecast(case)
    assert run.at_least_ns <= measured_ns
    if run.typical_ns is not None:
        assert run.typical_ns.low <= measured_ns <= run.typical_ns.high


def test_a_speedup_is_of_roofline_times_and_says_over_what() -> None:
    """No factor that was estimated is in the ratio: nothing is called "at most"."""
    for model, over in (("resnet-v100-{}-128", "float32"), ("transfer-t4-{}-64", "float32")):
        run = forecast(model.format("mixed_float16"))
        assert run.speedup is not None
        assert (run.speedup.over, run.speedup.at_most) == (over, None)
        assert run.speedup.at_roofline == run.speedup.at_roofline_float32
        compiled, card = stored(CASE[model.format("float32")]), targets.card(run.card)
        own, _ = judging._both(compiled, launches(compiled.programs["source"]), card, None)
        assert run.speedup.at_roofline * _launched(model.format("mixed_float16")) == pytest.approx(
            judging._launched(own, card, slowest=False)
        )


def _launched(case: str) -> float:
    compiled, card = stored(CASE[case]), targets.card(CASE[case].card)
    own, _ = judging._both(compiled, launches(compiled.programs["source"]), card, None)
    return judging._launched(own, card, slowest=False)


def test_high_precision_may_use_tf32_and_highest_does_not() -> None:
    """XLA lets cuBLAS take TF32 for "high", as JAX documents it; only "highest" rules it out."""
    run = stored(CASE["dense-a100-float32-64"])
    for asked, code in (("default", ""), ("high", ""), ("highest", "highest")):
        work = next(w for w in launches(run.programs["library"]) if deciding.is_product(w.hlo))
        inner = [replace(one, precision=asked) for one in products_of(work.hlo)]
        hlo = replace(work.hlo, precision=asked, called=tuple(inner)) if inner != [work.hlo] else inner[0]
        assert deciding._never(replace(work, hlo=hlo), "fp32", targets.card("a100"), "float32") == code


def test_no_speedup_is_stated_where_launches_take_longer_than_kernels() -> None:
    """No float32 step of kernels of half a microsecond takes only twice its roofline time."""
    short, long = forecast("dense-a100-mixed_float16-64"), forecast("resnet-v100-mixed_float16-128")
    assert short.speedup is None
    assert any("launches" in line for line in short.unknown)
    assert long.speedup is not None
    assert not any("what launches cost" in line for line in long.unknown)


@pytest.mark.parametrize(
    ("case", "most"), [("small-t4-mixed_float16-32", 1.05), ("resnet20-v100-mixed_float16-128", 1.5)]
)
def test_small_steps_gain_little_for_their_launches(case: str, most: float) -> None:
    """60,000 parameters on a T4, and ResNet-20 on images of 32 x 32: no range is stated, and launches are named."""
    run = forecast(case)
    assert run.typical_ns is None
    assert run.speedup is not None
    assert run.speedup.typical is None
    assert run.speedup.at_roofline < most
    assert any("what launches cost" in line for line in run.unknown)


def test_a_typical_range_is_stated_of_a_family_that_was_measured_there() -> None:
    """On T4 one convolutional network was measured, and no transformer; of large filters none anywhere."""
    run = forecast("resnet-v100-mixed_float16-128")
    assert run.family == "convolutional"
    assert run.speedup is not None
    assert run.speedup.typical is not None
    assert (forecast("transfer-t4-mixed_float16-64").family, forecast("transformer-t4-mixed_float16-8").family) == (
        "convolutional", "transformer",
    )  # fmt: skip
    for name in ("transfer-t4-mixed_float16-64", "transformer-t4-mixed_float16-8"):
        assert forecast(name).typical_ns is None
    for name in ("published_convnet-v100-mixed_float16-128", "depthwise-t4-mixed_float16-16"):
        assert forecast(name).family == ""


def test_shares_of_the_step_are_of_its_time() -> None:
    """Nearly all operations of ResNet-50 can use the matrix units, in less than half of its time."""
    run = forecast("resnet-v100-mixed_float16-128")
    assert run.can_ratio is not None
    assert run.can_ratio > 0.99
    assert run.time is not None
    assert 0.3 < run.time.can < 0.5
    assert sum((run.time.can, run.time.cannot, run.time.open, run.time.other)) == pytest.approx(1.0)
    for case in CASES:
        if (time := forecast(case.name).time) is not None:
            assert sum((time.can, time.cannot, time.open, time.other)) == pytest.approx(1.0), case.name


# --- words and JSON ----------------------------------------------------------------------------------------


def test_the_json_has_the_contracts_keys() -> None:
    run = forecast("resnet-v100-mixed_float16-128")
    made = json.loads(json.dumps(to_json(Forecast("model.keras", (run,), {"jax": "0"}))))
    assert made["schema"] == "mpprof.forecast/1"
    (one,) = made["runs"]
    assert {"card", "policy", "batch", "memory", "step_ns", "speedup", "decided_ratio", "kernels", "unknown",
            "compile_ns"} <= set(one)  # fmt: skip
    assert set(one["memory"]["peak_bytes"]) == {"low", "high"}
    assert set(one["step_ns"]) == {"at_least", "typical"}
    assert {"name", "op", "layers", "phase", "placement", "precision", "evidence", "instruction", "flops",
            "executed_flops", "bytes", "at_least_ns"} <= set(one["kernels"][0])  # fmt: skip
    assert isclose(sum(k["flops"] or 0.0 for k in one["kernels"]), one["flops"])


def test_the_text_names_card_policy_bound_and_obstacle() -> None:
    runs = tuple(forecast(f"resnet-v100-{policy}-128") for policy in ("float32", "mixed_float16"))
    text = rendering.text(Forecast("resnet.keras", runs, {}))
    assert "resnet.keras, batch 128" in text
    assert "Tesla V100-SXM2-16GB, sold with 16 GB" in text
    assert "float32        61.2 % cannot; 38.8 % no products" in text
    assert "mixed_float16  43.8 % can; 56.2 % no products" in text
    assert "x to " in text
    assert "gains less, or nothing" in text
    assert "at most" not in text
    assert "x over float32" in text
    assert "(conv1_conv)" in text
    assert "Not forecast:" in text


def test_a_card_that_cannot_be_forecast_does_not_stop_the_others() -> None:
    cards, refused = forecasting._cards("a100,K80,mi300x,nonsense")
    assert [card.compute_capability for card in cards] == [(8, 0)]
    assert [each.card for each in refused] == ["K80", "mi300x", "nonsense"]
    assert "3.7" in refused[0].reason
    with pytest.raises(UsageError, match=r"3\.7"):
        forecasting._cards(["K80"])


def test_a_row_says_which_layers_have_another_policy_in_16_bits_than_its_own() -> None:
    case = next(each for each in CASES if (each.model, each.policy) == ("dense", "mixed_float16"))
    compiled = stored(case)
    model = facts_of({"run_id": "forecast", "model": compiled.result["model"]}).model
    assert model is not None
    first = next(at for at, each in enumerate(model.layers) if each.parameters)
    other = replace(model.layers[first], dtype_policy="mixed_bfloat16")
    mixed = replace(model, layers=(*model.layers[:first], other, *model.layers[first + 1 :]))
    said = "what mixed_float16 in all layers would bring: some set a policy of their own, mixed_bfloat16"
    assert judged(compiled, case.card, mixed).unknown[0] == f"{said} ({other.name})"
    assert not any(said in each for each in judged(compiled, case.card, model).unknown)


def test_float32_is_what_the_card_runs_by_default_and_the_other_stands_beside_it() -> None:
    """On an H100 the products of float32 run as TF32; without it, on ordinary arithmetic, they take longer."""
    case = "convnet-h100-mixed_float16-32"
    speedup = forecast(case).speedup
    assert speedup.over == "tf32"
    assert speedup.at_roofline_float32 >= speedup.at_roofline  # equal where launches take as long as either
    assert "over TF32 (" in rendering.text(Forecast("model", (forecast(case),), {}))
    with mock.patch.multiple(least_time, LAUNCH_NS=0.0, BETWEEN_KERNELS_NS=0.0):
        unbound = forecast.__wrapped__(case).speedup
    assert unbound.at_roofline_float32 > unbound.at_roofline


@pytest.mark.parametrize(
    ("card", "layers", "said"),
    [
        ("h100", [("a", 2, 0), ("b", 3, 0)], "the library multiplies in float8 (a, b)"),
        ("a100", [("a", 0, 2), ("b", 0, 3)], "rounded to float8 and turned back, multiplied in bf16 (a, b)"),
    ],
)
def test_float8_is_told_by_layer_and_card(card: str, layers: list[tuple[str, int, int]], said: str) -> None:
    run = forecast(f"float8-{card}-mixed_bfloat16-8192")
    assert [(one.layer, one.in_float8, one.turned_back) for one in run.float8] == layers
    told = rendering.text(Forecast("float8", (run,), {}))
    assert said in told
    assert "logits" not in told[told.index("Layers in float8") : told.index("How to read")]
    assert ("the card times both" in told) is (card == "h100")
    half = forecast("transformer-h100-mixed_bfloat16-8")
    assert half.float8 == ()
    assert "Layers in float8" not in rendering.text(Forecast("half", (half,), {}))
