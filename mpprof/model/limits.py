"""Bounds of the sizes, counts and times that come from files: what lies beyond one was never measured.

Each is checked where the value enters, and what is beyond it is absent or left out. So arithmetic on what
was read overflows nowhere: the sum of a date and two times fits into 64 bits, the product of all dimensions
of two shapes into a float.
"""

from __future__ import annotations

EARLIEST_UNIX_NS = 10**17
"""Times above it count from 1970, smaller ones (three years) from the start of a profile or of a process."""
LATEST_UNIX_NS = 1 << 62
"""The year 2116."""
LONGEST_NS = 1 << 61
"""Times and durations that count from no date: 73 years."""

MOST_DIMENSIONS, LARGEST_DIMENSION = 16, 1 << 48
"""Dimensions of a shape, and elements along one."""

MOST_LEVELS = 64
"""Directories below one another under a log directory; a run's own lie three or four levels down."""


def unix_ns(value: object) -> int | None:
    """A time since 1970; None for what is none."""
    known = isinstance(value, int) and EARLIEST_UNIX_NS < value < LATEST_UNIX_NS
    return value if known and not isinstance(value, bool) else None  # type: ignore[return-value]
