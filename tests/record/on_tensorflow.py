"""`tf` and `keras`, for tests that train with Keras on TensorFlow; they skip where it runs on another backend.

Keras' backend is fixed for a process.
"""

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras runs on another backend in this process", allow_module_level=True)

__all__ = ["keras", "tf"]
