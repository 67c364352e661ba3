"""Module frames of PyTorch's profiler become the layers of the Keras model that ran, or keep their own names."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.layers import modules
from mpprof.analysis.layers.attribution import Ownership, attribute
from mpprof.analysis.layers.scopes import parse
from mpprof.model import limits
from mpprof.model.run import LayerFacts, ModelFacts
from mpprof.model.trace import Trace
from tests.paths import SHARED
from tests.traces.conftest import needs_shared
from tests.traces.kineto import BACKWARD, Kineto

SHARES = {  # of the kernels' time, in modules; the rest of Qwen's lies before the window's first frame
    "h100-torch/Falconsai_nsfw_image_detection__1016002.json.gz": (0.99, "ViTEncoder_0/ViTLayer_11/"),
    "h100-torch/facebook_timesformer-base-finetuned-k400__1016002.json.gz": (0.97, "Linear_"),
    "h100-torch/gaunernst_bert-small-uncased__1016001.json.gz": (0.99, "BertModel_0/BertEncoder_0/"),
    "b200-torch/eager_trace.json.gz": (0.99, "TransformerBlock_0/"),
}


def fact(name: str, class_name: str, inputs: int = 0, outputs: int = 0) -> LayerFacts:
    shapes = ([None, inputs], [None, outputs]) if inputs else (None, None)
    return LayerFacts(name, class_name, None, None, None, {}, *shapes)


MODEL = ModelFacts(
    "functional",
    None,
    (
        fact("inputs", "InputLayer"),
        fact("dense", "Dense", 16, 32),
        fact("shared", "Dense", 32, 32),
        fact("encoder", "Sequential"),
        fact("encoder/dense", "Dense", 32, 40),
        fact("encoder/dense_1", "Dense", 40, 32),
        fact("wrapped", "TorchModuleWrapper"),
        fact("my_dense", "Dense", 32, 48),
    ),
    class_name="Functional",
)


class Step:
    """The calls of one step, each module with one product (its kernel's sizes stated) and its gradient."""

    def __init__(self, *, frames: bool = True) -> None:
        self.file, self.now, self.sequence, self.frames = Kineto(), 1000.0, 0, frames

    def call(self, *path: str, kernel: tuple[int, int] = (0, 0)) -> None:
        self.sequence += 1
        start, sequence = self.now, {"Sequence number": self.sequence}
        for depth, module in enumerate(path):
            if self.frames:
                self.file.module(module, start + depth, 60 - 2 * depth)
            else:
                self.file.host("user_annotation", f"nn.Module: {module}", start + depth, 60 - 2 * depth)
        shapes = {"Input Dims": [[8, kernel[0]], list(kernel)], "Input type": ["float", "float"]}
        self.file.op("aten::mm", start + 20, 10, **(shapes if kernel[0] else {}), **sequence)
        self.file.launch(f"forward_{self.sequence}", start + 22, start + 30, 5)
        name = "autograd::engine::evaluate_function: MmBackward0"
        self.file.op(name, start + 5000, 20, BACKWARD, **sequence)
        self.file.op("aten::mm", start + 5002, 10, BACKWARD)
        self.file.launch(f"backward_{self.sequence}", start + 5004, start + 5010, 5, BACKWARD)
        self.now += 100

    def read(self, folder: Path) -> Trace:
        return traces.read(self.file.write(folder / "t.pt.trace.json"), strict=True)


def kernels(trace: Trace, ownership: Ownership) -> dict[str, tuple[str | None, str]]:
    return {
        trace.strings[name]: (ownership.layer_of(op), ownership.phase_of(op))
        for name, op in zip(trace.kernels.name.tolist(), trace.kernels.op.tolist(), strict=True)
    }


def layers_of(trace: Trace, model: ModelFacts | None) -> list[str | None]:
    found = kernels(trace, attribute(trace, model))
    forward = [found[f"forward_{at + 1}"] for at in range(len(found) // 2)]
    backward = [found[f"backward_{at + 1}"] for at in range(len(found) // 2)]
    assert {phase for layer, phase in forward if layer} <= {"forward"}
    assert {phase for _, phase in backward} <= {"backward"}
    assert [layer for layer, _ in forward] == [layer for layer, _ in backward]
    return [layer for layer, _ in forward]


def test_numbered_modules_are_the_layers_of_their_class_in_order(tmp_path: Path) -> None:
    step = Step()
    step.call("Functional_0", "Dense_0", kernel=(16, 32))
    step.call("Functional_0", "Dense_1", kernel=(32, 32))
    step.call("Functional_0", "Sequential_0", "Dense_2", kernel=(32, 40))
    step.call("Functional_0", "Sequential_0", "Dense_3", kernel=(40, 32))
    step.call("Functional_0", "TorchModuleWrapper_0", "Linear_0")
    step.call("Functional_0", "Dense_1", kernel=(32, 32))
    step.call("Functional_0", "Dense_4", kernel=(32, 48))
    step.call()
    assert layers_of(step.read(tmp_path), MODEL) == [
        "dense", "shared", "encoder/dense", "encoder/dense_1", "wrapped", "shared", "my_dense", None,
    ]  # fmt: skip


def test_ranges_named_after_layers_are_taken_by_their_names(tmp_path: Path) -> None:
    step = Step(frames=False)
    for path in (("dense",), ("shared",), ("encoder", "dense"), ("encoder", "dense_1"), ("my_dense",)):
        step.call("functional", *path)
    expected = ["dense", "shared", "encoder/dense", "encoder/dense_1", "my_dense"]
    assert layers_of(step.read(tmp_path), MODEL) == expected
    assert layers_of(step.read(tmp_path), None) == expected


def test_branches_called_in_another_order_are_told_apart_by_their_kernels(tmp_path: Path) -> None:
    step = Step()
    step.call("Functional_0", "Dense_0", kernel=(32, 48))
    step.call("Functional_0", "Dense_1", kernel=(16, 32))
    step.call("Functional_0", "Dense_2", kernel=(32, 32))
    assert layers_of(step.read(tmp_path), MODEL) == ["my_dense", "dense", "shared"]


@pytest.mark.parametrize("kernel", [(0, 0), (7, 9)])
def test_a_module_that_may_be_any_of_several_layers_keeps_its_own_name(
    kernel: tuple[int, int], tmp_path: Path
) -> None:
    """Two of three dense layers were called, and nothing is known of their sizes, or nothing that fits."""
    step = Step()
    step.call("Functional_0", "Dense_0", kernel=kernel)
    step.call("Functional_0", "Dense_1", kernel=kernel)
    assert layers_of(step.read(tmp_path), MODEL) == ["Dense_0", "Dense_1"]


@pytest.mark.parametrize("classes", [1, 300])
def test_modules_of_many_layers_are_each_looked_at_once(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many modules of a class there are, and however many classes."""
    widths, named = Mock(wraps=modules._widths), Mock(wraps=modules._class)
    monkeypatch.setattr(modules, "_widths", widths)
    monkeypatch.setattr(modules, "_class", named)
    monkeypatch.setattr(modules, "_PLAIN_KERNELS", {f"Dense{at}" for at in range(classes)})
    scopes = [parse(f"Model_0/Dense{at % classes}_{at // classes}/aten::mm") for at in range(300)]
    facts = tuple(fact(f"dense_{at}", f"Dense{at % classes}", 32, at + 1) for at in range(400))
    sizes = {modules.module_path(scope): [(32, at + 1)] for at, scope in enumerate(scopes)}
    found = modules.match_modules(scopes, ModelFacts("model", 0, facts, (), "Model", None), sizes)
    assert found.layers[modules.module_path(scopes[7])] == "dense_7"
    assert max(widths.call_count, named.call_count) < 4 * (300 + 400)


def test_modules_deeper_than_any_model_are_part_of_the_last_one() -> None:
    scope = parse("/".join(f"Block_{at}" for at in range(10_000)) + "/aten::mm")
    path = modules.module_path(scope)
    assert len(path) == limits.DEEPEST_LAYER
    assert modules.by_look([scope])[scope] == "/".join(path[1:])


def test_a_users_model_is_known_by_its_class_or_by_standing_alone(tmp_path: Path) -> None:
    step = Step()
    step.call("MyModel_0", "Dense_0", kernel=(16, 32))
    step.call("MyModel_0", "Dense_1", kernel=(32, 32))
    step.call("MyModel_0", "Dense_2", kernel=(32, 48))
    assert layers_of(step.read(tmp_path), MODEL) == ["dense", "shared", "my_dense"]


def test_a_gradient_is_of_the_last_op_that_carries_its_number(tmp_path: Path) -> None:
    """An op that needs no gradient carries the number of the next one that does."""
    step = Step()
    step.file.module("Functional_0", 900, 190)
    step.file.op("aten::view", 950, 5, **{"Sequence number": 1})
    step.call("Dense_0", kernel=(16, 32))
    found = kernels(step.read(tmp_path), attribute(step.read(tmp_path), MODEL))
    assert found == {"forward_1": ("dense", "forward"), "backward_1": ("dense", "backward")}


def test_frames_of_keras_optimizers_tell_the_phase(tmp_path: Path) -> None:
    k = Kineto()
    scaled, inner = "loss_scale_optimizer.py(160)", "base_optimizer.py(466)"
    k.host("python_function", f"/lib/keras/src/optimizers/{scaled}: apply", 10, 200)
    k.op("aten::isfinite", 20, 10)
    k.launch("check", 22, 30, 5)
    k.host("python_function", f"/lib/keras/src/optimizers/{inner}: apply", 50, 100)
    k.op("aten::_foreach_add_", 60, 10)
    k.launch("update", 62, 70, 5)
    k.host("python_function", "/lib/mykeras/src/optimizers/other.py(1): apply", 300, 100)
    k.op("aten::add", 310, 10)
    k.launch("other", 312, 320, 5)
    trace = traces.read(k.write(tmp_path / "t.pt.trace.json"), strict=True)
    phases = {name: phase for name, (_, phase) in kernels(trace, attribute(trace)).items()}
    assert phases == {"check": "loss_scale", "update": "optimizer", "other": "other"}


@needs_shared()
@pytest.mark.parametrize("name", SHARES)
def test_recorded_modules_own_their_kernels_without_a_recorded_model(name: str) -> None:
    trace = traces.read(SHARED / name)
    found, time = attribute(trace), trace.kernels.duration_ns
    op = trace.kernels.op
    owned = (op >= 0) & (found.layer[op] >= 0)
    share, some = SHARES[name]
    assert time[owned].sum() / time.sum() >= share
    assert any(layer.startswith(some) for layer in found.layers), found.layers[-5:]
    assert len(np.unique(found.layer[op[owned]])) > 20


def test_a_module_that_the_backward_pass_calls_again_is_itself() -> None:
    """With checkpointing the forward pass is done again within the node of what needed it."""
    again = parse(
        "Net_0/Sequential_5/Block_7/ReLU_8/Sequential_5/Block_6/Conv2d_15/ReluBackward0", "aten::mm"
    )
    assert modules.by_look([again])[again] == "Sequential_5/Block_6/Conv2d_15"
