"""Cards, tiles and notes, of plain HTML elements: the page and the exported report show the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.errors import MpprofError
from mpprof.report import without_finding, words
from mpprof_dashboards.components.text import sentence

if TYPE_CHECKING:
    from mpprof.model.finding import Evidence, Finding, Unable
    from mpprof.model.report import Report

SEVERITY = {"error": "Problem", "warning": "Warning", "info": "Note"}


def section(
    title: str, *children: Any, note: str = "", head: Sequence[Any] = (), **attributes: str
) -> html.Section:
    """Return a part of a page under its title, with what stands beside that: the `note`, then `head`."""
    heading = [html.H2(title, className="mp-section-title"), *head]
    if note:
        heading.insert(1, html.P(note, className="mp-note"))
    return html.Section(
        [html.Div(heading, className="mp-section-head"), *children], className="mp-section", **attributes
    )


def inline_figures(figures: Sequence[tuple[str, str, str, str]]) -> html.Ul:
    """Return a line of numbers, each as (value, name, id, why it is missing)."""
    return html.Ul(
        [
            html.Li([html.Strong(value, id=id), " ", html.Span(name)], title=hint or None)
            for value, name, id, hint in figures
        ],
        className="mp-inline-figures",
    )


def missing(label: str, reason: str) -> html.Div:
    """Return the tile of a number that is not known: a dash, and the first sentence of the reason (all of it
    on hover)."""
    first = reason.split(". ")[0].removesuffix(".")
    return tile(label, "—", f"{first}.", muted=True, hint=reason)


def tile(
    label: str, value: str, detail: str = "", *, id: str = "", muted: bool = False, hint: str = ""
) -> html.Div:
    """Return one number with its name above and what qualifies it below. `muted` means that the value is not
    known."""
    more = {"id": id} if id else {}
    return html.Div(
        [
            html.Div(label, className="mp-tile-label"),
            html.Div(value, className="mp-tile-value" + (" mp-muted" if muted else ""), **more),
            html.Div(detail, className="mp-tile-detail", title=hint or None) if detail else None,
        ],
        className="mp-card mp-tile",
    )


def tiles(*items: html.Div) -> html.Div:
    return html.Div(list(items), className="mp-tiles")


def empty(title: str, reason: str, next: str = "") -> html.Div:
    """Return a card for a place where there is nothing to show: what is missing, why, and what to do about
    it."""
    parts = [html.Div(title, className="mp-empty-title"), html.P(sentence(reason))]
    if next:
        parts.append(html.P(next, className="mp-note"))
    return html.Div(parts, className="mp-card mp-empty")


def failure(error: MpprofError) -> html.Div:
    """Return an error that the reader can act on, in one card."""
    return html.Div(
        [
            html.Div("This cannot be shown", className="mp-overline"),
            html.H2(sentence(error.what), className="mp-section-title"),
            html.P(error.where, className="mp-mono mp-path") if error.where else None,
            html.P(sentence(error.next)) if error.next else None,
        ],
        className="mp-card mp-failure",
        role="alert",
    )


def code(text: str, hint: str = "") -> html.Span:
    """Return code to copy, with its button."""
    return html.Span(
        [
            html.Code(text, title=hint or None),
            html.Button("copy", className="mp-copy", **{"data-copy": text, "aria-label": f"Copy {text}"}),
        ],
        className="mp-snippet",
    )


def warnings(texts: Sequence[str]) -> html.Div | None:
    if not texts:
        return None
    return html.Div(
        [
            html.Div("Keep in mind", className="mp-overline"),
            *(html.P(sentence(text)) for text in texts),
        ],
        className="mp-card mp-warning",
        role="note",
    )


def finding(item: Finding, per: str = "per step") -> html.Article:
    """Return one cause that was found: what it costs, the evidence with its limits, the remedy and its
    gain."""
    severity = item.severity
    head = html.Div(
        [
            html.Span(SEVERITY[severity], className=f"mp-badge mp-{severity}"),
            html.Span(f"{item.code} {item.slug}", className="mp-code"),
            html.Span(f"{item.confidence} confidence", className="mp-note"),
        ],
        className="mp-finding-head",
    )
    summary = item.summary
    return html.Article(
        [
            html.Div(
                [
                    head,
                    html.H3(item.title, className="mp-finding-title"),
                    html.P(_opening(summary, item)) if summary else None,
                    _evidence(item.evidence),
                    html.Div(
                        [html.Div("Remedy", className="mp-overline"), html.P(_opening(item.remedy, item))],
                        className="mp-remedy",
                    )
                    if item.remedy
                    else None,
                ],
                className="mp-finding-body",
            ),
            cost := _cost(item, per),
        ],
        className=f"mp-card mp-finding mp-edge-{severity}" + ("" if cost else " mp-costless"),
        **{"data-code": item.code},
    )


def folded(item: Finding, per: str = "per step") -> html.Details:
    """Return a finding folded under its title; its times are `per` what the account is of."""
    title = [
        html.Span(SEVERITY[item.severity], className=f"mp-badge mp-{item.severity}"),
        html.Span(item.title, className="mp-strong"),
        html.Span(f"{item.code} {item.slug}", className="mp-code"),
    ]
    return html.Details([html.Summary(title), finding(item, per)], className="mp-folded")


def _opening(text: str, item: Finding) -> str:
    """Return a finding's sentence with a capital at its start, unless it starts with the name of a layer."""
    return text if text.startswith(tuple(item.layers)) else sentence(text)


