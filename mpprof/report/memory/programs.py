"""What XLA assigned to a trace's compiled programs, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mpprof.model.memory import AliveOf, Program
from mpprof.report import words
from mpprof.report.to_json import to_json

SCHEMA: Literal["mpprof.programs/1"] = "mpprof.programs/1"
_NOT_INCLUDED = "cuDNN's workspaces, which are taken as the program runs, are not among them"
Owned = tuple[Program, Sequence[AliveOf]]


def document(found: Sequence[Owned]) -> dict[str, Any]:
    """Return the programs as JSON, most bytes first. `alive_at_peak` is empty where the program states no
    order of allocations."""
    return {
        "schema": SCHEMA,
        "not_included": [_NOT_INCLUDED],
        "programs": [
            {
                "name": program.name,
                "program_id": program.program_id,
                "arguments_bytes": program.assigned.arguments_bytes,
                "outputs_bytes": program.assigned.outputs_bytes,
                "constants_bytes": program.assigned.constants_bytes,
                "temporaries_bytes": program.assigned.temporaries_bytes,
                "temporaries_peak_bytes": program.assigned.peak_bytes if alive else None,
                "alive_at_peak": to_json(alive),
            }
            for program, alive in found
        ],
    }


def text(found: Sequence[Owned], *, most: int = 8, programs: int = 3, ascii_only: bool = False) -> str:
    """Return the largest programs and whose buffers are alive at their peak."""
    parts = [f"XLA's buffer assignment; {_NOT_INCLUDED}"]
    for program, alive in found[:programs]:
        one = program.assigned
        lines = [
            f"{words.plain(program.name)}: arguments {words.size(one.arguments_bytes)}, outputs "
            f"{words.size(one.outputs_bytes)}, temporaries {words.size(one.temporaries_bytes)}"
        ]
        lines += [f"  live at the temporaries' peak, {words.size(one.peak_bytes)}"] if alive else []
        lines += [
            f"  {words.size(each.bytes):>9}  {each.dtype:<5}  {each.phase:<9}  "
            f"{words.shorten(words.plain(each.layer), 50)}".rstrip()
            for each in alive[:most]
        ]
        rest = sum(each.bytes for each in alive[most:])
        lines += [f"  {words.size(rest):>9}  {len(alive) - most} more"] if rest else []
        parts.append("\n".join(lines))
    if len(found) > programs:
        parts.append(f"{words.plural(len(found) - programs, 'smaller program')} more in --format json")
    said = "\n\n".join(parts) + "\n"
    return words.ascii_only(said) if ascii_only else said
