"""Values of a JSON document within the bounds of `model.limits`: beyond them they are absent or cut off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from mpprof.model import limits

Json = dict[str, Any]


def name(record: Json, key: str) -> str | None:
    """Return a text, of one longer than `LONGEST_NAME` characters the beginning; None for what is none."""
    value = record.get(key)
    return value[: limits.LONGEST_NAME] if isinstance(value, str) else None


_PATH = re.compile("[^\0\ud800-\udc7f\udd00-\udfff]+")
"""The half characters that are left stand for bytes that are no UTF-8 (PEP 383)."""


def path(record: Json, key: str) -> str | None:
    """Return a name that a file can have; None for anything else, such as one with a NUL."""
    found = name(record, key)
    return found if found and _PATH.fullmatch(found) else None


def text(record: Json, key: str) -> str | None:
    """Return the same as `name`, with `LONGEST_TEXT` as the limit."""
    value = record.get(key)
    return value[: limits.LONGEST_TEXT] if isinstance(value, str) else None


def whole(record: Json, key: str, largest: int = limits.LARGEST_NUMBER) -> int | None:
    """Return a whole number between `-largest` and `largest`; None for what is none."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= largest else None


def mapping(record: Json, key: str) -> Json:
    """Return an object as far as `any_value` keeps it; empty for what is none."""
    value = record.get(key)
    return any_value(value) if isinstance(value, dict) else {}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as texts of at most `LONGEST_TEXT` characters."""
    return {key: str(value)[: limits.LONGEST_TEXT] for key, value in values.items()}


def shape(value: Any, level: int = 0) -> Any:
    """Return a shape as a tuple, of several inputs as a tuple of tuples; None for what is none.

    A dimension is None or 0 to `LARGEST_DIMENSION`, and a shape has at most `MOST_DIMENSIONS`.
    """
    if not isinstance(value, list) or len(value) > limits.MOST_INPUTS or level > 2:
        return None
    if any(isinstance(each, list) for each in value):
        return tuple(shape(each, level + 1) for each in value)
    known = len(value) <= limits.MOST_DIMENSIONS and all(
        each is None or _is_dimension(each) for each in value
    )
    return tuple(value) if known else None


def _is_dimension(value: Any) -> bool:
    return type(value) is int and 0 <= value <= limits.LARGEST_DIMENSION


def any_value(value: Any, level: int = 0) -> Any:
    """Return a value whose meaning is not ours: numbers and texts within their bounds, of lists and objects
    the first `MOST_ENTRIES`. None for what lies beyond."""
    if isinstance(value, str):
        return value[: limits.LONGEST_TEXT]
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= limits.LARGEST_NUMBER else None
    if level >= limits.DEEPEST_ENTRY:
        return None
    if isinstance(value, list):
        return [any_value(each, level + 1) for each in value[: limits.MOST_ENTRIES]]
    entries = islice(value.items(), limits.MOST_ENTRIES)
    return {key[: limits.LONGEST_NAME]: any_value(each, level + 1) for key, each in entries}
