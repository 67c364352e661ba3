"""Two workers of MultiWorkerMirroredStrategy (tf_keras) on this machine: one run with two streams."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import mpprof
from mpprof.record import StepRecorder
from mpprof.store import find_runs, formats, read_records
from mpprof.store.writing import claim, join
from tests.record.processes import Process
from tests.record.training import callback, data


def work(logdir: Path) -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    from tests.record.test_fit_tf_keras import model

    x, y = data(24, bad_steps=(5, 19))
    with strategy.scope():
        made = model()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    made.fit(batches.with_options(options), verbose=0, callbacks=[callback(logdir, profile_steps=(12, 16))])


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


DECLARED_DEAD = "stopped sending heartbeats"
"""What TensorFlow's coordination service says of a worker that it has not heard of in time, as on a busy machine."""


def trained_by_two(folder: Path, attempts: int = 3) -> Path:
    """The log directory of a training by two workers. They start again, in another directory and at other ports,
    only where TensorFlow itself has declared one dead."""
    logdir = folder / f"run-{attempts}"
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
    processes = []
    for index in range(2):
        place = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        said = folder / f"said-{attempts}-{index}"
        processes.append(Process(said, work, logdir, TF_CONFIG=place))
    printed = [process.wait(120) for process in processes]
    failed = [text for process, text in zip(processes, printed, strict=True) if process.code != 0]
    if attempts > 1 and any(DECLARED_DEAD in text for text in failed):
        return trained_by_two(folder, attempts - 1)
    assert not failed, failed[0][-3000:]
    return logdir


@pytest.mark.framework
def test_two_workers_are_one_run_with_two_streams(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    logdir = trained_by_two(tmp_path)
    assert find_runs(logdir) == (logdir,)
    streams = [read_records(logdir, worker=k) for k in range(2)]
    for read in streams:
        assert read.warnings == ()
        assert read.finished
        assert (read.facts.distribution, read.facts.replicas) == ("MultiWorkerMirroredStrategy", 2)
        assert read.facts.fits[0].batch_size == 8
        assert read.steps.step[-1] == len(read.steps) == 24
        assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 2
    assert streams[0].facts is not None
    assert streams[1].facts is not None
    assert streams[0].facts.run_id == streams[1].facts.run_id
    run = mpprof.load(logdir)
    assert list(run.workers) == [1]
    assert len(run.workers[1]) == 24
    told = mpprof.diagnose(run).steps
    assert [(each.worker, each.count) for each in told.workers] == [(0, 24), (1, 24)]
    document = mpprof.diagnose(run).document()
    hosts = document["hosts"]
    assert [each["worker"] for each in hosts["read"]] == [0, 1]  # each with a trace of its own
    assert all(each["host"].endswith(f" worker {each['worker']}") for each in hosts["read"])
    for each in hosts["read"]:  # without a step that a busy machine stalls, or that is cut off
        assert each["window_steps"]
        assert set(each["window_steps"]) <= set(range(12, 17))
    assert hosts["missing"] == []
    skew = hosts["read"][1]["clock_skew"]
    assert abs(skew["skew_ns"]) < 20e6  # one machine has one clock


def test_a_worker_whose_records_are_damaged_is_a_warning(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, hardware=False, verbose=0, announce=None, profile_steps=None) as recorder:
        for _ in range(12):
            with recorder.step():
                pass
    shutil.copytree(tmp_path / "mpprof", tmp_path / "other")
    for number in (1, 2, 3):
        shutil.copytree(tmp_path / "other", tmp_path / "mpprof" / f"worker-{number}")
    (tmp_path / "mpprof" / "worker-2" / "run.json").write_text("no json")
    (tmp_path / "mpprof" / "worker-3" / "run.json").unlink()
    (tmp_path / "mpprof" / "worker-3" / "steps.jsonl").unlink()
    (tmp_path / "mpprof" / "worker-x").mkdir()
    run = mpprof.load(tmp_path)
    assert list(run.workers) == [1]
    assert [warning.partition(":")[0] for warning in run.warnings] == ["worker 2", "worker 3"]


def test_a_worker_joins_the_run_of_its_own_cluster_and_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda seconds: None)
    monkeypatch.setattr("mpprof.store.writing.time", clock)
    began = time.time() - 1
    assert claim(tmp_path, "first", "one") == tmp_path
    (formats.folder_of(tmp_path) / "run.json").write_text("{}")
    second = claim(tmp_path, "second", "two")
    assert join(tmp_path, "two", 1, began) == (second, "second")
    assert join(tmp_path, "one", 1, began) == (tmp_path, "first")
    for key, worker, since in (("three", 1, began), ("two", 1, began), ("two", 2, time.time() + 60)):
        with pytest.raises(TimeoutError):
            join(tmp_path, key, worker, since)
