"""Routes that answer with data: windows of the timeline, and kernels of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dash
import flask

from mpprof.errors import MpprofError
from mpprof.model.source import RunSource
from mpprof.report import json as documents

_MOST_DIGITS = 18
"""Of a number in a query: nanoseconds fit into 64 bits."""


def register(app: dash.Dash, source: RunSource) -> None:
    """Adds the routes to the app's server."""

    def timeline() -> flask.Response:
        asked = flask.request.args
        return _answer(
            lambda: source.timeline(
                asked.get("run", ""),
                step=_whole(asked.get("step")),
                from_ns=_whole(asked.get("from")),
                to_ns=_whole(asked.get("to")),
                width=_whole(asked.get("width")) or 1,
            )
        )

    def kernel() -> flask.Response:
        asked = flask.request.args
        row = _whole(asked.get("row"))
        return _answer(lambda: None if row is None else source.kernel(asked.get("run", ""), row))

    app.server.add_url_rule("/timeline.json", view_func=timeline)
    app.server.add_url_rule("/kernel.json", view_func=kernel)


def _whole(text: str | None) -> int | None:
    """A whole number; None for what is none, or far too large."""
    if text is None or len(text) > _MOST_DIGITS or not text.removeprefix("-").isdecimal():
        return None
    return int(text)


def _answer(ask: Callable[[], Any]) -> flask.Response:
    try:
        found = ask()
    except MpprofError as error:
        return flask.Response(f"{error}\n", 404, mimetype="text/plain")
    if found is None:
        return flask.Response(status=204)  # nothing to show is no error
    return flask.Response(documents.dumps(found, indent=None), mimetype="application/json")
