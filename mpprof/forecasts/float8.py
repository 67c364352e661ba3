"""What XLA makes of layers that are quantised to float8: products in it, or in 16 bits after rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpprof.analysis.kernels.expected import multiplying
from mpprof.model.forecast import Float8Layer
from mpprof.model.kernels import Precision
from mpprof.model.run import ModelFacts

Products = Sequence[tuple[Sequence[str], Precision]]
"""The layers and the operands' type of each product of a program."""


def of_layers(own: Products, library: Products | None, model: ModelFacts | None) -> tuple[Float8Layer, ...]:
    """Return for each quantised layer in which types its products were compiled; empty: none is quantised. A
    layer without a product of its own, which XLA merged, is left out.

    `own` and `library`: with XLA's kernels and with the library's. XLA's take no float8: where the library's
    do, the card times both and takes the faster."""
    found = []
    for layer in multiplying(model.layers if model else ()):
        if layer.quantized != "float8":
            continue
        mine = _of(layer.name, own)
        narrow = max(_narrow(mine), _narrow(_of(layer.name, library or ())))
        others = tuple(dict.fromkeys(each for each in mine if each != "fp8"))
        if mine:
            found.append(Float8Layer(layer.name, narrow, max(0, len(mine) - narrow), others))
    return tuple(found)


def _of(layer: str, products: Products) -> list[Precision]:
    """Return the types of a layer's own products; one that is fused with another's is that of the first."""
    return [precision for layers, precision in products if layers[:1] == (layer,)]


def _narrow(precisions: Iterable[Precision]) -> int:
    return sum(precision == "fp8" for precision in precisions)
