"""The one door for figures: every graph of a page and of an exported report gets its config here."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from dash import dcc, html

CONFIG: dict[str, Any] = {
    # plotly 7 would add a button that uploads the figure to a server of its makers.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "showTips": False,
    "responsive": True,
    "scrollZoom": False,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "toImageButtonOptions": {"format": "svg"},
}


def graph(figure: go.Figure, id: str, *, title: str, note: str = "") -> html.Figure:
    """`figure` with its title and a note on how to read it, both for the eye and for screen readers."""
    height = figure.layout.height or 320
    caption = [html.H3(title, className="mp-figure-title")]
    if note:
        caption.append(html.P(note, className="mp-note"))
    return html.Figure(
        [
            html.Figcaption(caption),
            dcc.Graph(
                id=id, figure=figure, config=CONFIG, responsive=True, style={"height": f"{height}px"},
                className="mp-graph",
            ),
        ],
        className="mp-card mp-figure",
    )  # fmt: skip
