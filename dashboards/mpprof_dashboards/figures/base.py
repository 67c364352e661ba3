"""What all figures share: bare layout, bars at numbered rows, one unit of time per figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from mpprof_dashboards import theme
from mpprof_dashboards.components.text import escape, label
from mpprof_dashboards.figures.plain import Figure

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
ROW_HEIGHT = 34
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


@dataclass(frozen=True, slots=True)
class Bar:
    """One horizontal bar from `start` to `start + length`, in the unit of the data.

    `pattern` is hatching: for what is estimated or unknown. `text` stands in the column of values, `hover`
    in its box; both may hold names of foreign origin, which are escaped here.
    """

    name: str
    length: float
    text: str
    colour: str
    start: float = 0.0
    pattern: str = ""
    hover: str = ""
    key: str = ""  # what the bar is, for those who read the figure back: a class, a total


_LONGEST_NAME = 22


def _name(text: str) -> str:
    """Return a bar's name in one line or in two, shortened where two lines are too short."""
    lines = wrap(text, _LONGEST_NAME, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 2 and max(map(len, lines)) <= _LONGEST_NAME:
        return "<br>".join(map(escape, lines))
    return label(text, _LONGEST_NAME)


def bars(items: Sequence[Bar], *, x_title: str, per: float) -> Figure:
    """Return `items` as bars from top to bottom, with lengths divided by `per`. `customdata` keeps (key, the
    raw length)."""
    rows = list(range(len(items)))
    ends = [max(bar.start, bar.start + bar.length) / per for bar in items]
    low = min((min(bar.start, bar.start + bar.length) / per for bar in items), default=0.0)
    high = max(ends, default=0.0)
    span = (high - min(low, 0.0)) or 1.0
    figure = blank(ROW_HEIGHT * len(items) + 70)
    figure.add(
"bar",
        orientation="h",
        x=[bar.length / per for bar in items],
        base=[bar.start / per for bar in items],
        y=rows,
        marker={
            "color": [bar.colour for bar in items],
            "cornerradius": 3,
            "pattern": {
                "shape": [bar.pattern for bar in items], "size": 7, "solidity": 0.45, "fillmode": "replace",
            },
        },
        customdata=[[bar.key, bar.length] for bar in items],
        hovertext=[escape(bar.hover or f"{bar.name}: {bar.text}") for bar in items],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )  # fmt: skip
    names = [_name(bar.name) for bar in items]
    figure.update_layout(margin={"l": _width(line for name in names for line in name.split("<br>")) + 16})
    _values(figure, items)
    figure.update_yaxes(
        tickvals=rows, ticktext=names,
        range=[len(items) - 0.4, -0.6], showgrid=False, zeroline=False, ticklabelstandoff=8,
    )  # fmt: skip
    figure.update_xaxes(
        title={"text": x_title},
        range=[min(low, 0.0) - 0.02 * span * (low < 0), high + 0.03 * span],
        nticks=6,
        zeroline=True,
    )
    return figure


def _width(texts: Iterable[str]) -> float:
    """Return the pixels that hold the longest of the texts in a figure's font."""
    return 7.0 * max(map(len, texts), default=0)


def _values(figure: Figure, items: Sequence[Bar]) -> None:
    """Add the values in a column of their own, right of the plot: they stay legible at any width, however
    long the bars are."""
    room = _width(bar.text for bar in items) + 18
    figure.update_layout(margin={"r": room})
    for row, bar in enumerate(items):
        figure.annotate(
            x=1, xref="paper", xanchor="right", xshift=room - 4, y=row, yref="y", yanchor="middle",
            text=escape(bar.text), showarrow=False, align="right",
        )  # fmt: skip
