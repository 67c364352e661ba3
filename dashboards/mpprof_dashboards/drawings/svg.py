"""SVG as text. Places are percentages, so that a drawing takes whatever width there is and its letters stay
as large as those around it; a label is shown from the width on at which it fits."""

from __future__ import annotations

from html import escape
from typing import Any

from mpprof.report import words

NAMESPACE = "http://www.w3.org/2000/svg"
ROOM = (240, 320, 360, 480, 600, 720, 860, 1000, 1200, 1450)
"""Widths of a drawing, in pixels: a label that fits from one of them on has the class `mp-from-…`."""
LETTER = 6.9
"""Pixels of the width of a letter, on average, at 12.5 pixels of height."""


def element(tag: str, inside: str = "", **attributes: Any) -> str:
    """Return an element; `inside` is SVG text. An underscore in an attribute's name is a hyphen, one at its
    end nothing; attributes that are None or empty are left out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(words.plain(str(value)))}"'
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{tag}{given}>{inside}</{tag}>" if inside else f"<{tag}{given}/>"


def text(said: str, **attributes: Any) -> str:
    return element("text", escape(words.plain(said)), **attributes) if said else ""


def title(said: str) -> str:
    """Return what is said on hovering."""
    return element("title", escape(words.plain(said))) if said else ""


def percent(ratio: float) -> str:
    return f"{100 * ratio:.3f}%"


def width_of(said: str) -> float:
    return LETTER * len(said) + 8


def fits_from(said: str, ratio: float) -> str:
    """Return the class of a label that has `ratio` of the drawing's width for itself: from which width on it
    is shown; "mp-never" where none is enough."""
    return room(width_of(said) / ratio if ratio > 0 else float("inf"))


def room(pixels: float) -> str:
    return next((f"mp-from-{least}" for least in ROOM if least >= pixels), "mp-never")
