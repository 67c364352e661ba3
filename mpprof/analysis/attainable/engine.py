"""`least`: what a piece of work could take at best in another precision."""

from __future__ import annotations

import re
from collections.abc import Callable

from mpprof.analysis.attainable import calibration
from mpprof.analysis.attainable.evidence import Evidence
from mpprof.analysis.attainable.work import (
    FED_RATIO,
    FEWER_OPERATIONS,
    FLOOR_NS,
    HALF_BYTES,
    LARGE_SHARE,
    LAUNCH_BOUND_NS,
    MEMORY_BOUND,
    NARROW,
    SIXTEEN_BITS,
    USUAL_RATIO,
    Work,
    roofline,
    streaming_ns,
)
from mpprof.model.account import Class
from mpprof.model.finding import Confidence
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision

SHORT = f"kernels under {LAUNCH_BOUND_NS / 1000:.0f} µs: bound by launching"
_TABLES = r"fbgemm|embedding_codegen|split_embedding|SplitLookup|permute_pooled_embs|bounds_check_indices"
"""Ops and kernels of FBGEMM's embedding tables (torchrec): lookups, and backward passes with the optimizer's
update fused in. Autocast reaches neither; their type is that of the table."""


@frozen
class Least:
    """Times per step, low <= likely <= high. `low`: no less, by operations and bytes at the card's peaks, or
    as the peaks of both arithmetics stand to each other; None: nothing bounds it. `likely`: what kernels of
    this kind reach; None: not known. `high`: what it takes where nothing certain helps. `source` of
    `likely`, or why there is none, with how far to trust it."""

    low: float | None
    likely: float | None
    high: float
    source: str
    confidence: Confidence = "medium"


def least(
    work: Work,
    precision: Precision,
    evidence: Evidence,
    *,
    compared_ns: float | None = None,
    badly_fed: bool = False,
) -> Least:
    """Return what the work takes in `precision`: "fp16" or "bf16" on matrix units, with half the bytes; or
    what 16-bit work took in "fp32" or "tf32".

    `compared_ns`: what the comparison with a baseline leaves of it. `badly_fed`: it has the arithmetic
    already, and feeds it badly (`evidence.badly_fed`). Whether a policy lets the work change at all is the
    caller's question."""
    if precision not in SIXTEEN_BITS:
        return _before(work, precision, evidence)
    if why := _stays(work, evidence):
        return Least(work.ns, work.ns, work.ns, why, "high")
    if work.category == "matmul":
        return _matmul(work, precision, evidence, compared_ns, badly_fed)
    if work.category in MEMORY_BOUND and work.precision not in SIXTEEN_BITS:
        half = halved(work)
        return Least(half, half, work.ns, "memory-bound, half the bytes in 16 bits")
    return Least(work.ns, work.ns, work.ns, "stays as it is", "high")


def halved(work: Work) -> float:
    """Return the time of work that is bound by memory with its float32 tensors in half their bytes: all that
    it moves, unless its shapes state what of it is float32."""
    wide = 1.0 if work.wide_ratio is None else work.wide_ratio
    less = work.ns * wide * (1 - 1 / HALF_BYTES)
    return work.ns if work.bound_by_launching else work.floored(work.ns - less)


def eligible(work: Work) -> bool:
    """Return whether this is matrix work that matrix units could do in 16 bits and did not: no helper of such
    work, and not depthwise."""
    if work.category != "matmul" or work.family == "depthwise" or work.precision == "fp64":
        return False
    return work.placement == "cuda_core" or in_tf32(work)


def in_tf32(work: Work) -> bool:
    return work.accelerated and work.precision == "tf32"


def of_a_table(work: Work) -> bool:
    """Return whether the work looks up or updates FBGEMM's embedding tables, which no autocast narrows."""
    return work.category == "gather_scatter" and bool(re.search(_TABLES, f"{work.op} {work.kernel}"))


def _stays(work: Work, evidence: Evidence) -> str:
    """Return why the hardware takes as long in 16 bits; empty: it does not."""
    if work.bound_by_launching:
        return SHORT
    if work.precision == "fp64":
        return "float64: no policy narrows it"
    if of_a_table(work):
        return "FBGEMM's embedding tables: no autocast narrows them"
    if work.category == "matmul" and evidence.peaks is not None and not evidence.peaks.has_matrix_units:
        return f"{evidence.peaks.name} has no matrix units"
    return ""


