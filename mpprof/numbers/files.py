"""`numerics.jsonl` of a run: its looks, a line each.

The first line states the schema. A look's line is the JSON document of `mpprof.numerics` without `schema`,
and before it `t_ns` (when it began, on the run's clock), `step`, `trigger` (one of `TRIGGERS`), `cost_ns` and
`batch` (how the batch came about). What was not measured is left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from mpprof.errors import NotFoundError
from mpprof.model.run import BROKE, ShownLook
from mpprof.numbers import text
from mpprof.numbers.result import Numerics
from mpprof.store import formats
from mpprof.store.lines import Faults, read_blocks
from mpprof.store.writing import open_above_standard

TRIGGERS = {
    "start": "at the start",
    "skipped": "an update was skipped",
    "loss": "the loss was not finite",
    "end": "at the end of training",
    "asked": "asked for",
}
"""Why a model was looked at, in words."""

PARTS = {
    "first_forward": ("layer", "tensor", "reason"),
    "first_backward": ("layer", "tensor", "reason"),
    "loss_scale": ("now", "low", "high"),
}
LISTS = {
    "layers": ("layer", "tensor", "dtype", "max_abs", "nonfinite_ratio", "flushed_ratio", "subnormal_ratio"),
    "advice": ("text", "code", "snippet"),
    "unable": ("layer", "reason"),
}
"""The keys of a look that its text is made from: of a part, which may be None, and of each item of a list."""

Trigger = Literal["start", "skipped", "loss", "end", "asked"]


def append(
    root: Path,
    look: Numerics,
    *,
    trigger: Trigger,
    step: int | None = None,
    t_ns: int | None = None,
    cost_ns: int | None = None,
    batch: str | None = None,
) -> None:
    """Add a look to the run at `root`; the file is made with the first one. Raises OSError."""
    path = formats.folder_of(root) / formats.NUMERICS_FILE
    known = {"t_ns": t_ns, "step": step, "trigger": trigger, "cost_ns": cost_ns, "batch": batch}
    document = look.to_dict()
    schema = {"schema": document.pop("schema")}
    record = {name: value for name, value in known.items() if value is not None} | document
    file = open_above_standard(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with open(file, "ab") as lines:
        first = [] if os.fstat(lines.fileno()).st_size else [formats.line(schema)]
        lines.write("".join(f"{line}\n" for line in [*first, formats.line(record)]).encode())


def looks(root: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the looks of the run at `root` in their order, and warnings of what was damaged.

    Raises `NotFoundError` where the run has none, `UnreadableError` where the file is not mpprof's own."""
    path = formats.folder_of(root) / formats.NUMERICS_FILE
    faults = Faults(path)
    found = [record for block in read_blocks(path, "mpprof.numerics", faults) for record in block]
    whole = [record for record in found if _is_whole(record)]
    if not whole:
        raise NotFoundError(
            "numbers by layer were not recorded", where=str(root), next="In the training's own process: "
            "mpprof.numerics(model, x, y)",
        )  # fmt: skip
    return whole, faults.warnings()


def _is_whole(record: dict[str, Any]) -> bool:
    """Return whether a record has the keys that the text of a look is made from."""

    def has(one: Any, keys: tuple[str, ...]) -> bool:
        return isinstance(one, dict) and all(key in one for key in keys)

    lists = [(record.get(name), keys) for name, keys in LISTS.items()]
    return (
        "basis" in record
        and all(has(record.get(name) or dict.fromkeys(keys), keys) for name, keys in PARTS.items())
        and all(isinstance(some, list) and all(has(one, keys) for one in some) for some, keys in lists)
    )


def whole(look: dict[str, Any]) -> dict[str, Any]:
    """Return a look with the parts that its line leaves out, as None."""
    return {**dict.fromkeys(PARTS), **look}


def telling(looks: list[dict[str, Any]]) -> int:
    """Return the number, from 1, of the look that shows most: the first in which something is not finite,
    else in which something is lost, of those that were made because something had broken before the others;
    else the first that was made for that reason, else the last."""
    numbers = sorted(range(1, len(looks) + 1), key=lambda n: looks[n - 1].get("trigger") not in BROKE)
    of = {n: whole(looks[n - 1]) for n in numbers}
    over = [n for n in numbers if text.is_broken(of[n])]
    lost = [n for n in numbers if of[n]["first_forward"] or of[n]["first_backward"]]
    asked = [n for n in numbers if of[n].get("trigger") in BROKE]
    return [*over, *lost, *asked, len(looks)][0]


def heading(look: dict[str, Any], number: int, of: int) -> str:
    """Return which look it is, why it was made, and of which batch."""
    step = f" at step {look['step']}" if "step" in look else ""
    why = TRIGGERS.get(str(look.get("trigger")))
    batch = f" The batch: {look['batch']}." if "batch" in look else ""
    return f"Look {number} of {of}{step}{f', {why}' if why else ''}.{batch}"


def shown(root: Path) -> ShownLook | None:
    """Return the look that shows most of the run at `root`, for a page; None where it has none."""
    try:
        found, _ = looks(root)
    except NotFoundError:
        return None
    number = telling(found)
    look = whole(found[number - 1])
    advice = tuple((str(one["text"]), str(one["snippet"])) for one in look["advice"])
    said = heading(look, number, len(found)), tuple(text.summary(look))
    return ShownLook(*said, tuple(look["layers"]), advice)
