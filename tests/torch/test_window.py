"""The profile window on torch: its trace, what the report makes of it, and that nothing of it stays behind."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.report import json as documents
from tests.paths import ROOT
from tests.record import on_demand
from tests.torch.training import BATCH, callback, data, digest, fit, keras, model, records, torch

pytestmark = pytest.mark.framework
modules = torch.nn.modules.module
torch_ranges = import_module("mpprof.record.backends.torch_ranges")  # not without torch
torch_trace = import_module("mpprof.record.backends.torch")


def hooks() -> int:
    """How many hooks are set on every module of the process."""
    return len(modules._global_forward_pre_hooks) + len(modules._global_forward_hooks)


def events_of(root: Path) -> list[dict[str, Any]]:
    (trace,) = (root / "plugins" / "profile").glob("*/*")
    found: list[dict[str, Any]] = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return found


def names_of(root: Path) -> list[str]:
    return [event["name"] for event in events_of(root) if event.get("ph") == "X"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a window over the steps 12 to 17."""
    root = tmp_path_factory.mktemp("window")
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(3).standard_normal((40 * BATCH, 256), dtype=np.float32)
    y = np.random.default_rng(4).integers(0, 4, 40 * BATCH)
    keras.config.set_dtype_policy("mixed_bfloat16")
    layers = keras.layers
    inside = keras.Sequential([layers.Dense(256, activation="gelu", name="first")], name="encoder")
    built = keras.Sequential(
        [
            keras.Input((256,)),
            inside,
            layers.LayerNormalization(name="normed"),
            layers.Dense(4, dtype="float32", name="last"),
        ]
    )
    keras.config.set_dtype_policy("float32")
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    built.compile(scaled, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(built, x, y, callback(root, profile_steps=(12, 17)))
    return root


def test_the_trace_lies_in_tensorboards_layout(made: Path) -> None:
    facts = records(made).facts
    (window,) = facts.profile_windows
    assert (window.status, window.first_step, window.last_step) == ("done", 12, 17)
    assert window.trace is not None
    (trace,) = (made / window.trace).iterdir()
    assert trace.name == f"{window.host}.pt.trace.json.gz"
    assert trace.parent.parent == made / "plugins" / "profile"
    assert window.start_cost_ns is not None
    assert window.start_cost_ns > 0
    assert not list((made / "mpprof").glob(".window*"))


def test_it_holds_a_marker_for_each_step_and_ops_with_their_shapes_and_types(made: Path) -> None:
    events = events_of(made)
    steps = [event["name"] for event in events if event["name"].startswith("ProfilerStep#")]
    assert sorted(set(steps)) == [f"ProfilerStep#{step}" for step in range(12, 18)]
    products = [event["args"] for event in events if event["name"] == "aten::mm"]
    assert all(arguments["Input Dims"] and arguments["Input type"] for arguments in products)
    assert {"c10::BFloat16", "float"} <= {arguments["Input type"][0] for arguments in products}


def test_the_report_has_steps_an_account_and_no_word_on_tensor_cores(made: Path) -> None:
    document = documents.document(mpprof.diagnose(mpprof.load(made)))
    time = document["time"]
    assert time["basis"] == "host"
    assert len(time["devices"]) == 1
    total = sum(piece["ns_per_step"] for piece in time["slices"])
    assert total == pytest.approx(time["step_ns"], rel=1e-6)
    share = {piece["class"]: piece["ns_per_step"] for piece in time["slices"]}
    assert share["matmul"] > 0
    assert share["optimizer"] > 0
    assert share["loss_scale"] > 0
    assert share["norm"] + share["elementwise"] > 0
    assert share.get("unknown", 0) < 0.1 * total
    assert document["tensor_core"] is None
    assert "CPU" in document["absent"]["tensor_core"]
    assert document["run"]["backend"] == "torch"
    assert document["run"]["policy"] == "mixed_bfloat16"


def test_ops_belong_to_their_layers_forward_and_backward(made: Path) -> None:
    command = [sys.executable, "-m", "mpprof.cli", "layers", str(made), "--format", "json", "--no-cache"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    rows = {row["layer"]: row for row in json.loads(said.stdout)}
    assert {"encoder/first", "normed", "last"} <= set(rows)
    assert rows["encoder/first"]["forward_ns"] > 0
    assert rows["encoder/first"]["backward_ns"] > 0


def test_a_file_and_a_signal_open_further_windows(tmp_path: Path) -> None:
    before = hooks()
    on_demand.train(keras, model(), tmp_path)
    on_demand.check(tmp_path, records(tmp_path), late=1)
    assert hooks() == before


def test_nothing_of_a_window_stays_behind(tmp_path: Path) -> None:
    x, y = data(24)
    before = hooks()
    trained = model()
    fit(trained, x, y, callback(tmp_path, profile_steps=(10, 12)))
    assert hooks() == before
    for optimizer in (trained.optimizer, trained.optimizer.inner_optimizer):
        assert "apply" not in optimizer.__dict__
    assert not torch.autograd._profiler_enabled()


def test_a_layer_that_fails_within_a_window_leaves_no_range_open(tmp_path: Path) -> None:
    class Fails(keras.layers.Layer):  # type: ignore[misc]
        steps = 0

        def call(self, inputs: Any) -> Any:
            self.steps += inputs.device.type != "meta"
            if self.steps == 6:
                raise ZeroDivisionError
            return inputs

    x, y = data(24)
    built = keras.Sequential([keras.Input((8,)), Fails(name="fails"), keras.layers.Dense(4)])
    built.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    recorded = callback(tmp_path, profile_steps=(4, 12))
    with pytest.raises(ZeroDivisionError):
        fit(built, x, y, recorded)
    fit(model(), x, y, recorded)  # ends the window
    names = names_of(tmp_path)
    assert names.count("nn.Module: fails") == 3
    assert "nn.Module: dense_1" not in names


def test_a_profiler_that_runs_already_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, y = data(12)
    before = hooks()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        fit(model(), x, y, callback(tmp_path, profile_steps=(3, 5)))
    facts = records(tmp_path).facts
    assert facts.profile_windows[0].status.startswith("failed: RuntimeError: torch's profiler runs already")
    assert "no trace of this run: RuntimeError: torch's profiler runs already" in caplog.text
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    names = [e["name"] for e in json.loads((tmp_path / "theirs.json").read_text())["traceEvents"]]
    assert sorted(n for n in set(names) if "step#" in n.lower()) == [f"mpprof_step#{k}" for k in (3, 4, 5)]
    assert "aten::mm" in names
    assert hooks() == before


def test_a_profiler_of_another_thread_is_seen_too() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert torch_trace.profiler_runs()
    assert not torch_trace.profiler_runs()


def test_markers_cost_nothing_where_nobody_profiles() -> None:
    with torch_trace.TorchTrace().marker(3) as marker:
        assert marker is None


@pytest.mark.parametrize("part", ["start", "stop", "export_chrome_trace"])
def test_a_profiler_that_fails_costs_the_trace_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    x, y = data(16, bad_steps=(3,))
    plain = model()
    fit(plain, x, y)

    def broken(*arguments: Any, **more: Any) -> None:
        raise RuntimeError("broken on purpose")

    real = torch.profiler.profile.stop
    if part == "stop":
        monkeypatch.setattr(torch.profiler.profile, part, lambda self: [real(self), broken()])
    else:
        monkeypatch.setattr(torch.profiler.profile, part, broken)
    before = hooks()
    made = model()
    fit(made, x, y, callback(tmp_path, profile_steps=(5, 8)))
    assert digest(made) == digest(plain)
    facts = records(tmp_path).facts
    assert "broken on purpose" in facts.profile_windows[0].status
    assert not list((tmp_path / "mpprof").glob(".window*"))
    assert hooks() == before
    assert not torch.autograd._profiler_enabled()


def test_a_host_whose_name_is_no_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "a/b")
    x, y = data(10)
    fit(model(), x, y, callback(tmp_path, profile_steps=(3, 5)))
    (trace,) = (tmp_path / "plugins" / "profile").glob("*/*")
    assert trace.name == "a_b.pt.trace.json.gz"


class Block(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleDict({"up": torch.nn.Linear(4, 8), "down": torch.nn.Linear(8, 4)})

    def forward(self, x: Any) -> Any:
        return self.inner["down"](self.inner["up"](x))


def test_plain_modules_are_named_by_their_path(tmp_path: Path) -> None:
    trace = torch_trace.TorchTrace()
    network = torch.nn.Sequential(Block(), torch.nn.ReLU())
    trace.start(tmp_path)
    with trace.marker(1):
        network(torch.ones(2, 4)).sum().backward()
    trace.stop()
    names = [name for name in names_of(tmp_path) if name.startswith("nn.Module")]
    assert names == [f"nn.Module: {name}" for name in ("Sequential", "0", "inner.up", "inner.down", "1")]


def test_what_is_compiled_while_a_window_is_open_does_not_hold_our_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges = torch_ranges.Ranges()
    network = torch.nn.Linear(4, 4)
    opened = []
    monkeypatch.setattr(torch_ranges._Call, "open", lambda self: opened.append(self.path))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    ranges.attach()
    try:
        network(torch.ones(1, 4))
    finally:
        ranges.detach()
    assert opened == []


def test_an_apply_that_somebody_has_replaced_is_left_as_it_is() -> None:
    optimizer = keras.optimizers.SGD()
    theirs = optimizer.__dict__["apply"] = lambda *arguments: None
    ranges = torch_ranges.OptimizerRanges()
    ranges.attach(optimizer)
    ranges.detach()
    assert optimizer.__dict__["apply"] is theirs
