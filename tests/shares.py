"""Every share that a document states: none is above the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def shares(node: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every share that the document states, with its path. What a comparison divides one step by another for
    is no share, nor is a class of the step that is a negative difference."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "ratio" and value is not None and not (value < 0 and node.get("ns_per_step", 0) < 0):
                yield f"{path}.ratio", value
            if not path.endswith(".speedup") or key == "limits":
                yield from shares(value, f"{path}.{key}")
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield from shares(value, f"{path}[{at}]")
