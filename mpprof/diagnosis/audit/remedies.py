"""The code of each remedy that the audit gives: a layer as it is written, with what has to change changed.

Every line can be executed where Keras, the `model` and, for tensors, `x` or `images` have their names. What a
remedy shares with that of a finding is the table's (`diagnosis.remedies`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from mpprof.analysis.layers import einsum, kinds
from mpprof.diagnosis import shapes
from mpprof.diagnosis.signals import HALF_DTYPES, Signals
from mpprof.model.frozen import frozen
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts

_KERAS = ("keras", "tf_keras", None)  # None: recorded before it was
_EXPORTED = {"GroupedQueryAttention": "GroupQueryAttention"}  # where keras.layers has it under another name
_INSIDE = {"RNN": "cell", "StackedRNNCells": "cells"}  # of a wrapper: which argument is the layer inside
_OF_THE_WRAPPER = ("zero_output_for_mask",)  # what Bidirectional tells the layers that it makes
VOCABULARY = 64
"""What a vocabulary is padded to."""


class Source(str):
    """Python source as a value of an argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


Write = Callable[[LayerFacts], str]


@frozen
class Subject:
    """What a remedy is written for. `layer` None: the whole model, or a layer that was not recorded."""

    signals: Signals
    model: ModelFacts | None
    fit: FitFacts | None
    layer: LayerFacts | None

    @property
    def keras(self) -> str:
        """The name that the model's Keras is imported by."""
        return str(self.signals.words["keras"])

    def shared(self, cause: str, case: str = "") -> str:
        """Return the code of the table's first remedy of a cause."""
        return next((each.snippet for each in self.signals.remedies(cause, (case,)) if each.snippet), "")

    @property
    def own_policy(self) -> str | None:
        return self.fit.policy.own if self.fit else None

    @property
    def layers(self) -> Sequence[LayerFacts]:
        return self.model.layers if self.model else ()


def written(layer: LayerFacts, /, drop: Iterable[str] = (), **changes: Any) -> str:
    """The constructor of `layer` without the arguments `drop` and with `changes`. Where the layer's own
    arguments were not recorded, `...` stands for them."""
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
    """The same with the layer's own policy, where that is not the model's."""
    if layer.dtype_policy and layer.dtype_policy != own_policy:
        changes.setdefault("dtype", layer.dtype_policy)
    return written(layer, drop, **changes)


# --- layers inside others ----------------------------------------------------------------------------------


def placed(layers: Sequence[LayerFacts], layer: LayerFacts, write: Write) -> tuple[str, str]:
    """(name, code) of what stands in the model's script: `layer` as `write` has it, or the wrapper that it
    lies in, written around it."""
    code = write(layer)
    while (outer := wrapper_of(layers, layer)) is not None:
        code = _around(layers, outer, layer, code, write)
        layer = outer
    return layer.name, code


def wrapper_of(layers: Sequence[LayerFacts], layer: LayerFacts) -> LayerFacts | None:
    """The Bidirectional, TimeDistributed, RNN or the like that the layer was given to."""
    name = layer.name.rpartition("/")[0]
    return next((one for one in layers if one.name == name and kinds.is_wrapper(one)), None) if name else None


def children(layers: Sequence[LayerFacts], layer: LayerFacts) -> list[LayerFacts]:
    """The layers right below this one."""
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
    """A layer inside a Bidirectional as it was before that renamed it."""
    name = re.sub(r"^'(forward|backward)_", "'", layer.arguments.get("name", ""))
    kept = {key: text for key, text in layer.arguments.items() if key not in (*_OF_THE_WRAPPER, "name")}
    if name and not re.fullmatch(rf"'{layer.class_name.lower()}(_\d+)?'", name):
        kept["name"] = name
    return replace(layer, arguments=kept)


def _similar(layer: LayerFacts) -> dict[str, str]:
    return {key: text for key, text in layer.arguments.items() if key not in ("name", "go_backwards")}


# --- by cause ----------------------------------------------------------------------------------------------


