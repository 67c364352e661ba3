"""`mpprof.audit` for twelve cards, six policies and three models, against a table from the vendors' documents.

`cards.csv` names for each card the documents that it was checked against on 2026-11-28, and `card_documents.csv` has
their addresses and what they state. Which code leads is this project's own order. The models are built once each; a policy is what the layers' recorded types are then, as the walk records them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis import audit as judging
from mpprof.model.audit import AuditReport
from mpprof.model.run import Run
from mpprof.record.facts import untrained
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework
layers = keras.layers
TABLE = Path(__file__).parents[1] / "diagnosis" / "cards.csv"
DOCUMENTS = TABLE.with_name("card_documents.csv")
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16", "float16", "float8", "per_layer")
MODELS = ("cnn", "transformer", "depthwise")
LAYERS = {"cnn": {"a", "b", "c"}, "transformer": {"a", "b", "c"}, "depthwise": {"a", "deep", "b", "c"}}
OWN = {"cnn": "MP403", "transformer": "-", "depthwise": "MP406"}
"""What leads where the card takes nothing away: three channels, nothing, a depthwise convolution."""


def layers_of(model: str, deviant: dict[str, str]) -> list[Any]:
    end = layers.Activation("linear", dtype="float32")
    if model == "cnn":
        return [
            keras.Input((32, 32, 3)), layers.Conv2D(64, 3, name="a"), layers.Conv2D(64, 3, name="b", **deviant),
            layers.Flatten(), layers.Dense(128, name="c"), end,
        ]  # fmt: skip
    if model == "depthwise":
        return [
            keras.Input((32, 32, 64)), layers.Conv2D(64, 1, name="a"), layers.DepthwiseConv2D(3, name="deep"),
            layers.Conv2D(128, 1, name="b", **deviant), layers.Flatten(), layers.Dense(128, name="c"), end,
        ]  # fmt: skip
    return [
        keras.Input((16, 64)), layers.EinsumDense("abc,cd->abd", (16, 128), name="a"),
        layers.Dense(256, name="b", **deviant), layers.Dense(64, name="c"), end,
    ]  # fmt: skip


@cache
def run_of(model: str, policy: str) -> Run:
    base = {"float8": "mixed_bfloat16", "per_layer": "mixed_float16"}.get(policy, policy)
    keras.config.set_dtype_policy(base)
    try:
        deviant = {"dtype": "float32"} if policy == "per_layer" else {}
        made = keras.Sequential(layers_of(model, deviant))
        made.compile("adam", "mse")
        if policy == "float8":
            made.layers[-2].quantize("float8")  # the last Dense, which all three have
    finally:
        keras.config.set_dtype_policy("float32")
    return untrained.run_of(made, 32)


def audited(model: str, policy: str, card: str) -> AuditReport:
    return judging.audit(run_of(model, policy), device_peaks.find(card))


def table() -> Iterator[tuple[str, dict[str, str]]]:
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row["card"], row


def test_each_card_names_documents_that_are_listed_and_each_document_is_named() -> None:
    with DOCUMENTS.open(encoding="utf-8") as file:
        listed = {row["name"]: row for row in csv.DictReader(file)}
    assert all(row["address"].startswith("https://") and row["states"] for row in listed.values())
    assert {name for _, row in table() for name in row["source"].split()} == listed.keys()
    assert all(row["source"] for _, row in table())


NAMED = 12
"""The cards at the top of the table, judged with all three models; those below with the transformer."""


@pytest.mark.parametrize("model", MODELS)
def test_unit_precision_and_leading_code_are_those_of_the_vendors_documents(model: str) -> None:
    wrong = []
    for place, (card, wanted) in enumerate(table()):
        if place >= NAMED and model != "transformer":
            break
        for policy in POLICIES:
            report = audited(model, policy, card)
            at = {each.layer: (each.unit, each.precision) for each in report.work}
            assert at.keys() == LAYERS[model]
            for layer, found in at.items():
                unit, precision, code = wanted[_policy_of(layer, policy)].split()
                if layer == "deep":  # on ordinary arithmetic, whatever the card
                    unit, precision = "cuda_core", precision if unit == "cuda_core" else found[1]
                if found != (unit, precision):
                    wrong.append((card, policy, layer, unit, precision, found))
            code = wanted[policy].split()[2]
            leads = report.notes[0].code if report.notes else "-"
            if leads != (OWN[model] if code == "-" else code):
                wrong.append((card, policy, code, leads))
            assert code == "-" or "Nothing was found" not in str(report)
    assert not wrong


def _policy_of(layer: str, policy: str) -> str:
    """The policy that a layer has: under "float8" the last Dense alone, under "per_layer" one in float32."""
    if policy == "per_layer":
        return "float32" if layer == "b" else "mixed_float16"
    return "mixed_bfloat16" if policy == "float8" and layer != "c" else policy


def test_a_map_of_policies_is_read_layer_by_layer() -> None:
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policies[".*inner/b"] = keras.DTypePolicy("float32")

    class Inner(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(dtype=policies, name="inner")
            self.a = layers.Dense(64, dtype=policies, name="a")
            self.b = layers.Dense(64, dtype=policies, name="b")

        def call(self, x: Any) -> Any:
            return self.b(self.a(x))

    made = keras.Sequential([keras.Input((64,)), Inner()])
    run = untrained.run_of(made, 8)
    report = judging.audit(run, device_peaks.find("A100"))
    at = {each.layer.rpartition("/")[2]: each.precision for each in report.work}
    assert at == {"a": "bf16", "b": "tf32"}
    on_t4 = judging.audit(run, device_peaks.find("T4")).notes
    assert (on_t4[0].code, on_t4[0].layer) == ("MP804", "inner/a")
    assert "inner/b" not in {note.layer for note in on_t4}


@pytest.mark.parametrize(
    ("card", "code"), [("GTX 1080 Ti", "MP801"), ("K40", "MP801"), ("3.7", "MP801"), ("GTX 1650", "MP802"), ("GTX 1660", "MP802"), ("T1000", "MP802")]
)  # fmt: skip
def test_a_card_without_tensor_cores_leads_whatever_its_name_is_given_as(card: str, code: str) -> None:
    report = audited("cnn", "mixed_float16", card)
    assert report.notes[0].code == code
    assert [note.code for note in report.notes] == [code], "sizes for Tensor Cores are no matter here"
    assert "any NVIDIA GPU with Tensor Cores" not in str(report)


def test_float32_is_not_told_to_change_where_16_bits_are_no_faster() -> None:
    assert "First of all" not in str(audited("cnn", "float32", "P100"))
    assert "First of all" in str(audited("cnn", "float32", "V100"))


def test_a_capability_that_covers_both_kinds_of_cards_is_unable() -> None:
    report = audited("transformer", "mixed_float16", "7.5")
    assert [unable.code for unable in report.unable] == ["MP802"]
    assert {each.unit for each in report.work} == {"unknown"}
    assert "Nothing was found" not in str(report)


def test_equal_entries_are_one() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    deep = [layers.DepthwiseConv2D(3, name=f"deep_{i}") for i in range(6)]
    made = keras.Sequential([keras.Input((32, 32, 64)), *deep, layers.Activation("linear", dtype="float32")])
    keras.config.set_dtype_policy("float32")
    on_amd = judging.audit(untrained.run_of(made), device_peaks.find("MI250X"))
    assert {note.reason for note in on_amd.notes if note.code == "MP406"} == {
        "depthwise convolution has no kernel for matrix cores"
    }
    report = judging.audit(untrained.run_of(made), device_peaks.find("A100"))
    text = str(report)
    assert len([note for note in report.notes if note.code == "MP406"]) == 6
    assert text.count("depthwise convolution has no kernel for Tensor Cores") == 1
    assert "deep_0, deep_1, deep_2 and 3 more: depthwise" in text


def test_convolutions_in_three_dimensions_and_of_one_channel() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    images = keras.Input((32, 32, 64))
    gate = layers.Conv2D(1, 3, padding="same", activation="sigmoid", name="gate")(images)
    x = layers.Conv2D(64, 3, padding="same", name="of_one")(gate)
    x = layers.Conv2D(64, 3, name="body")(layers.Multiply()([x, images]))
    mask = layers.Conv2D(1, 3, activation="sigmoid", name="mask")(x)
    volume = keras.Input((8, 8, 8, 64), name="volume")
    deep = layers.Conv3D(64, 3, name="deep")(volume)
    made = keras.Model([images, volume], [mask, deep])
    keras.config.set_dtype_policy("float32")
    report = judging.audit(untrained.run_of(made), device_peaks.find("A100"))
    said = {(note.code, note.layer): note for note in report.notes}
    assert ("MP403", "of_one") in said
    assert ("MP408", "deep") not in said  # cuDNN 8 was the first for these cards
    if not made_with_cudnn(run := untrained.run_of(made)):
        on_volta = judging.audit(run, device_peaks.find("V100"))
        assert ("MP408", "deep") in {(note.code, note.layer) for note in on_volta.notes}, run
    for name in ("gate", "mask"):  # a mask of one channel stays one: more are computed and cut off
        note = said.get(("MP401", name))
        assert note is None or ("[..., :1]" in note.remedy and "Activation('sigmoid'" in note.remedy)
    assert ("MP401", "gate") in said


def made_with_cudnn(run: Run) -> bool:
    return bool(run.facts and run.facts.framework.get("cudnn"))


def test_advice_for_an_output_keeps_the_shape_that_the_labels_have() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    made = keras.Sequential([
        keras.Input((64,)), layers.Dense(300, activation="softmax", name="classes"),
        layers.Activation("linear", dtype="float32"),
    ])  # fmt: skip
    keras.config.set_dtype_policy("float32")
    names: dict[str, Any] = {"keras": keras, "x": keras.Input((64,))}
    run = untrained.run_of(made)
    assert run.facts is not None
    for loss, kept in (("categorical_crossentropy", True), ("sparse_categorical_crossentropy", False)):
        fits = tuple(replace(fit, loss=loss) for fit in run.facts.fits)
        report = judging.audit(replace(run, facts=replace(run.facts, fits=fits)), device_peaks.find("V100"))
        remedy = next(note.remedy for note in report.notes if note.code == "MP401")
        assert ("[..., :300]" in remedy) is kept
        if kept:
            exec(remedy, names)
            assert names["x"].shape == (None, 300)


def functional(given: Any, value: Any) -> Run:
    made = keras.Model(given, value)
    made.compile("adam", "mse")
    return untrained.run_of(made, 32)


def test_a_model_without_matrix_work_is_told_no_policy() -> None:
    """Lookups, pooling and sums; with a product of two tensors, or of a class of one's own, it is not said."""
    words = keras.Input((32,), dtype="int32")
    value = layers.GlobalAveragePooling1D()(layers.Embedding(1000, 64)(words))
    for card in ("A100", None):
        said = str(judging.audit(functional(words, value), device_peaks.find(card) if card else None))
        assert "No layer of this model multiplies matrices" in said
        assert "First of all" not in said
        assert "Nothing was found" not in said
    product = keras.ops.matmul(keras.ops.expand_dims(value, 1), keras.ops.expand_dims(value, 2))
    assert judging.audit(functional(words, product)).multiplies is True
    assert judging.audit(functional(words, layers.Lambda(lambda x: x @ x)(value))).multiplies is None


