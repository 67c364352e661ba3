"""What the judgement says of precision: nothing of a fallback where there is nothing to fall back from, and
no advice to record in float32 what computes in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.signals import Case, Signals
from tests.builders import cases as c
from tests.diagnosis.saying import finding, says

PASCAL = c.DeviceFacts("gpu", "NVIDIA GeForce GTX 1080 Ti", "nvidia", (6, 1))
ODD = "(half[512,1000];half[1000,1001])"
CONVOLVED = "(half[64,56,56,64];half[3,3,64,64])"
OFF = {"precision": "fp16", "kernel": "maxwell_fp16_sgemm_fp16_128x64_nn"}
BARE = None


def layers() -> tuple[c.LayerFacts, ...]:
    """A model with every cause of the hundreds 1 and 4 that is about matrix units."""
    return (
        c.layer("stem", "Conv2D", input_shape=[None, 224, 224, 3], config={"filters": 64}),
        c.layer("grouped", "Conv2D", config={"groups": 4, "filters": 64}, input_shape=[None, 56, 56, 64]),
        c.layer("voxels", "Conv3D", config={"filters": 64}),
        c.layer("aligned", "Conv2D", config={"filters": 64}, input_shape=[None, 56, 56, 64]),
        c.layer("custom", "MyNorm", dtype="float32"),
        c.layer("dense"),
        c.layer("logits", config={"units": 33709}),
        c.layer("softmax", "Activation", "float32", parameters=0),
    )


def work() -> tuple[c.Cell, ...]:
    convolutions = [
        c.fallback(10, layer=name, shapes=CONVOLVED, family="conv_fprop", **OFF)
        for name in ("stem", "grouped", "voxels", "aligned")
    ]
    return (
        *convolutions,
        c.fallback(10, layer="custom"),
        c.fallback(10, layer="dense", shapes=ODD, **OFF),
        c.fallback(10, layer="logits", shapes=ODD, **OFF),
    )


def found(device: c.DeviceFacts) -> set[str]:
    case = c.case(records=c.facts(layers=layers(), device=device), account=c.account(*work()))
    return {each.code for each in judge(case, strict=True).findings}


def test_a_card_without_matrix_units_is_the_hundred_8s_and_not_1s_or_4s() -> None:
    on_volta = {code for code in found(c.V100) if code[2] in "14"}
    assert {"MP104", "MP401", "MP402", "MP407", "MP408"} <= on_volta
    on_pascal = found(PASCAL)
    assert "MP801" in on_pascal
    assert not {code for code in on_pascal if code[2] in "14"}


def test_a_layer_that_is_float32_by_its_policy_is_told_to_drop_it() -> None:
    def remedy(*layers: c.LayerFacts) -> str:
        cells = tuple(c.fallback(10, layer=layer.name) for layer in layers)
        records = c.facts(layers=(*layers, c.layer("dense"), c.layer("softmax", "Activation", "float32")))
        case = c.case(records=records, account=c.account(*cells))
        return finding("MP104", case).remedy

    by_policy = c.layer("conv", "Conv2D", dtype="float32")
    inside = replace(c.layer("casts", "MyNorm"), output_dtype="float32")
    assert remedy(by_policy).startswith("give conv the model's policy: drop dtype")
    assert "keras.ops" not in remedy(by_policy)
    assert remedy(inside).startswith("compute in self.compute_dtype")
    assert remedy(by_policy, inside).startswith("compute in self.compute_dtype")


def test_tf32_is_no_fallback_and_stands_apart() -> None:
    a100 = c.DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0))
    cells = (c.fallback(10), c.healthy(20, precision="tf32"), c.healthy(70))
    signals = Signals(c.case(records=c.facts(device=a100), account=c.account(*cells)))
    assert signals.time(signals.fallbacks) == 10 * c.MS
    assert signals.time(signals.not_in_16_bits) == 30 * c.MS
    pascal = Signals(c.case(records=c.facts(device=PASCAL), account=c.account(*cells)))
    assert pascal.fallbacks == ()


def bare(*cells: c.Cell) -> Case:
    return c.case(records=BARE, account=c.account(*cells))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (c.case(records=c.facts("float32")), "this run computes in float32: it is a baseline itself"),
        (bare(c.fallback(100)), "this run computes in float32: it is a baseline itself"),
        (bare(c.healthy(100)), "no float32 run to compare with"),
        (bare(c.healthy(30), c.fallback(70)), "no float32 run to compare with"),
        (c.bare(), "no other run to compare with"),
        (bare(c.cell("elementwise", 100)), "no other run to compare with"),
    ],
)
def test_what_mp906_lacks_follows_from_what_the_run_computes_in(case: Case, said: str) -> None:
    assert said in says("MP906", case)
    assert ("record the same run in float32" in says("MP906", case)) is ("no float32 run" in said)


def test_mp906_calls_a_baseline_partly_in_16_bits_no_float32_baseline() -> None:
    mixed = c.case(account=c.account(c.healthy(100)))
    partly = bare(c.healthy(30), c.fallback(70))
    got = finding("MP906", c.case(account=mixed.account, speedup=c.speedup(), baseline=partly))
    assert "partly in float16 (30.0 % of the matrix time)" in got.summary


def test_mp906_does_not_ask_a_float32_run_for_a_float32_baseline() -> None:
    a100 = c.DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0))
    other = c.case(records=c.facts("float32", device=a100))
    got = finding("MP906", c.case(records=c.facts("float32"), speedup=c.speedup(), baseline=other))
    assert "device" in got.summary
    assert "float32" not in got.remedy