# --- matrix work in 16 bits --------------------------------------------------------------------------------


def _matmul(
    work: Work, precision: Precision, evidence: Evidence, compared_ns: float | None, badly_fed: bool
) -> Least:
    if work.family == "depthwise":
        why = "depthwise: no kernels on matrix units, bound by memory"
        return Least(halved(work), work.ns, work.ns, why)
    bound, by_peaks = _bound(work, precision, evidence), _by_peaks(work, precision, evidence)
    low = bound if bound is not None else by_peaks
    if bound is not None and by_peaks is not None and not work.accelerated:
        low = max(bound, by_peaks)
    for source, confidence, way in _WAYS:
        if way is _as_large_products and not badly_fed:
            continue
        found = compared_ns if way is None else way(work, precision, evidence)
        if found is not None:
            least_ns = by_peaks if bound is None else bound
            likely = work.floored(max(found, _streaming(work, evidence), least_ns or 0.0))
            if way is _calibrated and (row := _row(work, precision, evidence)):
                source = f"{source}: {row.source}"
            low = None if low is None else min(low, likely)
            return Least(low, likely, max(likely, _high(work, evidence)), source, confidence)
    why = "no kernel of this kind ran in 16 bits on matrix units here, and none was calibrated"
    return Least(low, None, _high(work, evidence), why, "low")


