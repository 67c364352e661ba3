"""Names from traces are text: the one place that makes them safe for figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.report import words

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# plotly replaces %{...} in templates and hands $...$ to MathJax where the page has it.
_INVISIBLE = "\u200b"


def escape(text: object) -> str:
    """Return `text` escaped so that plotly draws exactly its characters: no tag, entity, template or formula
    is interpreted."""
    plain = words.plain(str(text)).translate(_MARKUP)
    return plain.replace("%{", f"%{_INVISIBLE}{{").replace("$", f"{_INVISIBLE}${_INVISIBLE}")


def label(text: object, width: int = 28) -> str:
    """Return a name for an axis in at most `width` characters, escaped."""
    return escape(shorten(words.plain(str(text)), width))


def shorten(name: str, width: int) -> str:
    """Return `name` in at most `width` characters: the end of a scope, both ends of anything else. It is not
    escaped."""
    if len(name) > width and "/" in name and not set(name) & set("<(:"):
        return f"…{name[len(name) - width + 1 :]}"
    return words.shorten(name, width)


def or_dash(value: Any, form: Callable[[Any], str]) -> str:
    """Return the value in words; "—" where it is not known."""
    return "—" if value is None else form(value)


def sentence(text: str) -> str:
    """Return `text` with a full stop at its end and a capital at its start, unless it starts with a name."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    if first.rstrip(",;:").isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."
