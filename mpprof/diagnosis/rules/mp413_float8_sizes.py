"""Sizes of float8 layers that are not multiples of 16.

What it means
    Matrices of a float8 product have sizes that are multiples of 16: rows (batch times positions), input
    features and output features. XLA copies others into larger ones before each product, forward and
    backward; other libraries refuse them, or leave such layers in 16 bits.

How we know
    The recorded sizes of the layers that are quantised to float8, and the batch.

What it costs
    A copy of each operand at every product. No trace shows how long this copy takes by itself.

When to ignore
    When the layer is a small part of the model.

Sources
    cuBLAS documentation, cublasLtMatmul (float8: dimensions that are multiples of 16). XLA, gemm_rewriter.cc
    (operands padded to multiples of 16). TransformerEngine#230.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import up, widened
from mpprof.diagnosis.remedies.shared_rows import own_names, without_float8
from mpprof.diagnosis.shared import float8
from mpprof.diagnosis.shared.float8 import MULTIPLE, Product

CODE, SLUG, TITLE = "MP413", "float8-sizes", "float8 sizes that are not multiples of 16"
ABOUT = "float8 sizes that are not multiples of 16"
SPECIFICITY = NAMED
OF_ACCELERATOR = True
ON_RECORDS = True
LITTLE = 0.01
"""Part of the model's multiplications below which a layer's size is not worth a warning."""


def judge(signals: Signals) -> Outcome:
    layers = float8.multiplied(signals)
    if isinstance(layers, NotApplicable):
        return layers
    fit, model = known(signals.fit), need(signals.layers)
    batch = fit.batch_size if fit else None
    products = list(float8.products(layers, model, batch))
    odd = [each for each in products if each.odd]
    if not odd and (why := float8.unknown_sizes(products)):
        return Unable(why if batch else f"{why}: the batch size was not recorded")
    if not odd:
        return Clear(f"every size of the float8 layers is a multiple of {MULTIPLE}")
    shares = flops.shares(model)
    sizes = sorted({size for each in odd for size in each.odd})
    names = [each.layer.name for each in odd]
    much = any(shares.get(name, 1.0) >= LITTLE for name in names)
    return Found(
        summary=f"{evidence.listed(names)}: {_said(sizes)}, to which float8 products are padded",
        said=f"{{layers}} {{has}} float8 sizes that are not multiples of {MULTIPLE}",
        evidence=(
            evidence.text("sizes", evidence.listed([f"{s:,}" for s in sizes], 8), f"multiples of {MULTIPLE}"),
        ),
        severity="warning" if much else "info",
        values={"names": own_names(names)},
        layers=tuple(names),
    )


def _said(sizes: Sequence[int]) -> str:
    are = "is not a multiple" if len(sizes) == 1 else "are not multiples"
    return f"{evidence.listed([f'{size:,}' for size in sizes])} {are} of {MULTIPLE}"


def check_model(model: Untrained) -> Iterator[Note]:
    shares, ends = model.shares, model.feeding_outputs
    batch = model.fit.batch_size if model.fit else None
    named = {name for _, name, _ in model.found_in(CODE)}
    products = list(float8.products(float8.layers_of(model.layers), model.layers, batch))
    widths = {each.made for each in products}  # said of the layer that makes them
    for each in products:
        if each.layer.name in named and not (each.odd == (each.read,) and each.read in widths):
            name, code = _better(model, each, last=each.layer.name in ends)
            yield Note(
                "warning" if shares.get(each.layer.name, 1.0) >= LITTLE else "info",
                name,
                f"{_said(each.odd)}: padded for each float8 product",
                code,
            )


def _better(model: Untrained, each: Product, *, last: bool) -> tuple[str, str]:
    """Return (name, code): a larger batch if the number of rows is odd and the number of outputs is not; more
    units if only the model reads the outputs. The model's output keeps its size, and a layer cannot change
    what it reads: such a layer stays out of float8."""
    if each.rows and each.rows % MULTIPLE and not (each.made or 0) % MULTIPLE:
        batch = model.fit.batch_size if model.fit else None
        return each.layer.name, f"batch_size = {up(batch or MULTIPLE, MULTIPLE)}"
    if last or not each.made or not each.made % MULTIPLE:
        return each.layer.name, without_float8((each.layer.name,))
    key = "output_shape" if each.layer.kind == "EinsumDense" else "units"
    better = up(each.made, MULTIPLE)
    return (
        each.layer.name,
        f"{model.changed(each.layer, **widened(each.layer, key, better))[1]}  # {each.made} -> {better}",
    )
