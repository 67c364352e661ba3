"""However long a training is, recording it takes no more memory, and a fixed number of bytes on disk a step."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.record import StepRecorder
from mpprof.store import read_records
from tests.record.training import callback, model

pytestmark = pytest.mark.soak

MOST_GROWTH_BYTES = 4 << 20
MOST_BYTES_PER_STEP = 300


def watched(name: str, steps: int, one: Callable[[int], None]) -> None:
    """Runs `one` so often; the last half must not take more memory than the first, after a tenth to settle."""
    import psutil  # type: ignore[import-untyped]

    process, curve = psutil.Process(), []
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)  # what is free is no growth
    for step in range(steps):
        one(step)
        if step % 2_000 == 0:
            time.sleep(0.05)  # no training is as fast as the hooks alone: the disk keeps up
        if step % (steps // 20) == 0:
            time.sleep(1.5)  # all lines are on their way to the disk: those that wait are no growth
            gc.collect()
            trim(0)
            curve.append(process.memory_info().rss)
    print(f"\n{name}: resident MiB at each twentieth: {' '.join(f'{rss / 2**20:.1f}' for rss in curve)}")
    grown = max(curve[10:]) - max(curve[2:10])
    print(f"{name}: grown by {grown >> 10} KiB in the last half")
    assert grown < MOST_GROWTH_BYTES


def check(name: str, root: Path, steps: int) -> None:
    table = read_records(root).steps
    assert len(table) == steps
    size = (root / "mpprof" / "steps.jsonl").stat().st_size / steps
    print(f"{name}: {size:.0f} bytes on disk a step")
    assert size < MOST_BYTES_PER_STEP


def test_a_million_steps_of_a_loop(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, hardware=False, verbose=0, announce=None, profile_steps=None) as recorder:

        def one(step: int) -> None:
            with recorder.step():
                pass

        watched("loop", 1_000_000, one)
    check("loop", tmp_path, 1_000_000)


@pytest.mark.framework
@pytest.mark.usefixtures("keras")
def test_two_hundred_thousand_steps_of_a_fit(tmp_path: Path) -> None:
    """The hooks as `fit` calls them, with a real optimizer to be read, and no training in between."""
    made, recorded = model(), callback(tmp_path, hardware=True)
    made.optimizer.build(made.trainable_variables)
    iterations = made.optimizer.inner_optimizer._iterations
    recorded.set_model(made)
    recorded.set_params({"steps": 1000})
    recorded.on_train_begin()
    logs: dict[str, Any] = {"loss": 0.25}

    def one(step: int) -> None:
        if step % 1000 == 0:
            recorded.on_epoch_begin(step // 1000)
        recorded.on_train_batch_begin(step % 1000)
        iterations.assign_add(1)
        recorded.on_train_batch_end(step % 1000, logs)
        if step % 1000 == 999:
            recorded.on_epoch_end(step // 1000, logs)

    watched("fit", 200_000, one)
    recorded.on_train_end()
    check("fit", tmp_path, 200_000)
