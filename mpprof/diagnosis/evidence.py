"""Short constructors for `Evidence`, one per unit."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.model.finding import Evidence
from mpprof.model.quantities import first_of

_LONGEST = 48
"""Longer names would fill a line by themselves."""
_LONGEST_TEXT = 240
"""A mangled name of a kernel may have thousands of characters; what tells it apart stands in front."""


def ratio(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "ratio", limit)


def ns(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "ns", limit)


def count(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "count", limit)


def size(name: str, value: int | None, limit: int | None = None) -> Evidence:
    return Evidence(name, value, "bytes", limit)


def rate(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "bytes/s", limit)


def flops(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "FLOP/s", limit)


def speedup(name: str, value: float | None, limit: float | None = None) -> Evidence:
    return Evidence(name, value, "speedup", limit)


def text(name: str, value: str | bool | None, limit: str | None = None) -> Evidence:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        value = f"{value[:_LONGEST_TEXT]}…"
    return Evidence(name, value, "text", limit)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return the first `most` of the names, and how many there are beyond: "a, b and 3 more"."""
    return first_of(list(dict.fromkeys(map(_short, names))), most)


def _short(name: str) -> str:
    """Return a long path by its end, which tells layers apart: ".../attention_1/query"."""
    if len(name) <= _LONGEST or "/" not in name:
        return name
    return ".../" + "/".join(name.split("/")[-2:])
