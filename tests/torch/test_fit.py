"""Real training with Keras on torch (CPU): the records are right and the training is untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import find_runs
from tests.torch.training import (
    BATCH,
    callback,
    counter,
    data,
    digest,
    fit,
    keras,
    model,
    records,
    torch,
    total_skipped,
)

pytestmark = pytest.mark.framework


def test_a_scale_that_grows_is_followed(tmp_path: Path) -> None:
    x, y = data(50, bad_steps=(9,))
    scaled = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(), initial_scale=4.0, dynamic_growth_steps=5
    )
    made = model("float32", scaled)
    fit(made, x, y, callback(tmp_path))
    read = records(tmp_path)
    assert total_skipped(read) == 1 == 50 - counter(made)
    assert read.steps.loss_scale[4] == 8.0
    assert read.steps.loss_scale[8] == 4.0


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16", "float16"])
def test_each_policy_trains_and_is_recorded(tmp_path: Path, policy: str) -> None:
    x, y = data(20)
    fit(model(policy), x, y, callback(tmp_path))
    read = records(tmp_path)
    assert read.facts.fits[0].policy.compute_dtype == policy.removeprefix("mixed_")
    assert read.facts.fits[0].optimizer.dynamic is (True if policy == "mixed_float16" else None)
    assert total_skipped(read) == 0
    if policy != "mixed_float16":
        assert read.facts.absent["loss_scale"] == "the optimizer scales no loss"


def test_several_steps_a_call_are_refused_by_keras_before_anything_is_recorded(tmp_path: Path) -> None:
    x, y = data(8)
    with pytest.raises(ValueError, match="must be 1 with the PyTorch backend"):
        fit(model(steps_per_execution=4), x, y, callback(tmp_path))
    assert not find_runs(tmp_path)


class Unknown(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A data set whose length nobody knows."""

    def __init__(self, x: Any, y: Any) -> None:
        self.rows = list(zip(x, y, strict=True))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # what Keras says of unknown lengths
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("known", [True, False])
def test_steps_and_skips_of_a_loader_of_known_and_unknown_length(tmp_path: Path, known: bool) -> None:
    x, y = data(38, bad_steps=(2, 37))
    made = model()
    source: Any = Unknown(x, y)
    if known:
        source = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    loader = torch.utils.data.DataLoader(source, batch_size=BATCH)
    made.fit(loader, epochs=2, verbose=0, callbacks=[callback(tmp_path)])
    read = records(tmp_path)
    steps = read.steps
    assert steps.epoch.tolist() == [0] * 38 + [1] * 38
    assert steps.batch[-1] == 37
    assert total_skipped(read) == 4 == 76 - counter(made)
    assert read.facts.fits[0].batch_size == BATCH


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_a_generator_shows_its_batch_size(tmp_path: Path) -> None:
    x, y = data(13, bad_steps=(3,))
    made = model()
    made.fit(
        ((x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH)),
        verbose=0,
        callbacks=[callback(tmp_path)],
    )
    read = records(tmp_path)
    assert read.steps.step[-1] == 13
    assert total_skipped(read) == 1
    assert read.facts.fits[0].batch_size == BATCH
    assert "batch_size" not in read.facts.absent


def test_several_fits_are_one_run_with_one_window_and_their_validations(tmp_path: Path) -> None:
    x, y = data(30, bad_steps=(4,))
    made = model()
    several = callback(tmp_path, profile_steps=(20, 24))
    for _ in range(2):
        fit(made, x, y, several, epochs=2, validation_data=(x[:16], y[:16]))
    read = records(tmp_path)
    steps, facts = read.steps, read.facts
    assert [each.first_step for each in facts.fits] == [1, 61]
    assert steps.fit.tolist() == [1] * 60 + [2] * 60
    assert total_skipped(read) == 4 == 120 - counter(made)
    assert len(read.validations.t_ns) == 4
    assert [(window.first_step, window.last_step) for window in facts.profile_windows] == [(20, 24)]
    assert steps.step[steps.profiled].tolist() == [20, 21, 22, 23, 24]


def test_keras_still_hands_over_batch_ends_in_its_own_threads(tmp_path: Path) -> None:
    assert keras.callbacks.CallbackList([callback(tmp_path)])._async_train


