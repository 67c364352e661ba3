"""Where the step's time goes: from what was attainable to what was observed, or class by class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.bars import Row

if TYPE_CHECKING:
    from mpprof.model.account import GapSlice, Slice

_CRUMB_RATIO = 0.002  # of the step: less than two pixels of a wide page


def _signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{words.duration(abs(ns))}"


def gap_by_class(slices: Sequence[GapSlice]) -> dict[str, float]:
    """Return the gap's slices summed over layers, largest loss first, zeros left out; the values sum to the
    gap."""
    sums: dict[str, float] = defaultdict(float)
    for part in slices:
        sums[part.category] += part.ns_per_step
    return dict(sorted(((role, ns) for role, ns in sums.items() if ns), key=lambda item: -item[1]))


def without_crumbs(classes: dict[str, float], step_ns: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return (bars of their own, what is too small to be seen); a single small class keeps its bar.

    Small is below `_CRUMB_RATIO` of the step; both parts together sum to what came in.
    """
    crumbs = {role: ns for role, ns in classes.items() if abs(ns) < _CRUMB_RATIO * step_ns}
    if len(crumbs) < 2:
        return classes, {}
    return {role: ns for role, ns in classes.items() if role not in crumbs}, crumbs


def _class_words(role: str, ns: float) -> str:
    text = words.class_text(role, ns=ns)
    return f"{theme.class_label(role)} ({text})" if text else theme.class_label(role)


def _layers_of(slices: Sequence[GapSlice], role: str) -> str:
    parts = sorted(
        ((part.layer, part.ns_per_step) for part in slices if part.category == role and part.layer),
        key=lambda part: -abs(part[1]),
    )
    if not parts:
        return ""
    named = ", ".join(f"{words.shorten(layer, 40)} {_signed(ns)}" for layer, ns in parts[:4])
    return f"; {named}" + (f" and {len(parts) - 4} more layers" if len(parts) > 4 else "")


def gap(
    slices: Sequence[GapSlice], end_ns: float, start_ns: float | None = None, *, attainable: bool = True
) -> list[Row]:
    """Return rows of bars from the attainable step over the slices of the gap to the observed step `end_ns`.

    `slices` are those of the contract ({class, layer, ns_per_step}); empty if there are none. The first row
    is the baseline's step `start_ns`. The attainable step is computed, hence hatched. Where none is
    `attainable`, as far as is known, the slices are plain differences and start from the baseline itself.
    """
    if not slices:
        return []
    classes = gap_by_class(slices)
    reach = end_ns - sum(classes.values())
    rows = [Row("Baseline", start_ns, words.duration(start_ns), "plain", "baseline")] if start_ns else []
    if attainable:
        note = "computed from the baseline"
        rows.append(
            Row("Attainable", reach, words.duration(reach), "unit", "reach", computed=True, note=note)
        )
    position = reach
    shown, crumbs = without_crumbs(classes, end_ns)
    for role, ns in shown.items():
        hint = f"{_class_words(role, ns)}: {_signed(ns)}{_layers_of(slices, role)}"
        rows.append(
            Row(theme.class_label(role), ns, _signed(ns), _kind(role), role, start_ns=position, hint=hint)
        )
        position += ns
    if crumbs:
        rows.append(_crumbs(crumbs, position))
    return [*rows, Row("This run", end_ns, words.duration(end_ns), "run", "step", strong=True)]


def _kind(role: str) -> str:
    """Return the colour of a class of the gap; the gap does not state where the class's matrix work ran."""
    return "plain" if role == "matmul" else theme.CLASS_KINDS.get(role, "other")


def _crumbs(classes: dict[str, float], position: float) -> Row:
    """Return one bar for the classes that are too small to be seen; the hint names each."""
    ns = sum(classes.values())
    hint = "; ".join(f"{_class_words(role, part)}: {_signed(part)}" for role, part in classes.items())
    return Row(f"{len(classes)} smaller", ns, _signed(ns), "other", "rest", start_ns=position, hint=hint)


def account_order(part: Slice) -> tuple[int, float]:
    """Return a sort key: work first, then idle time, `profiling` (which may be negative) last; in each group
    the largest first."""
    role = part.category
    group = 2 if role == "profiling" else 1 if role.startswith("idle") else 0
    return group, -part.ns_per_step


def pieces(part: Slice) -> list[tuple[str, str, str, float]]:
    """Return (name, colour, key, ns) of a slice: matrix work by where it ran, any other class as one."""
    role, by = part.category, part.by
    if not by:
        kind = "unknown" if role == "matmul" else theme.CLASS_KINDS.get(role, "other")
        return [(theme.class_label(role), kind, role, part.ns_per_step)]
    sums: dict[str, float] = {}
    for piece in by:
        sums[piece.placement] = sums.get(piece.placement, 0.0) + piece.ns_per_step
    return [
        (
            f"Matrix work: {theme.PLACEMENT_LABELS.get(place, place)}",
            theme.PLACEMENT_KINDS.get(place, "unknown"),
            f"{role}/{place}",
            ns,
        )
        for place, ns in sorted(sums.items(), key=lambda item: -item[1])
    ]


def account_hover(part: Slice, per_whole: str = "per step") -> str:
    role, hidden = part.category, part.hidden_ns_per_step
    parts = [f"{_class_words(role, part.ns_per_step)}: {words.duration(part.ns_per_step)} {per_whole}"]
    if hidden:
        parts.append(f"{words.duration(hidden)} more hidden behind other work")
    for piece in part.by:
        place = theme.PLACEMENT_LABELS.get(piece.placement, piece.placement)
        parts.append(f"{place}, {piece.precision}: {words.duration(piece.ns_per_step)}")
    return "; ".join(parts)
