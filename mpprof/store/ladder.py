"""The file of a ladder of `mpprof try` as it grows: its table in words, for who looks on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mpprof.regular import open_below
from mpprof.store.writing import replace_text

NAME = "ladder.json"
SCHEMA = "mpprof.ladder/1"
_MOST_BYTES = 1 << 20
_MOST_FILES = 20
"""Ladders that are shown: more are of another day."""
_MOST_TEXT = 2000


def write(
    folder: Path, script: str, sentence: str, titles: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Write what the ladder in `folder` shows so far."""
    document = {"schema": SCHEMA, "script": script, "sentence": sentence, "titles": titles, "rows": rows}
    replace_text(folder / NAME, json.dumps(document))


def found(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the ladders of a directory and of those in it, the newest first: `place`, `script`, `sentence`,
    `titles` and `rows` of text. A file that is not one is left out."""
    paths = [path for path in (root / NAME, *root.glob(f"*/{NAME}")) if path.is_file()]
    paths.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in paths[:_MOST_FILES]:
        try:
            file = open_below(root, path)
            if file is None:
                continue
            with file:
                document = json.loads(file.read(_MOST_BYTES))
            if document["schema"] == SCHEMA:
                yield {
                    "place": path.parent.name,
                    "script": _text(document["script"]),
                    "sentence": _text(document["sentence"]),
                    "titles": [_text(each) for each in document["titles"]],
                    "rows": [[_text(each) for each in row] for row in document["rows"]],
                }
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:_MOST_TEXT]
