"""Runs: every run of the directory by experiment; which one to look at, and several to compare."""

from __future__ import annotations

from typing import Any

from dash import html

from mpprof_dashboards.components.context import Context, Page

LANDS_ABOVE = 2
"""With more runs than these, the page without a choice is this one."""


def layout(context: Context) -> list[Any]:
    """Return empty frames: `assets/runs.js` fills, follows and keeps that of the runs, and
    `assets/ladders.js` that of the ladders of `mpprof try`."""
    head = html.Div(
        [
            html.H1("Runs", className="mp-section-title"),
            html.P(id="runs-worst", className="mp-note"),
            html.Span(id="runs-find"),
            html.Label(
                ["Sort by ", html.Select(id="runs-sort", className="mp-button")],
                className="mp-tool mp-runs-sort",
            ),
            html.A("compare chosen", id="runs-compare", className="mp-button mp-right", href="/compare"),
        ],
        className="mp-section-head",
    )
    table = html.Div(id="runs", className="mp-runs", **{"data-of": context.source.title})
    return [
        html.Section([head, html.Div(table, className="mp-card mp-flush")], className="mp-section"),
        html.Div(id="ladders"),
    ]


PAGE = Page("/runs", "Runs", layout, heading=True)
