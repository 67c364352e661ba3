"""The step time against a clock that is not mpprof's, in trainings whose loader works in bursts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof import MPProfilerCallback
from mpprof.analysis.steps.statistics import averaged
from tests.record.processes import done, done_on_jax

BATCHES, EPOCHS = 104, 2
SLEEP_S = 0.04


def _train(logdir: Path, workers: int, window: tuple[int, int] | None = None) -> None:
    import keras

    class Slow(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            time.sleep(SLEEP_S * workers)
            return np.ones((32, 16), "float32"), np.ones((32, 1), "float32")

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        calls: list[tuple[int, int, int]]

        def on_train_begin(self, logs: object = None) -> None:
            self.calls = []

        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            self.began_ns = time.perf_counter_ns()

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self.calls.append((batch, self.began_ns, time.perf_counter_ns()))

    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    clock = Clock()
    callbacks = [clock, MPProfilerCallback(logdir, profile_steps=window)]
    model.fit(Slow(workers=workers), epochs=EPOCHS, verbose=0, callbacks=callbacks)
    (logdir / "clock.json").write_text(json.dumps(clock.calls))


def _by_the_clock(logdir: Path, workers: int) -> float:
    """Return the mean from one begin to the next over the steps that mpprof counts: all from its first one on. An
    epoch's last call ends with itself; its first may fill the queue of a single worker."""
    calls = json.loads((logdir / "clock.json").read_text())
    steps, facts = mpprof.load(logdir).steps, mpprof.load(logdir).facts
    assert steps is not None
    counted = averaged(steps, facts).row
    first = int(counted[0])
    assert first <= BATCHES // 2  # a busy machine warms up slowly
    assert len(counted) == len(calls) - first  # no step of them is lost, however long it took
    after = [later[1] for later in calls[1:]] + [calls[-1][2]]
    return float(
        np.mean(
            [
                (end if batch == BATCHES - 1 else later) - begin
                for (batch, begin, end), later in zip(calls[first:], after[first:], strict=True)
                if batch or workers > 1
            ]
        )
    )


@pytest.mark.full
@pytest.mark.framework
def test_eight_workers_that_deliver_at_once_are_as_fast_as_one(tmp_path: Path) -> None:
    """The median said 25 times as fast."""
    clock = {}
    for workers in (1, 8):
        done(tmp_path / f"said{workers}", _train, tmp_path / str(workers), workers)
        clock[workers] = _by_the_clock(tmp_path / str(workers), workers)
        steps = mpprof.diagnose(mpprof.load(tmp_path / str(workers))).steps
        assert steps.mean_ns == pytest.approx(clock[workers], rel=0.03)
    found = mpprof.diagnose(mpprof.load(tmp_path / "8"), mpprof.load(tmp_path / "1"))
    assert found.speedup.observed == pytest.approx(clock[1] / clock[8], rel=0.06)
    assert found.speedup.observed < 1.5
    assert any(said.startswith("mean ") and "waits for the loader" in said for said in found.warnings)


@pytest.mark.full
@pytest.mark.framework
def test_a_loader_that_delivers_in_bursts_leads_with_a_trace_and_without(tmp_path: Path) -> None:
    """A profiled stall shows what it waits for; without one its period is that of the workers."""
    for name, window in (("traced", (41, 56)), ("alone", None)):
        done(tmp_path / f"said {name}", _train, tmp_path / name, 8, window)
        found = mpprof.diagnose(mpprof.load(tmp_path / name))
        assert (found.answer.leads, found.answer.code) == ("time", "MP301")
        assert found.steps is not None
        (cause,) = [each for each in found.findings if each.code == "MP301"]
        assert (cause.cost_ns_per_step or 0) > 0.5 * (found.steps.mean_ns or 0)
        assert any(said.startswith("mean ") and "loader" in said for said in found.warnings)
        assert "MP301" not in {each.code for each in found.unable}


KINDS = ("arrays", "1 worker", "8 workers", "4 steps a call", "varying lengths", "validation and window")
"""Those of `outer_clock`, which imports Keras."""


def assert_the_clocks_agree(folder: Path) -> None:
    means = json.loads((folder / "means.json").read_text())
    assert means["steps"] >= 200  # a busy machine's first steps may be taken for a warm-up
    assert means["ours_ms"] == pytest.approx(means["outer_ms"], rel=0.03)


@pytest.mark.full
@pytest.mark.framework
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_that_of_an_outer_clock_on_tensorflow(keras: Any, tmp_path: Path, kind: str) -> None:
    from tests.record import outer_clock

    done(tmp_path / "said", outer_clock.trained, tmp_path / kind)
    assert_the_clocks_agree(tmp_path / kind)


@pytest.mark.full
@pytest.mark.framework
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_that_of_an_outer_clock_on_jax(keras: Any, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("jax")
    from tests.record import outer_clock

    (tmp_path / kind).mkdir()
    done_on_jax(outer_clock.trained, tmp_path / kind)
    assert_the_clocks_agree(tmp_path / kind)
