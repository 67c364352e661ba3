"""The source of a layer with the necessary changes: the code of the remedies that name a layer.

Every line can be executed where Keras and the names of the user's script are imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from mpprof.analysis.kernels import shapes
from mpprof.analysis.layers import einsum, kinds
from mpprof.model.run import LayerFacts

_KERAS = ("keras", "tf_keras", None)  # None: recorded before it was
_EXPORTED = {"GroupedQueryAttention": "GroupQueryAttention"}  # where keras.layers has it under another name
_INSIDE = {"RNN": "cell", "StackedRNNCells": "cells"}  # of a wrapper: which argument is the layer inside
_OF_THE_WRAPPER = ("zero_output_for_mask",)  # what Bidirectional tells the layers that it makes


class Source(str):
    """Python source as a value of an argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


Write = Callable[[LayerFacts], str]


def written(layer: LayerFacts, /, drop: Iterable[str] = (), **changes: Any) -> str:
    """Return the constructor of `layer` without the arguments `drop` and with `changes`. Where the layer's
    own arguments were not recorded, `...` stands for them."""
    gone = {*drop, *changes}
    left = {name: text for name, text in layer.arguments.items() if name not in gone}
    known = {name: text for name, text in left.items() if text != "..."}
    unknown = [] if len(known) == len(left) and layer.arguments else ["..."]
    order = {name: "" for name in layer.arguments if name in known or name in changes}  # as they were
    given = order | known | {name: repr(value) for name, value in changes.items()}
    name = given.pop("name", None)
    parts = [f"{key}={text}" for key, text in given.items()]
    return f"{_class(layer)}({', '.join([*parts, *unknown, *([f'name={name}'] if name else [])])})"


def _class(layer: LayerFacts) -> str:
    name = _EXPORTED.get(layer.class_name, layer.class_name)
    return f"{layer.module or 'keras'}.layers.{name}" if layer.module in _KERAS else name


def in_place(layer: LayerFacts, own_policy: str | None, drop: Iterable[str] = (), **changes: Any) -> str:
    """Return the constructor of `layer` as `written` gives it, with the layer's own policy where that is not
    the model's. A layer that was quantised later is built under the policy that it was quantised from."""
    policy = (layer.dtype_policy or "").rpartition("_from_")[2]
    if policy and policy != own_policy:
        changes.setdefault("dtype", policy)
    return written(layer, drop, **changes)


def placed(layers: Sequence[LayerFacts], layer: LayerFacts, write: Write) -> tuple[str, str]:
    """Return (name, code) of what stands in the model's script: `layer` as `write` has it, or the wrapper
    that it lies in, written around it."""
    code = write(layer)
    while (outer := wrapper_of(layers, layer)) is not None:
        code = _around(layers, outer, layer, code, write)
        layer = outer
    return layer.name, code


def wrapper_of(layers: Sequence[LayerFacts], layer: LayerFacts) -> LayerFacts | None:
    """Return the Bidirectional, TimeDistributed, RNN or the like that the layer was given to."""
    name = layer.name.rpartition("/")[0]
    return next((one for one in layers if one.name == name and kinds.is_wrapper(one)), None) if name else None


def children(layers: Sequence[LayerFacts], layer: LayerFacts) -> list[LayerFacts]:
    """Return the layers right below this one."""
    return [one for one in layers if one.name.rpartition("/")[0] == layer.name]


def _around(
    layers: Sequence[LayerFacts], outer: LayerFacts, layer: LayerFacts, code: str, write: Write
) -> str:
    inside = children(layers, outer)
    given: dict[str, str] = {_INSIDE.get(outer.kind, "layer"): code}
    if outer.kind == "StackedRNNCells":
        texts = [code if one.name == layer.name else written(one) for one in inside]
        given = {"cells": f"[{', '.join(texts)}]"}
    elif outer.kind == "Bidirectional" and len(inside) == 2:
        forward, backward = (_as_given(one) for one in inside)
        given = {"layer": write(forward)}
        if _similar(forward) != _similar(backward):
            given["backward_layer"] = write(backward)
    drop = ["backward_layer"] if "backward_layer" not in given else []
    return written(outer, drop, **{name: Source(text) for name, text in given.items()})


def _as_given(layer: LayerFacts) -> LayerFacts:
    """Return a layer inside a Bidirectional as it was before the Bidirectional renamed it."""
    name = re.sub(r"^'(forward|backward)_", "'", layer.arguments.get("name", ""))
    kept = {key: text for key, text in layer.arguments.items() if key not in (*_OF_THE_WRAPPER, "name")}
    if name and not re.fullmatch(rf"'{layer.class_name.lower()}(_\d+)?'", name):
        kept["name"] = name
    return replace(layer, arguments=kept)


def _similar(layer: LayerFacts) -> dict[str, str]:
    return {key: text for key, text in layer.arguments.items() if key not in ("name", "go_backwards")}


def innermost(layers: Sequence[LayerFacts], layer: LayerFacts) -> LayerFacts:
    """Return the layer that does the work of a TimeDistributed or the like; any other layer itself."""
    while kinds.is_wrapper(layer) and layer.kind != "RNN" and len(inside := children(layers, layer)) == 1:
        layer = inside[0]
    return layer


def widened(layer: LayerFacts, key: str, size: int) -> dict[str, Any]:
    """Return the argument that gives a layer this width; for an EinsumDense its last axis is widened."""
    if layer.kind != "EinsumDense":
        return {key: size}
    axes = einsum.made_axes(layer.config)
    place, last = axes[-1]
    others = prod(each for _, each in axes) // last
    shape = layer.config["output_shape"]
    if not isinstance(shape, list | tuple):
        return {key: size}
    wide = list(shape)
    wide[place] = size if others == 1 else up(last, shapes.ALIGNMENT)
    return {key: tuple(wide)}


def up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def padding(rank: int, axis: int, more: int) -> str:
    """Return the argument of a padding that adds `more` zeros behind one axis."""
    return str([[0, more if place == axis else 0] for place in range(rank)])
