"""Small trainings with Keras on torch, for the tests of this folder; they skip where Keras runs on another backend.

Keras' backend is fixed for a process, and torch is no part of the usual environment: `make test-torch` makes one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

HOW = "torch is not installed here: `make test-torch` runs these tests in an environment of their own"
torch = pytest.importorskip("torch", reason=HOW)
keras = pytest.importorskip("keras", reason=HOW)
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend here: see `make test-torch`", allow_module_level=True)

from mpprof.store import Records, read_records  # noqa: E402
from tests.record.training import BATCH, FEATURES, callback, data, model  # noqa: E402

__all__ = [
    "BATCH", "FEATURES", "callback", "counter", "data", "digest", "fit", "keras", "model", "records", "torch",
    "total_skipped",
]  # fmt: skip

torch.set_num_threads(1)


def fit(made: Any, x: Any, y: Any, *callbacks: Any, **more: Any) -> Any:
    return made.fit(
        x, y, **{"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": list(callbacks), **more}
    )


def digest(made: Any) -> str:
    """Of every weight, optimizer's variable and counter, bit by bit."""
    variables = [*made.weights, *made.optimizer.variables]
    values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.warnings == ()
    assert read.steps is not None
    assert read.facts is not None
    return read


def counter(made: Any) -> int:
    return int(getattr(made.optimizer, "inner_optimizer", made.optimizer)._iterations)


def total_skipped(read: Records) -> int:
    assert read.steps is not None
    return int(read.steps.skipped[read.steps.skipped > 0].sum())