def test_what_the_times_mean_on_the_cpu_is_said(tmp_path: Path) -> None:
    x, y = data(40)
    now = [0]

    def clock() -> int:
        now[0] += 1000
        return now[0]

    fit(model(), x, y, callback(tmp_path, clock=clock))
    read = records(tmp_path)
    steps, facts = read.steps, read.facts
    assert facts.timing.basis == "synchronous"
    assert "within its calls" in facts.timing.note
    assert (steps.interval_ns[:-1] > 0).all()
    assert steps.interval_ns[-1] < 0  # an epoch's last call has no next one
    assert (steps.duration_ns < 0).all()
    assert not steps.synced.any()
    # What is read carries the loss, too; the last line is read when the epoch has ended.
    assert steps.loss_known[:-1].tolist() == steps.loss_scale_known[:-1].tolist()
    assert "loss" not in facts.absent


def test_where_the_device_runs_behind_only_waits_give_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, of which there is none here: the probe is told so, and its waits are counted."""
    from mpprof.record.backends import torch as probes

    waits = []
    monkeypatch.setattr(probes, "_on_accelerator", lambda: True)
    monkeypatch.setattr(probes.TorchProbe, "wait", lambda self, model: waits.append(1))
    x, y = data(70, bad_steps=(3, 40))
    fit(model(), x, y, callback(tmp_path, profile_steps=(20, 24)))
    read = records(tmp_path)
    steps, facts = read.steps, read.facts
    assert facts.timing.basis == "asynchronous"
    assert "waits for the gradients" in facts.timing.note
    # The window's edges among them, and as the last call begins.
    assert steps.step[steps.synced].tolist() == [16, 19, 24, 32, 48, 64, 69]
    assert (steps.interval_ns >= 0).tolist() == steps.synced.tolist()
    assert (steps.dispatch_ns[:-1] > 0).all()
    assert len(waits) == 3  # there; else a reading of the counters is what is waited for
    assert total_skipped(read) == 2


def test_an_interrupt_leaves_what_was_recorded_and_the_next_fit_ends_its_window(tmp_path: Path) -> None:
    class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 20:
                raise KeyboardInterrupt

    x, y = data(40)
    recorded = callback(tmp_path, profile_steps=(18, 30))
    with pytest.raises(KeyboardInterrupt):
        fit(model(), x, y, recorded, Interrupt())
    made = model()
    fit(made, x, y, recorded)
    assert not torch.autograd._profiler_enabled()
    read = records(tmp_path)
    assert read.steps is not None
    assert [int((read.steps.fit == k).sum()) for k in (1, 2)] == [20, 40]
    assert [(w.first_step, w.status) for w in read.facts.profile_windows] == [(18, "done")]
    assert "apply" not in made.optimizer.__dict__


def test_the_process_and_its_switches_are_described(tmp_path: Path) -> None:
    x, y = data(3)
    fit(model(), x, y, callback(tmp_path))
    facts = records(tmp_path).facts
    framework = facts.framework
    assert framework["backend"] == "torch"
    assert framework["backend_version"] == torch.__version__
    assert framework["matmul_precision"] == "highest"
    assert (framework["tf32_matmul"], framework["tf32_cudnn"]) == (False, True)
    assert facts.tf32_enabled is None
    assert "two switches" in facts.absent["tf32_enabled"]
    assert "no CUDA or ROCm GPU" in facts.absent["memory"]
    assert [device.kind for device in facts.devices] == ["cpu"]
    assert (facts.distribution, facts.replicas) == (None, 1)
    assert facts.fits[0].jit_compile is False


def test_a_compiled_train_step_is_recorded_and_untouched(tmp_path: Path) -> None:
    """By torch.compile, which takes its time; a window opens in it, and nothing is compiled because of that."""
    counters = torch._dynamo.utils.counters
    x, y = data(24, bad_steps=(3,))
    digests, compiled = [], []
    for callbacks in ([], [callback(tmp_path, profile_steps=(12, 16))]):
        torch._dynamo.reset()
        counters.clear()
        made = model("mixed_float16", jit_compile=True)
        fit(made, x, y, *callbacks)
        digests.append(digest(made))
        compiled.append(counters["stats"]["unique_graphs"])
    assert digests[0] == digests[1]
    assert compiled[0] == compiled[1] > 0
    read = records(tmp_path)
    assert total_skipped(read) == 1
    assert read.facts.fits[0].jit_compile is True
    assert read.facts.profile_windows[0].status == "done"
