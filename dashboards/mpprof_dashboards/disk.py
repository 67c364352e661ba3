"""Answers of the page name the log directory as LOGDIR, and not where it lies on the server's disk."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

import flask

PLACEHOLDER = "LOGDIR"
_TYPES = ("text/html", "text/plain", "text/markdown", "text/csv", "application/json")


class WithoutDisk:
    """Writes LOGDIR for the path of the log directory in every answer that is made of its runs.

    A path that may stand in an address of the page stays: a folder at the root of the disk, such as /runs,
    and what begins as the addresses below `prefix` do."""

    def __init__(self, logdir: Path, prefix: str = "") -> None:
        both = {logdir.absolute(), logdir.resolve()}
        paths = {str(path) for path in both if len(path.parts) > 2 and not _begin_alike(str(path), prefix)}
        forms = {form for path in paths for form in _written(path)}
        known = b"|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._path = re.compile(rb"(?<![\w.-])(?:" + known + rb")(?![\w.-])") if forms else None

    def __call__(self, response: flask.Response) -> flask.Response:
        if self._path is None or "ETag" in response.headers or response.mimetype not in _TYPES:
            return response
        if response.direct_passthrough or response.is_streamed:
            return response
        body = response.get_data()
        if self._path.search(body):
            response.set_data(self._path.sub(PLACEHOLDER.encode(), body))
        return response


def _begin_alike(path: str, prefix: str) -> bool:
    return bool(prefix) and (f"{path}/".startswith(f"{prefix}/") or f"{prefix}/".startswith(f"{path}/"))


def _written(path: str) -> list[bytes]:
    """Return a path as text, in quotes of a shell, in HTML, and in JSON, where what is in a page has no tags
    and Plotly's no slashes."""
    forms = []
    for text in (path, path.replace("'", "'\"'\"'")):
        told = [json.dumps(text, ensure_ascii=pure)[1:-1] for pure in (True, False)]
        told += [each.replace("<", "\\u003c").replace(">", "\\u003e") for each in told]
        forms += [text, escape(text), *told, *(each.replace("/", "\\u002f") for each in told)]
    return [form.encode("utf-8", "surrogateescape") for form in forms]
