"""Values of the model as strict JSON: by the keys of their types, times to a thousandth of a nanosecond.

What is not known is null; a number that is not finite is the string "NaN", "Infinity" or "-Infinity".
"""

from __future__ import annotations

import json
import math
from numbers import Integral, Real
from typing import Any

from mpprof.model.written import Written, is_written, items


def dumps(value: Any, *, indent: int | None = 2) -> str:
    """Return strict JSON text, ASCII only, so that any name from any file survives every terminal and
    pipe."""
    return json.dumps(to_json(value), indent=indent, allow_nan=False)


def to_json(value: Any) -> Any:
    """Return the same value in plain JSON types: numpy's scalars unwrapped, types of the model as objects."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if is_written(value):
        return {each.key: _value(each, given) for each, given in items(value)}
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if hasattr(value, "item"):  # numpy.bool_ is registered with none of the number classes
        return to_json(value.item())
    return str(value)


def _value(each: Written, given: Any) -> Any:
    plain = to_json(_rounded(given) if each.rounded else given)
    if each.ends is None or plain is None:
        return plain
    return {each.ends.first: plain[0], each.ends.second: plain[1]}


def _rounded(value: Any) -> Any:
    if isinstance(value, Real):
        return round(float(value), 3)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value
