"""Where the products of a layer will run on a card, and in which type, before anything runs there.

It follows from the vendors' documents on the card and the type that the layer computes in, which the layer's
own policy decides, never the process'. It is what the card *can* do; a kernel that ran is judged by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpprof.analysis.kernels import device_peaks, shapes
from mpprof.analysis.layers import flops, kinds
from mpprof.model.audit import MatrixWork
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, NARROW, Placement, Precision
from mpprof.model.run import LayerFacts

FP16_SINCE = (5, 3)
"""Arithmetic in float16: CUDA C++ Programming Guide, throughput of native arithmetic instructions."""
BF16_SINCE = (8, 0)
"""Units for bfloat16, and TF32 for float32: CUDA C++ Programming Guide, compute capability 8.0."""
FP8_SINCE = (8, 9)
"""Products in float8: cuBLAS documentation, 8-bit floating point data types."""
_OCP_FP8 = (9, 5)
"""AMD's cards take the float8 type that Keras uses (OCP) from gfx950 on, Radeon's from RDNA4 on; gfx94x takes FNUZ:
ROCm, precision support."""
_RDNA = 10
"""From gfx10 on the compute cards' numbering ends: Radeon's matrix instructions take 16-bit operands alone."""
Where = tuple[Placement, Precision, str]
DEPTHWISE_PART = " (depthwise part)"
"""What a separable convolution's name ends with where its depthwise part alone is meant."""


def matrix_work(
    layers: Sequence[LayerFacts], card: DeviceFacts, *, tf32: bool | None = None
) -> tuple[MatrixWork, ...]:
    """Return where each layer that multiplies with weights will run, of a separable convolution its two parts. `tf32`
    False: it was switched off."""
    shares = flops.shares(layers)
    by_name = {layer.name: layer for layer in layers}
    found = [_of(layer, card, tf32, shares, by_name) for layer in multiplying(layers)]
    return tuple(part for each in found for part in _parts(each, by_name[each.layer], card))


def _parts(whole: MatrixWork, layer: LayerFacts, card: DeviceFacts) -> tuple[MatrixWork, ...]:
    """Return the pointwise and the depthwise part of a separable convolution, which share its multiplications as
    they share its weights; any other layer as it is."""
    if not kinds.is_separable(layer):
        return (whole,)
    unit, precision, reason = _depthwise(layer, card)
    ratio = kinds.depthwise_ratio(layer)
    if whole.share is None or ratio is None:
        deep = wide = None
    else:
        deep, wide = whole.share * ratio, whole.share * (1 - ratio)
    part = MatrixWork(whole.layer + DEPTHWISE_PART, unit, precision, deep, reason)
    return replace(whole, share=wide), part


def multiplying(layers: Sequence[LayerFacts]) -> tuple[LayerFacts, ...]:
    """Return the layers that multiply with weights of their own, each once; for attention, its
    projections."""
    by_name = {layer.name: layer for layer in layers}
    return tuple(
        layer
        for layer in layers
        if kinds.is_matrix(layer)
        and layer.parameters != 0
        and not kinds.is_attention(layer)
        and not flops.repeats(layer, by_name)
    )


def _of(
    layer: LayerFacts,
    card: DeviceFacts,
    tf32: bool | None,
    shares: Mapping[str, float],
    by_name: Mapping[str, LayerFacts],
) -> MatrixWork:
    unit, precision, reason = where(layer, card, tf32=tf32)
    made = shapes.made(layer)
    risk = _risk(layer, by_name) if precision in NARROW else None
    return MatrixWork(
        layer.name, unit, precision, shares.get(layer.name), reason, risk, *(made or (None, None))
    )


def _risk(layer: LayerFacts, by_name: Mapping[str, LayerFacts]) -> str | None:
    """Return why 16-bit products of these sizes may run narrowly or off the matrix units; None: nothing seen."""
    made = shapes.made(layer)
    if made and made[1] % shapes.ALIGNMENT:
        return f"{made[0]} {made[1]:,} is not a multiple of {shapes.ALIGNMENT}"
    if isinstance(groups := layer.config.get("groups"), int) and groups > 1:
        return f"groups {groups}"
    return None


def where(layer: LayerFacts, card: DeviceFacts, *, tf32: bool | None = None) -> Where:
    """Return the unit that a layer's products run on, the type of their operands there, and why."""
    if kinds.is_depthwise(layer):
        return _depthwise(layer, card)
    has = device_peaks.has_matrix_units(card)
    name = card.name or "a card of this capability"
    if has is None:
        return "unknown", "unknown", f"whether {name} has matrix units is not known"
    if card.kind == "tpu":
        return "matrix_core", "bf16", "a TPU multiplies in bfloat16"
    if layer.quantized and layer.quantized != "float8":
        return "unknown", "unknown", f"quantised to {layer.quantized}: it depends on the kernel"
    nvidia = device_peaks.vendor(card) in MAYBE_NVIDIA
    if layer.quantized == "float8" and has and multiplies_float8(card):
        unit: Placement = "tensor_core" if nvidia else "matrix_core"
        return unit, "fp8", "quantised to float8, where XLA compiles it to a float8 product"
    found = _nvidia(layer, card, has, tf32) if nvidia else _other(layer, card, has)
    if layer.quantized == "float8":
        return found[0], found[1], f"{name} has no product in this float8: turned back first; {found[2]}"
    return found


