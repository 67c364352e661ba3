"""`StepRecorder` in loops on torch: plain ones with and without a GradScaler, Keras models, several processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.record import StepRecorder
from mpprof.store import find_runs, read_records
from tests.paths import ROOT
from tests.torch.training import (
    BATCH,
    callback,
    counter,
    data,
    fit,
    keras,
    model,
    records,
    torch,
    total_skipped,
)

pytestmark = pytest.mark.framework

QUIET: Any = {"hardware": False, "verbose": 0, "announce": None}


def network() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def weights(trained: Any) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in trained.parameters())


def plain_loop(recorder: StepRecorder | None, x: Any, y: Any) -> bytes:
    """In float32, without a loss scale."""
    trained = network()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=BATCH
    )

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(trained(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if recorder is None:
        for batch in loader:
            train(*batch)
        return weights(trained)
    with recorder:
        for batch in recorder.batches(loader):
            with recorder.step():
                loss = train(*batch)
            recorder.update(loss=loss.item())
    return weights(trained)


def scaled_loop(recorder: StepRecorder, x: Any, y: Any) -> tuple[int, float]:
    """With autocast and a GradScaler. How many updates it skipped, and its last scale."""
    trained = network()
    optimizer = torch.optim.Adam(trained.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    skips = 0
    with recorder:
        for start in range(0, len(x), BATCH):
            with recorder.step():
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    out = trained(torch.tensor(x[start : start + BATCH]))
                loss = torch.nn.functional.cross_entropy(out.float(), torch.tensor(y[start : start + BATCH]))
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scale = scaler.get_scale()
                scaler.update()
                skipped = int(scaler.get_scale() < scale)
                recorder.update(loss_scale=scaler.get_scale(), skipped=skipped)
            skips += skipped
    return skips, scaler.get_scale()


def test_a_plain_loop_is_recorded_and_its_weights_are_the_same(tmp_path: Path) -> None:
    x, y = data(40)
    bare = plain_loop(None, x, y)
    recorder = StepRecorder(tmp_path, batch_size=BATCH, profile_steps=(20, 24), **QUIET)
    assert plain_loop(recorder, x, y) == bare
    read = records(tmp_path)
    steps, facts = read.steps, read.facts
    assert steps.step.tolist() == list(range(1, 41))
    assert (steps.interval_ns[:-1] > 0).all()
    assert (steps.input_wait_ns >= 0).all()
    assert np.isfinite(steps.loss).all()
    assert facts.timing.basis == "host"
    assert facts.framework["backend"] == "torch"
    assert facts.profile_windows[0].status == "done"
    assert "no optimizer was given" in facts.absent["loss_scale"]


def test_torchs_own_optimizer_marks_its_update_in_the_trace(tmp_path: Path) -> None:
    import mpprof
    from mpprof.report import json as documents

    x, y = data(40)
    plain_loop(StepRecorder(tmp_path, profile_steps=(20, 25), **QUIET), x, y)
    document = documents.document(mpprof.diagnose(mpprof.load(tmp_path)))
    share = {piece["class"]: piece["ns_per_step"] for piece in document["time"]["slices"]}
    assert share["optimizer"] > 0
    assert share["matmul"] > 0


def test_a_grad_scaler_tells_its_scale_and_its_skips(tmp_path: Path) -> None:
    x, y = data(40, bad_steps=(4, 37))
    skips, scale = scaled_loop(StepRecorder(tmp_path, profile_steps=None, **QUIET), x, y)
    read = records(tmp_path)
    assert skips == 2 == total_skipped(read)
    assert read.steps.step[read.steps.skipped > 0].tolist() == [4, 37]
    assert read.steps.loss_scale[-1] == scale == 256.0


def test_an_optimizer_of_torchs_has_no_counter_and_that_is_said(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    with (
        StepRecorder(tmp_path, optimizer=optimizer, profile_steps=None, **QUIET) as recorder,
        recorder.step(),
    ):
        pass
    facts = records(tmp_path).facts
    assert "SGD has no counter of its steps" in facts.absent["skipped"]


def test_a_wait_gives_means_between_two_waits(tmp_path: Path) -> None:
    waits = []
    recorder = StepRecorder(tmp_path, wait=lambda: waits.append(1), profile_steps=None, **QUIET)
    with recorder:
        for _ in range(32):
            with recorder.step():
                pass
    read = records(tmp_path)
    assert read.facts.timing.basis == "asynchronous"
    assert read.steps.step[read.steps.synced].tolist() == [16, 32]
    assert waits == [1, 1]


def test_a_loop_round_a_keras_model_has_its_skips_counted(tmp_path: Path) -> None:
    x, y = data(40, bad_steps=(4, 37))
    made = model()
    loss_of = keras.losses.SparseCategoricalCrossentropy()
    with StepRecorder(
        tmp_path, model=made, batch_size=BATCH, profile_steps=(20, 23), read_every=1, **QUIET
    ) as recorder:
        for start in range(0, len(x), BATCH):
            with recorder.step():
                made.zero_grad()
                out = made(torch.tensor(x[start : start + BATCH]), training=True)
                loss = made.optimizer.scale_loss(loss_of(torch.tensor(y[start : start + BATCH]), out))
                loss.backward()
                variables = made.trainable_weights
                with torch.no_grad():
                    made.optimizer.apply([variable.value.grad for variable in variables], variables)
    read = records(tmp_path)
    assert total_skipped(read) == 2 == 40 - counter(made)
    assert read.steps.step[read.steps.skipped > 0].tolist() == [4, 37]
    assert read.steps.loss_scale[-1] == 2.0**13
    assert read.facts.model is not None
    assert read.facts.profile_windows[0].status == "done"


def test_a_train_step_of_ones_own_is_recorded_and_said(tmp_path: Path) -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            self.zero_grad()
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            self.optimizer.scale_loss(loss).backward()
            variables = self.trainable_weights
            gradients = [torch.clip(variable.value.grad, -1.0, 1.0) for variable in variables]
            with torch.no_grad():
                self.optimizer.apply(gradients, variables)
            return {"loss": loss}

    x, y = data(30, bad_steps=(5,))
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((8,))
    out = keras.layers.Dense(4, dtype="float32")(keras.layers.Dense(8)(inputs))
    made = Own(inputs, out)
    keras.config.set_dtype_policy("float32")
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(made, x, y, callback(tmp_path, profile_steps=(12, 15)))
    read = records(tmp_path)
    assert read.facts.model.train_step == "clips"
    assert total_skipped(read) == 30 - counter(made)
    assert read.facts.profile_windows[0].status == "done"


def test_an_error_in_the_loop_is_the_users_and_the_run_is_whole(tmp_path: Path) -> None:
    def train() -> None:
        with StepRecorder(tmp_path, profile_steps=(3, 9), **QUIET) as recorder:
            for step in range(8):
                with recorder.step():
                    if step == 5:
                        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        train()
    read = records(tmp_path)
    assert read.steps.step.tolist() == [1, 2, 3, 4, 5]
    assert read.facts.profile_windows[0].status == "done"
    assert not torch.autograd._profiler_enabled()


WORKER = """
import sys, pathlib, torch
from mpprof.record import StepRecorder
torch.distributed.init_process_group("gloo")
network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
recorder = StepRecorder(pathlib.Path(sys.argv[1]), backend="torch", hardware=False, verbose=0, announce=None,
                        profile_steps=None)
