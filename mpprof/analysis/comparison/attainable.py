"""What each part of a float32 step could become in 16 bits on the device at hand: the ratios of a comparison.

Two ratios for every part of the baseline: the *ceiling*, from peak rates, and the *attainable* one, from what
kernels of this kind did reach. Ratios are of times, baseline over mixed, and never below 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mpprof.analysis.comparison import calibration
from mpprof.model.account import Cell, Class, Phase
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, Placement, Precision
from mpprof.model.run import Run

SHORTEST_NS = 5_000.0
"""Kernels below this are bound by launching and ramping up, not by arithmetic or bytes: they do not get
faster in 16 bits."""
FLOOR_NS = 2_000.0
"""No kernel is expected to become shorter than this."""
REACHABLE_BANDWIDTH = 0.8
"""Share of the peak bandwidth that streaming kernels reach (our judgement: 75 to 92 % in STREAM)."""
SIMILAR = 8.0
"""Kernels whose work per call differs by no more than this factor are of similar size."""

MOSTLY = 0.8
"""Share of a part's time whose bytes stand for all of it (our judgement)."""

SIXTEEN_BITS: frozenset[Precision] = frozenset(("fp16", "bf16"))
MEMORY_BOUND: frozenset[Class] = frozenset(("norm", "elementwise", "reduce", "gather_scatter", "layout"))


class MatchKey(NamedTuple):
    """What two runs are aligned by. `family` and `op` are finer than the account's classes; `op` is None
    where the two runs name their ops differently."""

    category: Class
    phase: Phase
    layer: str | None
    family: str | None
    op: str | None


@frozen
class Part:
    """All cells of one role in one run. `placement` and `precision` are those of most of its time. `moved`:
    its bytes, where they are known for most of its time, and as many for the rest."""

    key: MatchKey
    ns: float  # per step
    calls: float
    busy_ns: float
    flops: float | None
    bytes: float | None
    placement: Placement | None
    precision: Precision | None
    moved: float | None = None

    @property
    def accelerated_in_16_bits(self) -> bool:
        return self.placement in ACCELERATED and self.precision in SIXTEEN_BITS

    @property
    def ns_per_call(self) -> float | None:
        return self.busy_ns / self.calls if self.calls > 0 else None


@frozen
class Ratio:
    """`attainable` None: not known. `ceiling` None: the device's peaks are not known."""

    attainable: float | None
    ceiling: float | None
    source: str


@frozen
class Target:
    """What the mixed run computes in: of its policy, and by layer where one has a policy of its own.

    `becomes` None: not known, or not 16 bits. `same`: both runs compute in the same type, and nothing is
    expected to change by precision."""

    becomes: Precision | None
    by_layer: Mapping[str, Precision]
    same: bool = False
    norms: frozenset[str] = frozenset()  # layers that compute in float32 whatever the policy
    computes: Precision | None = None  # what the mixed run computes in, 16 bits or not

    def of(self, layer: str | None) -> Precision | None:
        return self.by_layer.get(layer, self.becomes) if layer else self.becomes


