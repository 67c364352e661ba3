"""What a pass draws at random: the same in each, also in the one in float32.

A layer draws a mask, or noise, in the type that it computes in, and the type changes what is drawn. So the
pass in float32 draws in the layer's own type, and casts. The generators of Python, NumPy and the backend
begin each pass as they were; Keras' seed generators do so by themselves, as variables."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

NOISES = ("normal", "truncated_normal", "uniform", "gamma", "beta", "binomial")
"""The functions of Keras' backends that draw in a type that they are given."""


class Draws:
    """The draws of a model's passes. `put_back` gives the backend's own generators the state that they had.
    `wide`: this is the pass in float32. `alike`: it drew what the pass at the model's own policy did."""

    def __init__(self, keras: Any, put_back: Callable[[], None]) -> None:
        self._ops, self._backend = keras.ops, keras.backend
        self._functions = vars(keras.src.backend.random)
        self._put_back = put_back
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002 - layers of the user's own draw from it
        self._own: list[tuple[str, str]] = []
        self._count = 0
        self.wide, self.alike = False, True

    def begin(self) -> None:
        """Start a pass."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        self._put_back()
        self._count = 0
        if not self.wide:
            self._own.clear()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note what type each draw has while the context lasts, and draw in it where `wide`."""
        before = {name: self._functions[name] for name in (*NOISES, "dropout")}
        try:
            self._functions |= {name: self._noise(name, before[name]) for name in NOISES}
            self._functions["dropout"] = self._dropout(before["dropout"])
            yield
        finally:
            self._functions |= before

    def _type(self, name: str, dtype: str) -> str:
        """Return the type in which to draw; that of the same draw at the model's own policy."""
        self._count += 1
        if not self.wide:
            self._own.append((name, dtype))
            return dtype
        own = self._own[self._count - 1] if self._count <= len(self._own) else None
        self.alike = self.alike and own is not None and own[0] == name
        return dtype if own is None else own[1]

    def _noise(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def drawn(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            dtype = self._backend.standardize_dtype(given.get("dtype"))
            own = self._type(name, dtype)
            result = function(**{**given, "dtype": own})
            return result if own == dtype else self._ops.cast(result, dtype)

        return drawn

    def _dropout(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def dropped(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
            dtype = self._backend.standardize_dtype(inputs.dtype)
            own = self._type("dropout", dtype)
            if own == dtype or rate >= 1:
                return function(inputs, rate, noise_shape, seed)
            ones = self._ops.ones(inputs.shape, own)
            kept = function(ones, rate, noise_shape, seed)
            return self._ops.where(kept != 0, inputs / (1 - rate), self._ops.zeros_like(inputs))

        return dropped
