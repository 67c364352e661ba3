"""A figure as the plain data that plotly.js takes.

plotly.py's own Figure holds every value against a schema, which took most of the time of a page; the tests
do so once for each figure instead.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from mpprof_dashboards import theme

_LARGEST = {"int8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31}


class Part(dict[str, Any]):
    """A part of a figure; its entries are attributes, too, and one that is not set is None."""

    def __or__(self, other: dict[str, Any]) -> Part:  # type: ignore[override]
        return Part({**self, **part(other)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def to_plotly_json(self) -> dict[str, Any]:
        """Return the part itself: plotly.py asks for it where orjson is installed."""
        return self


def part(value: Any) -> Any:
    """Return the value with every dict in it as a `Part`."""
    if isinstance(value, dict):
        return Part({name: part(inner) for name, inner in value.items()})
    return [part(inner) for inner in value] if isinstance(value, list) and _nested(value) else value


def _nested(values: list[Any]) -> bool:
    return bool(values) and isinstance(values[0], dict)


class Figure:
    """Traces and a layout. What is updated is merged into what is there."""

    def __init__(self, **layout: Any) -> None:
        self.data: list[Part] = []
        self.layout = part(layout)

    def add(self, type_: str, **trace: Any) -> None:
        """Add a trace: "scatter", "bar", "treemap"."""
        self.data.append(part({"type": type_, **trace}))

    def update_layout(self, **layout: Any) -> None:
        _merge(self.layout, part(layout))

    def update_xaxes(self, **axis: Any) -> None:
        self.update_layout(xaxis=axis)

    def update_yaxes(self, **axis: Any) -> None:
        self.update_layout(yaxis=axis)

    def annotate(self, **annotation: Any) -> None:
        self.layout.setdefault("annotations", []).append(part(annotation))

    def add_shape(self, **shape: Any) -> None:
        self.layout.setdefault("shapes", []).append(part(shape))

    def to_plotly_json(self) -> dict[str, Any]:
        """Return what is sent: numbers of arrays in base64, as plotly.js takes them."""
        return {"data": [_packed(trace) for trace in self.data], "layout": self.layout}


def _merge(into: Part, new: Part) -> None:
    for name, value in new.items():
        if isinstance(value, Part) and isinstance(into.get(name), Part):
            _merge(into[name], value)
        else:
            into[name] = value


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _packed(inner) for name, inner in value.items()}
    if isinstance(value, list) and _nested(value):
        return [_packed(inner) for inner in value]
    return _array(value) if isinstance(value, np.ndarray) else value


def _array(values: np.ndarray[Any, Any]) -> Any:
    if values.dtype.kind in "iu":
        reach = max(int(values.max()), -int(values.min()) - 1) if len(values) else 0
        values = values.astype(next((name for name, most in _LARGEST.items() if reach < most), "float64"))
    elif values.dtype.kind != "f":
        return values.tolist()
    return {
        "dtype": f"{values.dtype.kind}{values.dtype.itemsize}",
        "bdata": b64encode(values.tobytes()).decode(),
    }


# What all figures share: bare layout, bars at numbered rows, one unit of time per figure.

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
