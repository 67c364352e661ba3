"""Makes graphs of figures: every graph of a page and of an exported report gets its config here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dash import html
from dash.development.base_component import Component

from mpprof_dashboards.figures.plain import Figure

CONFIG: dict[str, Any] = {
    # plotly 7 would add a button that uploads the figure to a server of its makers.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "showTips": False,
    "scrollZoom": False,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "toImageButtonOptions": {"format": "svg"},
}


class Graph(Component):  # type: ignore[misc]
    """A figure that `assets/graph.js` draws. `relayoutData` is what was last zoomed, as plotly says it."""

    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _namespace = "mpprof_dashboards"
    _type = "Graph"

    def __init__(self, id: str, figure: Figure) -> None:
        self._prop_names = ["id", "figure", "config", "relayoutData"]
        self._valid_wildcard_attributes: list[str] = []
        self.available_properties = self._prop_names
        self.available_wildcard_properties: list[str] = []
        super().__init__(id=id, figure=figure, config=CONFIG)


def graph(
    figure: Figure, id: str, *, title: str, note: str = "", legend: Sequence[tuple[str, str]] = ()
) -> html.Figure:
    """Return `figure` with its title and a note on how to read it, both for the eye and for screen readers.

    `legend`, names and colours, stands above the figure and takes none of its room."""
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
            Graph(id, figure),
        ],
        className="mp-card mp-figure",
    )
