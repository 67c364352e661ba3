"""What TensorFlow's graph rewrite for mixed precision says of itself in a log: a text handed to us.

The lines are TensorFlow 2.21's (`auto_mixed_precision.cc`); older ones say "AutoMixedPrecision" nowhere else
either, so that a whole process' log may be given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.regular import read_regular

REWRITE_LOG = "graph_rewrite.log"
"""Beside run.json: a log of the training, put there by hand."""
MOST_BYTES = 64 << 20

_CONVERTED = re.compile(
    r"Converted (\d{1,12})/(\d{1,12}) nodes to (\w+) precision using (\d{1,12}) cast\(s\)"
)
_NOTHING = re.compile(r"No (?:allowlist|whitelist) ops found, nothing to do")


def read_rewrite_log(text: str) -> dict[str, Any] | None:
    """Return {graphs, converted_graphs, nodes, converted_nodes, casts, dtype}, summed over all graphs; None
    where the rewrite reports nothing. `nodes` counts those of the converted graphs: for the others the log
    states no number."""
    converted = _CONVERTED.findall(text)
    graphs = len(converted) + len(_NOTHING.findall(text))
    if not graphs:
        return None
    facts: dict[str, Any] = {"source": "log", "graphs": graphs, "converted_graphs": len(converted)}
    for key, column in (("converted_nodes", 0), ("nodes", 1), ("casts", 3)):
        facts[key] = sum(int(row[column]) for row in converted)
    if converted:
        facts["dtype"] = converted[-1][2]
    return facts


def rewrite_log_beside(folder: Path) -> dict[str, Any] | None:
    """Return the same as `read_rewrite_log` for the log in a run's folder; None where there is no log, or
    where it cannot be read."""
    try:
        text = read_regular(folder / REWRITE_LOG, MOST_BYTES).decode("utf-8", "replace")
    except (OSError, UnreadableError):
        return None
    return read_rewrite_log(text)
