"""The one door for figures: every graph of a page and of an exported report gets its config here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from mpprof_dashboards.figures.plain import Figure

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


def graph(
    figure: Figure, id: str, *, title: str, note: str = "", legend: Sequence[tuple[str, str]] = ()
) -> html.Figure:
    """`figure` with its title and a note on how to read it, both for the eye and for screen readers.

    `legend`, names and colours, stands above the figure and takes none of its room."""
    height = figure.layout.height
    caption = [html.H3(title, className="mp-figure-title")]
    if note:
        caption.append(html.P(note, className="mp-note"))
    if legend:
        entries = [
            html.Li([html.Span(className="mp-swatch", style={"background": colour}), name])
            for name, colour in legend
        ]
        caption.append(html.Ul(entries, className="mp-legend"))
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
