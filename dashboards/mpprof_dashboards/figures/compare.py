"""Differences between two runs, kernel by kernel or op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.bars import Row
from mpprof_dashboards.components.text import escape
from mpprof_dashboards.figures.plain import LEGEND_ABOVE, Figure, blank
from mpprof_dashboards.work import short_kernel, short_op

if TYPE_CHECKING:
    from mpprof.model.finding import KernelChange
    from mpprof.model.outcome import Learning

_LIMIT = 16


def change_ns(row: KernelChange) -> float:
    """Return what a kernel or op takes more (or, below zero, less) per step in the later run."""
    return float((row.to_ns or 0.0) - (row.from_ns or 0.0))


def changes(rows: list[KernelChange]) -> list[Row]:
    """Return the largest differences in time per step on both sides of zero, which lies at `zero_ns` of
    them."""
    changed = sorted((row for row in rows if change_ns(row)), key=lambda row: -abs(change_ns(row)))[:_LIMIT]
    zero = zero_ns([change_ns(row) for row in changed])
    return [_change(row, zero) for row in changed]


def zero_ns(changes_ns: list[float]) -> float:
    """Return how far from the left edge zero lies: as far as the largest decrease is long."""
    return max((-ns for ns in changes_ns), default=0.0) if any(ns < 0 for ns in changes_ns) else 0.0


def _change(row: KernelChange, zero: float) -> Row:
    ns = change_ns(row)
    text = f"{'+' if ns > 0 else '−'}{words.duration(abs(ns))}"
    note = "new" if row.from_ns is None else "gone" if row.to_ns is None else ""
    short = short_op(row.key) if row.by == "op" else short_kernel(row.key)
    hint = f"{row.key}: {_side(row.from_ns)} → {_side(row.to_ns)}"
    return Row(
        words.plain(short), ns, text, "plain", row.key, start_ns=zero, note=note, hint=words.plain(hint)
    )


def losses(found: Learning, names: tuple[str, str]) -> Figure | None:
    """Return the mean loss of both runs against the optimizer updates applied by then, with the compared
    stretch shaded. None where either run has no loss."""
    curves = found.curves
    if not curves.start or not curves.end:
        return None
    figure = blank(300, margin=LEGEND_ABOVE)
    for points, name, dash in ((curves.start, names[0], "dot"), (curves.end, names[1], "solid")):
        figure.add(
            "scatter",
            x=[point.updates for point in points], y=[point.loss for point in points],
            name=escape(name), mode="lines" if len(points) > 1 else "markers",
            line={"color": theme.MEASURED, "width": 1.8, "dash": dash},
            customdata=[words.quantity(point.loss, "") for point in points],
            hovertemplate="%{x:.0f} updates: %{customdata}<extra>" + escape(name) + "</extra>",
        )  # fmt: skip
    if found.window is not None:
        low, high = found.window
        figure.add_shape(
            type="rect", x0=low, x1=high, y0=0, y1=1, yref="y domain", fillcolor=theme.GRID, opacity=0.5,
            line={"width": 0}, layer="below",
        )  # fmt: skip
    figure.update_xaxes(title={"text": "Applied optimizer updates"})
    figure.update_yaxes(title={"text": "Loss"})
    return figure


def _side(ns: float | None) -> str:
    return "not in that run" if ns is None else words.duration(ns)
