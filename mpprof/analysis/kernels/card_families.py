"""Cards by their series, for those whose rates are not in the table of products: capability and matrix units.

The table is `card_families.csv`. NVIDIA's capabilities are those of its lists "CUDA GPU Compute Capability" and
"Legacy CUDA GPU Compute Capability"; what matrix units of other vendors take is from their instruction sets.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path

from mpprof.model.device import Vendor
from mpprof.model.frozen import frozen

_BY_CAPABILITY = "by capability"
_SUFFIX = r"(?:nvidia |amd |tesla )?(?:{}) ?(?:\d+ ?gb)?(?: with)? ?(?:laptop|mobile|notebook|max ?q)?(?: gpu| design)*"


@frozen
class Family:
    """One row of the table. `matrix_types`: what its matrix units multiply; empty: it has none; None: what its
    compute capability says."""

    pattern: str  # of its names, in lower case
    vendor: Vendor
    compute_capability: tuple[int, int] | None
    matrix_types: frozenset[str] | None
    source: str


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """Return the table in its own order."""
    text = Path(__file__).with_name("card_families.csv").read_text(encoding="utf-8")
    return tuple(_family(row) for row in csv.DictReader(text.splitlines()))


def _family(row: dict[str, str]) -> Family:
    major, _, minor = row["compute_capability"].partition(".")
    types = row["matrix_types"]
    return Family(
        pattern=row["pattern"],
        vendor=row["vendor"],  # type: ignore[arg-type]
        compute_capability=(int(major), int(minor)) if major else None,
        matrix_types=None if types == _BY_CAPABILITY else frozenset(types.split()),
        source=row["source"],
    )


@lru_cache(maxsize=64)
def family_of(name: str) -> Family | None:
    """Return the series of a card by the name that it calls itself, or that people give it; None: not known."""
    spoken = re.sub(r"[\s_-]+", " ", name.lower()).strip()
    return next((each for each in families() if re.fullmatch(_SUFFIX.format(each.pattern), spoken)), None)
