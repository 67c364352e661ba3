"""MP413, MP414 and MP808: layers that Keras quantised to float8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis import audit as judging
from mpprof.diagnosis.shared import float8
from mpprof.diagnosis.signals import Case
from mpprof.model.device import DeviceFacts
from mpprof.model.run import LayerFacts
from tests.builders import cases as c
from tests.diagnosis.saying import finding, says

H100 = DeviceFacts("gpu", "NVIDIA H100 80GB HBM3", "nvidia", (9, 0))
MI300X = DeviceFacts("gpu", "AMD Instinct MI300X", "amd", (9, 4))
P100 = DeviceFacts("gpu", "Tesla P100-SXM2-16GB", "nvidia", (6, 0))
MIXED = "mixed_bfloat16"


def dense(name: str, reads: int, units: int, policy: str = f"float8_from_{MIXED}") -> LayerFacts:
    return c.layer(
        name, dtype="bfloat16", dtype_policy=policy, parameters=reads * units, config={"units": units},
        input_shape=(None, reads), output_shape=(None, units),
    )  # fmt: skip


LARGE = (dense("a", 4096, 4096), dense("b", 4096, 4096))


def of(
    *layers: LayerFacts,
    device: DeviceFacts = H100,
    batch: int | None = 8192,
    account: Any = None,
    **facts: Any,
) -> Case:
    jax = {"keras": "3.15.1", "backend": "jax"}
    records = c.facts(MIXED, layers, device, **{"framework": jax, "fit": {"batch_size": batch}, **facts})
    return c.case(records=records, account=account)


def products(precision: str, layer: str | None = None) -> Any:
    return c.account(c.healthy(90, precision=precision, layer=layer))


# --- MP808 float8-emulated


@pytest.mark.parametrize(
    ("device", "why"),
    [(c.A100, "they begin at 8.9"), (c.V100, "they begin at 8.9"), (MI300X, "another float8 (FNUZ)")],
)
def test_mp808_a_card_without_float8_products(device: DeviceFacts, why: str) -> None:
    got = finding("MP808", of(*LARGE, device=device))
    assert got.severity == "warning"
    assert got.layers == ("a", "b")
    assert why in got.summary


def test_mp808_what_ran_counts_before_what_the_card_can_do() -> None:
    assert says("MP808", of(*LARGE)).startswith(
        "unable: NVIDIA H100 80GB HBM3 multiplies float8, and only a trace"
    )
    assert says("MP808", of(*LARGE, account=products("fp8", "a"))) == "clear"
    assert says("MP808", of(*LARGE, account=products("bf16", "a"))) == "warning"
    assert says("MP808", of(*LARGE, account=products("bf16"))) == "warning"  # no kernel has a layer
    assert says("MP808", of(*LARGE, account=products("unknown", "a"))).startswith("unable: the kernels of")


def test_mp808_pytorch_and_a_step_without_xla() -> None:
    torch = finding("MP808", of(*LARGE, framework={"keras": "3.15.1", "backend": "torch"}))
    assert torch.remedies[0].snippet == "KERAS_BACKEND=jax python train.py"
    tensorflow = {"framework": {"keras": "3.15.1", "backend": "tensorflow"}}
    off = of(*LARGE, **tensorflow, fit={"batch_size": 8192, "jit_compile": False})
    assert says("MP808", off).startswith(
        "unable: "
    )  # it has not run: a machine without a GPU decides nothing
    ran = replace(off, run=replace(off.run, steps=c.steps()))
    assert finding("MP808", ran).remedies[0].text.startswith("let XLA compile the step")
    on = of(*LARGE, **tensorflow, fit={"batch_size": 8192, "jit_compile": True})
    assert says("MP808", replace(on, run=replace(on.run, steps=c.steps()))).startswith("unable: ")


def test_mp808_only_where_layers_are_in_float8() -> None:
    assert says("MP808", of(dense("a", 64, 64, MIXED))) == "not applicable: no layer is quantised to float8"
    assert says("MP808", of(dense("a", 64, 64, f"int8_from_{MIXED}"))).startswith("not applicable: ")
    assert says("MP808", of(*LARGE, device=c.CPU)) == "not applicable: the run used no GPU"
    assert says("MP808", of(*LARGE, device=P100)) == "not applicable: the device has no matrix units"
    assert "layers were not recorded" in says("MP808", c.bare())
    unknown = of(*LARGE, device=DeviceFacts("gpu", None, "nvidia", None))
    assert "not known" in says("MP808", unknown)


def test_mp808_advice_is_a_type_that_the_card_has() -> None:
    said = {
        card.name: finding("MP808", of(*LARGE, device=card)).remedies[0].snippet for card in (c.A100, c.V100)
    }
    assert '"mixed_bfloat16"' in said[c.A100.name]
    assert '"mixed_float16"' in said[c.V100.name]


def test_mp808_says_what_the_products_are_multiplied_in() -> None:
    """A V100 turns bfloat16 into float32; what ran counts before what a policy wants."""
    assert "multiplied in bfloat16" in finding("MP808", of(*LARGE, device=c.A100)).summary
    assert "multiplied in float32" in finding("MP808", of(*LARGE, device=c.V100)).summary
    assert "multiplied in TF32" in finding("MP808", of(*LARGE, account=products("tf32", "a"))).summary


def test_code_names_layers_as_keras_does() -> None:
    inner = dense("encoder/logits", 4096, 1000)
    assert "not in ('logits',)" in finding("MP413", of(*LARGE, inner)).remedies[0].snippet
    assert (
        "not in ('logits',)"
        in finding("MP414", of(*LARGE, replace(inner, config={"units": 16}, output_shape=(None, 16))))
        .remedies[0]
        .snippet
    )


# --- MP413 float8-sizes


def test_mp413_names_the_sizes_that_are_padded() -> None:
    got = finding("MP413", of(dense("a", 4096, 4096), dense("logits", 4096, 1000)))
    assert got.layers == ("logits",)
    assert "1,000" in got.summary
    assert got.severity == "warning"
    assert "('logits',)" in got.remedies[0].snippet


def test_mp413_rows_count_too_and_multiples_of_16_are_clear() -> None:
    assert says("MP413", of(*LARGE)) == "clear"
    assert says("MP413", of(*LARGE, batch=8190)) == "warning"
    assert "batch size was not recorded" in says("MP413", of(*LARGE, batch=None))
    nameless = replace(LARGE[0], input_shape=None, output_shape=None)
    assert says("MP413", of(nameless, LARGE[1])) == "unable: not all sizes of a are known"
    assert says("MP413", of(*LARGE, dense("small", 4096, 10))) == "info"  # of little
    assert (
        says("MP413", of(dense("a", 64, 10), device=c.A100))
        == "not applicable: the card has no float8 products"
    )


# --- MP414 float8-small


@pytest.mark.parametrize(
    ("rows", "reads", "makes", "measured", "said"),
    [
        (1024, 2048, 1024, 0.80, "warning"),  # torchao's README, H100
        (4096, 8192, 16384, 1.39, "clear"),
        (10240, 1024, 1024, 0.39, "warning"),  # TransformerEngine#445, H100
        (10240, 5120, 5120, 2.70, "clear"),
        (
            12288,
            1600,
            6400,
            1.04,
            "clear",
        ),  # the widest product of pytorch/ao#1297, with the whole step's gain
    ],
)
def test_mp414_parts_what_was_measured_to_gain_from_what_was_not(
    rows: int, reads: int, makes: int, measured: float, said: str
) -> None:
    assert says("MP414", of(dense("a", reads, makes), batch=rows)) == said
    assert (measured > 1) is (said == "clear")


def test_mp414_weighs_layers_by_their_work() -> None:
    assert says("MP414", of(*LARGE, dense("thin", 4096, 64))) == "info"
    got = finding("MP414", of(dense("a", 512, 512), dense("b", 512, 512)))
    assert got.severity == "warning"
    assert "estimated" in got.summary


def test_mp414_what_is_not_known() -> None:
    assert "batch size" in says("MP414", of(*LARGE, batch=None))
    nameless = replace(LARGE[0], input_shape=None, output_shape=None)
    assert "sizes" in says("MP414", of(nameless))
    assert says("MP414", of(nameless, LARGE[1])) == "unable: not all sizes of a are known"
    small = dense("a", 512, 512)
    assert "H100" not in finding("MP414", of(small)).summary
    assert (
        "by an H100's rates"
        in finding("MP414", of(small, device=DeviceFacts("gpu", None, "nvidia", (8, 9)))).summary
    )
    assert says("MP414", of(*LARGE, device=c.A100)) == "not applicable: the card has no float8 products"


def test_the_least_size_follows_from_the_cards_rates() -> None:
    least = {
        name: float8.least_reuse(device_peaks.peaks(DeviceFacts("gpu", name)))
        for name in ("H100", "L4", "A100")
    }
    assert least["H100"] == pytest.approx(492, abs=1)
    assert (least["L4"] or 0) > (least["H100"] or 0)  # less bandwidth for each FLOP
    assert least["A100"] is None
    assert float8.least_reuse(None) == least["H100"]


# --- what an audit says of them


def test_the_sentence_of_float8_layers_says_where_their_share_is_not_known() -> None:
    known = float8.sentence((*LARGE, dense("c", 4096, 4096, MIXED)))
    assert known is not None
    assert "a, b (66.7 % of the multiplications with weights); not quantised: c in bfloat16" in known
    unbuilt = [replace(layer, parameters=None, input_shape=None, output_shape=None) for layer in LARGE]
    unknown = float8.sentence(unbuilt)
    assert unknown is not None
    assert "a, b (their share of the multiplications is not known); each such layer" in unknown
    assert float8.sentence((dense("c", 4096, 4096, MIXED),)) is None


def test_one_remedy_for_several_layers_is_printed_once() -> None:
    run = of(dense("a", 512, 512), dense("b", 512, 256), dense("c", 512, 256)).run
    assert run is not None
    report = judging.audit(run, H100)
    (remedy,) = {note.remedy for note in report.notes if note.code == "MP414"}
    first, *_ = remedy.splitlines()
    text = str(report)
    assert text.count(first) == 1
    assert text.index("\n  a: ") < text.index("\n  b, c: ") < text.index(first)
