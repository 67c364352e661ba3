"""A GeForce card runs 16-bit matrix work with float32 sums at half rate.

What it means
    On GeForce cards of the RTX 30 and 40 series Tensor Cores add up in float32 at half the rate of float16
    sums, and frameworks add up in float32. The ceiling is half of what the largest figure in the data sheet
    promises.

How we know
    The device's name.

What it costs
    Nothing that could be had back: it is the right ceiling.

What to do
    Nothing; expect the rate "FP16 with FP32 accumulate" of the card's data sheet:

        mpprof doctor        # shows the card and what it can reach

When to ignore
    Always, once known.

Sources
    NVIDIA GA102 and Ada GPU architecture white papers (peak rates by accumulation). pt#46377 (RTX 3070 and
    3090: little gain).
"""

from __future__ import annotations

import re

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Unable, known, need
from mpprof.diagnosis.signals import HALF_DTYPES, RECORD_RUN, Signals

CODE, SLUG, TITLE = "MP805", "geforce-accumulate", "A GeForce card sums in float32 at half rate"
SPECIFICITY = GENERAL

_NAME = re.compile(r"\bGeForce\s+RTX\s*[34]0\d\d\b", re.IGNORECASE)


def judge(signals: Signals) -> Outcome:
    if need(signals.compute_dtype) not in HALF_DTYPES:
        return Clear("the run is not in mixed precision")
    if known(signals.accelerator) in ("cpu", "tpu"):
        return Unable("the run used no GPU")
    name = need(signals.device).name
    if not name:
        return Unable(f"the device's name is missing; {RECORD_RUN}")
    if not _NAME.search(name):
        return Clear(f"{name} is no GeForce RTX 30 or 40")
    return Found(
        summary=f"{name} sums 16-bit products in float32 at half the rate of its largest figure",
        remedy="none: the ceiling is the data sheet's rate with float32 accumulation",
        evidence=(evidence.text("device", name),),
        confidence="medium",
        severity="info",
    )
