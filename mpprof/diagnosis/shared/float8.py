"""Layers that Keras quantised to float8: their products, and from which size on float8 pays.

Keras rounds inputs, kernels and the gradients of outputs to float8 and back (`quantize("float8")`: Dense and
EinsumDense, those in attention among them); XLA makes one product in float8 of it where the card has such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mpprof.analysis.attainable.work import STREAMING
from mpprof.analysis.kernels import device_peaks, expected, shapes
from mpprof.analysis.layers import flops, kinds
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NO_GPU, NotApplicable, known, need
from mpprof.diagnosis.remedies import frameworks
from mpprof.diagnosis.signals import Signals
from mpprof.diagnosis.untrained import Note, Untrained
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ratio
from mpprof.model.run import LayerFacts

NONE = NotApplicable("no layer is quantised to float8")
NO_PRODUCTS = NotApplicable("the card has no float8 products")
MULTIPLE = 16
"""cuBLAS multiplies float8 matrices whose sizes are multiples of 16, and XLA pads others up to that: cuBLAS
documentation, cublasLtMatmul; XLA, gemm_rewriter.cc."""
HISTORY = 1024
"""Maxima that Keras keeps of each tensor to find its scale: `QuantizedFloat8DTypePolicy`, its default."""
_CAST_BYTES = 4.0
"""Bytes that each value of input, kernel and gradient costs beside the product. It is read once in 16 bits,
and written twice in 8: as it is, and transposed, because cuBLAS reads both operands row by row. That it is
one read and two writes is our judgement."""
_PRODUCTS = 6.0
"""FLOP of a training step for each multiplication: two, forward and for both gradients."""
_WITHOUT = 'model = build_model()  # without model.quantize("float8")'
_USUAL = "NVIDIA H100 80GB HBM3"


@frozen
class Product:
    """The product of a layer: `rows` of the whole batch, the features that it sums over (`read`) and those
    that it makes; None: not known."""

    layer: LayerFacts
    rows: int | None
    read: int | None
    made: int | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that are known."""
        return tuple(size for size in (self.rows, self.read, self.made) if size)

    @property
    def odd(self) -> tuple[int, ...]:
        """Sizes that float8 products cannot have, each once."""
        return tuple(dict.fromkeys(size for size in self.sizes if size % MULTIPLE))

    @property
    def reuse(self) -> float | None:
        """How often each value of the three matrices is multiplied; None: a size is not known."""
        return 1 / sum(1 / size for size in self.sizes) if self.whole else None

    @property
    def whole(self) -> bool:
        """Whether all three sizes are known."""
        return len(self.sizes) == 3


def without_units(model: Untrained, reason: str, code: str, *, half: bool) -> Note:
    """Return what a card without matrix units means for a model: `half` whether its products are in 16 bits.
    Rounding to float8 comes on top, and is left out first."""
    names = [layer.name for layer in layers_of(model.layers)]
    if names:
        reason += f"; rounding {evidence.listed(names)} to float8 comes on top"
        code = "\n".join(filter(None, (code, _WITHOUT)))
    return Note("warning" if half or names else "info", None, reason, code)


def layers_of(layers: Sequence[LayerFacts]) -> tuple[LayerFacts, ...]:
    """Return the layers that multiply in float8, as far as their policies say."""
    return tuple(layer for layer in expected.multiplying(layers) if layer.quantized == "float8")


def quantised(signals: Signals) -> tuple[LayerFacts, ...] | NotApplicable:
    """Return the run's float8 layers, or why nothing is asked of them: it has none, or used no GPU. Unable
    where its layers are not known."""
    if signals.case.run.facts is None and signals.framework not in frameworks.KERAS | {"unknown"}:
        return NotApplicable("only Keras quantises layers to float8 by their policy")
    layers = layers_of(need(signals.layers_in_16_bits))
    if not layers:
        return NONE
    return NO_GPU if signals.without_gpu else layers


def multiplied(signals: Signals) -> tuple[LayerFacts, ...] | NotApplicable:
    """Return the run's float8 layers, or why nothing is asked of their products: the card has none in it."""
    layers, device = quantised(signals), known(signals.device)
    if isinstance(layers, NotApplicable) or device is None:
        return layers
    return NO_PRODUCTS if expected.multiplies_float8(device) is False else layers


def products(
    layers: Sequence[LayerFacts], known: Sequence[LayerFacts], batch: int | None
) -> Iterator[Product]:
    """Yield the products of these layers at a global batch. `known`: all layers of the model."""
    by_name = {layer.name: layer for layer in known}
    for layer in layers:
        positions = flops.rows(layer, by_name)
        rows = None if batch is None or positions is None else batch * positions
        yield Product(layer, rows, shapes.read(layer, layer.input_shape), shapes.width(layer))


def unknown_sizes(products: Iterable[Product]) -> str:
    """Return which of these layers have sizes that are not known; empty: none."""
    names = [each.layer.name for each in products if not each.whole]
    return f"not all sizes of {evidence.listed(names)} are known" if names else ""


def least_reuse(peaks: DevicePeaks | None) -> float | None:
    """Return how often each value must be multiplied for the time that float8 saves to be that of its casts:
    by the card's rates in 16 and 8 bits and its bandwidth. None: it has no rate for float8. For a card whose
    rates are not known, those of an H100 are used."""
    found = peaks or _usual()
    rates, bandwidth = found.flops_per_s, found.bandwidth_bytes_per_s
    narrow, half = rates.get("fp8"), rates.get("bf16")
    if not narrow or not half or not bandwidth:
        return None
    saved_s = _PRODUCTS * (1 / half - 1 / narrow)
    return _CAST_BYTES / (STREAMING * bandwidth) / saved_s


def _usual() -> DevicePeaks:
    product = device_peaks.by_name(_USUAL)
    assert product is not None
    return product.peaks()


def sentence(layers: Sequence[LayerFacts]) -> str | None:
    """Return which of a model's layers are in float8, what stays beside them, and what each keeps; None: none
    is."""
    narrow = layers_of(layers)
    if not narrow:
        return None
    names, shares = {layer.name for layer in narrow}, flops.shares(layers)
    of = " (their share of the multiplications is not known)"
    if names <= shares.keys():
        share = round(sum(shares[name] for name in names), 9)
        of = f" ({format_ratio(share)} of the multiplications with weights)"
    rest: dict[str, list[str]] = {}
    for layer in expected.multiplying(layers):
        if layer.name not in names:
            rest.setdefault(layer.compute_dtype or "a type that is not known", []).append(layer.name)
    own = [layer.name for layer in layers if kinds.is_attention(layer)]
    stays = [f"{evidence.listed(those)} in {dtype}" for dtype, those in rest.items()]
    stays += [f"the products of queries with keys and values ({evidence.listed(own)})"] if own else []
    return (
        f"Quantised to float8: {evidence.listed([layer.name for layer in narrow])}{of}; "
        + (f"not quantised: {', '.join(stays)}; " if stays else "")
        + "each such layer measures its input, kernel and gradient at every step and keeps "
        + f"3 x {HISTORY:,} maxima"
    )