def _island(subject: Subject) -> str:
    layer = subject.layer
    if layer is None or layer.compute_dtype in HALF_DTYPES:
        name = layer.class_name if layer else "the layer"
        return f"{subject.shared('MP104')}  # in {name}.call(), in place of float32"
    target = half_policy(subject)
    if layer.name in ends(subject.model):
        return _ending_in_float32(subject, layer, lambda one: _with_policy(subject, one, target))
    return placed(subject.layers, layer, lambda one: _with_policy(subject, one, target))[1]


def ends(model: ModelFacts | None) -> frozenset[str]:
    """The layers at the model's end, and those that give its outputs."""
    if model is None:
        return frozenset()
    return kinds.head(model.layers) | {each.layer for each in model.outputs}


def half_policy(subject: Subject) -> str | None:
    """The policy of the layers that compute in 16 bits."""
    half = next((f for f in subject.layers if f.compute_dtype in HALF_DTYPES), None)
    return half.dtype_policy if half else None


def _with_policy(
    subject: Subject, layer: LayerFacts, policy: str | None, drop: Iterable[str] = (), **changes: Any
) -> str:
    if policy and policy != subject.own_policy:
        changes["dtype"] = policy
    return written(layer, drop, **changes)


def _output(subject: Subject) -> str:
    layer = subject.layer
    if layer is None:
        return f"{subject.shared('MP106', 'not recorded')}  # the end of call()"
    if not layer.parameters:
        return f"outputs = {written(layer, dtype='float32')}(x)"
    half = half_policy(subject)

    def write(one: LayerFacts) -> str:
        """As it is, but for a product in float32 whose wrapper rounds what it gives."""
        if one.compute_dtype not in HALF_DTYPES:
            return _with_policy(subject, one, half)
        return in_place(one, subject.own_policy)

    return _ending_in_float32(subject, layer, write)


def _ending_in_float32(subject: Subject, layer: LayerFacts, write: Write) -> str:
    """The product in 16 bits, and what is sensitive to rounding, the activation, in float32."""
    layer, activation = innermost(subject.layers, layer), "'linear'"
    if layer.kind in _ACTIVATED_LAST and layer.arguments.get("activation", "...") != "...":
        activation = layer.arguments["activation"]
        kept = {key: text for key, text in layer.arguments.items() if key != "activation"}
        layer = replace(layer, arguments=kept)
    code = placed(subject.layers, layer, write)[1]
    return f'x = {code}(x)\noutputs = {subject.keras}.layers.Activation({activation}, dtype="float32")(x)'


_ACTIVATED_LAST = frozenset((
    "Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose",
    "Conv3DTranspose", "SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D",
))  # fmt: skip


def innermost(layers: Sequence[LayerFacts], layer: LayerFacts) -> LayerFacts:
    """What does the work of a TimeDistributed or the like; any other layer itself."""
    while kinds.is_wrapper(layer) and layer.kind != "RNN" and len(inside := children(layers, layer)) == 1:
        layer = inside[0]
    return layer


def _vocabulary(subject: Subject) -> str:
    layer = subject.layer
    if layer is None:
        return subject.shared("MP402")
    if layer.compute_dtype not in HALF_DTYPES:  # a float32 head: its product in 16 bits, too (MP104)
        target = half_policy(subject)
        return _ending_in_float32(
            subject, layer, lambda one: _with_policy(subject, one, target, **_padded(one, VOCABULARY))
        )
    return placed(
        subject.layers, layer, lambda one: in_place(one, subject.own_policy, **_padded(one, VOCABULARY))
    )[1]


def _padded(layer: LayerFacts, multiple: int) -> dict[str, Any]:
    found = shapes.made(layer)
    return {} if found is None else widened(layer, found[0], up(found[1], multiple))


def widened(layer: LayerFacts, key: str, size: int) -> dict[str, Any]:
    """The argument that gives a layer this width; of an EinsumDense its last axis is widened."""
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


REMEDIES: dict[str, Callable[[Subject], str]] = {
    "MP104": _island,
    "MP106": _output,
    "MP402": _vocabulary,
}
"""Of the catalogue's rules that judge on records alone, where the table's code is not enough."""
