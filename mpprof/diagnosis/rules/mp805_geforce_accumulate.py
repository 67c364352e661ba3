"""A GeForce card runs 16-bit matrix work with float32 sums at half rate.

What it means
    On GeForce cards of the RTX 30 and 40 series Tensor Cores accumulate in float32 at half the rate of
    float16, and frameworks accumulate in float32. The ceiling is half of the largest figure in the data
    sheet.

How we know
    The device's name; without one its number of multiprocessors and its memory.

What it costs
    Nothing that can be recovered: it only lowers what mixed precision can gain.

When to ignore
    Always, once known.

Sources
    NVIDIA GA102 and Ada GPU architecture white papers (peak rates by accumulation). pt#46377 (RTX 3070 and
    3090: little gain).
"""

from __future__ import annotations

import re

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP805", "geforce-accumulate", "A GeForce card sums in float32 at half rate"
ABOUT = "GeForce cards that sum at half rate"

_NAME = re.compile(r"\bGeForce\s+RTX\s*[34]0\d\d\b", re.IGNORECASE)


def judge(signals: Signals) -> Outcome:
    if signals.without_gpu:
        return NO_GPU
    if need(signals.compute_dtype) not in HALF_DTYPES:
        return NOT_IN_16_BITS
    device = need(signals.device)
    if device.vendor not in MAYBE_NVIDIA:
        return NOT_NVIDIA
    names = [device.name] if device.name else [card.name for card in device_peaks.recognised(device)]
    halved = {bool(_NAME.search(name)) for name in names}
    if len(halved) != 1:
        return Unable(f"the device's name is missing{signals.hint('record run')}")
    name = " or ".join(names)
    if halved == {False}:
        return NotApplicable(f"{name} is not a GeForce RTX 30 or 40")
    return Found(
        summary=f"{name} sums 16-bit products in float32 at half of the highest rate on its data sheet",
        evidence=(evidence.text("device", name),),
        confidence="medium",
        severity="info",
    )
