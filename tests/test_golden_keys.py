"""What a schema once named it keeps: those beside this file in tests/golden are of 2026-11-22. Never shorten them.

Which keys each sample fills is frozen whole (tests/frozen).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.report import json as documents

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("schema", ["report", "compare"])
def test_a_schema_only_grows(schema: str) -> None:
    frozen = json.loads((GOLDEN / f"{schema}.schema.frozen.json").read_text())
    grown = documents.schema(schema)
    lost = set(_properties(frozen)) - set(_properties(grown))
    assert not lost


def _properties(schema: Any) -> Iterator[str]:
    """Names of properties that a schema describes anywhere."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from _properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _properties(inner)
