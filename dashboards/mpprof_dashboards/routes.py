"""Routes that answer with data: rows of the tables, windows of the timeline, and kernels of it."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any

import dash
import flask

from mpprof.errors import MpprofError, NotFoundError
from mpprof.model.source import RunSource
from mpprof.report import json as documents
from mpprof.report import words
from mpprof_dashboards import rows, runs, work
from mpprof_dashboards.components.context import listed

_MOST_DIGITS = 18
"""Of a number in a query: nanoseconds fit into 64 bits."""
_MOST_SEARCH = 200
"""Characters of what is searched for."""
_MOST_TEXT = 20_000
"""Characters of one argument: the rows that were picked in a figure are named in one."""


def register(app: dash.Dash, source: RunSource) -> None:
    """Add the routes to the app's server."""

    def timeline() -> flask.Response:
        asked = flask.request.args
        return _answer(
            lambda: source.timeline(
                asked.get("run", ""),
                step=whole(asked.get("step")),
                from_ns=whole(asked.get("from")),
                to_ns=whole(asked.get("to")),
                width=whole(asked.get("width")) or 1,
                colour=asked.get("colour", "placement"),
                search=asked.get("search", "")[:_MOST_SEARCH],
            )
        )

    def kernel() -> flask.Response:
        asked = flask.request.args
        row = whole(asked.get("row"))
        return _answer(lambda: None if row is None else source.kernel(asked.get("run", ""), row))

    def next_kernel() -> flask.Response:
        asked = flask.request.args
        return _answer(
            lambda: source.next_kernel(
                asked.get("run", ""),
                row=whole(asked.get("row")),
                from_ns=whole(asked.get("from")) or 0,
                search=asked.get("search", "")[:_MOST_SEARCH],
                back=asked.get("back") == "1",
            )
        )

    def chrome_trace() -> flask.Response:
        asked = flask.request.args
        begin, end = whole(asked.get("from")) or 0, whole(asked.get("to")) or 0
        response = _answer(lambda: source.chrome_trace(asked.get("run", ""), begin, end))
        response.headers["Content-Disposition"] = 'attachment; filename="mpprof-trace.json"'
        return response

    def _rows_of() -> tuple[rows.Table, rows.Asked]:
        query = {key: value[:_MOST_TEXT] for key, value in flask.request.args.items()}
        run, baseline, kind = query.get("run", ""), query.get("baseline") or None, query.get("table", "")
        if kind not in work.KINDS:
            raise NotFoundError("there is no such table", next=f"Tables: {', '.join(work.KINDS)}")
        found = work.table(source, run, source.report(run, baseline), kind, query.get("f.cause"))
        return found, rows.asked(query)

    def table() -> flask.Response:
        return _answer(lambda: rows.answer(*_rows_of()))

    def table_csv() -> flask.Response:
        try:
            text = rows.to_csv(*_rows_of())
        except MpprofError as error:
            return refusal(error)
        response = flask.Response(text, mimetype="text/csv")
        response.headers["Content-Disposition"] = 'attachment; filename="mpprof-rows.csv"'
        return response

    def listed_runs() -> flask.Response:
        found, problem = listed(source)
        if problem is not None:
            return refusal(problem)
        known = runs.listing(found, time_ns())
        return _answer(lambda: None if flask.request.args.get("version") == known["version"] else known)

    def summary() -> flask.Response:
        asked = flask.request.args
        return _answer(lambda: runs.row(source, asked.get("run", ""), asked.get("baseline") or None))

    app.server.add_url_rule("/runs.json", view_func=listed_runs)
    app.server.add_url_rule("/run.json", view_func=summary)
    app.server.add_url_rule("/rows.json", view_func=table)
    app.server.add_url_rule("/rows.csv", view_func=table_csv)
    app.server.add_url_rule("/timeline.json", view_func=timeline)
    app.server.add_url_rule("/kernel.json", view_func=kernel)
    app.server.add_url_rule("/next.json", view_func=next_kernel)
    app.server.add_url_rule("/trace.json", view_func=chrome_trace)


def refusal(error: MpprofError) -> flask.Response:
    """Return a response that says why there is no answer; a name in it may not be valid text."""
    return flask.Response(f"{words.plain(str(error))}\n", 404, mimetype="text/plain")


def whole(text: str | None) -> int | None:
    """Return a whole number; None for what is not a whole number, or is far too large."""
    if text is None or len(text) > _MOST_DIGITS or not text.removeprefix("-").isdecimal():
        return None
    return int(text)


def _answer(ask: Callable[[], Any]) -> flask.Response:
    try:
        found = ask()
    except MpprofError as error:
        return refusal(error)
    if found is None:
        return flask.Response(status=204)  # nothing to show is no error
    return flask.Response(documents.dumps(found, indent=None), mimetype="application/json")
