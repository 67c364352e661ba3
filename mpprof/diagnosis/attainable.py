"""What cells of the account could be at best, as claims: the other half of every cost.

What a piece of work could take is told by `analysis.attainable`; here it becomes what a rule claims of its
cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpprof.analysis.attainable import engine
from mpprof.analysis.attainable.work import MOST_STREAMING, SIXTEEN_BITS, streaming_ns, work_of
from mpprof.diagnosis.cells import badly_fed
from mpprof.diagnosis.outcomes import Absent, Claim, Missing, known
from mpprof.diagnosis.signals import Signals
from mpprof.model.account import Cell, Class, GapSlice
from mpprof.model.finding import Confidence
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED


@frozen
class Attainable:
    """Claims on cells, where their attainable value comes from, and how far to trust it."""

    claims: tuple[Claim, ...]
    source: str
    confidence: Confidence


def whole(rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return the claims that the cells need not be there at all."""
    return tuple(Claim(row) for row in rows)


def scaled(signals: Signals, rows: Iterable[int], ratio: float) -> tuple[Claim, ...]:
    """Return the claims that the cells could be `ratio` times faster; those that are launch-limited could
    not."""
    return tuple(
        Claim(row, signals.cells[row].ns_per_step / ratio)
        for row in rows
        if not work_of(signals.cells[row]).bound_by_launching
    )


