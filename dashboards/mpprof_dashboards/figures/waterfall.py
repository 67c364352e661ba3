"""Where the step's time goes: from what was within reach to what was observed, or class by class."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.text import escape
from mpprof_dashboards.figures.base import Bar, bars, time_scale

if TYPE_CHECKING:
    from mpprof.model import document as doc

_CRUMB_RATIO = 0.002  # of the step: less than two pixels of a wide page


def _signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{words.duration(abs(ns))}"


def _pattern(role: str) -> str:
    return theme.UNKNOWN_PATTERN if role == "unknown" else ""


def gap_by_class(slices: list[doc.GapSlice]) -> dict[str, float]:
    """The gap's slices summed over layers, largest loss first, zeros left out; the values sum to the gap."""
    sums: dict[str, float] = defaultdict(float)
    for part in slices:
        sums[part["class"]] += part["ns_per_step"]
    return dict(sorted(((role, ns) for role, ns in sums.items() if ns), key=lambda item: -item[1]))


def without_crumbs(classes: dict[str, float], step_ns: float) -> tuple[dict[str, float], dict[str, float]]:
    """(bars of their own, what is too small to be seen): a single small class keeps its bar.

    Small is below `_CRUMB_RATIO` of the step; both parts together sum to what came in.
    """
    crumbs = {role: ns for role, ns in classes.items() if abs(ns) < _CRUMB_RATIO * step_ns}
    if len(crumbs) < 2:
        return classes, {}
    return {role: ns for role, ns in classes.items() if role not in crumbs}, crumbs


def _class_words(role: str) -> str:
    text = words.CLASS_TEXT.get(role)
    return f"{theme.class_label(role)} ({text})" if text else theme.class_label(role)


def _layers_of(slices: list[doc.GapSlice], role: str) -> str:
    parts = sorted(
        ((part["layer"], part["ns_per_step"]) for part in slices if part["class"] == role and part["layer"]),
        key=lambda part: -abs(part[1]),
    )
    if not parts:
        return ""
    named = ", ".join(f"{words.shorten(layer, 40)} {_signed(ns)}" for layer, ns in parts[:4])
    return f"; {named}" + (f" and {len(parts) - 4} more layers" if len(parts) > 4 else "")


def gap(
    slices: list[doc.GapSlice], end_ns: float, start_ns: float | None = None, *, reachable: bool = True
) -> go.Figure | None:
    """From the step within reach over the slices of the gap to the observed step `end_ns`.

    `slices` are those of the contract ({class, layer, ns_per_step}); None if there are none. The line at
    `start_ns` is the baseline's step. The step within reach is computed, hence hatched. Where nothing is
    known to be `reachable`, the slices are plain differences and start from the baseline itself.
    """
    if not slices:
        return None
    classes = gap_by_class(slices)
    reach = end_ns - sum(classes.values())
    unit, per = time_scale(end_ns, reach)
    items = [
        Bar("Reachable (computed)", reach, words.duration(reach), theme.TOTAL,
            pattern=theme.ESTIMATED_PATTERN, key="reach",
            hover=f"The step this run could reach: {words.duration(reach)}, computed from the baseline")
        if reachable
        else Bar("Baseline", reach, words.duration(reach), theme.TOTAL, key="reach", hover="Its own step")
    ]  # fmt: skip
    position = reach
    shown, crumbs = without_crumbs(classes, end_ns)
    for role, ns in shown.items():
        hover = f"{_class_words(role)}: {_signed(ns)}{_layers_of(slices, role)}"
        items.append(
            Bar(theme.class_label(role), ns, _signed(ns), theme.class_colour(role), position, _pattern(role),
                hover, role)
        )  # fmt: skip
        position += ns
    if crumbs:
        items.append(_crumbs(crumbs, position))
    items.append(
        Bar("This run", end_ns, words.duration(end_ns), theme.TOTAL, key="step", hover="Measured step")
    )
    figure = bars(items, x_title=f"Time per step ({unit})", per=per, connect=True)
    if start_ns is not None and reachable:
        _line(figure, start_ns, per, "baseline")
    return figure


def _crumbs(classes: dict[str, float], position: float) -> Bar:
    """One bar for the classes that are too small to be seen; the hover names each."""
    ns = sum(classes.values())
    hover = "; ".join(f"{_class_words(role)}: {_signed(part)}" for role, part in classes.items())
    return Bar(f"{len(classes)} smaller", ns, _signed(ns), theme.TOTAL, position, hover=hover, key="rest")


def _line(figure: go.Figure, ns: float, per: float, name: str, row: int = 0) -> None:
    figure.add_vline(x=ns / per, line={"color": theme.ACCENT, "width": 1.5, "dash": "dash"})
    figure.add_annotation(
        x=ns / per, y=row, xanchor="right", yshift=18, showarrow=False, xshift=-6,
        text=escape(f"{name} {words.duration(ns)}"), font={"size": 11.5},
    )  # fmt: skip
    low, high = figure.layout.xaxis.range
    figure.update_xaxes(range=[low, max(high, ns / per * 1.05)])


def account_order(part: doc.Slice) -> tuple[int, float]:
    """Work first, then idle time, `profiling` (which may be negative) last; the largest first in each."""
    role = part["class"]
    group = 2 if role == "profiling" else 1 if role.startswith("idle") else 0
    return group, -part["ns_per_step"]


def account_hover(part: doc.Slice, per_whole: str = "per step") -> str:
    role, hidden = part["class"], part["hidden_ns_per_step"]
    parts = [f"{_class_words(role)}: {words.duration(part['ns_per_step'])} {per_whole}"]
    if hidden:
        parts.append(f"{words.duration(hidden)} more hidden behind other work")
    for piece in part["by"]:
        place = theme.PLACEMENT_LABELS.get(piece["placement"], piece["placement"])
        parts.append(f"{place}, {piece['precision']}: {words.duration(piece['ns_per_step'])}")
    return "; ".join(parts)
