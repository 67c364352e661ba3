"""Small trainings with Keras on torch, for the tests of this folder; they skip where Keras runs on another backend.

Keras' backend is fixed for a process, and torch is no part of the usual environment: `make test-torch` makes one.
"""

from __future__ import annotations

import pytest

HOW = "torch is not installed here: `make test-torch` runs these tests in an environment of their own"
torch = pytest.importorskip("torch", reason=HOW)
keras = pytest.importorskip("keras", reason=HOW)
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend here: see `make test-torch`", allow_module_level=True)

from tests.record.fits import counter, fit, records, total_skipped  # noqa: E402
from tests.record.training import BATCH, FEATURES, callback, data, digest, model  # noqa: E402

__all__ = [
    "BATCH", "FEATURES", "callback", "counter", "data", "digest", "fit", "keras", "model", "records", "torch",
    "total_skipped",
]  # fmt: skip

torch.set_num_threads(1)
