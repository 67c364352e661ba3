"""Which share of the layers' op time attribution gives to the right layer, on traces recorded here.

    python -m tests.analysis.layers.layer_cases [PYTHON ...]

prints a table for this interpreter's frameworks, or for those of other interpreters (`make versions`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpprof import traces
from mpprof.analysis.layers.attribution import Ownership, attribute
from mpprof.analysis.layers.modules import sizes_of
from mpprof.model.run import LayerFacts, ModelFacts
from mpprof.model.trace import HloInstruction, Trace
from tests.analysis.layers import record_layers
from tests.paths import ROOT
from tests.record.processes import done

CASES = {
    "tensorflow": ("tensorflow",),
    "tensorflow-xla": ("tensorflow", "jit"),
    "tensorflow-custom-step": ("tensorflow", "custom"),
    "tensorflow-own-loop": ("tensorflow", "loop"),
    "tensorflow-own-loop-xla": ("tensorflow", "loop", "jit"),
    "jax": ("jax", "jit"),
    "torch-frames": ("torch", "frames"),
    "torch-ranges": ("torch", "ranges"),
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
LOSSES = ("compile_loss", "/loss", "crossentropy", "cross_entropy", "softmax", "nll_loss")


@dataclass(frozen=True)
class Shares:
    """`owned`: share of the layers' op time (both passes without the loss) that some layer was given.
    `known`: share of it whose layer shapes or recorded names tell; of this `right`, `wrong` and `none`."""

    owned: float
    known: float
    right: float
    wrong: float
    none: float
    layers: int


def record(case: str, out: Path, python: Path | str = sys.executable) -> tuple[Trace, ModelFacts]:
    """Train and profile in a process of this interpreter; TensorFlow of our own in one that has imported it."""
    backend, *flags = CASES[case]
    if backend == "tensorflow" and str(python) == sys.executable:
        done(out.with_name(f"{out.name}.said"), record_layers.main, out, backend, frozenset(flags))
    else:
        _record_with(python, case, out)
    stated = json.loads((out / "model.json").read_text())
    layers = tuple(
        LayerFacts(
            one["name"], one["class"], one.get("compute_dtype"), None, None,
            input_shape=one.get("input_shape"), output_shape=one.get("output_shape"),
        )
        for one in stated["layers"]
    )  # fmt: skip
    model = ModelFacts(stated["name"], None, layers, class_name=stated["class"])
    return traces.read(traces.find_traces(out)[-1]), model


def _record_with(python: Path | str, case: str, out: Path) -> None:
    environment = os.environ | {
        "KERAS_BACKEND": CASES[case][0], "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiled quickly: nothing here is about speed
    }  # fmt: skip
    script = Path(__file__).with_name("record_layers.py")
    subprocess.run(
        [str(python), str(script), str(out), *CASES[case]],
        check=True, env=environment, capture_output=True, timeout=300,
    )  # fmt: skip


def time_by_op(trace: Trace) -> NDArray[np.float64]:
    owned = trace.kernels.op >= 0
    return np.bincount(trace.kernels.op[owned], trace.kernels.duration_ns[owned], len(trace.ops))


def usual_time_by_op(trace: Trace) -> NDArray[np.float64]:
    """The median of each op's calls times their number: a call that the machine held up for a while says nothing of
    the op, and would be most of such a small training."""
    kernels, time = trace.kernels, np.zeros(len(trace.ops))
    rows = np.flatnonzero(kernels.op >= 0)
    rows = rows[np.argsort(kernels.op[rows], kind="stable")]
    for own in np.split(rows, np.flatnonzero(np.diff(kernels.op[rows])) + 1):
        time[kernels.op[own]] = np.median(kernels.duration_ns[own]) * len(own) if len(own) else 0
    return time


def of_layers(trace: Trace, ownership: Ownership) -> NDArray[np.bool_]:
    """Ops of the forward and the backward pass, the loss left out; what has no phase might be a layer's."""
    passes = ("forward", "backward", "other")
    return np.array(
        [
            ownership.phase_of(row) in passes and not any(loss in op.name.lower() for loss in LOSSES)
            for row, op in enumerate(trace.ops)
        ]
    )


