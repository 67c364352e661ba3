"""Whole commands: what a user runs on a damaged file must print a document or one clear error."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import mpprof.report
from mpprof.analysis.kernels import counters as analysis_counters
from mpprof.cli import counters as counters_command
from mpprof.cli import main
from mpprof.errors import MpprofError

COMMANDS = (
    ("report", "--format", "json"), ("report",), ("report", "--format", "markdown"), ("report", "--format", "html"),
    ("kernels",), ("products",), ("ops", "--format", "json"), ("layers", "--format", "csv"), ("memory",), ("report", "--strict"),
)  # fmt: skip


def run(path: Path) -> bool:
    """One command, chosen by the bytes, on a trace file or on the log directory around a record."""
    target = path.parent.parent if path.parent.name == "mpprof" else path
    _all_imported(target)
    command = random.Random(zlib.crc32(path.read_bytes())).choice((*COMMANDS[:1] * 4, *COMMANDS))
    code, out, said = _main([*command, str(target), "--no-cache"])
    if code:
        _one_clear_error(code, out, said)
    if command[-1] == "json" and command[0] == "report":
        _valid(json.loads(out, parse_constant=_no_constant))
    assert out
    return "warning" in out.lower()


@cache
def _all_imported(target: Path) -> None:
    """What the commands import late is not the memory of the input that comes first."""
    for command in COMMANDS:
        _main([*command, str(target), "--no-cache"])


def counters(path: Path) -> bool:
    """What `mpprof counters` reads and prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        lines = counters_command.read_lines(path)
        counters_command.show(analysis_counters.verdicts(lines, card="A100", where=str(path)), "json")
    json.loads(out.getvalue(), parse_constant=_no_constant)
    return False


def _main(arguments: list[str]) -> tuple[int, str, str]:
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(arguments)
    out.getvalue().encode()
    return code, out.getvalue(), said.getvalue()


def _one_clear_error(code: int, out: str, said: str) -> None:
    assert code == 2, (code, said)
    assert not out, out[:500]
    *before, last = said.splitlines()
    assert last.startswith("mpprof: "), said[:500]
    assert all(line.startswith("mpprof: warning: ") for line in before), said[:500]
    raise MpprofError("refused")


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


@cache
def report_schema() -> Any:
    import jsonschema

    folder = Path(mpprof.report.__file__).parent
    return jsonschema.Draft202012Validator(json.loads((folder / "report.schema.json").read_text()))


def _valid(document: Any) -> None:
    report_schema().validate(document)
