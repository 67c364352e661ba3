"""Each layer's outputs, taken while the model is called: every layer's `call` hands them on to a function."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mpprof.record.facts.layers import walk

FLOATS = ("float16", "bfloat16", "float32", "float64")


class Place(NamedTuple):
    """Which tensor it is: which of the outputs of a layer's call, counted from 1, in this pass."""

    layer: str
    call: int
    output: int


LOSS = Place("loss", 1, 0)


class Taps:
    """Taps of a model's layers, of the functions in its graph, and of the model itself.

    `take` is given each output that is a tensor of floats, once, and returns what goes on in its place;
    `around`, where there is one, is given each call instead, and what it is called with. `reachable` says
    whether what is computed now can be seen from outside. What cannot is in `unable`."""

    def __init__(self, model: Any, keras: Any) -> None:
        self._tree, self._backend = keras.tree, keras.backend
        self._masks = keras.src.backend
        self.operations = dict(_operations(model))
        self.unable: dict[str, str] = {}
        self.take: Callable[[Place, Any, str], Any] | None = None
        self.reachable: Callable[[], bool] = lambda: True
        self.around: Callable[[Place, Callable[[], Any], Any], Any] | None = None
        self._calls: Counter[str] = Counter()
        self._seen: list[Any] = []

    def install(self) -> None:
        """Put the taps in; `guard.kept` takes them out again."""
        for path, operation in self.operations.items():
            if getattr(operation, "_remat_mode", None):
                self.unable[path] = "its forward pass is computed again in the backward pass"
            elif getattr(operation, "quantization_mode", None) is not None:
                self.unable[path] = f"it is quantised ({operation.quantization_mode})"
            else:
                vars(operation)["call"] = self._tapped(path, operation.call)

    def begin(self) -> None:
        """Start a pass: calls are counted anew."""
        self._calls.clear()
        self._seen.clear()

    def _tapped(self, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def tapped(*args: Any, **kwargs: Any) -> Any:
            if not self.reachable():
                self.unable.setdefault(path, "it runs inside a loop, or a function of its own")
                return call(*args, **kwargs)
            self._calls[path] += 1
            number = self._calls[path]
            if self.around is not None:
                return self.around(Place(path, number, 0), lambda: call(*args, **kwargs), (args, kwargs))
            outputs = call(*args, **kwargs)
            flat = self._tree.flatten(outputs)
            taken = [self._take(Place(path, number, index), each) for index, each in enumerate(flat)]
            if all(new is old for new, old in zip(taken, flat, strict=True)):
                return outputs
            return self._tree.pack_sequence_as(outputs, taken)

        return tapped

    def _take(self, place: Place, tensor: Any) -> Any:
        """Hand on one output; not what an inner layer has given already."""
        if self.take is None or not hasattr(tensor, "dtype") or self._backend.is_keras_tensor(tensor):
            return tensor
        dtype = self._backend.standardize_dtype(tensor.dtype)
        if dtype not in FLOATS or 0 in tensor.shape or any(tensor is each for each in self._seen):
            return tensor
        new = self.take(place, tensor, dtype)
        if new is not tensor:
            self._masks.set_keras_mask(new, self._masks.get_keras_mask(tensor))
        self._seen.append(new)
        return new


def _operations(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a model is made of with its path, the model last: layers, and functions of `keras.ops` in
    the graphs of functional models. Of several with one path, the second is `dense#2`."""
    layers = list(walk(model))
    seen = {id(layer) for _, layer in layers} | {id(model)}
    for prefix, container in [("", model), *((f"{path}/", layer) for path, layer in layers)]:
        for operation in getattr(container, "operations", None) or ():
            if id(operation) not in seen:
                seen.add(id(operation))
                layers.append((f"{prefix}{operation.name}", operation))
    paths = Counter([LOSS.layer])
    for path, layer in [*layers, (str(model.name), model)]:
        if type(layer).__name__ != "InputLayer":
            paths[path] += 1
            yield path if paths[path] == 1 else f"{path}#{paths[path]}", layer
