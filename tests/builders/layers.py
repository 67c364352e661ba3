"""What the records state of the layers of made-up models, whichever framework trains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.builders.numerics import KERAS_DTYPE, Numerics

Overrides = Mapping[str, Numerics] | None
"""Layers that compute in another way than the model does, by name."""


def numbered(name: str, i: int) -> str:
    """As Keras names the layers of one class: `dense`, `dense_1`."""
    return f"{name}_{i}" if i else name


def parameters(layers: Sequence[dict]) -> int:
    return sum(each["parameters"] for each in layers)


def layer(
    name: str,
    kind: str,
    compute: str,
    out: list,
    parameters: int,
    reads: int | None = None,
    **config: object,
) -> dict:
    """A layer as the walk over the model records it. `reads`: features or channels of its input."""
    taken = {} if reads is None else {"input_shape": [*out[:-1], reads]}
    return {
        "name": name, "class": kind, "compute_dtype": compute, "variable_dtype": "float32", "output_dtype": compute,
        "config": config, "output_shape": out, "parameters": parameters, "supports_jit": True, **taken,
    }  # fmt: skip


def _dense(name: str, n: Numerics, rows: Sequence[int], cin: int, cout: int, *, bias: bool = True) -> dict:
    """`rows`: the axes of its output between the batch and the features."""
    weights = cin * cout + (cout if bias else 0)
    return layer(name, "Dense", KERAS_DTYPE[n.storage], [None, *rows, cout], weights, reads=cin, units=cout)


def _softmax(classes: int) -> dict:
    return layer("softmax", "Activation", "float32", [None, classes], 0, activation="softmax")


def convnet(
    n: Numerics,
    overrides: Overrides,
    widths: Sequence[int],
    sizes: Sequence[int],
    classes: int,
    *,
    activations: bool,
) -> tuple[dict, ...]:
    """`activations`: each block ends in a layer of its own for them."""
    layers: list[dict] = []
    cin = 3
    for i, (cout, size) in enumerate(zip(widths, sizes, strict=True)):
        name, dtype, out = numbered("conv2d", i), KERAS_DTYPE[n.storage], [None, size, size, cout]
        own = KERAS_DTYPE[(overrides or {}).get(name, n).storage]
        layers += [
            layer(name, "Conv2D", own, out, cin * cout * 9 + cout,
                   reads=cin, filters=cout, kernel_size=[3, 3], groups=1, strides=[1, 1]),
            layer(numbered("batch_normalization", i), "BatchNormalization", dtype, out, 4 * cout),
        ]  # fmt: skip
        if activations:
            layers.append(layer(numbered("re_lu", i), "ReLU", dtype, out, 0))
        cin = cout
    return (*layers, _dense("dense", n, (), cin, classes), _softmax(classes))


def block(i: int, width: int) -> list[tuple[str, int, int]]:
    """The dense layers of one block of the transformer: name, features that each reads and makes."""
    parts = [
        ("query", 1, 1),
        ("key", 1, 1),
        ("value", 1, 1),
        ("projection", 1, 1),
        ("up", 1, 4),
        ("down", 4, 1),
    ]
    return [(f"block_{i}/{part}", reads * width, makes * width) for part, reads, makes in parts]


def transformer(
    n: Numerics, overrides: Overrides, length: int, width: int, blocks: int, vocabulary: int
) -> tuple[dict, ...]:
    layers: list[dict] = []
    for i in range(blocks):
        for name, cin, cout in block(i, width):
            layers.append(_dense(name, (overrides or {}).get(name, n), (length,), cin, cout))
        norm = f"block_{i}/layer_normalization"
        layers.append(
            layer(norm, "LayerNormalization", KERAS_DTYPE[n.storage], [None, length, width], 2 * width)
        )
    out = [None, length, vocabulary]
    return (
        *layers,
        _dense("logits", n, (length,), width, vocabulary, bias=False),
        layer("logits_float", "Activation", "float32", out, 0, activation="linear"),
    )


def mlp(
    n: Numerics, overrides: Overrides, widths: Sequence[int], features: int, classes: int
) -> tuple[dict, ...]:
    layers: list[dict] = []
    cin = features
    for i, cout in enumerate((*widths, classes)):
        name = numbered("dense", i)
        layers.append(_dense(name, (overrides or {}).get(name, n), (), cin, cout))
        cin = cout
    return (*layers, _softmax(classes))
