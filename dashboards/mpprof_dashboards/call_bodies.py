"""Which bodies are calls of the page: Dash answers any other with 500 and a traceback in the log."""

from __future__ import annotations

from typing import Any

import dash
import flask

MOST_BYTES = 1 << 20
"""Of a request's body. A call holds an address, a choice and a digest."""

_VALUES: dict[str, type] = {
    "url.search": str,
    "url.pathname": str,
    "compare-runs.value": list,
    "live.n_intervals": int,
    "seen.data": str,
    "step-times.relayoutData": dict,
}
"""What each property that a callback takes may hold, beside nothing."""


def is_call(app: dash.Dash) -> bool:
    """Return whether the request's body names a callback of the app, with its arguments in their types."""
    try:
        body = flask.request.get_json(silent=True)
    except RecursionError:  # deeply nested
        return False
    if not isinstance(body, dict):
        return False
    output, changed = body.get("output"), body.get("changedPropIds")
    if not isinstance(output, str) or "callback" not in app.callback_map.get(output, ()):
        return False  # none of ours, or one that runs in the browser
    known = app.callback_map[output]
    taken = [f"{each['id']}.{each['property']}" for each in known["inputs"]]
    if not isinstance(changed, list) or not all(each in taken for each in changed):
        return False
    if _named(body.get("outputs")) != _outputs(output):
        return False
    return _fit(body.get("inputs"), known["inputs"]) and _fit(body.get("state", []), known["state"])


def _outputs(output: str) -> list[str]:
    """Return the properties that a callback's name lists: "..a.b...c.d..", or one, perhaps with a digest."""
    names = output[2:-2].split("...") if output.startswith("..") else [output]
    return [_without_digest(name) for name in names]


def _without_digest(name: str) -> str:
    """Return a property's name without its digest: a property that several callbacks set has a digest after
    its name."""
    return name.partition("@")[0]


def _named(given: Any) -> list[str]:
    listed = given if isinstance(given, list) else [given]
    named = (f"{each.get('id')}.{each.get('property')}" for each in listed if isinstance(each, dict))
    return [_without_digest(name) for name in named]


def _fit(given: Any, taken: list[dict[str, str]]) -> bool:
    if not isinstance(given, list) or len(given) != len(taken):
        return False
    return all(map(_fits, given, taken))


def _fits(given: Any, taken: dict[str, str]) -> bool:
    if not isinstance(given, dict) or any(given.get(key) != taken[key] for key in ("id", "property")):
        return False
    value, known = given.get("value"), _VALUES.get(f"{taken['id']}.{taken['property']}", str)
    if isinstance(value, list):
        return known is list and all(isinstance(each, str) and _is_name(each) for each in value)
    if isinstance(value, str) and not _is_name(value):
        return False
    return value is None or (isinstance(value, known) and not isinstance(value, bool))


def _is_name(text: str) -> bool:
    """Return whether the text can be written into a link: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
