"""A ladder as text: the sentence, the table, the lines to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpprof.model.shell import quoted
from mpprof.report import words
from mpprof.store import ladder, write_tried
from mpprof.trial import kept_word
from mpprof.trial.rounds import interval

if TYPE_CHECKING:
    from mpprof.trial.result import Row, Tried

ON_A_CPU = "Measured on a CPU: it says nothing about a GPU"

_NO_LOSS = "Loss: not compared, as none was recorded that is known to be Keras' running mean"

_TITLES = (
    "setting", "rounds", "step", "examples/s", "speedup (95 %)", "memory", "J/example", "skipped", "loss", "",
)  # fmt: skip
_OPTIONAL = (5, 6, 7)
"""Columns that are left out where nothing is known."""


def table(tried: Tried) -> list[tuple[str, ...]]:
    """Return the titles, then a row of text for each setting."""
    cells = [
        _TITLES,
        *(_cells(row, is_first=at == 0, on_cpu=tried.on_cpu) for at, row in enumerate(tried.rows)),
    ]
    kept = [
        at for at in range(len(_TITLES)) if at not in _OPTIONAL or any(line[at] != "-" for line in cells[1:])
    ]
    return [tuple(line[at] for at in kept) for line in cells]


def write(tried: Tried, folder: Path) -> None:
    """Write the table for the page, which shows the ladder as it grows; and beside the run that was diagnosed
    what its remedies have brought, for its report."""
    titles, *rows = table(tried)
    ladder.write(folder, tried.script, tried.sentence, titles, rows)
    known = [each for each in tried.outcomes if each.error != kept_word.NO_TIME]
    if known and (rounds := tried.rows[0].rounds):
        write_tried(Path(rounds[0]), [{**each.document(), "said": each.said} for each in known])


def render(tried: Tried, *, ascii_only: bool = False) -> str:
    """Return the sentence, a line for each setting, what was overridden, and the lines to change."""
    cells = table(tried)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            text.ljust(width) if at in (0, len(line) - 1) else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    head = tried.sentence.replace(f"{ON_A_CPU}. ", f"{ON_A_CPU}.\n").split("\n")
    errors = [_error(row) for row in tried.rows if row.error]
    dropped = "Broken off before" if tried.stopped else "No time was left for"
    notes = [
        *errors,
        *([f"Overridden: {', '.join(tried.overridden)}"] if tried.overridden else []),
        *([f"Left out: {', '.join(tried.left_out)}"] if tried.left_out else []),
        *([f"{dropped}: {'; '.join(tried.dropped)}"] if tried.dropped else []),
        *([f"Not tried, as the script does so already: {', '.join(tried.already)}"] if tried.already else []),
        *([_NO_LOSS] if _lacks_loss(tried) else []),
        *([_busy(tried)] if tried.busy else []),
        *([f"Energy: {tried.energy_absent}"] if tried.energy_absent and not tried.on_cpu else []),
    ]
    code = tried.code()
    of_remedies = kept_word.lines(tried.outcomes, tried.by_hand)
    parts = [
        head,
        lines,
        notes,
        *of_remedies,
        ["To keep it:", *(f"    {line}" for line in code)] if code else [],
    ]
    text = "\n\n".join("\n".join(words.plain(line) for line in part) for part in parts if part) + "\n"
    return words.ascii_only(text) if ascii_only else text


def _error(row: Row) -> str:
    printed = f" (what it printed: {quoted(row.output)})" if row.output else ""
    return f"{row.setting.name}: {row.error}{printed}"


def _lacks_loss(tried: Tried) -> bool:
    return any(row.step_ns is not None for row in tried.rows) and all(
        row.loss is None and row.finite is not False for row in tried.rows
    )


def _busy(tried: Tried) -> str:
    trainings = sum(len(row.rounds) for row in tried.rows)
    return (
        f"Other work kept the machine busy in {tried.busy} of {trainings} trainings: alone on it, step times "
        "scatter less and speedups may differ"
    )


def _cells(row: Row, *, is_first: bool, on_cpu: bool) -> tuple[str, ...]:
    loss = "-" if row.loss is None else f"{row.loss:.4g}"
    return (
        row.setting.name,
        str(len(row.rounds)),
        _known(row.step_ns, words.duration),
        _known(row.examples_per_s, lambda value: f"{value:,.0f}"),
        _known(row.speedup, interval) if not is_first else "1" if row.step_ns is not None else "-",
        _known(row.peak_memory_bytes, words.size),
        _known(row.joules_per_example, lambda value: f"{value:.3g}"),
        _known(row.skipped, words.count),
        "not finite" if row.finite is False else loss,
        "kept" if row.kept and not on_cpu else "",
    )  # fmt: skip


def _known(value: Any, shown: Callable[[Any], str]) -> str:
    return "-" if value is None else shown(value)
