"""What keeps the attainable speedup low: the parts of the attainable step, and why they become no shorter.

Amdahl's law in words: where the optimizer in float32 takes 61 % of the float32 step, nothing that is done to
the products makes the step much shorter.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpprof.model.account import Class, Limit, LimitKind
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, Placement, Precision

HALVED_RATIO = 1.5
"""Work whose bytes are halved becomes up to twice as fast; less than this is as good as nothing."""
_FLOAT32: frozenset[Class] = frozenset(
    ("optimizer", "norm", "elementwise", "reduce", "gather_scatter", "layout")
)


@frozen
class Share:
    """Time of a float32 step in one class, and what becomes of it at best. `short`: bound by launching."""

    category: Class
    ns: float
    best_ns: float
    short: bool = False
    placement: Placement | None = None
    precision: Precision | None = None


def limits(shares: Iterable[Share], whole_ns: float, host_ns: float | None = None) -> tuple[Limit, ...]:
    """Return the parts of the attainable step, the longest first. `whole_ns`: the float32 step. `host_ns`:
    the time that the host needs, where that is more than the device's work takes at best; then nothing else
    limits."""
    if host_ns is not None:
        return (Limit("idle_launch", "host", host_ns, host_ns, min(1.0, host_ns / whole_ns)),)
    gathered: dict[tuple[Class, LimitKind], list[Share]] = {}
    for share in shares:
        if share.category != "profiling":
            gathered.setdefault((share.category, _kind(share)), []).append(share)
    parts_ns = sum(max(0.0, share.ns) for own in gathered.values() for share in own)
    whole_ns = max(whole_ns, parts_ns)  # those of a profiled step are longer
    found = [
        _limit(category, kind, own, whole_ns) for (category, kind), own in gathered.items() if whole_ns > 0
    ]
    return tuple(sorted((limit for limit in found if limit.best_ns > 0), key=lambda limit: -limit.best_ns))


def _limit(category: Class, kind: LimitKind, shares: list[Share], whole_ns: float) -> Limit:
    ns = sum(share.ns for share in shares)
    return Limit(category, kind, ns, sum(share.best_ns for share in shares), ns / whole_ns)


def _kind(share: Share) -> LimitKind:
    if share.category.startswith("idle_"):
        return "wait"
    if share.short:
        return "short"
    if share.category == "matmul":
        return "tf32" if share.precision == "tf32" and share.placement in ACCELERATED else "compute"
    if share.ns >= HALVED_RATIO * share.best_ns:
        return "memory"
    return "float32" if share.category in _FLOAT32 else "same"
