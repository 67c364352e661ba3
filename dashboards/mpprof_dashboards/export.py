"""A report or a comparison as one HTML file: the page's own cards and figures, nothing from a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly.io as pio
from dash import dcc
from plotly.offline import get_plotlyjs

from mpprof.errors import MpprofError
from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report.to_json import to_json
from mpprof_dashboards.components import cards, markup
from mpprof_dashboards.components.graph import CONFIG, Graph
from mpprof_dashboards.pages import compare, kernels, layers, memory, steps, why
from mpprof_dashboards.redacted import Redacted

if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns, Report
    from mpprof.model.source import RunTables

_STYLE = Path(__file__).parent / "assets" / "mpprof.css"
_SWITCHES = Path(__file__).parent / "assets" / "why.js"
# The figures are drawn while the page is still being laid out: each takes its final width at the end.
_FIT = (
    "addEventListener('load', () => document.querySelectorAll('.js-plotly-plot')"
    ".forEach(plot => Plotly.Plots.resize(plot)))"
)
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def report_html(document: Report, *, steps: StepTable | None = None) -> str:
    """Return the report `document` as a self-contained HTML file, with the step log's figures where it is
    given.

    The document itself is inside too, as JSON in the element `mpprof-report`, so no number is lost.
    """
    return _report(document, why.content(document), steps)


def run_html(
    source: RunTables, run: str, baseline: str | None, *, step: int | None = None, redact: bool = False
) -> str:
    """Return a run of `source` as one self-contained HTML file: Why, a step as a strip (the one that the
    timeline shows as `step`; None means one of median length), layers, kernels, and what `report_html` holds.
    With `redact`, hosts, users and paths are removed. Raises MpprofError."""
    given: Any = Redacted(source, source.redactor(run)) if redact else source
    document = given.report(run, baseline)
    name = _baseline_name(document) or baseline
    if redact and name is not None:
        name = source.redactor(run)(name)
    parts = why.content(
        document, baseline=name, timeline=given.timeline(run, step=step, width=why.STRIP_WIDTH)
    )
    try:
        parts += layers.content(given, run, document, baseline)
        parts += kernels.content(given, run, document)
    except MpprofError as error:
        parts.append(cards.section("Kernels", cards.empty("No trace to read kernels from", str(error.what))))
    return _report(document, parts, given.steps(run), given.hardware(run))


def _baseline_name(document: Report) -> str | None:
    """Return the report's name for the run that it was measured against."""
    speedup = document.speedup
    return speedup.baseline_id if speedup and speedup.baseline == "measured" else None


def _report(
    document: Report, parts: list[Any], table: StepTable | None, hardware: HardwareTable | None = None
) -> str:
    parts = [*parts, *(steps.content(document, table, hardware) if table is not None and len(table) else [])]
    parts += memory.content(document) if document.memory else []
    return _file(parts, f"mpprof · {document.run.name}", "mpprof-report", document)


def card_html(document: Report) -> str:
    """Return the first screen of Why, without scripts: the answer, the causes, the remedies."""
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">",
            f"<style>{_STYLE.read_text(encoding='utf-8')}</style>",
            '</head><body class="mp-export"><main class="mp-page">',
            render(why.card(document)),
            "</main></body></html>",
        )
    )


def comparison_html(document: ComparedRuns) -> str:
    """Return the comparison `document` as a self-contained HTML file, with the document as JSON in the
    element `mpprof-compare`."""
    names = " → ".join(report.run.name for report in document.runs)
    return _file(compare.content(document), f"mpprof · {names}", "mpprof-compare", document)


def _file(parts: list[Any], title: str, id: str, document: Report | ComparedRuns) -> str:
    body = render(parts)
    plotly = f"<script>{get_plotlyjs()}</script>" if "plotly-graph-div" in body else ""
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{render(title)}</title>",
            f"<style>{_STYLE.read_text(encoding='utf-8')}</style>",
            plotly,
            '</head><body class="mp-export"><main class="mp-page">',
            body,
            "</main>",
            f"<script>{_FIT if plotly else ''}</script>",
            f"<script>{_SWITCHES.read_text(encoding='utf-8')}</script>",
            f'<script type="application/json" id="{id}">{_json(document)}</script>',
            "</body></html>\n",
        )
    )


def _json(document: Report | ComparedRuns) -> str:
    """Return JSON that cannot end the script element that it is in."""
    text = json.dumps(to_json(document), ensure_ascii=False, allow_nan=False)
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair, as JSON escapes it
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def render(part: Any) -> str:
    """Return a tree of `dash.html` elements and graphs as HTML text; a link within the page becomes its
    text."""
    return markup.render(part, _other)


def _other(part: Any) -> str:
    if isinstance(part, Graph):
        return _graph(part)
    if isinstance(part, dcc.Link):
        return render(part.children)
    raise TypeError(f"{part._type} is not a plain HTML element")


def _graph(part: Graph) -> str:
    height = part.figure.layout.height
    drawn = pio.to_html(
        part.figure.to_plotly_json(),
        validate=False,
        config=CONFIG | {"responsive": True},
        full_html=False,
        include_plotlyjs=False,
        include_mathjax=False,
        default_width="100%",
        default_height=f"{height}px",
        div_id=part.id,
    )
    return f'<div class="mp-graph">{drawn}</div>'