def _depthwise(layer: LayerFacts, card: DeviceFacts) -> Where:
    if card.kind == "tpu":
        return "unknown", "unknown", "which unit of a TPU takes a depthwise convolution is not known"
    own = COMPUTE_DTYPES.get(layer.compute_dtype or "", "unknown")
    return "cuda_core", _ordinary(own, card), "a depthwise convolution has no kernel on matrix units"


def _ordinary(own: Precision, card: DeviceFacts) -> Precision:
    """Return the type that ordinary arithmetic of a card multiplies `own` in: 16 bits that it has no
    instructions for are turned into float32 (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
    since = {"fp16": FP16_SINCE, "bf16": BF16_SINCE}.get(own)
    early = since and card.compute_capability and card.compute_capability < since
    return "fp32" if early and device_peaks.vendor(card) in MAYBE_NVIDIA else own


def emulates_bfloat16(card: DeviceFacts | None) -> bool:
    """Return whether the card is known to have no units for bfloat16, which others of its vendor have."""
    capability = card.compute_capability if card is not None else None
    return card is not None and bool(
        capability and capability < BF16_SINCE and device_peaks.vendor(card) in MAYBE_NVIDIA
    )


def multiplies_float8(card: DeviceFacts) -> bool | None:
    """Return whether the card's matrix units multiply the float8 types that Keras uses; None: not known."""
    if device_peaks.has_matrix_units(card) is False:
        return False
    if device_peaks.vendor(card) in MAYBE_NVIDIA:
        return card.compute_capability >= FP8_SINCE if card.compute_capability else None
    types = device_peaks.matrix_types(card)
    if types is None or not card.compute_capability:
        return None
    return "fp8" in types and card.compute_capability >= _OCP_FP8


def _nvidia(layer: LayerFacts, card: DeviceFacts, has: bool, tf32: bool | None) -> Where:
    own = COMPUTE_DTYPES.get(layer.compute_dtype or "", "unknown")
    late = card.compute_capability is not None and card.compute_capability >= BF16_SINCE
    if own == "bf16" and not late:
        return "cuda_core", "fp32", "bfloat16 is emulated before compute capability 8.0: turned into float32"
    if own == "unknown":
        return "unknown", "unknown", "what it computes in is not known"
    if not has:
        return "cuda_core", _ordinary(own, card), "the card has no Tensor Cores"
    if own == "fp64":
        rates = getattr(device_peaks.product_of(card), "rates", {})
        return ("tensor_core" if "fp64" in rates else "cuda_core"), own, "float64"
    if own != "fp32":
        return "tensor_core", own, f"it computes in {layer.compute_dtype}"
    if not late:
        return "cuda_core", own, "Tensor Cores before compute capability 8.0 take no float32"
    if tf32 is False:
        return "cuda_core", own, "float32, with TF32 switched off"
    return "tensor_core", "tf32", "float32 runs as TF32 unless it is switched off"


def _other(layer: LayerFacts, card: DeviceFacts, has: bool) -> Where:
    own = COMPUTE_DTYPES.get(layer.compute_dtype or "", "unknown")
    if own == "unknown":
        return "unknown", "unknown", "what it computes in is not known"
    if not has and own == "bf16":  # AMD's ISA documents before CDNA and RDNA3
        return "cuda_core", "fp32", "the card has no arithmetic in bfloat16: turned into float32"
    if not has:
        return "cuda_core", own, "the card has no matrix units"
    types, capability = device_peaks.matrix_types(card), card.compute_capability
    wide = own in ("fp32", "fp64")
    takes = own in types if types is not None else not (wide and capability and capability[0] >= _RDNA)
    if not takes:
        return "cuda_core", own, f"its matrix units take no {layer.compute_dtype}"
    return "matrix_core", own, f"it computes in {layer.compute_dtype}"


def least_ns(
    layers: Sequence[LayerFacts], work: Sequence[MatrixWork], card: DeviceFacts, batch: int | None
) -> float | None:
    """Return the time of a step's products at the card's peak rates, forward and the weights' gradients: no
    training takes less, by the direct algorithm. None: the batch, a rate or a unit is not known."""
    peaks = device_peaks.peaks(card)
    if peaks is None or batch is None or not work:
        return None
    whole = sum(flops.multiplications(layers).values())
    trained = {layer.name: layer.trainable for layer in layers}
    total = 0.0
    for each in work:
        rate = _rate(each, peaks.flops_per_s)
        if not rate or each.share is None:
            return None
        passes = 1 if trained[each.layer.removesuffix(DEPTHWISE_PART)] is False else 2
        total += 2 * passes * each.share * whole * batch / rate
    return total * 1e9


def _rate(each: MatrixWork, rates: Mapping[str, float]) -> float | None:
    if each.unit in ACCELERATED:
        return rates.get(each.precision)
    if each.unit == "unknown":
        return None
    wide = rates.get("fp32_cuda")
    return max(rates.get("fp16_cuda", 0.0), wide or 0.0) if each.precision == "fp16" else wide
