"""The code of each remedy that the audit gives: a layer as it is written, with what has to change changed.

Every line can be executed where `keras`, the `model` and, for tensors, `x` or `images` have their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mpprof.diagnosis.signals import HALF_DTYPES
from mpprof.model.frozen import frozen
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts

_KERAS = ("keras", "tf_keras", None)  # None: recorded before it was


@frozen
class Subject:
    """What a remedy is written for. `layer` None: the whole model, or a layer that was not recorded."""

    model: ModelFacts | None
    fit: FitFacts | None
    layer: LayerFacts | None

    @property
    def own_policy(self) -> str | None:
        return self.fit.policy.own if self.fit else None


def written(layer: LayerFacts, drop: Iterable[str] = (), **changes: Any) -> str:
    """The constructor of `layer` without the arguments `drop` and with `changes`. Where the layer's own
    arguments were not recorded, `...` stands for them."""
    kept = {name: text for name, text in layer.arguments.items() if name not in set(drop)}
    if any(text == "..." for text in kept.values()) or not kept:
        kept = {name: text for name, text in kept.items() if text != "..."}
        unknown = ["..."]
    else:
        unknown = []
    given = kept | {name: repr(value) for name, value in changes.items()}
    name = given.pop("name", None)
    parts = [f"{key}={text}" for key, text in given.items()]
    return f"{_class(layer)}({', '.join([*parts, *unknown, *([f'name={name}'] if name else [])])})"


def _class(layer: LayerFacts) -> str:
    return f"keras.layers.{layer.class_name}" if layer.module in _KERAS else layer.class_name


def in_place(layer: LayerFacts, own_policy: str | None, drop: Iterable[str] = (), **changes: Any) -> str:
    """The same with the layer's own policy, where that is not the model's."""
    if layer.dtype_policy and layer.dtype_policy != own_policy:
        changes.setdefault("dtype", layer.dtype_policy)
    return written(layer, drop, **changes)


# --- by cause ----------------------------------------------------------------------------------------------


def _policy(subject: Subject) -> str:
    name = (subject.fit.policy.global_name if subject.fit else None) or "mixed_float16"
    return f'keras.config.set_dtype_policy("{name}")  # first\nmodel = build_model()  # then'


def _scaling(subject: Subject) -> str:
    return (
        "optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer)\n"
        "model.compile(optimizer=optimizer, loss=model.loss)"
    )


def _island(subject: Subject) -> str:
    layer = subject.layer
    if layer is None or layer.compute_dtype in HALF_DTYPES:
        name = layer.class_name if layer else "the layer"
        return f"x = keras.ops.cast(x, self.compute_dtype)  # in {name}.call(), in place of float32"
    half = next(
        (f for f in (subject.model.layers if subject.model else ()) if f.compute_dtype in HALF_DTYPES), None
    )
    target = half.dtype_policy if half else None
    return written(layer, **({"dtype": target} if target and target != subject.own_policy else {}))


def _output(subject: Subject) -> str:
    layer = subject.layer
    if layer is None:
        return 'outputs = keras.ops.cast(x, "float32")  # the end of call()'
    if not layer.parameters:
        return f"outputs = {written(layer, dtype='float32')}(x)"
    activation = layer.arguments.get("activation", "'linear'")
    return (
        f"x = {in_place(layer, subject.own_policy, drop=['activation'])}(x)\n"
        f'outputs = keras.layers.Activation({activation}, dtype="float32")(x)'
    )


def _vocabulary(subject: Subject) -> str:
    layer = subject.layer
    if layer is None:
        return "vocabulary = -(-vocabulary // 64) * 64"
    key, size = width_of(layer)
    padded: dict[str, Any] = {key: -(-size // 64) * 64}
    return in_place(layer, subject.own_policy, **padded)


def width_of(layer: LayerFacts) -> tuple[str, int]:
    """(argument, value) of what decides how many features a layer gives out."""
    for key in ("units", "filters", "output_dim"):
        value = layer.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return key, value
    return "units", 0


REMEDIES: dict[str, Callable[[Subject], str]] = {
    "MP101": _policy,
    "MP102": _scaling,
    "MP104": _island,
    "MP106": _output,
    "MP402": _vocabulary,
}
"""Of the catalogue's rules that judge on records alone."""
