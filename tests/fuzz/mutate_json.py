"""Damage to JSON that is JSON still, or nearly: values of other types, times that run backwards, huge numbers."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.fuzz import mutate_bytes

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308, 1e-320,
    float("nan"), float("inf"), "NaN", "Infinity", "-Infinity", "", "0", "-5", "1e999", "9" * 30, "\u00b2", "\ud800", "\x00",
    "a" * 3000, "x/" * 300, "\u202e\n\x1b[31m", [], {}, [[]], [None], {"": {}}, [1, 2, 3], ["x"] * 70, [-1, "x", None],
    [[2**62] * 20], "c10::Half", "kernel", "cpu_op", "ProfilerStep#99999999999999999999", "nn.Module: ", "[memory]",
    "X", "M", "B", "float16", "mixed_float16", "mpprof.run/99999999999", "mpprof.steps/1", "step", "fit", "validation",
)  # fmt: skip
RAW = (
    "1" * 5000,
    "-" + "9" * 4299,
    "1e99999999",
    "0.1e-9999",
    "[" * 3000,
    '{"a":' * 3000,
    "1.7976931348623159e308",
    "NaN",
)
_HOLE = "\x01hole\x01"


def changed(dice: random.Random, text: bytes) -> bytes:
    """One to four values of the document changed."""
    document = json.loads(text)
    raw = ""
    for _ in range(dice.choice((1, 1, 2, 4))):
        raw = _one(dice, document) or raw
    made = json.dumps(document)
    return made.replace(json.dumps(_HOLE), raw, 1).encode()


def _place(dice: random.Random, value: Any) -> tuple[Any, Any]:
    """A container and a key within it, anywhere in the document."""
    while True:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or dice.random() < 0.15:
            return value, key
        value = inner


def _one(dice: random.Random, document: Any) -> str:
    """Changes one place; returns the text to stand there, where no value says it."""
    if not document:
        return ""
    owner, key = _place(dice, document)
    old = owner[key]
    match dice.randrange(9):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, list):
            owner[key:key] = [old] * dice.choice((1, 2, 40))
        case 2:
            other, where = _place(dice, document)
            owner[key] = other[where] if not isinstance(other[where], (dict, list)) else None
        case 3 | 4 if isinstance(old, (int, float)) and not isinstance(old, bool):
            owner[key] = dice.choice(
                (
                    -old,
                    old - 10**6,
                    old * 1000,
                    old + 10**15,
                    old // 3,
                    old + 0.123456789 if abs(old) < 1e300 else -1,
                )
            )
        case 5:
            owner[key] = _HOLE
            return dice.choice(RAW)
        case 6 if isinstance(owner, dict):
            owner[dice.choice((str(key) + "s", "", str(key).upper()))] = owner.pop(key)
        case _:
            owner[key] = json.loads(json.dumps(dice.choice(VALUES)))  # of its own: it may be changed next
    return ""


def lines_changed(dice: random.Random, data: bytes) -> bytes:
    """A file of JSON lines: lines left out, repeated, exchanged, torn, or changed within."""
    lines = data.split(b"\n")
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(6):
            case 0 if len(lines) > 2:
                del lines[at]
            case 1:
                lines[at:at] = [lines[at]] * dice.choice((1, 3, 30))
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = mutate_bytes.changed(dice, lines[at] or b" ", 2)
            case _ if lines[at][:1] == b"{":
                try:
                    lines[at] = changed(dice, lines[at])
                except (ValueError, RecursionError):  # it was damaged before
                    lines[at] = b""
            case _:
                lines[at] = dice.choice((b"{}", b"[]", b"\x00" * 40, b"null", b'{"kind":"step"}'))
    return b"\n".join(lines)
