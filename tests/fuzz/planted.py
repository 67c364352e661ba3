"""Readers with a fault, which the harness must find: if it did not, it would find none in ours either."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from pathlib import Path

FAULTY = b"!"


def seeds() -> Sequence[bytes]:
    return (b"whole",)


def mutate(dice: random.Random, data: bytes) -> bytes:
    return FAULTY if dice.random() < 0.1 else data


def _faulty(path: Path) -> bool:
    return path.read_bytes() == FAULTY


def crash(path: Path) -> bool:
    if _faulty(path):
        ctypes.string_at(0)
    return False


def hang(path: Path) -> bool:
    while _faulty(path):
        pass
    return False


def fail(path: Path) -> bool:
    if _faulty(path):
        raise KeyError("planted")
    return False


def grow(path: Path) -> bool:
    if _faulty(path):
        len(b"x" * (200 << 20))
    return False


def write(path: Path) -> bool:
    if _faulty(path):
        path.with_name("left").write_bytes(b"x")
    return False
