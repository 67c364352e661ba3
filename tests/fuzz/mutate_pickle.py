"""Damage to a pickle that keeps it one: odd values in its lists and dictionaries, opcodes that are not of plain data,
numbers that ask for memory."""

from __future__ import annotations

import copy
import os
import pickle
import random
from typing import Any

_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 40, 1 << 62, 1 << 63, -(1 << 70), 1 << 2000, 1.5, float("nan"), "", "x" * 3000, "\u20ac",
    [], {}, (), [[]], [{}], {"": []}, {"a": {"frames": 3}}, "inactive", "alloc", "oom", "/", "a/b(c", "Backward0",
)  # fmt: skip
_OPCODES = (
    b"cos\nsystem\n(S'x'\ntR", b"\x93", b"R", b"o", b"i", b"\x81", b"\x92", b"b", b"P0\n", b"Q", b"\x82\x01", b"\x97", b"0",
    b"r\xff\xff\xff\xff", b"\x8e" + b"\xff" * 8, b"\x8d" + b"\xff" * 8, b"X\xff\xff\xff\xff", b"\x8b\xff\xff\xff\x7f",
    b"(" * 2000, b"]" * 2000, b"\x94" * 2000, b"\x85" * 2000, b"t", b"e", b"u", b"a", b"s", b".", b"h\xff", b"j\0\0\0\0",
)  # fmt: skip
_Holders = list[tuple[Any, Any]]


def changed(dice: random.Random, data: bytes) -> bytes:
    """The pickle with some values changed, or with opcodes put into it. It is one of our own, and may be loaded."""
    if dice.random() < 0.3:
        at = dice.randrange(len(data))
        return data[:at] + dice.choice(_OPCODES) + data[at + dice.randrange(3) :]
    found = pickle.loads(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        holder, key = dice.choice(_places(found))
        match dice.randrange(4):
            case 0:
                del holder[key]
            case 1:
                holder[key] = copy.deepcopy(dice.choice(_places(found))[0])
            case _:
                holder[key] = copy.deepcopy(dice.choice(_ODD))
    return pickle.dumps(found, protocol=dice.randrange(2, 6))


def _places(found: Any) -> _Holders:
    """Every place of every list and dictionary, each once."""
    places: _Holders = []
    waiting, seen = [found], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, (list, dict)):
            continue
        seen.add(id(one))
        keys = list(one) if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return places or [({"": 0}, "")]


class Runs:
    """What runs when it is unpickled: it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)
