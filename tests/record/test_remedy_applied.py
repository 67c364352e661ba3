"""A real training that waits for its input, and the same with the remedy applied: the promise against the gain."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.report import json as documents
from tests.builders.read_back import text
from tests.record.on_tensorflow import keras, tf

pytestmark = pytest.mark.framework

FEATURES, CLASSES, BATCH, STEPS, EPOCHS = 16, 4, 8, 10, 4
WAIT_S = 0.002
"""The load: what a sample takes to make. A batch of 8 takes far longer than its step."""


def made_slowly(row: Any) -> Any:
    time.sleep(WAIT_S)
    return row


def batches(*, cached: bool) -> Any:
    random = np.random.default_rng(3)
    x = random.standard_normal((BATCH * STEPS, FEATURES)).astype("float32")
    y = random.integers(0, CLASSES, BATCH * STEPS)

    def prepared(row: Any, label: Any) -> Any:
        slow = tf.numpy_function(made_slowly, [row], tf.float32)
        return tf.ensure_shape(slow, (FEATURES,)), label

    found = tf.data.Dataset.from_tensor_slices((x, y)).map(prepared).batch(BATCH, drop_remainder=True)
    return found.cache() if cached else found


def train(root: Path, *, cached: bool) -> Path:
    keras.utils.set_random_seed(11)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(32), keras.layers.Dense(CLASSES)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    window = (2 * STEPS + 2, 2 * STEPS + 7)  # the cache was filled in the first epoch
    recorded = mpprof.MPProfilerCallback(root, profile_steps=window, verbose=0, audit=False)
    model.fit(batches(cached=cached), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[recorded])
    return root


def test_the_cache_gives_what_the_report_before_it_promised(tmp_path: Path) -> None:
    paths = [train(tmp_path / name, cached=cached) for name, cached in (("before", False), ("after", True))]
    document = documents.compare_document(mpprof.compare(*paths))
    before, after = document["runs"]
    (rung,) = document["steps"]
    found = {one["code"]: one for one in rung["remedies"]}["MP301"]
    assert found["status"] == "applied"
    assert found["counted"]
    assert [text for text in found["evidence"] if ".cache()" in text]
    assert not [text for text in found["evidence"] if "prefetch" in text]  # TensorFlow's own is no remedy
    low, high = found["predicted_ns"]
    assert 0 < low <= high <= before["facts"]["step_ns"]
    assert found["obtained_ns"] is not None
    waited = next(part for part in before["time"]["slices"] if part["class"] == "idle_input")
    assert found["obtained_ns"] <= waited["ns_per_step"]
    assert found["obtained_ns"] > low / 2  # most of what was promised, however busy this machine is
    total = rung["remedies_total"]
    assert total["obtained_ns"] == pytest.approx(
        before["facts"]["step_ns"] - after["facts"]["step_ns"], abs=1.0
    )
    assert total["obtained_ns"] > 0
    if (interval := total["interval_ns"]) is not None:  # on a busy machine a stall or two give none
        assert interval[0] <= total["obtained_ns"] <= interval[1]
    told = rung["learning"]
    assert told["verdict"] == "alike"  # the same batches in the same order, from the same weights
    assert told["difference_ratio"] == pytest.approx(0.0, abs=1e-3)
    assert "MP301 input-bound: predicted" in text.render_comparison(document)
