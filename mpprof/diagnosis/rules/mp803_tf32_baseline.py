"""Float32 runs on Tensor Cores already, as TF32.

What it means
    From compute capability 8.0 on, TensorFlow computes float32 matrix work in TF32 on Tensor Cores unless
    told otherwise. 16 bits are then usually up to 2 times faster than that, not 8 or 16; more only where the
    TF32 kernels ran far below their peak. PyTorch leaves dense layers in true float32 unless told otherwise,
    and convolutions in TF32: then it is a part.

How we know
    The baseline's own kernels, else its recorded TF32 switch; without a baseline the switch of this run,
    since a float32 run of the same script would have the same. For a float32 run, its own kernels.

What it costs
    Nothing: it is the right ceiling.

When to ignore
    Always, once known.

Sources
    TensorFlow guide "Mixed precision" (little gain on A100 for the toy model because of TF32). pt#57806
    (V100 120 -> 67 s, A100 53 -> 50 s). NVIDIA A100 and H100 data sheets (TF32 is half of FP16).
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import (
    GENERAL,
    NO_GPU,
    NOT_IN_16_BITS,
    NOT_NVIDIA,
    Clear,
    Found,
    NotApplicable,
    Outcome,
    Unable,
    known,
    need,
)
from mpprof.diagnosis.shared import tf32
from mpprof.diagnosis.signals import Signals
from mpprof.model.device import MAYBE_NVIDIA
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP803", "tf32-baseline", "Float32 runs on Tensor Cores already, as TF32"
ABOUT = "float32 that runs in TF32"
SPECIFICITY = GENERAL
BOUND = "device"

FIRST_WITH_TF32 = (8, 0)
NOTABLE_RATIO = 0.10
"""A tenth of the baseline's matrix time in TF32 is enough to change the ceiling."""


def judge(signals: Signals) -> Outcome:
    if signals.without_gpu:
        return NO_GPU
    own = need(signals.compute_dtype) == "float32"
    if signals.half is None and (not own or _ratio_in_kernels(signals) is None):
        return NOT_IN_16_BITS
    if need(signals.device).vendor not in MAYBE_NVIDIA:
        return NOT_NVIDIA
    if need(signals.capability) < FIRST_WITH_TF32:
        return NotApplicable("this GPU has no TF32")
    baseline = signals if own else known(signals.baseline)
    ran = _ratio_in_kernels(baseline) if baseline else None
    if ran is not None:
        if ran < NOTABLE_RATIO:
            return Clear(f"{'this run' if own else 'the baseline'}'s matrix work ran in true float32")
        whose = "" if own else "baseline's "
        shown = (
            evidence.ratio(f"{whose}matrix time in TF32", ran, NOTABLE_RATIO),
            *tf32.shown(baseline or signals, whose),
        )
    else:
        facts = (baseline or signals).case.run.facts
        if facts is None or facts.tf32_enabled is None:
            what = "the baseline's kernels are not known" if baseline else "no float32 run to look at"
            return Unable(f"{what}, and the TF32 switch was not recorded{signals.hint('record run')}")
        if not facts.tf32_enabled:
            return Clear("TF32 was switched off")
        shown = (evidence.text("TF32 enabled", True),)
    peaks = known(signals.peaks)
    whole = peaks.flops_per_s.get("tf32") if peaks else None
    half = peaks.flops_per_s.get(signals.half or "fp16") if peaks else None
    times = half / whole if whole and half else 2.0
    far = tf32.reached(baseline, tf32.FAR_RATIO) if baseline else None
    return Found(
        summary=_summary(baseline or signals, ran, times),
        proof="" if own or far is None else far.said.replace(" of it", " of float32"),
        evidence=(*shown, evidence.speedup("peak rate of 16 bits over that of TF32", times)),
        confidence="high" if ran is not None else "medium",
        severity="info",
    )


def _summary(baseline: Signals, ran: float | None, times: float) -> str:
    """Return how much of float32 runs in TF32, and what that means for 16 bits: the ratio of the peaks, and
    more where kernels ran far below theirs."""
    over = f"16 bits have {times:.3g} times the peak rate of that"
    if ran is None:
        return f"float32 on this GPU runs as TF32 on Tensor Cores: {over}, not the ratio to true float32"
    rest = tf32.in_float32(baseline)
    said = f"{format_ratio(ran)} of matrix time in float32 ran as TF32 on Tensor Cores"
    if rest:
        said += f", {rest}"
    far = tf32.reached(baseline, tf32.FAR_RATIO)
    return f"{said}: {over}; {far.said}, so that more is possible" if far else f"{said}: {over}"


def _ratio_in_kernels(baseline: Signals) -> float | None:
    """Return TF32's share of the time of the baseline's matrix products; None where its trace does not show
    it."""
    rows = baseline.select(
        lambda cell: (
            cell.category == "matmul"
            and cell.placement != "not_matmul"
            and cell.precision not in (None, "unknown")
        )
    )
    total = baseline.time(rows)
    if baseline.case.account is None or not total:
        return None
    return baseline.time(tuple(r for r in rows if baseline.cells[r].precision == "tf32")) / total
