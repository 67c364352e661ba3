"""A report or a comparison as one HTML file: the page's own cards and figures, nothing from a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from mpprof._version import __version__
from mpprof.errors import MpprofError
from mpprof.model.source import RunTables
from mpprof.model.steps import StepTable
from mpprof.report.to_json import to_json
from mpprof_dashboards.components import cards, markup, proof
from mpprof_dashboards.components.graph import Graph
from mpprof_dashboards.pages import compare, kernels, layers, memory, why

# A source whose documents name no host, user or path: what a report to hand on is made from.

_DOCUMENTS = frozenset(("report", "kernels", "products", "ops", "layers", "timeline", "compare", "numbers"))


class Redacted:
    """`source` with every string of its documents redacted; what holds no strings passes as it is."""

    def __init__(self, source: RunTables, redact: Callable[[Any], Any]) -> None:
        self._source, self._redact = source, redact

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._source, name)
        if name not in _DOCUMENTS:
            return asked
        return lambda *args, **more: self._redact(asked(*args, **more))


if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns, Report
    from mpprof.model.source import RunTables

_STYLE = Path(__file__).parent / "assets" / "mpprof.css"
_SWITCHES = Path(__file__).parent / "assets" / "why.js"
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def report_html(document: Report, *, steps: StepTable | None = None) -> str:
    """Return the report `document` as a self-contained HTML file, with the step log's curves where it is
    given.

    The document itself is inside too, as JSON in the element `mpprof-report`, so no number is lost.
    """
    return _report(document, why.content(document, given=proof.Material(steps=steps)))


def run_html(
    source: RunTables, run: str, baseline: str | None, *, step: int | None = None, redact: bool = False
) -> str:
    """Return a run of `source` as one self-contained HTML file: Why, the proof of its first cause, a step as
    a strip (the one that the timeline shows as `step`; None means one of median length), layers, kernels, and
    what `report_html` holds. With `redact`, hosts, users and paths are removed. Raises MpprofError."""
    given: Any = Redacted(source, source.redactor(run)) if redact else source
    document = given.report(run, baseline)
    name = _baseline_name(document) or baseline
    if redact and name is not None:
        name = source.redactor(run)(name)
    parts = why.content(
        document,
        baseline=name,
        base=why.baseline_time(given, document, baseline),
        given=proof.material(given, run, document, step=step),
    )
    try:
        parts += layers.content(given, run, document, baseline)
        parts += kernels.content(given, run, document)
    except MpprofError as error:
        parts.append(cards.section("Kernels", cards.empty("No trace to read kernels from", str(error.what))))
    return _report(document, parts)


def _baseline_name(document: Report) -> str | None:
    """Return the report's name for the run that it was measured against."""
    speedup = document.speedup
    return speedup.baseline_id if speedup and speedup.baseline == "measured" else None


def _report(document: Report, parts: list[Any]) -> str:
    parts = [*parts, *(memory.written(document) if document.memory else [])]
    return _file(parts, f"mpprof · {document.run.name}", "mpprof-report", document)


def card_html(document: Report) -> str:
    """Return the first screen of Why, without scripts: the answer, the causes, the remedies."""
    style, body = card_parts(document)
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">",
            f"<style>{style}</style>",
            '</head><body class="mp-export"><main class="mp-page">',
            body,
            "</main></body></html>",
        )
    )


def card_parts(document: Report) -> tuple[str, str]:
    """Return the first screen of Why as the style sheet of what is in it, and HTML text without scripts."""
    body = render(why.card(document))
    return _style(body), body


def comparison_html(document: ComparedRuns) -> str:
    """Return the comparison `document` as a self-contained HTML file, with the document as JSON in the
    element `mpprof-compare`."""
    names = " → ".join(report.run.name for report in document.runs)
    return _file(compare.content(document), f"mpprof · {names}", "mpprof-compare", document)


def _file(parts: list[Any], title: str, id: str, document: Report | ComparedRuns) -> str:
    body = render(_without_graphs(parts))
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{render(f'{title} · {_made()}')}</title>",
            f"<style>{_style(body)}</style>",
            '</head><body class="mp-export"><main class="mp-page">',
            body,
            f'<footer class="mp-footer">{render(f"mpprof {_made()}")}</footer>',
            "</main>",
            f"<script>{_SWITCHES.read_text(encoding='utf-8')}</script>",
            f'<script type="application/json" id="{id}">{_json(document)}</script>',
            "</body></html>\n",
        )
    )


def _made() -> str:
    return f"{__version__} · {date.today().isoformat()}"


def _without_graphs(part: Any) -> Any:
    """Return a page's tree without the figures that need plotly.js, which stay on the page."""
    if isinstance(part, list | tuple):
        return [kept for each in part if (kept := _without_graphs(each)) is not None]
    inside = getattr(part, "children", None)
    if isinstance(part, html.Figure) and any(isinstance(each, Graph) for each in inside or ()):
        return None
    if isinstance(inside, list | tuple) or hasattr(inside, "children"):
        part.children = _without_graphs(inside)
    return part


_RULE = re.compile(r"((?:[^{}@]|@(?=\w))+)\{((?:[^{}]|\{[^{}]*\})*)\}")
_CLASS = re.compile(r"\.(mp-[\w-]+)")


def _style(body: str) -> str:
    """Return what the style sheet says of what is in `body`."""
    known = set(re.findall(r"mp-[\w-]+", body)) | {"mp-export", "mp-page"}
    text = re.sub(r"/\*.*?\*/", "", _STYLE.read_text(encoding="utf-8"), flags=re.S)
    return _rules(re.sub(r"\s+", " ", text), known)


def _rules(text: str, known: set[str]) -> str:
    kept = []
    for head, inside in _RULE.findall(text):
        if head.strip().startswith("@"):
            if found := _rules(inside, known):
                kept.append(f"{head.strip()}{{{found}}}")
            continue
        selectors = [one for one in _selectors(head) if set(_CLASS.findall(one)) <= known]
        if selectors:
            kept.append(f"{','.join(selectors)}{{{inside.strip()}}}")
    return "".join(kept)


def _selectors(head: str) -> list[str]:
    """Return the selectors of a rule: a comma inside brackets parts none."""
    return [one.strip() for one in re.split(r",(?![^()]*\))", head)]


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
    if isinstance(part, dcc.Link):
        return render(part.children)
    if isinstance(part, Graph):  # which needs plotly.js: it stays on the page
        return ""
    raise TypeError(f"{part._type} is not a plain HTML element")
