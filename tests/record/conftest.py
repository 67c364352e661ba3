from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.record import hangs


@pytest.fixture(autouse=True)
def no_clock() -> Iterator[None]:
    """However busy the machine is, no part of mpprof is late in a test."""
    hangs.no_clock()
    yield
    hangs.by_the_clock()
