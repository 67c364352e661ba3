"""Products too small to become faster in float8.

What it means
    float8 halves the time of a product at best. In addition each value of input, kernel and gradient is read,
    measured, scaled and cast, and Keras keeps three histories of 1,024 maxima a layer, all updated at every
    step. A product that multiplies each value often gains; a small or thin one takes longer than in bfloat16.

How we know
    The recorded sizes of each float8 layer and the batch. M, K and N multiply each value 1/(1/M + 1/K + 1/N)
    times; above a number that follows from the rates and the bandwidth of the card, about 490 on an H100, the
    time saved exceeds that of the casts. This is an estimate. With M, K and N of 1,024, 2,048 and 1,024 (410
    times) torchao measured 0.80x; with 4,096, 8,192 and 16,384 (2,341 times) 1.39x.

What it costs
    Not stated: compare with the layer left in 16 bits.

When to ignore
    When float8 is used for its numerics.

Sources
    pytorch/ao, torchao/float8/README.md (the two measurements, and why small shapes lose). pytorch/ao#1297
    (GPT of 1.5B parameters: 4 % faster, not more). pytorch/ao#2262 and pytorch/ao#572 (slower on small
    layers). TransformerEngine#445 (a batch of 10,240: slower with 1,024 features, faster with 5,120). Read in
    Keras 3.15.1: `Dense._float8_build`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.shared_rows import own_names, without_float8
from mpprof.diagnosis.shared import float8

CODE, SLUG, TITLE = "MP414", "float8-small", "Products too small to become faster in float8"
ABOUT = "float8 products that are too small"
SPECIFICITY = NAMED
OF_ACCELERATOR = True
ON_RECORDS = True
MOST = 0.5
"""With more than half of the multiplications of the float8 layers too small, float8 is more likely a loss."""


def judge(signals: Signals) -> Outcome:
    layers = float8.multiplied(signals)
    if isinstance(layers, NotApplicable):
        return layers
    device, fit = known(signals.device), known(signals.fit)
    least = _least(device)
    if least is None:
        return Unable("the card's rates in 8 and 16 bits are not known")
    if fit is None or fit.batch_size is None:
        return Unable(f"the batch size was not recorded{signals.hint('record model')}")
    model = need(signals.layers)
    products = list(float8.products(layers, model, fit.batch_size))
    reuses = {each.layer.name: each.reuse for each in products if each.reuse is not None}
    if not reuses:
        return Unable("the sizes of the float8 layers were not recorded")
    small = [name for name, reuse in reuses.items() if reuse < least]
    if not small and (why := float8.unknown_sizes(products)):
        return Unable(why)
    if not small:
        return Clear(
            f"each value is multiplied {min(reuses.values()):,.0f} times or more; {least:,.0f} are enough"
        )
    share = _share(small, reuses, flops.shares(model))
    return Found(
        summary=f"{evidence.listed(small)}: each value is multiplied {_times(small, reuses)} times, and "
        f"{_pays(device)}",
        said="{layers} {has} products too small to become faster in float8",
        evidence=(
            evidence.count("float8 layers that are too small", len(small), 0),
            evidence.text("multiplications of each value", _times(small, reuses), f"{least:,.0f}, estimated"),
        ),
        confidence="medium",
        severity="warning" if share > MOST else "info",
        values={"names": own_names(small)},
        layers=tuple(small),
    )


def _least(device: DeviceFacts | None) -> float | None:
    return float8.least_reuse(device_peaks.peaks(device) if device else None)


def _pays(device: DeviceFacts | None) -> str:
    """Return how often each value must be multiplied for float8 to pay, on a card with such products."""
    whose = "" if device is not None and device_peaks.peaks(device) is not None else " by an H100's rates"
    return f"float8 pays from about {_least(device):,.0f} on (estimated{whose})"


def _share(small: Sequence[str], of: Mapping[str, float], shares: Mapping[str, float]) -> float:
    """Return the small layers' part of the multiplications in float8 layers; if these are not known, their
    part of the number of layers."""
    whole = sum(shares.get(name, 0.0) for name in of)
    return sum(shares.get(name, 0.0) for name in small) / whole if whole else len(small) / len(of)


def _times(small: Sequence[str], reuses: Mapping[str, float]) -> str:
    few, many = min(reuses[name] for name in small), max(reuses[name] for name in small)
    return f"{few:,.0f}" if round(few) == round(many) else f"{few:,.0f} to {many:,.0f}"


def check_model(model: Untrained) -> Iterator[Note]:
    found = model.found.get(CODE)
    if found is None:
        return
    batch = model.fit.batch_size if model.fit else None
    for each in float8.products(float8.layers_of(model.layers), model.layers, batch):
        if each.layer.name in found.layers and each.reuse is not None:
            sizes = " x ".join(f"{size:,}" for size in each.sizes)
            yield Note(
                found.severity,
                each.layer.name,
                f"{sizes}: each value is multiplied {each.reuse:,.0f} times, {_pays(model.gpu)}",
                without_float8(found.layers),
            )
