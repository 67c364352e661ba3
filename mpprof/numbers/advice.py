"""What to do about a break, with the code for Keras, by its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mpprof.model.quantities import format_ratio
from mpprof.numbers.band import MOST_LOST
from mpprof.numbers.result import Advice, AdviceOf, Break, Row, ScaleBand
from mpprof.numbers.taps import LOSS
from mpprof.numbers.text import power, updates_lost

_WRAPPED = "optimizer = keras.optimizers.LossScaleOptimizer(optimizer{})"
_USUAL = 2.0**15
"""The loss scale with which Keras starts."""
_OTHERS = 4
"""A loss scale is to be good for other batches, too, whose gradients may be so many times as large."""
_SCALED = "loss = optimizer.scale_loss(loss)"
_CAST_OUTPUTS = 'outputs = keras.ops.cast(outputs, "float32")'
_WHERE = {
    "sum": "of each x that is added or multiplied in the sum",
    "product": "of each x that is multiplied",
    "variance": "of the x that is squared",
    "exp": "of the x that exp is given",
}
"""By the kind of a break within a layer: what is to be cast."""
_OF_LOGITS = {
    "sigmoid": "keras.losses.BinaryCrossentropy",
    "softmax": "keras.losses.CategoricalCrossentropy",
}
"""By the activation of a model's output: the loss that computes it itself."""