def dense(*policies: str, quantised: str | None = None) -> Run:
    keras.config.set_dtype_policy(policies[0])
    value = given = keras.Input((256,))
    for at, policy in enumerate(policies):
        value = layers.Dense(256, dtype=policy, name=f"d{at}")(value)
    made = keras.Model(given, layers.Activation("linear", dtype="float32")(value))
    keras.config.set_dtype_policy("float32")
    if quantised:
        for layer in made.layers[1:-1]:
            layer.quantize(quantised)
    made.compile("adam", "mse")
    return untrained.run_of(made, 4096)


@pytest.mark.parametrize("card", ["T4", "A100"])
def test_whole_numbers_are_neither_cleared_nor_told_a_policy(card: str) -> None:
    report = judging.audit(dense("float32", "float32", quantised="int8"), device_peaks.find(card))
    said = str(report)
    assert "Quantised to int8: d0, d1." in said
    assert "First of all" not in said
    assert "Nothing was found" not in said
    assert report.mixed == "mixed_bfloat16", "Keras refuses whole numbers beside float16"


@pytest.mark.parametrize(
    ("card", "policy", "advised"),
    [
        ("V100", "float32", "mixed_float16"), ("T4", "mixed_bfloat16", "mixed_float16"),
        ("RTX 3090", "mixed_float16", "mixed_float16"), ("RTX 3090", "float32", "mixed_bfloat16"),
        ("A100", "mixed_bfloat16", "mixed_bfloat16"), ("MI300X", "mixed_bfloat16", "mixed_bfloat16"),
    ],
)  # fmt: skip
def test_without_float8_products_a_policy_is_advised_that_the_card_has_units_for(
    card: str, policy: str, advised: str
) -> None:
    report = judging.audit(dense(policy, policy, quantised="float8"), device_peaks.find(card))
    (note,) = (note for note in report.notes if note.code == "MP808")
    assert f'("{advised}")' in note.remedy
    assert 'without model.quantize("float8")' in note.remedy


