"""What mpprof says of a file or of a log directory, checked as far as any file allows, and how two such differ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpprof
import mpprof.report
from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders.read_back import markdown, text
from tests.fuzz.commands import report_schema
from tests.fuzz.targets import check

Document = dict[str, Any]

NOTHING_NEW = ("warnings", "source")
"""What another layout of the same file may change."""
TIMES = ("time_ns", "born_ns", "peak_ns")
"""Of the trace's own clock, which may lie elsewhere."""


def said(path: Path, *, whole: bool = False) -> Document:
    """The report's document, with its tables of kernels, ops and layers. `whole`: also held to its schema, and
    printed in the other formats. Raises MpprofError."""
    mine = workflows.analyse(mpprof.load(path))
    if mine.trace is not None:
        check(mine.trace)
    diagnosis = workflows.judge(mine)
    document: Document = dict(documents.document(diagnosis))
    _sound(document)
    if whole:
        report_schema().validate(json.loads(json.dumps(document, allow_nan=False)))
        for written in (text.render(document), markdown.render(document)):
            written.encode()
    tables = (
        {name: workflows.rows_of(mine, name) for name in ("kernels", "products", "ops", "layers")}
        if mine.trace
        else {}
    )
    for name, rows in tables.items():
        document[f"{name} table"] = sorted(rows, key=lambda row: json.dumps(row, default=str))
    return document


def _sound(document: Document) -> None:
    """Nothing failed within, and the sums close."""
    texts = [*document["warnings"], *(each["reason"] for each in document["unable"])]
    assert not [each for each in texts if "internal error" in each], texts
    time = document["time"]
    if time is not None:
        total = math.fsum(part["ns_per_step"] for part in time["slices"])
        assert math.isclose(total, time["step_ns"], rel_tol=1e-9, abs_tol=0.02), (total, time["step_ns"])
        assert math.isfinite(total)


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Where two documents say another thing; numbers agree where their last digits do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in TIMES and (at or key not in NOTHING_NEW):
                yield from differences(one.get(key), other.get(key), f"{at}.{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            yield f"{at}: {len(one)} and {len(other)} entries"
        else:
            for row, pair in enumerate(zip(one, other, strict=True)):
                yield from differences(*pair, f"{at}[{row}]")
    elif isinstance(one, float | int) and isinstance(other, float | int) and not isinstance(one, bool):
        if not math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-3):
            yield f"{at}: {one} and {other}"
    elif one != other:
        yield f"{at}: {str(one)[:200]} and {str(other)[:200]}"