def advice(
    layers: Mapping[str, Any],
    found: Break,
    scale: ScaleBand | None,
    *,
    scales: bool,
    wrapped: bool,
    outputs: Sequence[Any],
    loss: str,
    beyond: Sequence[str] = (),
    outer: str | None = None,
    by_itself: bool = False,
) -> Advice | None:
    """Return what to do about a break; None where it follows from another. `layers`: the model's, by name;
    the loss is none of them. `scales`: the loss is scaled; `wrapped`: the optimizer un-scales it. `outputs`:
    the layers whose outputs are the model's. `loss`: what it is called. `beyond`: the layers that compute in
    float16 what float16 does not hold, with those that read it. `outer`: the layer, or the model, whose call
    that of the layer which breaks is part of. `by_itself`: the layer computes in 16 bits also where it alone
    is given float32 as its type."""
    name = found.layer
    layer = layers.get(name)
    in_float32 = _in_float32(layer, name, within=found.kind if by_itself else None)
    takes_logs = found.kind != "underflow" or "crossentropy" in loss.lower().replace("_", "")
    logits = _logits(layers, found, outputs) if takes_logs else None
    low, high = (None, None) if scale is None else (scale.low, scale.high)
    good = None if low is None or high is None else min(max(low, _USUAL), high)
    match found.kind:
        case "batch":
            text, code = "Clean the batch: it holds values that are not finite.", "MP206"
            snippet = f"assert numpy.isfinite({found.source or 'x'}).all()"
        case "weights" if found.finite_in_float32 is False:
            text, code = f"Restore a checkpoint from before the weights of {name} were not finite.", "MP206"
            snippet = "model.load_weights(path)"
        case "weights":
            text, code = f"Bring the weights of {name} back into range, or compute it in float32.", "MP206"
            snippet = f"{in_float32}\noptimizer = keras.optimizers.Adam(clipnorm=1.0)"
        case "cast" if found.source is not None:
            text, code, snippet = (
                f"{name} is given more than float16 holds: it needs float32.",
                "MP206",
                in_float32,
            )
        case "cast":
            text, code = f"Scale what {name} is given: it is beyond float16.", "MP107"
            snippet = "keras.layers.Rescaling(1 / 255)  # or keras.layers.Normalization()"
        case "epsilon" | "division" | "every scale" | "underflow" if logits is not None:
            return logits
        case "constant" if found.finite_in_float32 is not False and name not in beyond:
            text, code = f"Use a number that float16 holds in {found.source or name}.", "MP206"
            snippet = "scores + (1 - mask) * -3e4  # of a mask, in place of -1e9"
        case "epsilon":
            text, code = f"Give {name} an epsilon that float16 holds (1e-3), or float32.", "MP206"
            takes = hasattr(layer, "epsilon") and not by_itself
            snippet = f"{_constructor(layer)}(..., epsilon=1e-3)  # {name}" if takes else in_float32
        case "division" if found.reason.startswith("log"):
            text, code = (
                f"Add an epsilon that float16 holds (1e-3) to what {name} takes a logarithm of.",
                "MP206",
            )
            snippet = "keras.ops.log(x + 1e-3)"
        case "division":
            text, code = f"Add an epsilon that float16 holds (1e-3) to what {name} divides by.", "MP206"
            snippet = "x / (total + 1e-3)"
        case "every scale" if found.finite_in_float32 is False:
            where = f"beyond {name}" if found.source is None else f"in {found.source}"
            text = f"A derivative {where} is infinite, as that of a root at 0: add an epsilon."
            name, code = found.source or name, "MP201"
            snippet = "keras.ops.sqrt(x + 1e-3)"
        case "constant" | "sum" | "product" | "variance" | "exp" | "not known" if (
            found.finite_in_float32 is False
        ):
            text, code = f"16 bits are not the cause: {name} is not finite in float32, either.", "MP206"
            snippet = "optimizer = keras.optimizers.Adam(1e-4, clipnorm=1.0)  # where training diverges"
        case "sum" | "product" | "variance" | "exp" | "not known" if found.source is not None:
            text = f"What {found.source} computes before {name} needs bfloat16 or float32, and {name}, too."
            code = "MP206"
            snippet = f'x = keras.ops.cast(x, "float32")  # in {found.source}, before {name}\n{in_float32}'
        case "sum" | "product" | "variance" | "exp" | "constant" | "not known" if (
            layer is not None and len(beyond) > 1 and name in beyond
        ):
            text = f"{', '.join(beyond[:-1])} and {beyond[-1]} need bfloat16 or float32."
            code = "MP206"
            kinds = {each: layers.get(each) for each in beyond}
            if by_itself or not all(hasattr(kind, "dtype_policy") for kind in kinds.values()):
                lines = [
                    _in_float32(kind, each, within=found.kind if by_itself and each == name else None)
                    for each, kind in kinds.items()
                ]
                snippet = "\n".join(lines)
            else:
                snippet = _map(beyond, layer.dtype_policy.name.removeprefix("map_"), wrapped)
        case "sum" | "product" | "variance" | "exp" | "constant" | "not known" if found.tensor == "output":
            text, code, snippet = f"{name} needs bfloat16 or float32.", "MP206", in_float32
        case "loss scale" if scale is not None and scale.high is not None:
            first = max(scale.high / _OTHERS, low or 0.0)
            start = f"tart the loss scale at {power(first)} (this batch takes up to {power(scale.high)})"
            text = f"S{start}: a step is skipped for each halving to there."
            if scale.high < 1:
                text = (
                    f"Divide the loss by {power(1 / first)}, or s{start}: unscaled gradients overflow, too."
                )
            code, snippet = "MP201", _from(first)
        case "every scale" if found.source is not None and found.source == outer:
            text = f"No loss scale helps: what {outer} computes after {name} needs bfloat16 or float32."
            code, snippet = "MP201", f'x = keras.ops.cast(x, "float32")  # in {outer}, after {name}'
        case "every scale" if found.source is not None:
            name = found.source
            text, code = f"No loss scale helps: {name} needs bfloat16 or float32.", "MP201"
            snippet = _in_float32(layers.get(name), name)
        case "loss scale" | "every scale" if scale is not None and scale.high is not None:
            limit = f"gradients overflow above a loss scale of {power(scale.high)}"
            text, code = (
                f"{limit[0].upper()}{limit[1:]}: {name} and what follows need bfloat16 or float32.",
                "MP201",
            )
            snippet = in_float32
        case "loss scale" | "every scale" | "not known":
            text, code = f"No loss scale helps: {name} and what follows need bfloat16 or float32.", "MP201"
            snippet = in_float32
        case "underflow" if found.tensor == "output":
            text, code, snippet = f"{name} needs bfloat16 or float32.", "MP202", in_float32
        case "underflow" if found.source is not None:
            source = found.source
            text = f"No loss scale helps: {source} rounds to 0 and needs bfloat16 or float32."
            code, snippet = "MP202", _in_float32(layers.get(source), source)
        case "underflow" if scales and good is not None:
            text, code, snippet = f"Raise the loss scale to {power(good)}.", "MP202", _from(good)
        case "underflow" if good is not None:
            text, code = "Scale the loss.", "MP103"
            snippet = _SCALED if wrapped else f"{_from(good)}\n{_SCALED}"
        case "underflow":
            text, code = (
                "No loss scale keeps these gradients: train in bfloat16, whose range is float32's.",
                "MP202",
            )
            snippet = _policy("mixed_bfloat16")
        case _:
            return None
    return Advice(None if found.kind == "batch" else name, text, code, snippet, _of(found))


