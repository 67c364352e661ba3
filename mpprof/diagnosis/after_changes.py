"""What a step consists of after changes: each gains where its cause was seen to cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpprof.model.account import IDLE_CLASSES, Class, Slice
from mpprof.model.finding import Finding, WhatIf
from mpprof.model.kernels import Placement
from mpprof.model.report import Cause

PAYING_RATIO = 0.01
"""A remedy is worth a place in the plan from a hundredth of the step."""
OFF_UNITS: tuple[Placement, ...] = ("cuda_core", "cpu")
"""Where matrix work runs that does not run on matrix units."""
Parts = dict[tuple[Class, str], float]
"""Times by class and, of matrix work, placement ("" of all other)."""


def paying(plan: WhatIf | None, step_ns: float | None) -> list[str]:
    """Return the codes of the remedies that make the step noticeably shorter, in the order of the plan."""
    return (
        [row.code for row in plan.order if row.gain_ns >= PAYING_RATIO * step_ns] if plan and step_ns else []
    )


def own_ns(cause: Finding | Cause) -> float | None:
    """Return what of a cause's gain the baseline would not gain, too: this run lost it against the attainable
    step, or 16 bits brought it; None without a measured baseline that tells."""
    told = [ns for ns in (cause.recovers_ns_per_step, cause.added_ns_per_step) if ns is not None]
    return max(told) if told else None


def baseline_after(base_ns: float, found: Iterable[Finding | Cause]) -> float:
    """Return the baseline's step with the same remedies; as it is where it is not known what it gains."""
    shared = 0.0
    for each in found:
        if each.gain_ns_per_step is not None:
            if (own := own_ns(each)) is None:
                return base_ns
            shared += max(0.0, each.gain_ns_per_step - own)
    return base_ns - shared


def parts_of(slices: Iterable[Slice]) -> Parts:
    """Return the slices' time by class and placement, without the classes that hold less than nothing: what
    those take away is taken from the waits, which is where a profiler adds its time."""
    parts: Parts = {}
    for part in slices:
        places: list[tuple[str, float]] = [(share.placement, share.ns_per_step) for share in part.by]
        places = places or [("unknown", part.ns_per_step)]
        for place, ns in places if part.category == "matmul" else [("", part.ns_per_step)]:
            key = part.category, place
            parts[key] = parts.get(key, 0.0) + ns
    return positive(parts)


def positive(parts: Mapping[tuple[Class, str], float]) -> Parts:
    """Return the parts that hold time, with what the others take away taken from the waits."""
    left = {key: ns for key, ns in parts.items() if ns > 0}
    owed = -sum(ns for ns in parts.values() if ns < 0)
    for chosen in (("idle_launch",), IDLE_CLASSES, None):
        same = {key: ns for key, ns in left.items() if chosen is None or key[0] in chosen}
        whole = sum(same.values())
        if owed <= 0 or not whole:
            continue
        taken = min(owed, whole)
        left |= {key: ns * (1 - taken / whole) for key, ns in same.items()}
        owed -= taken
    return {key: ns for key, ns in left.items() if ns > 0}


def left_after(slices: Iterable[Slice], found: Iterable[Finding], after_ns: float) -> Parts | None:
    """Return what a step of `after_ns` consists of after the remedies of these findings; None where it is not
    known of one of them where it gains."""
    left = parts_of(slices)
    for each in found:
        if not _take(left, each):
            return None
    whole = sum(left.values())
    return {key: ns * after_ns / whole for key, ns in left.items() if ns > 0} if whole > 0 else None


def _take(left: Parts, found: Finding) -> bool:
    """Take from the classes what a remedy gains; False where it is not known from which. What matrix work off
    the units keeps runs on them."""
    excess: dict[Class, float] = {}
    for part in found.claimed:
        excess[part.category] = excess.get(part.category, 0.0) + max(0.0, part.excess_ns)
    whole, gain = sum(excess.values()), found.gain_ns_per_step or 0.0
    if whole <= 0 or gain <= 0:
        return False
    for role, ns in excess.items():
        taken = gain * ns / whole
        for key in sorted((key for key in left if key[0] == role), key=lambda key: key[1] not in OFF_UNITS):
            less = min(taken, left[key])
            left[key] -= less
            taken -= less
            if key[1] in OFF_UNITS and less >= 0.5 * (left[key] + less):
                unit = role, "tensor_core"
                left[unit] = left.get(unit, 0.0) + left.pop(key)
                break
    return True
