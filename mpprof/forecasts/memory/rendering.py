"""`mpprof.memory_forecast/1`: a training's memory before it runs, as a JSON document and as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mpprof.model.memory import MemoryForecast, PolicyMemory
from mpprof.report import words
from mpprof.report.blocks import Block, Heading, Table, Text, number, table
from mpprof.report.blocks import text as column
from mpprof.report.terminal import Lines
from mpprof.report.text import laid_out
from mpprof.report.to_json import to_json

_MOST_LAYERS = 8
_WHAT, _LABEL = "bytes of", 64
"""The first column, and so many characters of it that are never cut."""


def document(found: MemoryForecast) -> dict[str, Any]:
    """Return the forecast as JSON, with what each policy saves. Null means not known, or not asked (no card
    was named; with several cards each run has its own)."""
    runs = tuple(replace(run, saving_bytes=found.saving_bytes(run.policy, run.card)) for run in found.runs)
    made: dict[str, Any] = to_json(replace(found, runs=runs))
    return made


def text(
    found: MemoryForecast, *, most: int = _MOST_LAYERS, width: int = 100, ascii_only: bool = False
) -> str:
    """Return the forecast as text: a table of the policies, then the layers that keep most."""
    out = Lines(color=False, width=width)
    return laid_out(blocks_of(found, most), out).text(ascii_only=ascii_only)


def blocks_of(found: MemoryForecast, most: int) -> Iterator[Block]:
    """Yield a table of the policies, then the layers that keep most. Cards that differ only in their memory
    share a table."""
    card = f", {_card(found.runs[0])}" if found.card else ""
    yield Text(f"{words.plain(found.model)}, batch {found.batch_size:,}{card}")
    groups = _alike(found)
    for cards in groups:
        runs = cards[0]
        on = f" on {', '.join(words.plain(each[0].card or '') for each in cards)}" if len(groups) > 1 else ""
        if on:
            yield Heading(f"O{on[2:]}")
        yield _table(found, cards)
        for run in dict.fromkeys((runs[0], runs[-1])):
            yield from _layers(run, on, most)
    yield from (Text(each, label="Unknown: ") for each in found.unknown)
    yield Text("; ".join(found.assumed), label="Assumed: ")
    yield Text("estimated from the layers' shapes and types", label="* ")


def _alike(found: MemoryForecast) -> list[list[list[PolicyMemory]]]:
    """Return the runs of each card; cards whose runs differ only in the largest batch are grouped."""
    groups: dict[tuple[PolicyMemory, ...], list[list[PolicyMemory]]] = {}
    for card in found.cards:
        runs = [run for run in found.runs if run.card == card]
        same = tuple(replace(run, card=None, card_bytes=None, largest_batch=None) for run in runs)
        groups.setdefault(same, []).append(runs)
    return list(groups.values())


def _card(run: PolicyMemory) -> str:
    size = f" with {words.size(run.card_bytes)}" if run.card_bytes else ""
    return f"{words.plain(run.card or '')}{size}"


_ROWS: tuple[tuple[str, Callable[[PolicyMemory], int | None]], ...] = (
    ("parameters", lambda run: run.parameters_bytes),
    ("gradients of parameters", lambda run: run.gradients_bytes),
    ("optimizer slots", lambda run: run.slots_bytes),
    ("16-bit weight copies *", lambda run: run.weight_copies_bytes),
    ("the batch", lambda run: run.input_bytes),
    ("activations kept for backward *", lambda run: run.kept_bytes),
    ("activations at the fullest moment *", lambda run: run.activations_bytes),
)


def _table(found: MemoryForecast, cards: list[list[PolicyMemory]]) -> Table:
    runs = cards[0]
    rows = [
        (name, ["unknown" if value(run) is None else words.size(value(run)) for run in runs])
        for name, value in _ROWS
    ]
    if any(run.xla_temporaries_bytes for run in runs):
        rows.append(("temporaries, XLA's assignment", [_shown(run.xla_temporaries_bytes) for run in runs]))
    marks = ["" if run.xla_peak_bytes else " *" for run in runs]
    least = ["at least " if "peak_bytes" in run.at_least else "" for run in runs]
    rows.append(
        (
            "peak",
            [
                f"{low}{words.size(r.peak_bytes)}{mark}"
                for r, low, mark in zip(runs, least, marks, strict=True)
            ],
        )
    )
    saved = [_saving(found, run) for run in runs]
    rows += [("saved against float32", saved)] if any(saved) else []
    for each in cards:
        if each[0].card_bytes:
            name = "the card" if found.card else _card(each[0])
            rows.append((f"largest batch at 90 % of {name}", [_largest_batch(run) for run in each]))
    columns = [column(_WHAT), *(number(run.policy) for run in runs)]
    return table(columns, [(name, *cells) for name, cells in rows], _WHAT, least=_LABEL)


def _largest_batch(run: PolicyMemory) -> str:
    """Return the largest batch, starred as an estimate, also where the peak is XLA's: XLA may compile another
    batch differently."""
    if run.largest_batch is None:
        return "not known"
    return f"{'at most ' if run.at_most else ''}{run.largest_batch:,} *"


def _saving(found: MemoryForecast, run: PolicyMemory) -> str:
    saved = found.saving_bytes(run.policy, run.card)
    if (
        saved is None
        or run.policy == "float32"
        or ((run.custom_layers or run.left_out) and not run.xla_peak_bytes)
    ):
        return ""
    return words.size(saved) if saved >= 0 else f"{words.size(-saved)} more"


def _shown(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return "not compiled"
    low, high = (words.size(value) for value in pair)
    return low if low == high else f"{low} to {high}"


def _layers(run: PolicyMemory, on: str, most: int) -> Iterator[Block]:
    sums: defaultdict[str, int] = defaultdict(int)
    types: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for each in run.kept:
        sums[each.layer] += each.bytes
        types[each.layer][each.dtype] = None
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    if not ordered:
        return
    rows = [
        (words.size(size), f"{words.plain(name)} ({', '.join(types[name])})") for name, size in ordered[:most]
    ]
    if rest := sum(size for _, size in ordered[most:]):
        rows.append((words.size(rest), words.plural(len(ordered) - most, "more layer")))
    yield Heading(f"Kept for backward in {run.policy}{on}, by layer")
    yield table([number("bytes"), column("layer")], rows, "layer", headless=True)
