"""How near TF32 kernels come to their peak, and what float32 work beside them does not run in TF32."""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import Signals
from mpprof.model.finding import Evidence
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED
from mpprof.model.quantities import format_ratio

FAR_RATIO = 0.2
"""Of the peak: below it kernels leave so much that their twins in 16 bits may be far more than twice as
fast."""
NOTABLE_RATIO = 0.05
"""Of the step: less is not worth a word."""


@frozen
class Reached:
    """Of the notable TF32 kernels of a step, those whose operations are known: rates in FLOP/s, the share of
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
    """Return what notable TF32 kernels reach, of those below the share `most` of their peak; None where there
    are none, or their operations or the peak are not known."""
    peaks = known(signals.peaks)
    peak = peaks.flops_per_s.get("tf32") if peaks else None
    if not peak:
        return None
    cells = [
        cell
        for cell in signals.cells
        if cell.category == "matmul" and cell.precision == "tf32" and cell.placement in ACCELERATED
        if cell.flops_per_step and cell.ns_per_step >= NOTABLE_RATIO * signals.whole_ns
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


def shown(signals: Signals, whose: str = "") -> tuple[Evidence, ...]:
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
    if not whole or signals.time(off) < NOTABLE_RATIO * whole:
        return ""
    for what, start in (("dense layers", "gemm"), ("convolutions", "conv_")):
        own = [row for row in rows if (signals.cells[row].family or "").startswith(start)]
        slow = signals.time([row for row in own if row in off])
        fast = signals.time([row for row in own if signals.cells[row].precision == "tf32"])
        if fast < NOTABLE_RATIO * slow and slow >= NOTABLE_RATIO * whole:
            return f"TF32 is off for the {what} ({format_ratio(slow / whole)} of it)"
    return f"{format_ratio(signals.time(off) / whole)} of it in float32 on CUDA cores"
