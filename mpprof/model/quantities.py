"""Quantities in words: the only number formatting of the project (`report.words` hands it on).

Values come in the units of the data (nanoseconds, bytes, ratios from 0 to 1) and leave with their unit.
`None` is "not known" and a value that is not finite says so; neither ever becomes a zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NOT_KNOWN = "not known"
TIME_UNITS = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}
"""In ns."""
_RATE_UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))
_TRANSFER_UNITS = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_BYTE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _special(value: float | None) -> str | None:
    """Return the words for a value that is no ordinary number, else None."""
    if value is None:
        return NOT_KNOWN
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    return None


def significant(value: float) -> str:
    """Return three significant digits in plain notation: 1234.5 -> "1,234", 12.34 -> "12.3", 5 -> "5.00"."""
    if value == 0:
        return "0"
    # Rounded first, so that 9.996 becomes 10.0 and not 10.00.
    value = float(f"{value:.2e}") if abs(value) < 1000 else value
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _scaled(value: float | None, units: Sequence[tuple[float, str]], smallest: str) -> str:
    """Return three significant digits in the largest unit that the value fills; else whole ones of
    `smallest`."""
    special = _special(value)
    if special is not None or value is None:
        return special or NOT_KNOWN
    for scale, unit in units:
        if abs(value) >= scale * 0.9995:
            return f"{significant(value / scale)} {unit}"
    return f"{value:,.0f} {smallest}"


def format_ns(value: float | None) -> str:
    """Return a duration of `value` nanoseconds with three significant digits: `1.23 ms`, `870 ns`, `2.50
    s`."""
    special = _special(value)
    if special is not None or value is None:
        return special or NOT_KNOWN
    if value == 0:
        return "0 ns"
    for unit, scale in TIME_UNITS.items():
        # 999.6 µs would round to "1,000 µs": the next unit up takes it.
        if abs(value) >= scale * 0.9995:
            return f"{significant(value / scale)} {unit}"
    return f"{significant(value)} ns"


def format_after(best_ns: float, now_ns: float, *, one_step: bool) -> str:
    """Return the time of a step once something is remedied: `about 70.0 ms a step`; as a range where all
    that is known is one step: `70.0 to 100 ms a step`."""
    best, now = format_ns(best_ns), format_ns(now_ns)
    if not one_step or best == now:
        return f"about {best} a step"
    number, _, unit = best.partition(" ")
    return f"{number if now.endswith(f' {unit}') else best} to {now} a step"


def format_bytes(value: float | None) -> str:
    """Return a size in binary units with three significant digits: `1.50 GiB`, `512 bytes`."""
    return _scaled(value, _BYTE_UNITS, "byte" if value is not None and abs(value) == 1 else "bytes")


def format_ratio(value: float | None) -> str:
    """Return a ratio as a percentage: `15.3 %`, `100 %`, `0.02 %`, `<0.01 %`, `0 %`."""
    special = _special(value)
    if special is not None or value is None:
        return special or NOT_KNOWN
    percent = value * 100
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.01:
        return "<0.01 %" if percent > 0 else ">-0.01 %"
    if abs(percent) < 1:
        return f"{percent:.2f} %"
    if abs(percent) < 99.95:
        # A share just short of all is not shown as all.
        return f"{percent:.1f} %"
    if abs(percent) < 100:
        return ">99.9 %" if percent > 0 else "<-99.9 %"
    return f"{percent:,.0f} %"


def format_flops_per_s(value: float | None) -> str:
    """Return a rate of arithmetic with three significant digits: `18.0 TFLOP/s`, `840 GFLOP/s`."""
    return _scaled(value, _RATE_UNITS, "FLOP/s")


def format_bytes_per_s(value: float | None) -> str:
    """Return a rate of transfer in decimal units with three significant digits, as vendors state it: `1.80
    GB/s`."""
    return _scaled(value, _TRANSFER_UNITS, "B/s")


def format_speedup(value: float | None) -> str:
    """Return a speedup with two decimals: `1.07x`; from 10 on with one."""
    special = _special(value)
    if special is not None or value is None:
        return special or NOT_KNOWN
    return f"{value:.2f}x" if abs(value) < 9.995 else f"{value:,.1f}x"


def format_count(value: float | None) -> str:
    """Return a count with separators: `2,100,000`; up to two decimals where it is a mean."""
    special = _special(value)
    if special is not None or value is None:
        return special or NOT_KNOWN
    if float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) < 0.01:
        return f"{value:.3g}"  # never a zero
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def format_quantity(value: float | int | str | bool | None, unit: str) -> str:
    """Return a value in one of the units of `Evidence` ("ns", "bytes", "ratio", "count", "text", "speedup").

    An unknown unit is printed behind the number as it stands.
    """
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    formats = {"ns": format_ns, "bytes": format_bytes, "ratio": format_ratio, "count": format_count}
    if unit in formats:
        return formats[unit](value)
    if unit == "speedup":
        return format_speedup(value)
    if unit == "FLOP/s":
        return format_flops_per_s(value)
    if unit == "bytes/s":
        return format_bytes_per_s(value)
    words = _special(value) or significant(float(value))
    return words if unit in ("", "text") else f"{words} {unit}"


def first_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first `most` of these names, and how many there are beyond: "a, b and 3 more"."""
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more} more" if more > 0 else "")
