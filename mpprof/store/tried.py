"""What `mpprof try --remedies` has found of a run: `<root>/mpprof/tried.json`, schema `mpprof.tried/1`.

`{schema, remedies: […]}`, each as `remedies` of `mpprof try --format json` has it, with `said`: it in words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.model.run import TriedRemedy
from mpprof.regular import read_regular
from mpprof.store import bounded, formats
from mpprof.store.writing import replace_text

_MOST_BYTES = 1 << 20
_MOST = 100


def write_tried(root: Path, remedies: Sequence[dict[str, Any]]) -> None:
    """Write what the remedies have brought that were tried on the script of the run at `root`."""
    document = {"schema": formats.TRIED_SCHEMA, "remedies": list(remedies)}
    replace_text(formats.folder_of(root) / formats.TRIED_FILE, formats.document(document))


def read_tried(root: Path) -> tuple[tuple[TriedRemedy, ...], tuple[str, ...]]:
    """Return the remedies that were tried on the script of the run at `root`, empty where none were, and
    warnings of a file that cannot be read."""
    path = formats.folder_of(root) / formats.TRIED_FILE
    try:
        content = read_regular(path, _MOST_BYTES)
        document = json.loads(content) if len(content) <= _MOST_BYTES else None
    except FileNotFoundError:
        return (), ()
    except (OSError, UnreadableError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != formats.TRIED_SCHEMA:
        document = {}
    records = document.get("remedies")
    if not isinstance(records, list):
        return (), (f"{path}: not what `mpprof try --remedies` writes; what was tried is not shown",)
    found = [_remedy(each) for each in records[:_MOST]]
    bad = found.count(None)
    said = (f"{path}: {bad} of {len(found)} remedies could not be read and are left out",) if bad else ()
    return tuple(each for each in found if each is not None), said


def _remedy(record: Any) -> TriedRemedy | None:
    if not isinstance(record, dict):
        return None
    code, change, said = (bounded.name(record, key) for key in ("code", "change", "said"))
    return None if code is None or change is None or said is None else TriedRemedy(code, change, said)