def _bound(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    """Return the time of the operations and bytes on matrix units at the peaks; None where they are not
    known. By bytes at most half of what it takes now: if it moves them faster than the memory can, they are
    in a cache."""
    roof = evidence.roof(work, precision)
    if roof is None:
        return None
    return work.floored(roof[0] if roof[1] == "compute" else min(roof[0], _same_rate(work)))


def _same_rate(work: Work) -> float:
    """Return the time of the work if it moves its bytes in 16 bits at today's rate."""
    return work.ns / HALF_BYTES if work.precision in ("fp32", "tf32") else work.ns


def _by_peaks(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    """Return the time of the work if it comes as near to the peak in 16 bits as to that of its arithmetic.

    Kernels come no nearer to the peak of matrix units than to that of ordinary arithmetic, so this bounds
    work that leaves it. Kernels in TF32 may be far from their peak and those in 16 bits near it: on an H100
    one convolution took 4.41 ms and 0.81 (`sample_traces/recorded-h100-convnet-*`). There it serves only
    where operations or bytes are not known."""
    ran, could = evidence.rate(_arithmetic(work)), evidence.rate(precision)
    if work.precision in (None, "unknown") or work.in_16_bits or not ran or not could:
        return None
    return work.floored(work.ns * min(1.0, ran / could))


def _arithmetic(work: Work) -> str:
    """Return the key of `DevicePeaks.flops_per_s` for the arithmetic that ran. 16-bit storage on ordinary
    arithmetic computes in float32 unless the name says half2, which we cannot tell: the float32 rate is the
    usual case."""
    return str(work.precision) if work.accelerated else "fp32_cuda"


def _streaming(work: Work, evidence: Evidence) -> float:
    """Return the time in which its bytes can be moved in 16 bits: at most half of what it takes now, as half
    the bytes at the same rate do."""
    moved, peaks = work.bytes_in_16_bits, evidence.peaks
    if not moved or peaks is None or not peaks.bandwidth_bytes_per_s:
        return 0.0
    return min(_same_rate(work), streaming_ns(moved, peaks.bandwidth_bytes_per_s))


def _high(work: Work, evidence: Evidence) -> float:
    if eligible(work) and not in_tf32(work) and not evidence.saves(work):
        return work.floored(work.ns / USUAL_RATIO)
    return work.ns


def _in_this_trace(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    if (by_roof := evidence.by_roof(work, precision)) is not None:
        return by_roof
    if evidence.roof(work, precision) is None and (by_rate := evidence.by_rate(work)) is not None:
        return by_rate
    return evidence.by_pairs(work)


def _as_near_to_its_peak(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    """Return the time of the work if it comes as near to its peak in 16 bits as it comes to the peak of the
    arithmetic that it runs on, less what matrix units usually leave of theirs."""
    roof, ran = evidence.roof(work, precision), evidence.rate(_arithmetic(work))
    if work.in_16_bits or roof is None or roof[1] != "compute" or not ran or not work.flops or work.ns <= 0:
        return None
    share = min(1.0, work.flops / ran * 1e9 / work.ns)
    return roof[0] / (share * (1.0 if work.accelerated else FED_RATIO)) + work.calls * FLOOR_NS


def _calibrated(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    row = _row(work, precision, evidence)
    return work.ns / row.ratio if row else None


def _row(work: Work, precision: Precision, evidence: Evidence) -> calibration.Calibration | None:
    if evidence.peaks is None or work.family is None or work.precision is None:
        return None
    ran: Precision = "fp32" if work.placement == "cuda_core" else work.precision
    return calibration.find(evidence.peaks.name, work.family, ran, precision)


def _as_large_products(work: Work, precision: Precision, evidence: Evidence) -> float | None:
    roof = evidence.roof(work, precision)
    if roof is None or roof[1] != "compute":
        return None
    return roof[0] / LARGE_SHARE + work.calls * FLOOR_NS


_Way = Callable[[Work, Precision, Evidence], float | None]
_WAYS: tuple[tuple[str, Confidence, _Way | None], ...] = (
    ("16-bit kernels of the same kind in this trace", "high", _in_this_trace),
    ("its share of the peak rate of the arithmetic that it ran on", "medium", _as_near_to_its_peak),
    ("the comparison with the baseline", "high", None),
    ("the calibration table of this card", "medium", _calibrated),
    ("the share of the peak that large aligned products reach", "medium", _as_large_products),
)
"""In this order: the nearest evidence first."""


# --- the float32 twin of 16-bit work -----------------------------------------------------------------------

ONLY_IN_16_BITS: frozenset[Class] = frozenset(("cast", "loss_scale"))


def _before(work: Work, precision: Precision, evidence: Evidence) -> Least:
    """Return what the work took in float32: casts and loss scaling nothing; 16-bit products on matrix units
    at least twice their time on ordinary arithmetic and their own in TF32, no less than their operations and
    bytes take at the peaks (convolutions may do with a quarter of the operations), and at most the ratio of
    the peaks; other 16-bit work its own time to twice that; the rest the same."""
    source = "the peak rates of this card"
    if work.category in ONLY_IN_16_BITS:
        return Least(0.0, None, 0.0, source)
    high = work.ns * _times_in_float32(work, precision, evidence)
    if work.category.startswith("idle_"):
        return Least(0.0, None, high, source)
    narrow = work.accelerated and work.precision in NARROW
    if work.category != "matmul" or not narrow or work.bound_by_launching:
        return Least(work.ns, None, high, source)
    usual = work.ns * (1.0 if precision == "tf32" else USUAL_RATIO)
    operations = (work.flops or 0.0) / (FEWER_OPERATIONS if work.kind == "convolution" else 1.0)
    bandwidth = evidence.peaks.bandwidth_bytes_per_s if evidence.peaks and work.flops else None
    moved = work.bytes * HALF_BYTES if work.bytes else None
    roof = roofline(operations, moved, _rate_in_float32(precision, evidence), bandwidth)
    return Least(min(high, max(usual, roof[0] if roof else 0.0)), None, high, source)


def _times_in_float32(work: Work, precision: Precision, evidence: Evidence) -> float:
    """Return how many times as long the work took in float32, at most."""
    if work.precision not in SIXTEEN_BITS and (work.category != "matmul" or work.precision not in NARROW):
        return 1.0
    ran, before = evidence.rate(work.precision), _rate_in_float32(precision, evidence)
    if work.category == "matmul" and work.accelerated and ran and before:
        return max(1.0, ran / before)
    return HALF_BYTES


def _rate_in_float32(precision: Precision, evidence: Evidence) -> float | None:
    return evidence.rate("tf32" if precision == "tf32" else "fp32_cuda")
