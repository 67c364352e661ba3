"""Float32 runs on Tensor Cores already, as TF32.

What it means
    From compute capability 8.0 on, TensorFlow computes float32 matrix work in TF32 on Tensor Cores unless
    told otherwise. 16 bits are then usually up to 2 times faster than that, not 8 or 16; more only where the
    TF32 kernels ran far below their peak. PyTorch leaves dense layers in true float32 unless told otherwise,
    and convolutions in TF32: then only a part of the work is in TF32.

How we know
    The baseline's own kernels, else its recorded TF32 switch. Without a baseline it is the switch of this
    run, because a float32 run of the same script would have the same one. For a float32 run, its own kernels.

What it costs
    Nothing: it only lowers what mixed precision can gain.

When to ignore
    Always, once known.

Sources
    TensorFlow guide "Mixed precision" (little gain on A100 for the toy model because of TF32). pt#57806
    (V100 120 -> 67 s, A100 53 -> 50 s). NVIDIA A100 and H100 data sheets (TF32 is half of FP16).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.model.frozen import frozen

CODE, SLUG, TITLE = "MP803", "tf32-baseline", "Float32 runs on Tensor Cores already, as TF32"
ABOUT = "float32 that runs in TF32"

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
            *rates_shown(baseline or signals, whose),
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
    far = reached(baseline, FAR_RATIO) if baseline else None
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
    rest = in_float32(baseline)
    said = f"{format_ratio(ran)} of matrix time in float32 ran as TF32 on Tensor Cores"
    if rest:
        said += f", {rest}"
    far = reached(baseline, FAR_RATIO)
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


# --- how near TF32 kernels come to their peak, and what beside them does not run in TF32 -------------------

FAR_RATIO = 0.2
"""Share of the peak: kernels below it leave so much unused that 16 bits may be far more than twice as
fast."""
LEAST_RATIO = 0.05
"""Share of the step: less is not reported."""


@frozen
class Reached:
    """Notable TF32 kernels of a step whose operations are known: rates in FLOP/s, the share of
    their peak, lowest first, and whether all of them are convolutions."""

    rates: tuple[float, ...]
    shares: tuple[float, ...]
    convolutions: bool

    @property
    def said(self) -> str:
        """ "two TF32 convolutions of it ran at 10 to 15 % of their peak" """
        count = {1: "one", 2: "two", 3: "three"}.get(len(self.shares), str(len(self.shares)))
        what = "convolution" if self.convolutions else "kernel"
        low, high = (round(100 * share) for share in (self.shares[0], self.shares[-1]))
        span = f"{low} %" if low == high else f"{low} to {high} %"
        return f"{count} TF32 {what}{'s' * (len(self.shares) > 1)} of it ran at {span} of their peak"


def reached(signals: Signals, most: float = 1.0) -> Reached | None:
    """Return what the notable TF32 kernels below the share `most` of their peak reach; None where there
    are none, or their operations or the peak are not known."""
    peaks = known(signals.peaks)
    peak = peaks.flops_per_s.get("tf32") if peaks else None
    if not peak:
        return None
    cells = [
        cell
        for cell in signals.cells
        if cell.category == "matmul" and cell.precision == "tf32" and cell.placement in ACCELERATED
        if cell.flops_per_step and cell.ns_per_step >= LEAST_RATIO * signals.whole_ns
    ]
    rates = {
        cell: (cell.flops_per_step or 0.0) / (cell.busy_ns_per_step or cell.ns_per_step) * 1e9
        for cell in cells
    }
    found = sorted((rate, cell) for cell, rate in rates.items() if rate < most * peak)
    if not found:
        return None
    return Reached(
        tuple(rate for rate, _ in found),
        tuple(rate / peak for rate, _ in found),
        all((cell.family or "").startswith("conv_") for _, cell in found),
    )


def rates_shown(signals: Signals, whose: str = "") -> tuple[Evidence, ...]:
    """Return what its TF32 kernels reach, as evidence."""
    found = reached(signals)
    if found is None:
        return ()
    peak = f"{round(100 * found.shares[0])} % of the peak"
    return (evidence.flops(f"{whose}slowest notable TF32 kernel ({peak})", found.rates[0]),)


def in_float32(signals: Signals) -> str:
    """Return where float32 matrix work does not run in TF32, as a clause: all of the dense layers, or of the
    convolutions, or some kernels; "" where that is little."""
    rows = signals.select(lambda cell: cell.category == "matmul" and cell.precision not in (None, "unknown"))
    off = [row for row in rows if signals.cells[row].placement == "cuda_core"]
    whole = signals.time(rows)
    if not whole or signals.time(off) < LEAST_RATIO * whole:
        return ""
    for what, start in (("dense layers", "gemm"), ("convolutions", "conv_")):
        own = [row for row in rows if (signals.cells[row].family or "").startswith(start)]
        slow = signals.time([row for row in own if row in off])
        fast = signals.time([row for row in own if signals.cells[row].precision == "tf32"])
        if fast < LEAST_RATIO * slow and slow >= LEAST_RATIO * whole:
            return f"TF32 is off for the {what} ({format_ratio(slow / whole)} of it)"
    return f"{format_ratio(signals.time(off) / whole)} of it in float32 on CUDA cores"
