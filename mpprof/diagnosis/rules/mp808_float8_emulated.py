"""Layers are quantised to float8, and none of their products runs in it.

What it means
    Keras rounds inputs, kernels and gradients to float8 and back. XLA turns that into a product in float8
    only if it compiles the step for a card whose matrix units take float8: NVIDIA from compute capability 8.9
    on, AMD from gfx950 and RDNA4 on (MI300 takes another float8, FNUZ). Elsewhere the product runs in the
    type of the policy, and the rounding comes on top.

How we know
    Layers whose policy is float8, and their matrix kernels in the trace, none of which multiplies in 8 bits.
    Without a trace the card, the backend (PyTorch compiles no such product) and whether XLA compiles the step
    can show that no product runs in float8; only a trace can show that one does.

What it costs
    The time of the rounding. For one model of dense layers at batch 8,192 the forecast step on an A100 is
    12.16 ms in bfloat16 and 12.40 ms in float8; on an H100, which multiplies float8, it is 3.68 and 2.23 ms.

When to ignore
    When the run tests what float8 does to the accuracy, not to the time.

Sources
    keras#19488 (what `quantize("float8")` compiles to), keras#23479. TransformerEngine, datatype and hardware
    support matrix (8.9 and later). ROCm, data types and precision support (FNUZ and OCP). XLA,
    gemm_rewriter.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import float8
from mpprof.model.answer import Remedy

CODE, SLUG, TITLE = "MP808", "float8-emulated", "float8 layers whose products do not run in float8"
ABOUT = "float8 layers that multiply in a wider type"
SPECIFICITY = NAMED
OF_ACCELERATOR = True
ON_RECORDS = True
LEADS = INACTIVE

_DTYPES: dict[Precision, str] = {kind: dtype for dtype, kind in COMPUTE_DTYPES.items()} | {"tf32": "TF32"}
_SINCE = ".".join(map(str, expected.FP8_SINCE))


def judge(signals: Signals) -> Outcome:
    layers = float8.quantised(signals)
    if isinstance(layers, NotApplicable):
        return layers
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    names = {layer.name for layer in layers}
    products = [cell for cell in signals.cells if cell.category == "matmul" and cell.placement in ACCELERATED]
    mine = [cell for cell in products if cell.layer in names] or [c for c in products if c.layer is None]
    seen = bool(mine)
    mine = [cell for cell in mine if cell.precision not in (None, "unknown")]
    if mine:
        whole_ns = sum(cell.ns_per_step for cell in mine)
        narrow_ns = sum(cell.ns_per_step for cell in mine if cell.precision == "fp8")
        if narrow_ns > 0.0:
            return Clear(
                f"{format_ratio(narrow_ns / whole_ns)} of the matrix time of float8 layers is in 8 bits"
            )
        why = why_not(signals) or "no product of theirs ran in 8 bits"
        return _found(layers, why, {cell.precision for cell in mine if cell.precision})
    device = known(signals.device)
    if why := why_not(signals):
        return _found(layers, why, _expected(layers, device))
    if seen:
        return Unable("the kernels of the float8 layers do not show in which type they multiply")
    if device is None:
        return Unable(f"float8 products begin at compute capability {_SINCE}, and the card is not known")
    if expected.multiplies_float8(device) is None:
        return Unable("whether this card multiplies float8 is not known")
    return Unable(
        f"{device.name or 'the card'} multiplies float8, and only a trace shows whether these layers do; "
        "before training, mpprof forecast compiles the step and says it of each"
    )


def why_not(signals: Signals) -> str:
    """Return why these layers cannot have float8 products on this card with this backend; empty: no reason is
    known."""
    device = known(signals.device)
    if device is not None and expected.multiplies_float8(device) is False:
        return _of_card(device)
    if known(signals.backend) == "torch":
        return _OF_TORCH
    fit = known(signals.fit)
    on_gpu = known(signals.accelerator) == "gpu" and signals.case.run.steps is not None
    if known(signals.backend) == "tensorflow" and on_gpu and fit is not None and fit.jit_compile is False:
        return _WITHOUT_XLA
    return ""


def _of_card(card: DeviceFacts) -> str:
    name = card.name or "this GPU"
    capability = card.compute_capability
    if device_peaks.vendor(card) == "nvidia" and capability is not None:
        own = f"{capability[0]}.{capability[1]}"
        return f"{name} (compute capability {own}) has no float8 products: they begin at {_SINCE}"
    if "fp8" in (device_peaks.matrix_types(card) or ()):
        return f"{name} multiplies another float8 (FNUZ) than the one that Keras rounds to"
    return f"{name} has no float8 products"


_OF_TORCH = "PyTorch compiles no float8 product of Keras' rounding"
_WITHOUT_XLA = "XLA, which would make float8 products, does not compile the step"
_FIRST = {
    _OF_TORCH: Remedy(
        "train on a backend that compiles them: KERAS_BACKEND=jax", "KERAS_BACKEND=jax python train.py"
    ),
    _WITHOUT_XLA: Remedy(
        "let XLA compile the step: jit_compile=True", "model.compile(optimizer, loss, jit_compile=True)"
    ),
}


def _expected(layers: Sequence[LayerFacts], device: DeviceFacts | None) -> set[Precision]:
    """Return the types that these layers are multiplied in on this card; the types of their policies if the
    card is not known, or has float8 products that something else prevents."""
    if device is not None and expected.multiplies_float8(device) is False:
        return {expected.where(layer, device)[1] for layer in layers}
    return {COMPUTE_DTYPES.get(layer.compute_dtype or "", "unknown") for layer in layers}


def _found(layers: Sequence[LayerFacts], why: str, kinds: Set[Precision]) -> Found:
    """Return the finding for layers that are multiplied in the types `kinds`."""
    names = [layer.name for layer in layers]
    stated = sorted(_DTYPES[kind] for kind in kinds if kind in _DTYPES)
    wider = evidence.listed(stated) if len(stated) == len(kinds) else "a wider type"
    return Found(
        summary=f"{evidence.listed(names)}: quantised to float8, multiplied in {wider}: {why}",
        said=f"the float8 layers multiply in {wider}, with the rounding on top",
        proof=why,
        evidence=(evidence.count("layers in float8", len(names), 0), evidence.text("why not", why)),
        severity="warning",
        first=tuple(filter(None, (_FIRST.get(why),))),
        layers=tuple(names),
    )


def _lacks_float8(card: DeviceFacts) -> bool:
    types = device_peaks.matrix_types(card)
    return types is not None and "fp8" not in types


def check_model(model: Untrained) -> Iterator[Note]:
    found, card, layers = model.found.get(CODE), model.gpu, float8.layers_of(model.layers)
    if layers and card is not None and card.kind == "tpu" and _lacks_float8(card):
        names, tpu = evidence.listed([layer.name for layer in layers]), card.name or "this TPU"
        reason = f"{names}: quantised to float8, multiplied in bfloat16: {tpu} has no float8 units"
        yield Note("warning", None, reason, model.snippet(CODE))
    if found is not None:
        yield Note(
            "warning",
            None,
            found.summary,
            next((each.snippet for each in found.remedies if each.snippet), f"# {found.remedy}"),
        )
