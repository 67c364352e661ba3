"""The looks at the numbers by layer that a run holds, within the bounds of `model.limits`."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.run import FirstBreak, NumbersLook
from mpprof.store import bounded, formats
from mpprof.store.lines import Faults, read_blocks


def read_looks(root: Path) -> tuple[NumbersLook, ...]:
    """Return the looks of the run at `root` in their order; empty where it has none. What is damaged is
    passed over, and so is a file that is none of ours: `mpprof numerics` says so."""
    path = formats.folder_of(root) / formats.NUMERICS_FILE
    if not path.exists():
        return ()
    records = chain.from_iterable(read_blocks(path, "mpprof.numerics", Faults(path)))
    try:
        return tuple(_look(record) for record in islice(records, limits.MOST_LOOKS))
    except UnreadableError:
        return ()


def _look(record: dict[str, Any]) -> NumbersLook:
    scale = record.get("loss_scale")
    band = scale if isinstance(scale, dict) else {}
    told = record.get("advice")
    advice = told[0] if isinstance(told, list) and told and isinstance(told[0], dict) else {}
    now, low, high = (formats.number(band.get(name)) for name in ("now", "low", "high"))
    return NumbersLook(
        bounded.name(record, "trigger") or "asked",
        bounded.whole(record, "step"),
        _break(record.get("first_forward")),
        _break(record.get("first_backward")),
        now,
        low,
        high,
        banded=bool(band),
        advice=bounded.name(advice, "text"),
        snippet=bounded.text(advice, "snippet"),
    )


def _break(found: Any) -> FirstBreak | None:
    if not isinstance(found, dict):
        return None
    layer, tensor, reason = (bounded.name(found, key) for key in ("layer", "tensor", "reason"))
    if layer is None or tensor is None or reason is None:
        return None
    return FirstBreak(layer, tensor, reason, bounded.name(found, "kind"))
