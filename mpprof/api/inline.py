"""A run's report as one self-contained page, for a notebook's cell."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from mpprof.api import workflows
from mpprof.report import json as documents


def page(path: str | Path) -> str:
    """The HTML that `mpprof report --format html` writes, of the run in this very directory.

    Raises MpprofError, or ImportError without plotly."""
    run = workflows.load_at(Path(path))
    export = import_module("mpprof_dashboards.export")
    html: str = export.report_html(documents.document(workflows.diagnose(run)), steps=run.steps)
    return html
