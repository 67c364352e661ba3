"""Notes: the warnings of the run's report, and nothing else."""

from __future__ import annotations

from typing import Any

from dash import html
from mpprof_dashboards.components.context import Context, Page


def layout(context: Context) -> list[Any]:
    return [html.Ul([html.Li(text) for text in context.report().warnings], id="notes")]


PAGE = Page("/notes", "Notes", layout)