def halved(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return claims on memory-bound work at the time that it would take if its tensors had half the bytes."""
    works = {row: work_of(signals.cells[row]) for row in rows}
    return tuple(Claim(row, engine.halved(w)) for row, w in works.items() if not w.bound_by_launching)


def streamed(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return the claims that the cells could take no longer than one pass over their bytes. None of a cell
    whose bytes are not known, nor where the memory's rate is not; launches take what they take."""
    peaks = known(signals.peaks)
    if peaks is None or not peaks.bandwidth_bytes_per_s:
        return ()
    claims = []
    for row in rows:
        work = work_of(signals.cells[row])
        if work.bytes and not work.bound_by_launching:
            claims.append(Claim(row, work.floored(streaming_ns(work.bytes, peaks.bandwidth_bytes_per_s))))
    return tuple(claims)


def at_best_rates(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return the claims that memory-bound cells could move their bytes as fast as the fastest cell of their
    class in this trace whose calls move half as much or more. A rate that no memory gives is a cache's, or of
    bytes that were not moved: it tells nothing. None of a cell whose bytes are not known, or that is
    launch-limited; none at all where the memory's rate is not known."""
    peaks = known(signals.peaks)
    most = MOST_STREAMING * ((peaks.bandwidth_bytes_per_s if peaks else None) or 0.0) / 1e9
    sized = {row: size for row, cell in enumerate(signals.cells) if (size := _bytes_per_call(cell))}
    rates = {row: rate for row in sized if (rate := _bytes_per_ns(signals.cells[row])) <= most}
    claims = []
    for row in rows:
        cell = signals.cells[row]
        if row not in rates or work_of(cell).bound_by_launching:
            continue
        best = max(
            rate
            for at, rate in rates.items()
            if signals.cells[at].category == cell.category and sized[at] >= sized[row] / 2
        )
        if best > rates[row]:
            claims.append(Claim(row, cell.ns_per_step * rates[row] / best))
    return tuple(claims)


def _bytes_per_call(cell: Cell) -> float:
    return (
        (cell.bytes_per_step or 0.0) / cell.done_per_step if cell.done_per_step and cell.ns_per_step else 0.0
    )


def _bytes_per_ns(cell: Cell) -> float:
    """Return the rate at which a cell moves its bytes while it runs, hidden time included."""
    return (cell.bytes_per_step or 0.0) / (cell.busy_ns_per_step or cell.ns_per_step)


def lessened(signals: Signals, claims: tuple[Claim, ...], ns: float) -> tuple[Claim, ...]:
    """Return the same claims with `ns` less to gain in all, because the remedy itself takes as long."""
    gain = sum(signals.cells[claim.cell].ns_per_step - claim.attainable_ns for claim in claims)
    if gain <= 0 or ns <= 0:
        return claims
    keep = min(1.0, ns / gain)
    return tuple(
        Claim(c.cell, c.attainable_ns + (signals.cells[c.cell].ns_per_step - c.attainable_ns) * keep)
        for c in claims
    )


def matrix(signals: Signals, rows: Iterable[int]) -> Attainable | Absent:
    """Return what matrix work that did not run in 16 bits on matrix units, or feeds them badly, would take if
    it had: what is likely, else what the peak rates allow, which is of low confidence. `Absent` where nothing
    tells."""
    rows = tuple(rows)
    long = [row for row in rows if not work_of(signals.cells[row]).bound_by_launching]
    shares = _SharesOfGap(signals)
    claims: list[Claim] = []
    sources: dict[str, Confidence] = {}
    for row in long:
        cell = signals.cells[row]
        found = engine.least(
            work_of(cell), "bf16" if signals.half == "bf16" else "fp16", signals.reached,
            compared_ns=shares.without_excess(cell), badly_fed=badly_fed(signals, row),
        )  # fmt: skip
        best_ns, source, trust = found.likely, found.source, found.confidence
        if best_ns is None and found.low is not None and found.low < cell.ns_per_step:
            best_ns, source, trust = found.low, "the device's peak rates (a ceiling)", "low"
        if best_ns is not None:
            claims.append(Claim(row, best_ns))
            sources[source] = trust
    if not claims and rows and not long:
        return Absent("all kernels of this matrix work are so short that launch overhead limits them")
    if not claims:
        return Absent(_why_unknown(signals, long))
    order: tuple[Confidence, ...] = ("low", "medium", "high")
    return Attainable(tuple(claims), " and ".join(sorted(sources)), min(sources.values(), key=order.index))


def needed(signals: Signals, rows: Iterable[int], seen: str) -> Attainable:
    """Return what `matrix` does. Where it knows nothing, the rule that asks becomes *unable*, and states what
    was `seen`."""
    best = matrix(signals, rows)
    if isinstance(best, Absent):
        raise Missing(Absent(f"{seen}, but {best}"))
    return best


def _why_unknown(signals: Signals, rows: Sequence[int]) -> str:
    """Return why no way is open to tell what the matrix work could reach."""
    in_16_bits = all(
        signals.cells[row].placement in ACCELERATED and signals.cells[row].precision in SIXTEEN_BITS
        for row in rows
    )
    ran = (
        "it ran in 16 bits on matrix units, but no kernel of its kind has full loads and known FLOPs and "
        "bytes"
        if in_16_bits
        else "no 16-bit matrix kernel of its kind with known FLOPs and bytes ran"
    )
    baseline = (
        "there is no baseline"
        if known(signals.speedup) is None
        else "the baseline has no aligned kernel of its kind"
    )
    peaks = _why_no_peak(signals, rows)
    return f"what this matrix work could reach is not known: {ran}; {baseline}, and {peaks}"


def _why_no_peak(signals: Signals, rows: Sequence[int]) -> str:
    """Return why the device's peak rates tell nothing, either."""
    if known(signals.peaks) is None:
        return "the device's peaks are not known"
    if not all(signals.cells[row].flops_per_step and signals.cells[row].bytes_per_step for row in rows):
        return "the device's peaks tell nothing without its FLOPs and bytes"
    return "the device's peaks give no higher rate than the measured one"


class _SharesOfGap:
    """The comparison's slices by class and layer, each with the time of its fallbacks; none where they are
    plain differences between runs."""

    def __init__(self, signals: Signals) -> None:
        speedup = known(signals.speedup)
        slices = () if speedup is None or speedup.expected is None else speedup.slices
        self._slices: dict[tuple[Class, str | None], GapSlice] = {(s.category, s.layer): s for s in slices}
        self._fallback_ns: dict[tuple[Class, str | None], float] = {}
        for row in signals.not_in_16_bits if slices else ():
            cell = signals.cells[row]
            if (part := self._of(cell)) is not None:
                key = (part.category, part.layer)
                self._fallback_ns[key] = self._fallback_ns.get(key, 0.0) + cell.ns_per_step

    def _of(self, cell: Cell) -> GapSlice | None:
        return self._slices.get((cell.category, cell.layer)) or self._slices.get((cell.category, None))

    def without_excess(self, cell: Cell) -> float | None:
        """Return the time of the cell without its part of the slice's excess over its attainable time, which
        the fallback cells of the slice share by their time."""
        part = self._of(cell)
        if part is None or part.baseline_ns <= 0:
            return None
        total = self._fallback_ns.get((part.category, part.layer), 0.0)
        return cell.ns_per_step * (1 - min(1.0, max(0.0, part.ns_per_step) / total)) if total > 0 else None
