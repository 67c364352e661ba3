"""Sizes of float8 layers that are not multiples of 16.

What it means
    Matrices of a float8 product have sizes that are multiples of 16: rows (batch times positions), features
    read and features made. XLA copies others into larger ones before each product, forward and backward;
    other libraries refuse them, or leave such layers in 16 bits.

How we know
    The recorded sizes of the layers that are quantised to float8, and the batch.

What it costs
    A copy of each operand at every product. How long it takes is in no trace by itself.

When to ignore
    When the layer is a small part of the model.

Sources
    cuBLAS documentation, cublasLtMatmul (float8: dimensions that are multiples of 16). XLA, gemm_rewriter.cc
    (operands padded to multiples of 16). TransformerEngine#230.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.kernels import expected
from mpprof.analysis.layers import flops
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NAMED, NO_GPU, Clear, Found, NotApplicable, Outcome, known, need
from mpprof.diagnosis.remedies.layer_code import up, widened
from mpprof.diagnosis.shared import float8
from mpprof.diagnosis.shared.float8 import MULTIPLE, Product
from mpprof.diagnosis.signals import Signals
from mpprof.diagnosis.untrained import Untrained
from mpprof.model.audit import AuditNote

CODE, SLUG, TITLE = "MP413", "float8-sizes", "float8 sizes that are not multiples of 16"
ABOUT = "float8 sizes that are not multiples of 16"
SPECIFICITY = NAMED
BOUND = "device"
OF_ACCELERATOR = True
ON_RECORDS = True
LITTLE = 0.01
"""Part of the model's multiplications below which a layer's size is not worth a warning."""


def judge(signals: Signals) -> Outcome:
    layers = float8.quantised(signals)
    if isinstance(layers, NotApplicable):
        return layers
    if signals.without_gpu:
        return NO_GPU
    device, fit = known(signals.device), known(signals.fit)
    if device is not None and expected.multiplies_float8(device) is False:
        return NotApplicable("the card has no float8 products")
    model = need(signals.layers)
    odd = [each for each in float8.products(layers, model, fit.batch_size if fit else None) if each.odd]
    if not odd:
        return Clear("every known size of the float8 layers is a multiple of 16")
    shares = flops.shares(model)
    sizes = sorted({size for each in odd for size in each.odd})
    names = [each.layer.name for each in odd]
    much = any(shares.get(name, 1.0) >= LITTLE for name in names)
    return Found(
        summary=f"{evidence.listed(names)}: {_said(tuple(sizes))} no multiple{'s' * (len(sizes) > 1)} of "
        f"{MULTIPLE}, to which float8 products are padded",
        said=f"{{layers}} {{has}} float8 sizes that are not multiples of {MULTIPLE}",
        evidence=(
            evidence.text("sizes", evidence.listed([f"{s:,}" for s in sizes], 8), f"multiples of {MULTIPLE}"),
        ),
        severity="warning" if much else "info",
        values={"names": tuple(names)},
        layers=tuple(names),
    )


def _said(sizes: tuple[int, ...]) -> str:
    return f"{evidence.listed([f'{size:,}' for size in sizes])} {'is' if len(sizes) == 1 else 'are'}"


def check_model(model: Untrained) -> Iterator[AuditNote]:
    shares, ends = model.shares, model.feeding_outputs
    batch = model.fit.batch_size if model.fit else None
    named = {name for _, name, _ in model.found_in(CODE)}
    products = list(float8.products(float8.layers_of(model.layers), model.layers, batch))
    widths = {each.made for each in products}  # said of the layer that makes them
    for each in products:
        if each.layer.name in named and not (each.odd == (each.read,) and each.read in widths):
            name, code = _better(model, each, last=each.layer.name in ends)
            yield AuditNote(
                CODE, SLUG, TITLE, "warning" if shares.get(each.layer.name, 1.0) >= LITTLE else "info", name,
                f"{_said(each.odd)} not a multiple of {MULTIPLE}: padded for each float8 product", code,
            )  # fmt: skip


def _better(model: Untrained, each: Product, *, last: bool) -> tuple[str, str]:
    """Return (name, code): wider layers where what they make is the model's own matter; an output keeps its
    size and stays out of float8, and so does a layer that is given what it reads."""
    name = each.layer.name.rpartition("/")[2]
    left_out = f'model.quantize("float8", filters=lambda layer: layer.name != "{name}")'
    if each.rows and each.rows % MULTIPLE and not (each.made or 0) % MULTIPLE:
        batch = model.fit.batch_size if model.fit else None
        return each.layer.name, f"batch_size = {up(batch or MULTIPLE, MULTIPLE)}"
    if last or not each.made or not each.made % MULTIPLE:
        return each.layer.name, left_out
    key = "output_shape" if each.layer.kind == "EinsumDense" else "units"
    better = up(each.made, MULTIPLE)
    return (
        each.layer.name,
        f"{model.changed(each.layer, **widened(each.layer, key, better))[1]}  # {each.made} -> {better}",
    )
