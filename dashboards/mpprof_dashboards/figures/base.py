"""What all figures share: bare layout, bars at numbered rows, one unit of time per figure."""

from __future__ import annotations

from typing import Any

from mpprof_dashboards import theme
from mpprof_dashboards.figures.plain import Figure

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
MARGIN = {"l": 50, "r": 24, "t": 8, "b": 44}
"""Room enough for most labels: where they need more, plotly lays the whole figure out a second time."""
LEGEND_ABOVE = {"t": 44}


def time_scale(*values_ns: float) -> tuple[str, float]:
    """Return the unit that suits the largest of the values, and its nanoseconds."""
    largest = max((abs(value) for value in values_ns), default=0.0)
    return next((unit for unit in _UNITS if largest >= unit[1]), _UNITS[-1])


def blank(height: int, **layout: Any) -> Figure:
    """Return an empty figure in the page's style: no background, quiet grid, space for its labels."""
    axis = {
        "gridcolor": theme.GRID, "zerolinecolor": theme.GRID, "automargin": True, "ticks": "",
        "title": {"font": {"size": 12}},
    }  # fmt: skip
    figure = Figure(
        height=height,
        autosize=True,
        minreducedwidth=30,
        margin=MARGIN,
        font={"family": theme.FONT, "size": 12.5, "color": theme.INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={
            "bgcolor": "#1F2933", "bordercolor": "#1F2933", "align": "left",
            "font": {"family": theme.FONT, "size": 12.5, "color": "#FFFFFF"},
        },
        legend={
            "orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left", "itemwidth": 30,
            "font": {"size": 12},
        },
        bargap=0.3,
        xaxis=axis,
        yaxis=axis,
    )  # fmt: skip
    figure.update_layout(**layout)
    return figure
