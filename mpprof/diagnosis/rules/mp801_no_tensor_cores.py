"""The GPU has no Tensor Cores.

What it means
    Tensor Cores came with compute capability 7.0. Before it, 16-bit matrix work runs on ordinary arithmetic:
    at the float32 rate at best (twice that on P100, a 64th on GTX 10xx if the library computes in half).
    Mixed precision then saves memory and some bandwidth, and often makes the step longer.

How we know
    The compute capability that the trace or the run states, or the table of known devices. Before a training
    (`mpprof audit --gpu NAME`) the named card, which may be another vendor's without matrix units.

What it costs
    Nothing that can be recovered on this card.

When to ignore
    When mixed precision is used here for memory only.

Sources
    NVIDIA CUDA programming guide (arithmetic throughput by compute capability). NVIDIA/apex#153 (K40: 0.211
    against 0.220 s per iteration), apex#76. Keras 3 no longer prints TensorFlow's compatibility check.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import float8

CODE, SLUG, TITLE = "MP801", "no-tensor-cores", "This GPU has no Tensor Cores"
ABOUT = "cards without Tensor Cores"
LEADS = INACTIVE

FIRST_WITH_TENSOR_CORES = (7, 0)


def judge(signals: Signals) -> Outcome:
    if signals.without_gpu:
        return NO_GPU
    device = need(signals.device)
    if device.vendor not in MAYBE_NVIDIA:
        return NOT_NVIDIA
    capability = need(signals.capability)
    if capability >= FIRST_WITH_TENSOR_CORES:
        return Clear(f"compute capability {capability[0]}.{capability[1]}")
    name = device.name or "this GPU"
    return Found(
        summary=(
            f"{name} (compute capability {capability[0]}.{capability[1]}) has no Tensor Cores: mixed "
            "precision cannot make "
            "its matrix work faster"
        ),
        said=f"this card ({short_name(name)}) has no Tensor Cores: 16 bits save memory and often cost time",
        evidence=(
            evidence.text("compute capability", f"{capability[0]}.{capability[1]}", "7.0"),
            evidence.text("device", device.name),
        ),
        severity="warning" if signals.half else "info",
    )


def check_model(model: Untrained) -> Iterator[Note]:
    card = model.gpu
    if card is None or card.kind != "gpu" or not _is_early(card):
        return
    half = model.computing_in(*HALF_DTYPES)
    gains = (
        f"{evidence.listed([f.name for f in half])} would run on ordinary arithmetic: 16 bits save "
        "memory and often cost time"
        if half
        else "16 bits save memory here and make no product faster"
    )
    name = card.name or (f"a GPU of {card.architecture}" if card.architecture else "this GPU")
    yield float8.without_units(
        model, f"{name} has no matrix units: {gains}", model.snippet(CODE), half=bool(half)
    )


def _is_early(card: DeviceFacts) -> bool:
    """Return whether the card has no matrix units, and is not one of the Turing cards that MP802 names."""
    nvidia = device_peaks.vendor(card) in MAYBE_NVIDIA
    if not nvidia:
        return device_peaks.has_matrix_units(card) is False
    return card.compute_capability is not None and card.compute_capability < FIRST_WITH_TENSOR_CORES
