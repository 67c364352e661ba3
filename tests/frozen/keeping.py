"""What is kept, and how it differs from what is there now."""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CODE = re.compile(r"MP\d{3}")
CLOSE = 1e-9
"""Numbers may differ by this share: the order of a sum."""


def kept(group: str) -> dict[str, Any]:
    """Return what was kept of a group, by the names of its outputs."""
    found: dict[str, Any] = json.loads(lzma.decompress((HERE / f"{group}.json.xz").read_bytes()))
    return found


def keep(group: str, outputs: dict[str, Any]) -> None:
    text = json.dumps(outputs, ensure_ascii=False, sort_keys=False, separators=(",", ":"))
    (HERE / f"{group}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def differences(before: Any, now: Any, at: str = "") -> Iterator[str]:
    """Yield each key whose value is no longer what it was, with both values; also keys that are gone or new, and keys
    in another order."""
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _by_key(before, now, at, f"{at}.{{}}" if at else "{}", "keys")
    elif isinstance(before, list) and isinstance(now, list):
        named, names = _named(before), _named(now)
        if named is not None and names is not None:
            yield from _by_key(named, names, at, at + "[{}]", "entries")
            return
        if len(before) != len(now):
            yield f"{at}: {len(before)} entries, now {len(now)}"
        for row, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from differences(one, other, f"{at}[{row}]")
    elif not _same(before, now):
        yield from _lines(before, now, at)


def _by_key(before: dict[str, Any], now: dict[str, Any], at: str, spelled: str, what: str) -> Iterator[str]:
    for key in [*before, *(key for key in now if key not in before)]:
        where = spelled.format(key)
        if key not in now:
            yield f"{where}: gone (was {_short(before[key])})"
        elif key not in before:
            yield f"{where}: new ({_short(now[key])})"
        else:
            yield from differences(before[key], now[key], where)
    if [key for key in before if key in now] != [key for key in now if key in before]:
        yield f"{at}{': ' if at else ''}its {what} are in another order"


def _named(entries: list[Any]) -> dict[str, Any] | None:
    """Return the entries of a list by their code, which of codes alone is the entry itself; None where one has none, or
    two have the same."""
    codes = [each.get("code", each.get("key")) if isinstance(each, dict) else each for each in entries]
    named = {
        code: each
        for code, each in zip(codes, entries, strict=True)
        if isinstance(code, str) and (isinstance(each, dict) or CODE.fullmatch(code))
    }
    return named if len(named) == len(entries) else None


def _lines(before: Any, now: Any, at: str) -> Iterator[str]:
    """Yield the difference of two values; of two texts of several lines, the lines that differ."""
    if isinstance(before, str) and isinstance(now, str) and ("\n" in before or "\n" in now):
        from difflib import ndiff

        for line in ndiff(before.splitlines(), now.splitlines()):
            if line[:2] in ("- ", "+ "):
                yield f"{at}: {line}"
    else:
        yield f"{at}: {_short(before)} -> {_short(now)}"


def _same(before: Any, now: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (before, now))
    if numbers:
        return math.isclose(before, now, rel_tol=CLOSE, abs_tol=1e-12)
    return type(before) is type(now) and bool(before == now)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."
