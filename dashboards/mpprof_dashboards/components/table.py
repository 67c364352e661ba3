"""One helper makes every long table: a plain HTML table whose rows `assets/table.js` asks the server for."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from dash import html

from mpprof_dashboards.rows import EXAMPLES, Asked, Shown, Table, answer, asked, header


def table(
    id: str,
    known: Table,
    *,
    label: str,
    asks: dict[str, str],
    sort: str,
    version: str,
) -> html.Div:
    """Return a table that fills itself from `/rows.json` with `asks`, first sorted by `sort` ("-ns":
    descending); the first rows of that come with it.

    It fills itself again, filtered and sorted as it stands, when `version` changes."""
    shape = [
        {
            "field": each.key,
            "header": header(each),
            "number": each.number,
            "bar": each.bar,
            "dot": each.dot,
            "hint": each.hint
            or (f"filter by the unit shown, or {EXAMPLES[each.unit]}" if each.number else ""),
        }
        for each in known.columns
    ]
    first = answer(known, asked({"sort": sort}))
    return html.Div(
        id=id,
        className="mp-rows",
        **{
            "data-columns": json.dumps(shape),
            "data-asks": urlencode(asks),
            "data-sort": sort,
            "data-label": label,
            "data-version": version,
            "data-first": json.dumps(first),
        },
    )


def plain(id: str, known: Table, *, most: int = 40) -> html.Div:
    """Return the first rows as a table that needs no script, for a file."""
    shown = answer(known, Asked())["rows"][:most]
    head = html.Tr(
        [html.Th(header(c), scope="col", className="mp-number" if c.number else "") for c in known.columns]
    )
    body = [html.Tr(_cells(known, row)) for row in shown]
    left = len(known.rows) - len(shown)
    more = (
        html.P(f"{left:,} more rows: see the page (mpprof serve).", className="mp-note") if left > 0 else None
    )
    made = html.Table([html.Thead(head), html.Tbody(body)], className="mp-table mp-rows-table", id=id)
    return html.Div([made, more], className="mp-card mp-scroll")


def _cells(known: Table, row: Shown) -> list[html.Td]:
    cells = []
    for column, said, title in zip(known.columns, row["cells"], row["titles"], strict=True):
        inside: Any = said
        if column.dot:
            inside = [html.Span(className=f"mp-swatch mp-k-{row['kind']}"), said]
        cells.append(html.Td(inside, className="mp-number" if column.number else "", title=title or None))
    return cells
