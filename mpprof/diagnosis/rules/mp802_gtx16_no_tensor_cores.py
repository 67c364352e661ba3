"""The GPU reports compute capability 7.5, but has no Tensor Cores.

What it means
    The GTX 16xx cards and their mobile and workstation siblings (TU116 and TU117) are Turing without Tensor
    Cores. Checks by compute capability alone, TensorFlow's and XProf's among them, take them for cards that
    have them.

How we know
    Compute capability 7.5 and the device's name. Names other than GTX 16xx are taken from NVIDIA's product
    lists; Tesla T4 and T4G are not among them. Without a name the number of multiprocessors decides: cards
    with Tensor Cores have 30 or more, the others 24 at most.

What it costs
    Nothing that can be recovered on this card.

When to ignore
    When mixed precision is used here for memory only.

Sources
    tf#44191 (1660 Ti: two to four times slower), NVIDIA/apex#806 (1650 slower, RTX 2080 faster with the same
    code), ggml-org/llama.cpp#4682 (44 -> 131 ms per token when 7.5 was taken for Tensor Cores).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import float8

CODE, SLUG, TITLE = "MP802", "gtx16-no-tensor-cores", "A Turing card without Tensor Cores"
ABOUT = "GTX 16 cards"
LEADS = INACTIVE

TURING = (7, 5)
_CERTAIN = r"(?i)\bGTX\s*16\d\d\b"
_LIKELY = r"(?i)\b(?:MX\s?(?:450|550)|T(?:400|500|550|600|1000|1200|2000))\b"


def judge(signals: Signals) -> Outcome:
    if signals.without_gpu:
        return NO_GPU
    device = need(signals.device)
    if device.vendor not in MAYBE_NVIDIA:
        return NOT_NVIDIA
    if need(signals.capability) != TURING:
        return NotApplicable("the card is not of the Turing generation")
    certain, likely = (bool(re.search(names, device.name or "")) for names in (_CERTAIN, _LIKELY))
    has = not (certain or likely) if device.name else device_peaks.has_tensor_cores(device)
    if has is None:
        return Unable(
            "compute capability 7.5 covers cards with Tensor Cores (RTX 20xx, T4) and without (GTX "
            "16xx), and neither the name nor the number of multiprocessors is "
            f"stated{signals.hint('record run')}"
        )
    either = device_peaks.recognised_name(device) or "this card"
    name = device.name or f"{either} ({device.sm_count} multiprocessors)"
    if has:
        return Clear(f"{name} has Tensor Cores")
    return Found(
        summary=f"{name} has no Tensor Cores, although its compute capability is 7.5",
        said=f"this card ({short_name(name)}) has no Tensor Cores: 16 bits save memory and often cost time",
        proof="it is of compute capability 7.5, like cards that have them",
        evidence=(evidence.text("device", name), evidence.text("compute capability", "7.5")),
        confidence="medium" if likely else "high",
        severity="warning" if signals.half else "info",
    )


def check_model(model: Untrained) -> Iterator[Note]:
    card = model.gpu
    if card is None or card.compute_capability != TURING or device_peaks.has_tensor_cores(card) is not False:
        return
    half = model.computing_in(*HALF_DTYPES)
    gains = (
        f"{evidence.listed([f.name for f in half])} would run on ordinary arithmetic: 16 bits save "
        "memory and often cost time"
        if half
        else "16 bits save memory here and hardly any time"
    )
    reason = (
        f"{card.name or 'this card'} has no Tensor Cores, although its compute capability is 7.5: {gains}"
    )
    yield float8.without_units(model, reason, model.snippet(CODE), half=bool(half))
