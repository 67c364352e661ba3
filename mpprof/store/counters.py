"""What hardware counters showed of a run's kernels: `<root>/mpprof/counters.json`, schema
`mpprof.counters/1`.

`{schema, kernels: [{name, card, placement, precision, accumulate, family, reason: {code, text}}]}`; `card`
is left out where the verdict is not of a card in particular, `accumulate` where it is not known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mpprof.errors import TooNewError, UnreadableError
from mpprof.model.kernels import FAMILIES, PLACEMENTS, PRECISIONS, Reason, Verdict
from mpprof.regular import read_regular
from mpprof.store import formats, writing

Verdicts = dict[tuple[str, str], Verdict]
"""By (kernel name, card's name); card "" stands for any."""

MOST_BYTES = 64 << 20
"""A counters file is read whole; one larger than this is not mpprof's own."""


def counters_path(root: Path) -> Path:
    return formats.folder_of(root) / formats.COUNTERS_FILE


def read_counters(root: Path) -> Verdicts:
    """Return the verdicts stored with a run; empty where there are none.

    Raises `UnreadableError` for a damaged file, `TooNewError` for one of a newer mpprof.
    """
    path = counters_path(Path(root))
    again = "Write it again with `mpprof counters FILE.csv --run RUN`, or delete it"
    try:
        content = read_regular(path, MOST_BYTES)
        if len(content) > MOST_BYTES:
            raise UnreadableError("is too large to be a counters file", where=str(path), next=again)
        record = json.loads(content.decode("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"is damaged: {error}", where=str(path), next=again) from error
    if not isinstance(record, dict) or not str(record.get("schema", "")).startswith("mpprof.counters/"):
        raise UnreadableError("is not a counters file written by mpprof", where=str(path), next=again)
    if record["schema"] != formats.COUNTERS_SCHEMA:
        raise TooNewError(f"has the schema {record['schema']}", where=str(path), next="Use a newer mpprof")
    rows = record.get("kernels")
    found = [_verdict(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return dict(pair for pair in found if pair is not None)


def write_counters(
    root: Path, verdicts: Mapping[tuple[str, str], Verdict], *, without: Collection[tuple[str, str]] = ()
) -> Path:
    """Add verdicts to those stored with a run, in place of older ones of the same kernel and card; older ones
    of the kernels and cards in `without` are dropped.

    The file is replaced as a whole. Raises `OSError`, and what `read_counters` raises.
    """
    kept = {key: verdict for key, verdict in read_counters(root).items() if key not in without}
    kept |= verdicts
    folder = formats.folder_of(Path(root))
    rows = [_row(name, card, verdict) for (name, card), verdict in sorted(kept.items())]
    writing.replace_document(
        folder / formats.COUNTERS_FILE, {"schema": formats.COUNTERS_SCHEMA, "kernels": rows}
    )
    return folder / formats.COUNTERS_FILE


def _row(name: str, card: str, verdict: Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "card": card or None,
        "placement": verdict.placement,
        "precision": verdict.precision,
        "accumulate": verdict.accumulate,
        "family": verdict.family,
        "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
    }
    return {key: value for key, value in row.items() if value is not None}


def _verdict(row: dict[str, Any]) -> tuple[tuple[str, str], Verdict] | None:
    """Return one stored verdict; None for a row that this version does not understand."""
    name, card, reason = row.get("name"), row.get("card", ""), row.get("reason")
    placement, precision, family = row.get("placement"), row.get("precision"), row.get("family")
    if not isinstance(name, str) or not isinstance(card, str) or not isinstance(reason, dict):
        return None
    if placement not in PLACEMENTS or precision not in PRECISIONS or family not in FAMILIES:
        return None
    accumulate = row.get("accumulate")
    said = Reason(str(reason.get("code", "")), str(reason.get("text", "")))
    known = accumulate if accumulate in PRECISIONS else None
    return (name, card), Verdict(placement, precision, family, said, "counter", known)
