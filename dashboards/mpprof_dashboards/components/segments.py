"""Links side by side, of which one is on: which part or view of a page is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html


def link(text: str, href: str, *, on: bool) -> dcc.Link:
    """Return one of the links; that of what is shown already loads it anew."""
    marked = " mp-segment-on" if on else ""
    more = {"target": "_self"} if on else {}
    return dcc.Link(text, href=href, className=f"mp-segment{marked}", **more)


def group(links: Sequence[Any], label: str, **attributes: str) -> html.Div:
    """Return the links as one control; `label` says what it chooses."""
    given = {"className": "mp-segments", "role": "group", "aria-label": label} | attributes
    return html.Div(list(links), **given)