with recorder:
    for step in range(12):
        with recorder.step():
            optimizer.zero_grad()
            network(torch.ones(2, 8)).sum().backward()
            optimizer.step()
torch.distributed.destroy_process_group()
"""


def test_two_processes_of_torch_distributed_are_one_run_with_two_streams(tmp_path: Path) -> None:
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        port = probing.getsockname()[1]
    started = []
    for rank in range(2):
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank),
        }  # fmt: skip
        command = [sys.executable, "-c", WORKER, str(tmp_path)]
        started.append(subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE))
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()[-2000:]
    assert set(find_runs(tmp_path)) == {tmp_path}
    read = read_records(tmp_path)
    assert (read.facts.distribution, read.facts.replicas) == ("torch.distributed", 2)
    assert (tmp_path / "mpprof" / "worker-1" / "steps.jsonl").is_file()
    assert read.steps.step[-1] == 12


def test_weights_of_a_plain_module_that_are_lost_are_named_as_the_loop_ends(tmp_path: Path) -> None:
    trained = network()
    with StepRecorder(tmp_path, model=trained, profile_steps=None, **QUIET) as recorder:
        for _ in range(3):
            with recorder.step():
                trained[2].weight.data.fill_(float("nan"))
    (found,) = find_runs(tmp_path)
    read = read_records(found)
    assert read.facts is not None
    assert read.facts.fits[0].non_finite_weights == ("2.weight",)