def truth(trace: Trace) -> list[str | None]:
    """The layer of each op, told by other means than attribution: None where nothing tells."""
    if trace.source.format == "chrome":
        return by_operands(trace)
    return [by_shapes(op.hlo) if op.hlo else by_scope(op.name) for op in trace.ops]


def shares(trace: Trace, model: ModelFacts) -> Shares:
    ownership, time, told = attribute(trace, model), usual_time_by_op(trace), truth(trace)
    layers = of_layers(trace, ownership)
    known = np.array([layer is not None for layer in told])
    given = [ownership.layer_of(row) for row in range(len(told))]
    right = np.array([one == other for one, other in zip(given, told, strict=True)])
    none = np.array([one is None for one in given])

    def ratio(part: NDArray[np.bool_], whole: NDArray[np.bool_]) -> float:
        return float(time[part].sum() / time[whole].sum()) if time[whole].sum() else 0.0

    return Shares(
        owned=ratio(layers & ~none, layers),
        known=ratio(known, layers),
        right=ratio(known & right, known),
        wrong=ratio(known & ~right & ~none, known),
        none=ratio(known & none, known),
        layers=len({layer for layer in told if layer}),
    )


def by_shapes(hlo: HloInstruction) -> str | None:
    """The dense layer whose kernel, and whose alone, fits the shapes of a matrix product, in either pass."""
    products = [one for one in (hlo, *hlo.called) if one.opcode == "dot"]
    if len(products) != 1:
        return None
    return by_sizes({size for shape in (*products[0].operand_shapes, products[0].shape) for size in shape})


def by_sizes(sizes: set[int]) -> str | None:
    fitting = [layer for widths, layer in WIDTHS.items() if set(widths) == sizes - {32, 1}]
    return fitting[0] if len(fitting) == 1 else None


def by_scope(name: str) -> str | None:
    parts = [part for part in name.split("/") if part not in ("StatefulPartitionedCall", "gradient_tape")]
    inside = parts[1:-1]
    for length in (2, 1):
        if (scope := "/".join(inside[:length])) in SCOPES:
            return SCOPES[scope]
    return None


def by_operands(trace: Trace) -> list[str | None]:
    """Of PyTorch's ops, by the sizes of what its matrix products read."""
    found: list[set[str | None]] = [set() for _ in trace.ops]
    for op, shapes in zip(trace.kernels.op.tolist(), trace.kernels.shapes.tolist(), strict=True):
        if op >= 0 and shapes >= 0 and trace.ops[op].type in ("aten::mm", "aten::addmm"):
            operands = sizes_of(trace.strings[shapes])
            found[op].add(by_sizes({size for operand in operands for size in operand}))
    return [next(iter(layers)) if len(layers) == 1 else None for layers in found]


def main(pythons: list[str]) -> None:
    print(f"{'environment':14} {'case':24} {'owned':>8} {'told':>8} {'right':>8} {'wrong':>8} {'none':>8}")
    for python in pythons or [sys.executable]:
        for case, (backend, *flags) in CASES.items():
            # Only this environment has what StepRecorder needs.
            needs = [backend, "psutil"] if "loop" in flags else [backend]
            probe = f"import importlib.util as u; print(all(map(u.find_spec, {needs})))"
            there = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=True)
            if there.stdout.strip() == "True":
                print(f"{Path(python).parents[2].name:14} {case:24} {line(case, python)}", flush=True)


def line(case: str, python: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        trace, model = record(case, Path(folder), python)
        found = shares(trace, model)
    if not found.layers:
        return "nothing of what the compiled program consists of was recorded"
    ratios = (found.owned, found.known, found.right, found.wrong, found.none)
    return " ".join(f"{100 * ratio:7.2f}%" for ratio in ratios) + f"  {found.layers} layers"


if __name__ == "__main__":
    main(sys.argv[1:])
