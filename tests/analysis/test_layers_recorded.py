"""Ownership on traces of real training: nearly all of the layers' time, and to the right layer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.layers import Ownership, attribute
from mpprof.model.run import LayerFacts, ModelFacts
from mpprof.model.trace import HloInstruction, Trace

pytestmark = pytest.mark.framework

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "tensorflow": ("tensorflow",),
    "tensorflow-xla": ("tensorflow", "jit"),
    "tensorflow-custom-step": ("tensorflow", "custom"),
    "jax": ("jax", "jit"),
}
# (inputs, outputs) of the kernels: each dense layer's own, but for the shared one, called twice.
WIDTHS = {
    (1536, 64): "narrow", (64, 64): "shared", (64, 72): "encoder/dense", (72, 80): "encoder/dense_1",
    (80, 88): "decoder/dense_2", (88, 64): "decoder/dense_3", (64, 96): "my_dense", (96, 104): "dense",
    (104, 112): "dense_1", (112, 10): "head",
}  # fmt: skip
# Under TensorFlow without XLA no shapes tell the layers apart, but Keras 3 enters each scope twice and
# TensorFlow numbers it; read off the recorded names one by one.
SCOPES = {
    "narrow_1": "narrow", "shared_1": "shared", "shared_3": "shared", "encoder_1/dense_1": "encoder/dense",
    "encoder_1/dense_1_2": "encoder/dense_1", "decoder_1/dense_2_1": "decoder/dense_2",
    "decoder_1/dense_3_1": "decoder/dense_3", "my_dense_1": "my_dense", "dense_1": "dense",
    "dense_1_2": "dense_1", "head_1": "head", "conv2d_1": "conv2d", "my_conv_1": "my_conv",
    "batch_normalization_1": "batch_normalization", "layer_normalization_1": "layer_normalization",
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Trace, ModelFacts]:
    backend = CASES[request.param][0]
    pytest.importorskip(backend)
    out = tmp_path_factory.mktemp(request.param)
    environment = os.environ | {
        "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    script = Path(__file__).with_name("record_layers.py")
    subprocess.run(
        [sys.executable, str(script), str(out), *CASES[request.param]],
        check=True, env=environment, capture_output=True, timeout=300,
    )  # fmt: skip
    stated = json.loads((out / "model.json").read_text())
    layers = tuple(
        LayerFacts(one["name"], one["class"], one.get("compute_dtype"), None, None)
        for one in stated["layers"]
    )
    return request.param, traces.read(traces.find(out)[-1]), ModelFacts(stated["name"], None, layers)


def time_by_op(trace: Trace) -> np.ndarray:
    owned = trace.kernels.op >= 0
    return np.bincount(trace.kernels.op[owned], trace.kernels.duration_ns[owned], len(trace.ops))


def test_nearly_all_of_the_layers_time_is_owned(recorded: tuple[str, Trace, ModelFacts]) -> None:
    _, trace, model = recorded
    ownership, time = attribute(trace, model), time_by_op(trace)
    passes = np.array(
        [ownership.phase_of(row) in ("forward", "backward", "other") for row in range(len(time))]
    )
    loss = np.array(["compile_loss" in op.name or "/loss" in op.name for op in trace.ops])
    owned = time[ownership.layer >= 0].sum()
    assert owned / time[passes & ~loss].sum() >= 0.95
    assert {fact.name for fact in ownership.facts if fact} >= set(WIDTHS.values()) | {"conv2d", "my_conv"}


def test_it_is_the_right_layer(recorded: tuple[str, Trace, ModelFacts]) -> None:
    case, trace, model = recorded
    ownership, time = attribute(trace, model), time_by_op(trace)
    truth = [by_shapes(op.hlo) if op.hlo else by_scope(op.name) for op in trace.ops]
    known = np.array([layer is not None for layer in truth])
    right = np.array([ownership.layer_of(row) == layer for row, layer in enumerate(truth)])
    assert len({layer for layer in truth if layer}) >= 10, case
    assert time[known & right].sum() / time[known].sum() >= 0.95
    wrong = {
        (trace.ops[row].name, ownership.layer_of(row), truth[row]) for row in np.flatnonzero(known & ~right)
    }
    assert len(wrong) <= 0.05 * known.sum(), wrong


def by_shapes(hlo: HloInstruction) -> str | None:
    """The dense layer whose kernel, and whose alone, fits the shapes of a matrix product, forward or backward."""
    products = [one for one in (hlo, *hlo.called) if one.opcode == "dot"]
    if len(products) != 1:
        return None
    sizes = {size for shape in (*products[0].operand_shapes, products[0].shape) for size in shape} - {32, 1}
    fitting = [layer for widths, layer in WIDTHS.items() if set(widths) == sizes]
    return fitting[0] if len(fitting) == 1 else None


def by_scope(name: str) -> str | None:
    parts = [part for part in name.split("/") if part not in ("StatefulPartitionedCall", "gradient_tape")]
    inside = parts[1:-1]
    for length in (2, 1):
        if (scope := "/".join(inside[:length])) in SCOPES:
            return SCOPES[scope]
    return None


def test_phases_are_told_apart(recorded: tuple[str, Trace, ModelFacts]) -> None:
    _, trace, model = recorded
    ownership: Ownership = attribute(trace, model)
    phases = {ownership.phase_of(row) for row in range(len(trace.ops))}
    assert {"forward", "backward", "optimizer"} <= phases
    assert all(
        ownership.phase_of(row) == "optimizer"
        for row, op in enumerate(trace.ops)
        if "/adam/" in op.name.lower()
    )
