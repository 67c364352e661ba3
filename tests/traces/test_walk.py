"""Both walks give identical columns, on whole files and on any bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpprof.traces.common import walk, walk_reference
from tests.builders.xspace import Ref, Space, tagged_bytes, tagged_varint, varint
from tests.fuzz.walks import walked_alike
from tests.traces.conftest import needs_shared, shared_xplanes

compiled = pytest.mark.skipif(not walk.COMPILED, reason="the extension is not built: there is one walk only")


def assert_walked_alike(data: bytes) -> int:
    """Return the number of events compared."""
    return walked_alike(np.frombuffer(data, np.uint8))


def small_space() -> bytes:
    space = Space()
    plane = space.plane("/device:GPU:0")
    line = plane.line(7, "Stream #7(Compute)", 500)
    for i in range(40):
        stats = {
            "correlation_id": i,
            "tf_op": Ref(f"a/b{i % 3}:MatMul"),
            "memcpy_details": f"size:{i % 5} dest:0",
        }
        line.event(f"kernel{i % 4}", 1_000 + 10 * i, 7.5, stats)
    plane.line(8, "empty")
    return space.to_bytes()


@compiled
@needs_shared()
@pytest.mark.parametrize("path", shared_xplanes(), ids=lambda p: p.parent.name + "/" + p.name)
def test_recorded_traces_are_walked_alike(path: Path) -> None:
    assert assert_walked_alike(path.read_bytes()) > 0


@compiled
def test_every_truncation_is_walked_alike() -> None:
    data = small_space()
    assert assert_walked_alike(data) == 40
    for size in range(len(data)):
        assert_walked_alike(data[:size])


@compiled
def test_mutations_are_walked_alike() -> None:
    data = small_space()
    dice = random.Random(1)
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(dice.randint(1, 6)):
            changed[dice.randrange(len(changed))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        assert_walked_alike(bytes(changed))


@compiled
def test_extreme_numbers_are_walked_alike() -> None:
    extremes = (0, 1, -1, 999, -999, 1000, -1000, 2**61, -(2**61), 2**62, -(2**62), 2**63 - 1, -(2**63))
    events = [
        tagged_varint(1, 1) + tagged_varint(2, a) + tagged_varint(3, b) for a in extremes for b in extremes
    ]
    line = tagged_bytes(3, b"".join(tagged_bytes(4, event) for event in events))
    assert assert_walked_alike(tagged_bytes(1, line)) == len(extremes) ** 2


@compiled
@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_walked_alike(data: bytes) -> None:
    assert_walked_alike(data)
    assert_walked_alike(tagged_bytes(1, tagged_bytes(3, tagged_bytes(4, data) + data)))


@pytest.mark.parametrize("module", [walk, walk_reference], ids=["chosen", "reference"])
@pytest.mark.parametrize(
    ("data", "rows", "damage"),
    [
        (b"", 0, -1),
        (tagged_varint(1, 2**64 - 1), 1, -1),
        (varint(1 << 3) + b"\x80" * 11 + b"\x01", 0, 0),  # a varint of twelve bytes
        (tagged_varint(1, 5) + b"\x0b", 1, 2),  # a group
        (tagged_varint(1, 5) + b"\x00\x00", 1, 2),  # field number 0
        (tagged_bytes(2, b"abc")[:-1], 1, 0),  # cut within a payload: given as far as it goes
        (varint(2 << 3 | 2) + varint(2**63), 1, 0),  # a length past any file
        (b"\x09\x01\x02", 0, 0),  # a fixed64 of two bytes
    ],
)
def test_damage_is_found_where_it_is(module: object, data: bytes, rows: int, damage: int) -> None:
    fields = module.scan(  # type: ignore[attr-defined]
        np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]), 2**64 - 1
    )
    assert (len(fields.number), fields.damage) == (rows, damage)


def test_a_message_outside_the_buffer_is_refused() -> None:
    buffer = np.zeros(4, np.uint8)
    for module in (walk, walk_reference):
        for start, end in ((-1, 2), (3, 2), (0, 5)):
            with pytest.raises(ValueError, match="outside the buffer"):
                module.scan(buffer, np.array([start]), np.array([end]), 1)
