"""Routes that answer with data: rows of the tables, windows of the timeline, and kernels of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from time import time_ns
from typing import Any

import dash
import flask

from mpprof._version import __version__
from mpprof.errors import MpprofError, NotFoundError
from mpprof.model.source import RunSource
from mpprof.report import json as documents
from mpprof.report import words
from mpprof_dashboards import rows, runs, work
from mpprof_dashboards.components.context import listed

Query = Mapping[str, str]
Ask = Callable[[RunSource, Query], Any]
"""What gives a document for a query; None where there is nothing to show."""

_MOST_DIGITS = 18
"""Of a number in a query: nanoseconds fit into 64 bits."""
_MOST_SEARCH = 200
"""Characters of what is searched for."""
_MOST_TEXT = 20_000
"""Characters of one argument: the rows that were picked in a figure are named in one."""


def register(app: dash.Dash, source: RunSource) -> None:
    """Add the routes to the app's server."""
    for path, ask in _DOCUMENTS.items():
        app.server.add_url_rule(path, path, partial(_answer, ask, source))
    app.server.add_url_rule("/trace.json", "/trace.json", partial(_trace_file, source))
    app.server.add_url_rule("/rows.csv", "/rows.csv", partial(_rows_file, source))


def _timeline(source: RunSource, asked: Query) -> Any:
    return source.timeline(
        asked.get("run", ""),
        step=whole(asked.get("step")),
        from_ns=whole(asked.get("from")),
        to_ns=whole(asked.get("to")),
        width=whole(asked.get("width")) or 1,
        colour=asked.get("colour", "placement"),
        search=asked.get("search", "")[:_MOST_SEARCH],
        device_only=asked.get("only") == "device",
    )


def _kernel(source: RunSource, asked: Query) -> Any:
    row = whole(asked.get("row"))
    return None if row is None else source.kernel(asked.get("run", ""), row)


def _next_kernel(source: RunSource, asked: Query) -> Any:
    return source.next_kernel(
        asked.get("run", ""),
        row=whole(asked.get("row")),
        from_ns=whole(asked.get("from")) or 0,
        search=asked.get("search", "")[:_MOST_SEARCH],
        back=asked.get("back") == "1",
    )


def _chrome_trace(source: RunSource, asked: Query) -> Any:
    begin, end = whole(asked.get("from")) or 0, whole(asked.get("to")) or 0
    return source.chrome_trace(asked.get("run", ""), begin, end)


def _rows_of(source: RunSource, asked: Query) -> tuple[rows.Table, rows.Asked]:
    query = {key: value[:_MOST_TEXT] for key, value in asked.items()}
    run, baseline, kind = query.get("run", ""), query.get("baseline") or None, query.get("table", "")
    if kind not in work.KINDS:
        raise NotFoundError("there is no such table", next=f"Tables: {', '.join(work.KINDS)}")
    found = work.table(source, run, source.report(run, baseline), kind, query.get("f.cause"))
    return found, rows.asked(query)


def _rows(source: RunSource, asked: Query) -> Any:
    return rows.answer(*_rows_of(source, asked))


def _runs(source: RunSource, asked: Query) -> Any:
    found, problem = listed(source)
    if problem is not None:
        raise problem
    known = runs.listing(found, time_ns())
    return None if asked.get("version") == known["version"] else known


def _ladders(source: RunSource, asked: Query) -> Any:
    return source.ladders()


def _run(source: RunSource, asked: Query) -> Any:
    return runs.row(source, asked.get("run", ""), asked.get("baseline") or None)


_DOCUMENTS: dict[str, Ask] = {
    "/runs.json": _runs,
    "/run.json": _run,
    "/ladders.json": _ladders,
    "/rows.json": _rows,
    "/timeline.json": _timeline,
    "/kernel.json": _kernel,
    "/next.json": _next_kernel,
}


def _trace_file(source: RunSource) -> flask.Response:
    return saved_as("json", _run_of(flask.request.args), _answer(_chrome_trace, source))


def _rows_file(source: RunSource) -> flask.Response:
    try:
        text = rows.to_csv(*_rows_of(source, flask.request.args))
    except MpprofError as error:
        return refusal(error)
    return saved_as("csv", _run_of(flask.request.args), flask.Response(text, mimetype="text/csv"))


def _run_of(asked: Query) -> str:
    return asked.get("run", "")


def saved_as(kind: str, run: str, response: flask.Response) -> flask.Response:
    """Return the response as one that a browser saves under a name that says of which run it is, by which
    version, and of which day."""
    named = re.sub(r"[^A-Za-z0-9._-]+", "-", run)[-80:].strip("-.")
    name = f"mpprof-{__version__}-{named}-{date.today().isoformat()}.{kind}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def refusal(error: MpprofError) -> flask.Response:
    """Return a response that says why there is no answer; a name in it may not be valid text."""
    return flask.Response(f"{words.plain(str(error))}\n", 404, mimetype="text/plain")


def whole(text: str | None) -> int | None:
    """Return a whole number; None for what is not a whole number, or is far too large."""
    if text is None or len(text) > _MOST_DIGITS or not text.removeprefix("-").isdecimal():
        return None
    return int(text)


def _answer(ask: Ask, source: RunSource) -> flask.Response:
    try:
        found = ask(source, flask.request.args)
    except MpprofError as error:
        return refusal(error)
    if found is None:
        return flask.Response(status=204)  # nothing to show is no error
    return flask.Response(documents.dumps(found, indent=None), mimetype="application/json")
