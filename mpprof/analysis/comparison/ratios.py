"""What each part of a float32 step could become in 16 bits on the device at hand: the ratios of a comparison.

Two ratios for every part of the baseline: the *ceiling*, from the least time that operations, bytes and peaks
allow, and the *attainable* one, from what kernels of this kind did reach (`analysis.attainable`). What a
policy leaves in float32 stays as it is. Ratios are of times, baseline over mixed, and never below 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mpprof.analysis.attainable.engine import SHORT, halved, least
from mpprof.analysis.attainable.evidence import Evidence, Pair
from mpprof.analysis.attainable.work import HALF_BYTES, MEMORY_BOUND, SIXTEEN_BITS, Work
from mpprof.model.account import Cell, Class, Phase
from mpprof.model.frozen import frozen
from mpprof.model.kernels import COMPUTE_DTYPES, Family, Placement, Precision
from mpprof.model.run import Run

MOSTLY = 0.8
"""Share of a part's time whose bytes stand for all of it (our judgement)."""


class MatchKey(NamedTuple):
    """What two runs are aligned by. `family` and `op` are finer than the account's classes; `op` is None
    where the two runs name their ops differently."""

    category: Class
    phase: Phase
    layer: str | None
    family: Family | None
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
    def work(self) -> Work:
        return Work(
            self.key.category, self.ns, self.busy_ns, self.calls, self.key.family, self.placement,
            self.precision, self.flops, self.bytes, op=self.key.op,
        )  # fmt: skip


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
    float8: frozenset[str] = frozenset()  # layers that are quantised to float8

    def of(self, layer: str | None) -> Precision | None:
        return self.by_layer.get(layer, self.becomes) if layer else self.becomes


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


def pairs(baseline: Mapping[MatchKey, Part], mixed: Mapping[MatchKey, Part]) -> list[Pair]:
    """Return the aligned matrix parts that run in 16 bits on matrix units in the mixed run."""
    return [
        Pair(before.work, mixed[key].work)
        for key, before in baseline.items()
        if key.category == "matmul" and key in mixed and mixed[key].work.in_16_bits
        if before.ns > 0 and mixed[key].ns > 0
    ]


def ratio(part: Part, mine: Part | None, target: Target, evidence: Evidence) -> Ratio:
    """Return what `part` of the baseline could become. `mine`: the same role in the mixed run."""
    stays = _stays(part, mine, target)
    if stays:
        fusible = part.key.layer in target.norms and part.key.category in MEMORY_BOUND and not target.same
        return Ratio(1.0, HALF_BYTES if fusible else 1.0, stays)
    work = part.work
    if part.key.layer in target.float8 and part.key.category == "matmul":
        return _in_float8(part, mine, target, evidence)
    found = least(work, target.becomes or "fp16", evidence)
    if part.key.category != "matmul":
        if mine is not None and _fused(part, mine) and part.moved and mine.moved:
            best = work.floored(part.ns * max(0.5, min(1.0, mine.moved / part.moved)))
            return _of_times(part, best, found.low, "memory-bound, by the bytes that both programs move")
        return _of_times(part, halved(work), found.low, found.source)
    likely = found.likely
    if likely is not None and mine is not None and mine.work.in_16_bits and mine.ns > 0:
        likely = max(found.low or 0.0, min(likely, mine.ns))  # it did no worse than it does
    return _of_times(part, likely, found.low, found.source)


def _in_float8(part: Part, mine: Part | None, target: Target, evidence: Evidence) -> Ratio:
    """Return what a product could become in float8. At best: its time in 16 bits, as the card's rates in 8
    and 16 bits stand to each other; not known where the rates are not. Attainable: its time in 16 bits, or
    what it took in float8 where that is less. A card without a rate for float8 multiplies in 16 bits."""
    half, work = target.becomes or "bf16", part.work
    found = least(work, half, evidence)
    wide, narrow = evidence.rate(half), evidence.rate("fp8")
    low, likely = found.low, found.likely
    if work.in_16_bits:
        low, likely = part.ns if low is None else low, part.ns
    faster = narrow / wide if wide and narrow else 1.0
    low = None if low is None or not wide else work.floored(low / faster)
    best = f"at best {faster:.2g}x that" if wide else "the card's rate is not known"
    if likely is not None and mine is not None and mine.precision == "fp8" and mine.ns > 0:
        likely = max(low or 0.0, min(likely, mine.ns))
    return _of_times(part, likely, low, f"{found.source}; in float8 {best}")


def _of_times(part: Part, likely: float | None, low: float | None, source: str) -> Ratio:
    def times(ns: float | None) -> float | None:
        return None if ns is None else part.ns / ns if 0 < ns < part.ns else 1.0

    return Ratio(times(likely), times(low), source)


def _stays(part: Part, mine: Part | None, target: Target) -> str:
    """Return why this part takes as long in 16 bits as before; empty: it does not."""
    category = part.key.category
    if category == "profiling" or category.startswith("idle_"):
        return "not work of the device"
    if category not in MEMORY_BOUND and category != "matmul":
        return f"{category.replace('_', ' ')}: stays as it is"
    if target.same:
        return "both runs compute in the same type"
    if part.work.bound_by_launching:
        return SHORT
    if part.precision in SIXTEEN_BITS and not (category == "matmul" and part.key.layer in target.float8):
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
