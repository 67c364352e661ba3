"""`mpprof.memory_forecast/1`: a training's memory before it runs, as a JSON document and as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from mpprof.model.memory import MemoryForecast, PolicyMemory
from mpprof.report import words

SCHEMA = "mpprof.memory_forecast/1"
_MOST_LAYERS = 8


def document(found: MemoryForecast) -> dict[str, Any]:
    """The forecast as JSON. Null: not known, or not asked (no card was named). `estimated` names what of each
    run is an estimate; the rest follows exactly from the model."""
    return {
        "schema": SCHEMA,
        "model": found.model,
        "batch": found.batch_size,
        "card": found.card,
        "card_bytes": found.card_bytes,
        "runs": [_run(found, run) for run in found.runs],
        "assumed": list(found.assumed),
        "unknown": list(found.unknown),
    }


def _run(found: MemoryForecast, run: PolicyMemory) -> dict[str, Any]:
    estimated = ["weight_copies_bytes", "kept", "kept_bytes", "activations_bytes", "largest_batch"]
    if run.xla_peak_bytes is None:
        estimated += ["peak_bytes", "saving_bytes"]
    return {
        "policy": run.policy,
        "parameters_bytes": run.parameters_bytes,
        "gradients_bytes": run.gradients_bytes,
        "slots_bytes": run.slots_bytes,
        "weight_copies_bytes": run.weight_copies_bytes,
        "input_bytes": run.input_bytes,
        "kept_bytes": run.kept_bytes,
        "kept": [
            {"layer": each.layer, "what": each.what, "dtype": each.dtype, "bytes": each.bytes}
            for each in run.kept
        ],
        "activations_bytes": run.activations_bytes,
        "activation_gradients_bytes": run.of_gradients_bytes,
        "fullest_layer": run.fullest_layer,
        "fixed_bytes": run.fixed_bytes,
        "bytes_per_example": run.bytes_per_example,
        "peak_bytes": run.peak_bytes,
        "saving_bytes": found.saving_bytes(run.policy),
        "largest_batch": run.largest_batch,
        "xla_temporaries_bytes": _band(run.xla_temporaries_bytes),
        "xla_peak_bytes": _band(run.xla_peak_bytes),
        "estimated": estimated,
    }


def _band(pair: tuple[int, int] | None) -> dict[str, int] | None:
    return None if pair is None else {"low": pair[0], "high": pair[1]}


def text(found: MemoryForecast, *, most: int = _MOST_LAYERS, ascii_only: bool = False) -> str:
    """The forecast as text: a table of the policies, then the layers that keep most."""
    card = f", {found.card}" if found.card else ""
    card += f" with {words.size(found.card_bytes)}" if found.card_bytes else ""
    parts = [[f"{words.plain(found.model)}, batch {found.batch_size:,}{card}"], _table(found)]
    parts += [_layers(run, most) for run in dict.fromkeys((found.runs[0], found.runs[-1]))]
    notes = [f"Taken: {'; '.join(found.assumed)}"] + [
        f"Unknown: {words.plain(each)}" for each in found.unknown
    ]
    said = "\n\n".join("\n".join(lines) for lines in [*parts, notes] if lines) + "\n"
    return words.ascii_only(said) if ascii_only else said


_ROWS: tuple[tuple[str, Callable[[PolicyMemory], int | None]], ...] = (
    ("parameters", lambda run: run.parameters_bytes),
    ("gradients of parameters", lambda run: run.gradients_bytes),
    ("optimizer slots", lambda run: run.slots_bytes),
    ("16-bit weight copies *", lambda run: run.weight_copies_bytes),
    ("the batch", lambda run: run.input_bytes),
    ("activations kept for backward *", lambda run: run.kept_bytes),
    ("activations at the fullest moment *", lambda run: run.activations_bytes),
)


def _table(found: MemoryForecast) -> list[str]:
    runs, rows = found.runs, [("", [run.policy for run in found.runs])]
    rows += [
        (name, ["unknown" if value(run) is None else words.size(value(run)) for run in runs])
        for name, value in _ROWS
    ]
    if any(run.xla_temporaries_bytes for run in runs):
        rows.append(("temporaries, XLA's assignment", [_shown(run.xla_temporaries_bytes) for run in runs]))
    marks = ["" if run.xla_peak_bytes else " *" for run in runs]
    rows.append(("peak", [words.size(r.peak_bytes) + mark for r, mark in zip(runs, marks, strict=True)]))
    rows.append(("saved against float32", [_saving(found, run) for run in runs]))
    if found.card_bytes:
        fit = [f"{run.largest_batch or 0:,} *" for run in runs]  # XLA may compile another batch otherwise
        rows.append(("largest batch at 90 % of the card", fit))
    wide = [max(len(cells[at]) for _, cells in rows) for at in range(len(runs))]
    label = max(len(name) for name, _ in rows)
    lines = [
        f"{name:<{label}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, wide, strict=True))
        for name, cells in rows
    ]
    return [*(line.rstrip() for line in lines), "* estimated from the layers' shapes and types"]


def _saving(found: MemoryForecast, run: PolicyMemory) -> str:
    saved = found.saving_bytes(run.policy)
    if saved is None or run.policy == "float32":
        return ""
    return words.size(saved) if saved >= 0 else f"{words.size(-saved)} more"


def _shown(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return "not compiled"
    low, high = (words.size(value) for value in pair)
    return low if low == high else f"{low} to {high}"


def _layers(run: PolicyMemory, most: int) -> list[str]:
    sums: defaultdict[str, int] = defaultdict(int)
    types: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for each in run.kept:
        sums[each.layer] += each.bytes
        types[each.layer][each.dtype] = None
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    if not ordered:
        return []
    lines = [
        f"  {words.size(size):>9}  {words.shorten(words.plain(name), 40)} ({', '.join(types[name])})"
        for name, size in ordered[:most]
    ]
    rest = sum(size for _, size in ordered[most:])
    lines += [f"  {words.size(rest):>9}  {words.plural(len(ordered) - most, 'more layer')}"] if rest else []
    return [f"Kept for backward in {run.policy}, by layer", *lines]