def _evidence(rows: Sequence[Evidence]) -> html.Div | None:
    if not rows:
        return None
    limits = any(row.limit is not None for row in rows)
    head = ["Evidence", "Value"] + (["Limit"] if limits else [])
    body = []
    for row in rows:
        unit, limit = row.unit, row.limit
        cells = [html.Td(row.name), html.Td(words.quantity(row.value, unit), className="mp-number")]
        if limits:
            cells.append(html.Td("" if limit is None else words.quantity(limit, unit), className="mp-number"))
        body.append(html.Tr(cells))
    heads = [html.Th(text, className="" if text == "Evidence" else "mp-number") for text in head]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="mp-table")
    return html.Div(table, className="mp-scroll")


def _cost(item: Finding, per: str) -> html.Div | None:
    """Return the right-hand side of a finding: what its remedy gains, or what it costs in time and memory."""
    facts: list[tuple[str, str, str]] = []
    gain, cost, share = item.gain_ns_per_step, item.cost_ns_per_step, item.lost_ratio
    lost = "" if share is None else f", {words.percent(share)} of the time lost"
    if gain is not None:
        facts.append(("Gains about", words.duration(gain), f"{per}{lost}"))
    elif cost is not None:
        facts.append(("Costs", words.duration(cost), f"{per}{lost}"))
    elif (cost := item.cost_ns_in_window) is not None:
        facts.append(("Costs", words.duration(cost), "in the whole window"))
    if (cost := item.cost_ns_of_run) is not None:
        facts.append(("Costs", words.duration(cost), "of the run, outside the steps"))
    if item.cost_bytes is not None:
        facts.append(("Costs", words.size(item.cost_bytes), "of memory"))
    if not facts:
        return None
    return html.Div(
        [
            html.Div(
                [
                    html.Div(label, className="mp-tile-label"),
                    html.Div(value, className="mp-cost-value"),
                    html.Div(detail, className="mp-tile-detail"),
                ]
            )
            for label, value, detail in facts
        ],
        className="mp-finding-cost",
    )


def unable(items: Sequence[Unable]) -> html.Div | None:
    """Return what could not be judged, and why; it is never shown as clear."""
    if not items:
        return None
    codes: dict[str, list[str]] = {}
    for item in items:
        codes.setdefault(item.reason, []).append(item.code)
    rows = [
        html.Tr([html.Td(html.Div([html.Span(f"{without_finding.about(code)} ", title=code) for code in same],
                          className="mp-cell-codes")),
                 html.Td(sentence(reason))])
        for reason, same in codes.items()
    ]  # fmt: skip
    return html.Div(html.Table(html.Tbody(rows), className="mp-table"), className="mp-card mp-scroll")


def not_possible(document: Report) -> html.Details | None:
    """Return what could not be judged, folded under a title with the number of checks."""
    table, count = unable(document.unable), len(document.unable)
    if table is None:
        return None
    title = f"{words.plural(count, 'check')} not possible, and why (not the same as clear)"
    return html.Details([html.Summary(title), table])


def remarks(texts: Sequence[str]) -> html.Ul | None:
    """Return small print: what was left out or shifted."""
    return (
        html.Ul([html.Li(sentence(text)) for text in texts], className="mp-note mp-remarks")
        if texts
        else None
    )


def pairs(rows: Sequence[tuple[str, str]]) -> html.Div:
    """Return a list of names and values."""
    body = [html.Tr([html.Td(name), html.Td(value)]) for name, value in rows]
    return html.Div(html.Table(html.Tbody(body), className="mp-table"), className="mp-card mp-scroll")
