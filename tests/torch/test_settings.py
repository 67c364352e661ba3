"""What the torch probe says of switches, cards and memory, and how it asks a GPU, of which there is none here."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from mpprof.record.backends.base import Absent, Reading
from tests.torch.training import keras, model, torch

pytestmark = pytest.mark.framework
probes = import_module("mpprof.record.backends.torch")  # not without torch
settings = import_module("mpprof.record.backends.torch")


@pytest.fixture(autouse=True)
def switches() -> Any:
    """As they were, afterwards."""
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, convolutions.fp32_precision
    yield
    matmul.fp32_precision, convolutions.fp32_precision = before


def test_tf32_has_two_switches_and_one_answer_only_where_they_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    answers = []
    for products, cudnn in (("ieee", "tf32"), ("tf32", "tf32"), ("ieee", "ieee"), ("tf32", "ieee")):
        matmul.fp32_precision, convolutions.fp32_precision = products, cudnn
        answers.append(settings.settings()["tf32_enabled"])
    assert answers[1:3] == [True, False]
    assert isinstance(answers[0], Absent)
    assert "allowed for cuDNN's convolutions, not for matrix products" in answers[0].reason
    assert isinstance(answers[3], Absent)
    assert "allowed for matrix products, not for cuDNN" in answers[3].reason
    matmul.fp32_precision = convolutions.fp32_precision = "tf32"
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert settings.settings()["tf32_enabled"] is False


def test_a_switch_that_torch_refuses_to_tell_is_left_out() -> None:
    """The older switches raise where the newer ones were used."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    facts = settings.framework()
    assert facts["tf32_matmul"] is True
    assert facts["matmul_precision"] is None


def test_autocast_round_the_training_is_said() -> None:
    assert settings.framework()["autocast"] is None
    with torch.autocast("cpu", torch.bfloat16):
        assert settings.framework()["autocast"] == "cpu bfloat16"


def test_determinism_is_what_was_asked_for() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert settings.settings()["deterministic_ops"] is True
    finally:
        torch.use_deterministic_algorithms(False)
    assert settings.settings()["deterministic_ops"] is False


def test_a_card_is_described_and_amds_gfx_number_is_no_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(
        name="A card", total_memory=1 << 34, multi_processor_count=80, major=9, minor=0
    )
    facts = {"kind": "gpu", "name": "A card", "memory_bytes": 1 << 34, "sm_count": 80}
    assert settings.gpu(properties) == {**facts, "compute_capability": [9, 0]}
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert settings.gpu(properties) == {**facts, "vendor": "amd"}


def test_cards_and_their_allocators_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, resets = torch.cuda, []
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda k: 100 + k)
    monkeypatch.setattr(cuda, "memory_allocated", lambda k: 50 + k)
    monkeypatch.setattr(cuda, "reset_peak_memory_stats", resets.append)
    probe = probes.TorchProbe()
    assert probe.memory() == [
        {"device": "cuda:0", "peak_bytes": 100, "live_bytes": 50},
        {"device": "cuda:1", "peak_bytes": 101, "live_bytes": 51},
    ]
    assert probe.reset_memory_peak() is None
    assert resets == [0, 1]


@pytest.mark.parametrize(("wanted", "behind"), [("cpu", False), ("cuda:1", True), ("mps", True), ("", False)])
def test_whether_the_device_runs_behind_follows_what_keras_was_told(
    monkeypatch: pytest.MonkeyPatch, wanted: str, behind: bool
) -> None:
    monkeypatch.setenv("KERAS_TORCH_DEVICE", wanted)
    probe = probes.TorchProbe()
    assert probe.runs_behind is behind
    assert ("dispatch_ns" in probe.timing_note) is behind


@dataclass
class Event:
    """As torch.cuda.Event, of which there is none without a card."""

    done: bool = False
    waits: list[int] = field(default_factory=list)

    def record(self) -> None: ...

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waits.append(1)


def test_a_reading_of_a_gpu_is_queued_and_arrives_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    event, empty = Event(), torch.empty
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory, **more: empty(*size, **more))
    scale = torch.nn.Parameter(torch.tensor(2.0**-149))  # the smallest float32
    loss = [torch.tensor(3.0), torch.tensor(2.0)]  # sum and count
    snapshot = probes._queued([torch.tensor(2**40 + 1), scale, None, *loss])
    scale.data.fill_(7.0)  # the next step goes on
    assert not snapshot.ready()
    event.done = True
    assert snapshot.ready()
    assert snapshot.reading() == Reading(2**40 + 1, 2.0**-149, None, 1.5)
    assert event.waits == [1]


def test_counters_exist_after_the_first_step_only() -> None:
    probe = probes.TorchProbe()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    made = model("float32", optimizer)
    read = probe.counters(optimizer)
    assert read().loss_scale is None
    optimizer.build(made.trainable_variables)
    assert probe.counters(optimizer)() == Reading(0, 8.0, 0)
    snapshot = probe.snapshot(made)
    assert snapshot.ready()
    assert snapshot.reading() == Reading(0, 8.0, 0)  # and no step has moved the loss
    assert isinstance(probe.counters(None), Absent)
