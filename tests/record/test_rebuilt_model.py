"""One model built twice in a process, which numbers its layers on: the two runs are compared layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.report import json as documents
from tests.builders.read_back import text
from tests.record.on_tensorflow import keras
from tests.record.training import BATCH, CLASSES, FEATURES, data

pytestmark = pytest.mark.framework

AVX512 = "avx512" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False
"""Without it TensorFlow fuses a product with its bias and activation in float32 alone, so ops differ."""


def build() -> Any:
    layers = keras.layers
    inner = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(16)])
    x = given = keras.Input((FEATURES,))
    x = layers.LayerNormalization()(inner(layers.Dense(24, activation="relu")(x)))
    made = keras.Model(given, layers.Dense(CLASSES, name="head", dtype="float32")(x))
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def test_layers_and_ops_meet_though_their_names_are_counted_on(tmp_path: Path) -> None:
    x, y = data(24)
    before_policy = keras.config.dtype_policy()
    for policy in ("float32", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        recorded = mpprof.MPProfilerCallback(tmp_path / policy, verbose=0, announce=None)
        build().fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    keras.config.set_dtype_policy(before_policy)
    compared = mpprof.compare(tmp_path / "float32", tmp_path / "mixed_bfloat16")
    before, after = ({layer.name for layer in run.run.facts.model.layers} for run in compared.runs)
    assert before & after == {"head"}  # the premise: Keras numbered the others on
    document = documents.compare_document(compared)
    rung = document["steps"][0]
    matching = rung["matching"]
    assert not matching["unmatched_from"]
    assert not matching["unmatched_to"]
    # TensorFlow records the ops that its executor has found expensive by then: which short ones have a time in
    # both windows is chance, above all on a busy machine. Without the match by layer the ratio is next to 0.
    assert matching["by_layer_ratio"]["from"] > 0.5
    slices = {part["layer"]: part for part in rung["slices"] if part["class"] == "matmul"}
    assert slices.keys() <= after | {None}
    if AVX512:
        products = [
            row for row in document["kernels"] if row["by"] == "op" and "MatMul" in row["key"].split("/")[-1]
        ]
        assert products
        assert 2 * sum(bool(row["from_ns"] and row["to_ns"]) for row in products) > len(products)
    assert "without a counterpart" not in text.render_comparison(document)