def streaming_ns(moved_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Return the time in which a streaming kernel moves so many bytes."""
    return moved_bytes / (bandwidth_bytes_per_s * REACHABLE_BANDWIDTH) * 1e9


def precision_of(dtype: str | None) -> Precision | None:
    """Return the precision that a Keras dtype or policy name computes in; None for what is not known."""
    return COMPUTE_DTYPES.get(dtype.removeprefix("mixed_")) if dtype else None


def compiled(run: Run) -> bool:
    """Return whether XLA compiles the step, and so fuses norms and their casts."""
    fit, facts = run.last_fit, run.facts
    return bool(fit and fit.jit_compile is True) or bool(facts and facts.framework.get("backend") == "jax")


def parts(cells: Iterable[Cell], keys: Sequence[MatchKey]) -> dict[MatchKey, Part]:
    """Return the parts that the cells form by role; `keys[i]` is the role of the i-th cell."""
    gathered: dict[MatchKey, list[Cell]] = {}
    for cell, key in zip(cells, keys, strict=True):
        gathered.setdefault(key, []).append(cell)
    return {key: _part(key, members) for key, members in gathered.items()}


def _part(key: MatchKey, cells: Sequence[Cell]) -> Part:
    times: dict[tuple[Placement | None, Precision | None], float] = {}
    for cell in cells:
        verdict = (cell.placement, cell.precision)
        times[verdict] = times.get(verdict, 0.0) + cell.ns_per_step
    placement, precision = max(times, key=lambda verdict: times[verdict])
    return Part(
        key=key,
        ns=sum(cell.ns_per_step for cell in cells),
        calls=sum(cell.calls_per_step for cell in cells),
        busy_ns=sum(cell.busy_ns_per_step for cell in cells),
        flops=_total([cell.flops_per_step for cell in cells]),
        bytes=_total([cell.bytes_per_step for cell in cells]),
        placement=placement,
        precision=precision,
        moved=_moved(cells),
    )


def _moved(cells: Sequence[Cell]) -> float | None:
    stated = [cell for cell in cells if cell.bytes_per_step is not None]
    time, of = sum(cell.ns_per_step for cell in stated), sum(cell.ns_per_step for cell in cells)
    if of <= 0 or time / of < MOSTLY:
        return None
    return sum(cell.bytes_per_step or 0.0 for cell in stated) * of / time


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) and known else None


# --- the ratio of one part ---------------------------------------------------------------------------------


def ratio(part: Part, mine: Part | None, target: Target, peers: Peers, peaks: DevicePeaks | None) -> Ratio:
    """Return what `part` of the baseline could become. `mine`: the same role in the mixed run."""
    stays = _stays(part, mine, target)
    if stays:
        fusible = part.key.layer in target.norms and part.key.category in MEMORY_BOUND and not target.same
        return Ratio(1.0, 2.0 if fusible else 1.0, stays)
    if part.key.category == "matmul":
        return _matmul(part, target, peers, peaks)
    if mine is not None and _fused(part, mine) and part.moved and mine.moved:
        most = min(2.0, max(1.0, part.moved / mine.moved))
        return _floored(part, Ratio(most, 2.0, "memory-bound, by the bytes that both programs move"))
    return _floored(part, Ratio(2.0, 2.0, "memory-bound, half the bytes in 16 bits"))


def _stays(part: Part, mine: Part | None, target: Target) -> str:
    """Return why this part takes as long in 16 bits as before; empty: it does not."""
    category = part.key.category
    if category == "profiling" or category.startswith("idle_"):
        return "not work of the device"
    if category not in MEMORY_BOUND and category != "matmul":
        return f"{category.replace('_', ' ')}: stays as it is"
    if target.same:
        return "both runs compute in the same type"
    if bound_by_launching(part):
        return f"kernels under {SHORTEST_NS / 1000:.0f} µs: bound by launching"
    if part.precision in SIXTEEN_BITS:
        return "already in 16 bits in the baseline"
    if category == "matmul":
        return "" if target.becomes else "the mixed run's compute type is not known"
    if mine is not None and mine.precision in SIXTEEN_BITS:
        return ""
    if part.key.layer in target.norms and (mine is None or mine.precision == "fp32"):
        return "Keras normalises in float32, and nothing fused it here"
    if mine is not None and _fused(part, mine):
        return ""
    if part.key.layer is None or target.of(part.key.layer) not in SIXTEEN_BITS:
        return "its tensors stay float32"
    if part.key.family == "random":
        return "random numbers are drawn in float32 whatever the policy"
    return ""


def _fused(part: Part, mine: Part) -> bool:
    """Return whether the part, whose layer is not known, became a fusion that reads or writes tensors in 16
    bits beside others in float32. Measured on an H100 (ResNet-50, batch 128): 10.0 ms of such sums took
    6.0 ms in mixed_float16."""
    return part.key.layer is None and part.precision == "fp32" and mine.precision == "mixed"


def bound_by_launching(part: Part) -> bool:
    """Return whether the kernels of the part are too short to become faster in 16 bits."""
    return part.ns_per_call is not None and part.ns_per_call < SHORTEST_NS


def _floored(part: Part, found: Ratio) -> Ratio:
    """Return the ratio within its limits: no call becomes shorter than FLOOR_NS, nor slower than it was."""
    per_call = part.ns_per_call
    most = per_call / FLOOR_NS if per_call else float("inf")

    def bounded(value: float | None) -> float | None:
        return None if value is None else max(1.0, min(value, most))

    return Ratio(bounded(found.attainable), bounded(found.ceiling), found.source)


def _matmul(part: Part, target: Target, peers: Peers, peaks: DevicePeaks | None) -> Ratio:
    becomes = target.becomes or "fp16"
    if part.key.family == "depthwise":
        return _floored(part, Ratio(1.0, 2.0, "depthwise: no kernels on matrix units, bound by memory"))
    ceiling = _ceiling(part, becomes, peaks)
    if peaks is not None and not peaks.has_matrix_units:
        return Ratio(1.0, ceiling, f"{peaks.name} has no matrix units")
    attainable, source = peers.ratio(part, becomes, peaks)
    if attainable is None and peaks is not None and part.precision is not None:
        row = calibration.find(peaks.name, part.key.family or "", part.precision, becomes)
        if row is not None:
            attainable, source = row.ratio, f"calibration: {row.source}"
    if attainable is None:
        source = "no kernel of this kind ran in 16 bits on matrix units here, and none was calibrated"
    if attainable is not None:
        attainable = min([attainable, *(most for most in (ceiling, _by_bytes(part, peaks)) if most)])
    return _floored(part, Ratio(attainable, ceiling, source))


def _ceiling(part: Part, becomes: Precision, peaks: DevicePeaks | None) -> float | None:
    """Return the highest ratio that the peaks allow: those of the arithmetic that ran and of the one that
    could, capped by the bytes that the part must move."""
    if peaks is None or part.precision is None:
        return None
    rates = peaks.flops_per_s
    accelerated = part.placement in ACCELERATED
    ran = rates.get(part.precision if accelerated else f"{part.precision}_cuda")
    could = rates.get(becomes) or rates.get(f"{becomes}_cuda")
    if not ran or not could:
        return None
    most = could / ran
    by_bytes = _by_bytes(part, peaks, 1.0)
    return max(1.0, most if by_bytes is None else min(most, by_bytes))


def _by_bytes(part: Part, peaks: DevicePeaks | None, share: float = REACHABLE_BANDWIDTH) -> float | None:
    """Return how much faster moving half the bytes could make the part, at this share of the bandwidth; at
    least twice."""
    if peaks is None or not part.bytes or not peaks.bandwidth_bytes_per_s or not part.busy_ns:
        return None
    least_ns = part.bytes / 2 / (peaks.bandwidth_bytes_per_s * share) * 1e9
    return max(2.0, part.busy_ns / least_ns)


# --- what ran on matrix units in this very trace -----------------------------------------------------------


@frozen
class Peer:
    """A matrix part that runs in 16 bits on matrix units in the mixed run, beside its baseline."""

    kind: str
    before: Part
    after: Part


class Peers:
    """The evidence of the two traces themselves."""

    def __init__(self, baseline: Mapping[MatchKey, Part], mixed: Mapping[MatchKey, Part]) -> None:
        self._peers = [
            Peer(_kind(key), before, mixed[key])
            for key, before in baseline.items()
            if key.category == "matmul" and key in mixed and mixed[key].accelerated_in_16_bits
            if before.ns > 0 and mixed[key].ns > 0
        ]

    def ratio(
        self, part: Part, becomes: Precision = "fp16", peaks: DevicePeaks | None = None
    ) -> tuple[float | None, str]:
        """Return the ratio that similar kernels reached, and the words for it.

        By their distance from the roofline where operations and bytes are known on both sides; else by their
        rates; else from the ratios that aligned kernels of the same baseline arithmetic reached. A part that
        itself runs on matrix units is expected to do no worse than it does.
        """
        kind = _kind(part.key)
        same = [peer for peer in self._peers if peer.kind == kind]
        own = next((peer for peer in same if peer.before is part), None)
        by_roof = _by_roof(part, same, becomes, peaks)
        if by_roof is not None:
            reached, count = by_roof
            if own is not None:
                reached = max(reached, own.before.ns / own.after.ns)
            return reached, f"roofline share of {count} {kind} part(s) on matrix units in this trace"
        peers = [peer for peer in same if _similar(peer.before, part)]
        if not peers and part.flops and part.bytes:
            peers = same  # of another size, but then bytes bound it too
        rated = [
            (part.ns / part.flops * (peer.after.flops / peer.after.ns), peer.after.ns)
            for peer in peers
            if part.flops and peer.after.flops
        ]
        paired = [
            (peer.before.ns / peer.after.ns, peer.before.ns)
            for peer in peers
            if (peer.before.placement, peer.before.precision) == (part.placement, part.precision)
        ]
        found = rated or paired
        if not found:
            return None, ""
        reached = _weighted_median(found)
        if own is not None:
            reached = max(reached, own.before.ns / own.after.ns)
        return reached, f"rate of {len(found)} similar {kind} part(s) on matrix units in this trace"


def least_ns(
    flops: float | None, bytes: float | None, precision: Precision, peaks: DevicePeaks | None
) -> tuple[float, str] | None:
    """Return what work takes at least in this precision on matrix units, and whether "compute" or "memory"
    bounds it; None where operations, bytes or peaks are not known."""
    rate = peaks.flops_per_s.get(precision) if peaks else None
    if not flops or not bytes or not rate or peaks is None or not peaks.bandwidth_bytes_per_s:
        return None
    compute, memory = flops / rate * 1e9, bytes / peaks.bandwidth_bytes_per_s * 1e9
    return (compute, "compute") if compute >= memory else (memory, "memory")


def _by_roof(
    part: Part, same: Sequence[Peer], becomes: Precision, peaks: DevicePeaks | None
) -> tuple[float, int] | None:
    """Return (ratio, peers) of a part that comes as near to its roofline as similar parts come to theirs:
    those with the same bound. Failing those, what is bound by memory comes as near as streaming kernels do,
    and what is bound by compute as the others."""
    roof = least_ns(part.flops, part.bytes / 2 if part.bytes else None, becomes, peaks)
    if roof is None or part.ns <= 0:
        return None
    found = []
    for peer in same:
        theirs = least_ns(peer.after.flops, peer.after.bytes, becomes, peaks)
        if theirs is not None:
            # Without starting and draining, of which long kernels have no more than short ones.
            running_ns = max(theirs[0], peer.after.ns - peer.after.calls * FLOOR_NS)
            found.append((peer, theirs[0] / running_ns, theirs[1] == roof[1]))
    bound = [(peer, share) for peer, share, alike in found if alike]
    if found and not bound and roof[1] == "memory":
        return part.ns / (roof[0] / REACHABLE_BANDWIDTH + part.calls * FLOOR_NS), len(found)
    bound = bound or [(peer, share) for peer, share, _ in found]
    near = [(share, peer.after.ns) for peer, share in bound if _similar(peer.before, part)]
    chosen = near or [(share, peer.after.ns) for peer, share in bound]
    if not chosen:
        return None
    return part.ns / (roof[0] / _weighted_median(chosen) + part.calls * FLOOR_NS), len(chosen)


def _kind(key: MatchKey) -> str:
    family = key.family or ""
    return "convolution" if family.startswith("conv_") else family


def _similar(one: Part, other: Part) -> bool:
    """Return whether two parts are similar: by operations per call where both state them, else by time per
    call in the baseline."""
    if one.flops and other.flops and one.calls and other.calls:
        first, second = one.flops / one.calls, other.flops / other.calls
    else:
        first, second = one.ns_per_call or 0.0, other.ns_per_call or 0.0
    return 0 < first <= SIMILAR * second and second <= SIMILAR * first


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median of pairs (value, weight); the upper one of two equal halves."""
    ordered = sorted(values)
    half, seen = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        seen += weight
        if seen > half:
            return value
    return ordered[-1][0]