def _of(found: Break) -> AdviceOf:
    return "first_forward" if found.tensor == "output" else "first_backward"


def of_updates(layers: Mapping[str, Any], rows: Sequence[Row]) -> Advice | None:
    """Return what to do where weights of 16 bits lose more than `band.MOST_LOST` of an update; None where
    they do not. The layer is that which loses most."""
    weights = [row for row in rows if row.tensor == "weight_gradient"]
    narrow = [row for row in weights if row.update_lost]
    told = [{"dtype": row.dtype, "update_lost": row.update_lost, "elements": row.elements} for row in narrow]
    lost = max(updates_lost(told), key=lambda each: each.share, default=None)
    if lost is None or lost.share <= MOST_LOST:
        return None
    most = max(
        (row for row in narrow if row.dtype == lost.dtype),
        key=lambda row: (row.update_lost or {})[lost.dtype],
    )
    leaves = f"an update leaves {format_ratio(lost.share)} of the {lost.dtype} weights as they are"
    text = f"Keep the weights in float32: {leaves}."
    names = dict.fromkeys(row.layer for row in narrow if row.dtype == lost.dtype)
    lines = [
        f'{_constructor(layers[name])}(..., dtype="mixed_{lost.dtype}")  # {name}'
        for name in names
        if name in layers
    ]
    alone = len(narrow) == len(weights)
    return Advice(
        most.layer, text, "MP202", _policy(f"mixed_{lost.dtype}") if alone else "\n".join(lines), "updates"
    )


def _policy(name: str) -> str:
    return f'keras.config.set_dtype_policy("{name}")  # before the model is built'


def _from(scale: float) -> str:
    """Return the code of a loss scale that starts there."""
    return _WRAPPED.format(f", initial_scale={scale!r}")


def _in_float32(layer: Any, name: str, *, within: str | None = None) -> str:
    """Return how what breaks is computed in float32: the loss, a function of `keras.ops`, or a layer.
    `within`: the kind of what breaks in a layer that computes in 16 bits by itself, where a cast of what the
    layer is given would not last: a layer within it casts back."""
    if layer is None:
        return _CAST_OUTPUTS
    if within is not None or not hasattr(layer, "dtype_policy"):
        where = f"what {name} is given"
        if within is not None:
            where = f"in {name}, {_WHERE.get(within, 'where x has 16 bits')}"
        return f'x = keras.ops.cast(x, "float32")  # {where}'
    return f'{_constructor(layer)}(..., dtype="float32")  # {name}'


def _map(names: Sequence[str], policy: str, wrapped: bool) -> str:
    """Return the policy under which these layers compute in float32. A key is matched with a layer's path,
    which begins with the model's name in some models; Keras wraps no optimizer under such a policy."""
    keys = ", ".join(f'r"(.*/)?{re.escape(each.partition("#")[0])}": float32' for each in names)
    lines = [
        'float32 = keras.dtype_policies.DTypePolicy("float32")',
        f'others = keras.dtype_policies.DTypePolicy("{policy}")',
        f"policies = keras.dtype_policies.DTypePolicyMap(others, {{{keys}}})",
        "keras.config.set_dtype_policy(policies)  # before the model is built",
    ]
    return "\n".join([*lines, _WRAPPED.format("")] if wrapped else lines)


def _logits(layers: Mapping[str, Any], found: Break, outputs: Sequence[Any]) -> Advice | None:
    """Return to give the loss logits, where a probability breaks that the model gives as its output."""
    place = found.source or found.layer
    ends = outputs if place == LOSS.layer else [each for each in outputs if each is layers.get(place)]
    for layer in ends:
        activation = getattr(getattr(layer, "activation", None), "__name__", "")
        if layer is None or activation not in _OF_LOGITS or found.finite_in_float32 is False:
            continue
        loss = _OF_LOGITS[activation]
        code = "MP202" if found.kind == "underflow" else "MP206"
        text = f"Give the loss logits: in float16 the output of {layer.name} rounds to 0 or 1."
        made = f'{_constructor(layer)}(..., activation=None, dtype="float32")  # {layer.name}'
        return Advice(
            found.layer, text, code, f"outputs = {made}\nloss = {loss}(from_logits=True)", _of(found)
        )
    return None


def _constructor(layer: Any) -> str:
    kind = type(layer)
    own = kind.__module__.partition(".")[0] == "keras"
    return f"keras.layers.{kind.__name__}" if own else kind.__name__
