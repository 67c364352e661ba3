"""The roofline: how fast each op was against what its bytes and the card's peaks allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.report import words
from mpprof_dashboards import theme, work
from mpprof_dashboards.components.text import escape
from mpprof_dashboards.figures.plain import LEGEND_ABOVE, Figure, blank

if TYPE_CHECKING:
    from mpprof.model.rows import OpRow
    from mpprof.model.timeline import Roofs

MOST_DOTS = 600
_ROOFS = (("fp16", "16 bit"), ("bf16", "16 bit"), ("tf32", "TF32"), ("fp32_cuda", "float32, ordinary"))
_KINDS = ("unit", "off", "other", "unknown")


def figure(ops: Sequence[OpRow], roofs: Roofs | None, per: work.Per) -> Figure | None:
    """Return ops with a known intensity as dots under the card's roofs; None where there are none, or no
    roofs."""
    if roofs is None or not roofs["bandwidth_bytes_per_s"]:
        return None
    dots = [row for row in (work.op_row(op, per) for op in ops) if row["intensity"] and row["flops_per_s"]]
    dots = sorted(dots, key=lambda row: -row["ns"])[:MOST_DOTS]
    if not dots:
        return None
    drawn = blank(380, margin=LEGEND_ABOVE, dragmode="select")
    low = min(row["intensity"] for row in dots) / 2
    high = max(max(row["intensity"] for row in dots) * 2, _ridge(roofs))
    _draw_roofs(drawn, roofs, low, high)
    longest = max(row["ns"] for row in dots)
    for kind in _KINDS:
        same = [row for row in dots if row["kind"] == kind]
        if not same:
            continue
        drawn.add(
"scatter",
            x=[row["intensity"] for row in same], y=[row["flops_per_s"] / 1e12 for row in same],
            mode="markers",
            name=theme.kind_word(kind, per.units), customdata=[row["key"] for row in same],
            marker={
                "color": theme.KIND_COLOURS[kind], "opacity": 0.8, "line": {"width": 0},
                "size": [6 + 22 * (row["ns"] / longest) ** 0.5 for row in same],
                "symbol": "x" if kind == "unknown" else "circle",
            },
            hovertext=[
                escape(
                    f"{row['short']}: {words.duration(row['ns'])} {per.text}, "
                    f"{words.quantity(row['flops_per_s'], 'flops_per_s')}, "
                    f"{row['bound'] or 'bound not known'}"
                )
                for row in same
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    drawn.update_xaxes(title={"text": "Operations a byte (FLOP/B)"}, type="log")
    drawn.update_yaxes(title={"text": "TFLOP/s"}, type="log")
    return drawn


def _ridge(roofs: Roofs) -> float:
    rates = [roofs["flops_per_s"][key] for key, _ in _ROOFS if key in roofs["flops_per_s"]]
    return 2 * max(rates, default=1.0) / (roofs["bandwidth_bytes_per_s"] or 1.0)


def _draw_roofs(drawn: Figure, roofs: Roofs, low: float, high: float) -> None:
    """Draw one line of the bandwidth with a flat roof for each kind of arithmetic; equal roofs are drawn
    once."""
    bandwidth = roofs["bandwidth_bytes_per_s"] or 0.0
    told: set[float] = set()
    for key, name in _ROOFS:
        rate = roofs["flops_per_s"].get(key)
        if rate is None or rate in told:
            continue
        told.add(rate)
        ridge = rate / bandwidth
        points = [low, ridge, high] if low < ridge < high else [low, high]
        drawn.add(
"scatter",
            x=points, y=[min(at * bandwidth, rate) / 1e12 for at in points], mode="lines",
            line={"color": theme.TOTAL, "width": 1.4}, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        drawn.annotate(
            x=1, xref="paper", y=math.log10(rate / 1e12), xanchor="right", yanchor="bottom", showarrow=False,
            text=escape(f"{name} {words.quantity(rate, 'flops_per_s')}"), font={"size": 11.5},
        )  # fmt: skip
