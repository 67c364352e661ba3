"""The files of a run: their names, their schemas and their strict JSON.

Standard JSON has no NaN and no infinities, and a file that holds them can be read by few; here they are
the strings "NaN", "Infinity" and "-Infinity" wherever a number may stand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpprof.errors import TooNewError, UnreadableError

RUN_SCHEMA = "mpprof.run/1"
STEPS_SCHEMA = "mpprof.steps/1"
HARDWARE_SCHEMA = "mpprof.hardware/1"
COUNTERS_SCHEMA = "mpprof.counters/1"
NUMERICS_SCHEMA = "mpprof.numerics/1"
TRIED_SCHEMA = "mpprof.tried/1"

FOLDER = "mpprof"
RUN_FILE = "run.json"
STEPS_FILE = "steps.jsonl"
HARDWARE_FILE = "hardware.jsonl"
COUNTERS_FILE = "counters.json"
NUMERICS_FILE = "numerics.jsonl"
TRIED_FILE = "tried.json"
WISH_FILE = "window-please"
"""A file of this name in the folder of a run that is being recorded asks for a further profile window."""

FAILED = "failed while recording"
"""With it begins the reason in `absent` of a part that was recorded until it failed."""

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def folder_of(root: Path, worker: int = 0) -> Path:
    """Return where the files of a run lie: `<root>/mpprof`, or `<root>/mpprof/worker-<k>` for an extra
    worker."""
    return root / FOLDER if worker == 0 else root / FOLDER / f"worker-{worker}"


_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _made_once() -> Callable[[Any], str]:
    """Return `_encoder.encode` with its C encoder made once; it makes one for each record otherwise, which
    costs three times as much as the encoding."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    text = json.encoder.encode_basestring
    chunks = make(None, _encoder.default, text, None, ":", ",", False, False, False)
    return lambda record: "".join(chunks(record, 0))


_encode = _made_once()


def line(record: dict[str, Any]) -> str:
    """Return one record as one line of JSON, without its newline."""
    try:
        return _encode(record)
    except (ValueError, TypeError):  # a number that is not finite, or a value of an array library
        return _encode(plain(record))


def document(record: dict[str, Any]) -> str:
    """Return one record as a readable document."""
    return json.dumps(plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return the same value in types that strict JSON supports.

    Numbers of array libraries become Python's, tuples lists, what is not finite its string, and what
    JSON cannot say its text.
    """
    if value is None or isinstance(value, bool | int | str):
        return _text(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name(value)
    if isinstance(value, dict):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    number = getattr(value, "item", None)
    if callable(number) and getattr(value, "ndim", 1) == 0:
        return plain(number())
    return _text(str(value))


def number(value: Any) -> float | None:
    """Return a JSON number or one of the three strings as a float; None where it is neither."""
    if isinstance(value, str):
        return NON_FINITE.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _text(text: str) -> str:
    # A lone surrogate (from an undecodable file name) cannot be written as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


# --- versions of our own files -----------------------------------------------------------------------------

# Every change of a format gets a new number and one small function here, which turns a document of the
# version before into one of the next. Nothing else in mpprof knows an old version.

Record = dict[str, Any]
Upgrader = Callable[[Record], Record]

NEWEST = {"mpprof.run": 1, "mpprof.steps": 1, "mpprof.hardware": 1, "mpprof.numerics": 1}

# (family, version it reads) -> the same record, one version newer. Version 1 is the first, so it is empty.
UPGRADERS: dict[tuple[str, int], Upgrader] = {}


def version_of(schema: Any, family: str, where: str) -> int:
    """Return the version in a schema string like "mpprof.run/1".

    Raises `UnreadableError` where it is not of that family and `TooNewError` where it is newer than
    this mpprof.
    """
    name, _, text = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != family or not text.isascii() or not text.isdigit() or not 0 < len(text) < 6 or int(text) < 1:
        raise UnreadableError(
            f'not a file of mpprof: it states no schema "{family}/…"',
            where=where,
            next="Give a log directory that MPProfilerCallback wrote",
        )
    version = int(text)
    if version > NEWEST[family]:
        raise TooNewError(
            f"written by a newer mpprof (schema {family}/{version}, this one reads up to {NEWEST[family]})",
            where=where,
            next="Upgrade mpprof: pip install -U mpprof",
        )
    return version


def upgrade(record: Record, family: str, version: int) -> Record:
    """Return the record in the newest version of its family."""
    for old in range(version, NEWEST[family]):
        record = UPGRADERS[family, old](record)
    return record
