"""What the tests of fits share, on TensorFlow and on torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import Records, read_records
from tests.record.training import BATCH

keras = pytest.importorskip("keras")


def fit(made: Any, x: Any, y: Any, *callbacks: Any, **more: Any) -> Any:
    return made.fit(
        x, y, **{"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": list(callbacks), **more}
    )


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.warnings == ()
    assert read.steps is not None
    assert read.facts is not None
    return read


def counter(made: Any) -> int:
    return int(getattr(made.optimizer, "inner_optimizer", made.optimizer)._iterations)


def total_skipped(read: Records) -> int:
    return int(read.steps.skipped[read.steps.skipped > 0].sum())


def reasons(root: Path) -> list[str]:
    lines = (root / "mpprof" / "steps.jsonl").read_text().splitlines()
    return [record["reason"] for record in map(json.loads, lines) if record.get("kind") == "fit_end"]


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    armed = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.armed and batch == 13:
            raise KeyboardInterrupt


def broken(*arguments: Any, **more: Any) -> Any:
    raise RuntimeError("broken on purpose")