def test_a_tpu_without_float8_units_rounds_for_nothing() -> None:
    run = dense("mixed_bfloat16", "mixed_bfloat16", quantised="float8")
    (note,) = judging.audit(run, device_peaks.find("TPU v5e")).notes
    assert (note.code, "has no float8 units" in note.reason) == ("MP808", True)
    assert '("mixed_bfloat16")' in note.remedy
    assert judging.audit(run, device_peaks.find("TPU7x")).notes == ()


@pytest.mark.parametrize(("card", "code"), [("P100", "MP801"), ("K80", "MP801"), ("GTX 1660 Ti", "MP802")])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_without_matrix_units_float8_is_left_out_too(card: str, code: str, policy: str) -> None:
    (note,) = judging.audit(dense(policy, policy, quantised="float8"), device_peaks.find(card)).notes
    assert (note.code, note.severity) == (code, "warning")
    assert "rounding d0, d1 to float8 comes on top" in note.reason
    assert 'without model.quantize("float8")' in note.remedy
    assert ('("float32")' in note.remedy) is (policy != "float32")


def test_of_unequal_policies_each_layer_is_judged_and_mended_by_its_own() -> None:
    half = ("mixed_float16", "mixed_float16", "mixed_bfloat16")
    report = judging.audit(dense(*half), device_peaks.find("T4"))
    assert [(each.unit, each.precision) for each in report.work] == [
        *[("tensor_core", "fp16")] * 2, ("cuda_core", "fp32"),
    ]  # fmt: skip
    (note,) = report.notes
    assert (note.code, note.layer) == ("MP804", "d2")
    assert 'dtype="mixed_float16"' in note.remedy.replace("'", '"')
    assert "policy mixed_float16 (mixed_bfloat16 in 1 of the 3 layers that multiply)" in str(report)
