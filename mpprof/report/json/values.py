"""Strict JSON values: numbers, times, and what is shared by reports and comparisons."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, overload

from mpprof.model.written import is_written

if TYPE_CHECKING:
    from mpprof.model.document import FromTo


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of "report" or "compare", as shipped."""
    from importlib import resources  # not needed to write a report

    text = resources.files("mpprof.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def strict(value: Any) -> Any:
    """Return the same value in plain JSON types: numpy's scalars unwrapped, non-finite numbers as strings."""
    if value is None or isinstance(value, (str, bool)) or is_written(value):
        return value
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if hasattr(value, "item"):  # numpy.bool_ is registered with none of the number classes
        return strict(value.item())
    return str(value)


def interval(pair: Sequence[float] | None) -> list[float] | None:
    """Return the ends of an interval as a document holds them; None stays None."""
    return None if pair is None else list(pair)


def interval_ns(pair: Sequence[float] | None) -> list[float] | None:
    """Return the ends of an interval of times in ns, each to a thousandth; None stays None."""
    return None if pair is None else [rounded(end) for end in pair]


def from_to(pair: tuple[float | None, float | None]) -> FromTo:
    """Return what two runs have of one value, the earlier first."""
    return {"from": pair[0], "to": pair[1]}


@overload
def rounded(value: float) -> float: ...


@overload
def rounded(value: None) -> None: ...


@overload
def rounded(value: float | None) -> float | None: ...


def rounded(value: float | None) -> float | None:
    """Return a time in ns to a thousandth; None stays None."""
    return None if value is None else round(float(value), 3)
