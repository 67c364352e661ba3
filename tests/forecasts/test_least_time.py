"""The least bytes that a step reads from memory."""

from __future__ import annotations

from typing import Any

import pytest

from mpprof.forecasts import least_time
from mpprof.traces.common.hlo_program import Launch


@pytest.mark.parametrize(
    ("order", "cache_bytes", "read_bytes"),
    [
        ("abcababc", 30, 30),
        ("abcababc", 20, 40),  # c gives way, which is needed latest, and is read again
        ("abcababc", 15, 50),  # half of b stays
        ("abcababc", 0, 80),
    ],
)
def test_the_cache_keeps_what_is_needed_soonest(order: str, cache_bytes: float, read_bytes: float) -> None:
    hlo: Any = None
    work = [Launch(hlo, 1, None, False, (((ord(name), 0), 10.0),), ()) for name in order]
    assert least_time.traffic_bytes(work, cache_bytes) == read_bytes
