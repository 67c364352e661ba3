"""bfloat16 on a GPU that has no units for it.

What it means
    bfloat16 arithmetic came with compute capability 8.0. Before it the library converts to float32 and back
    around every product: slower than float32.

How we know
    The model computes in bfloat16 and the device's compute capability is below 8.0.

What it costs
    One run cannot show it: compare with float32 on the same card.

When to ignore
    When only the memory matters.

Sources
    openxla/xla#12429 and jax#21212 (T4: a bfloat16 product at less than half the float32 speed). NVIDIA CUDA
    programming guide (bfloat16 from 8.0 on).
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP804", "bf16-emulated", "bfloat16 without units for it"
ABOUT = "emulated bfloat16"
LEADS = INACTIVE

FIRST_WITH_BF16 = (8, 0)


def judge(signals: Signals) -> Outcome:
    if signals.without_gpu:
        return NO_GPU
    if need(signals.compute_dtype) != "bfloat16":
        return signals.not_in("bfloat16")
    device = need(signals.device)
    if device.vendor not in MAYBE_NVIDIA:
        return NOT_NVIDIA
    capability = need(signals.capability)
    words = f"{capability[0]}.{capability[1]}"
    if capability >= FIRST_WITH_BF16:
        return Clear(f"compute capability {words} has bfloat16")
    return Found(
        summary=(
            f"{device.name or 'this GPU'} (compute capability {words}) emulates bfloat16, slower than float32"
        ),
        said=f"this card ({short_name(device.name or 'a GPU')}) emulates bfloat16, slower than float32",
        proof=f"its compute capability is {words}; units for bfloat16 begin at 8.0",
        evidence=(
            evidence.text("compute capability", words, "8.0"),
            evidence.text("compute dtype", "bfloat16"),
        ),
        severity="error",
    )


def check_model(model: Untrained) -> Iterator[Note]:
    card = model.gpu
    layers = model.computing_in("bfloat16")
    if not layers or card is None or card.compute_capability is None:
        return
    if device_peaks.vendor(card) not in MAYBE_NVIDIA or card.compute_capability >= FIRST_WITH_BF16:
        return
    major, minor = card.compute_capability
    units = device_peaks.has_tensor_cores(card) is not False
    reason = (
        f"would be emulated on {card.name or 'this GPU'} (compute capability {major}.{minor}), slower than "
        "float32: units for bfloat16 begin at 8.0"
    )
    if units and model.policy and "bfloat16" not in model.policy:  # by policies of their own
        for layer in layers:
            yield Note("error", layer.name, reason, model.changed(layer, dtype="mixed_float16")[1])
        return
    reason = f"{evidence.listed([f.name for f in layers])} {reason}"
    remedy = model.snippet(CODE) if units else f'{model.signals.words["set_policy"]}("float32")'
    yield Note("error" if units else "warning", None, reason, remedy)
