"""`mpprof.forecast/1`: the forecast as a JSON document, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpprof.forecasts import typical
from mpprof.model import quantities
from mpprof.model.forecast import (
    Band,
    CardForecast,
    Forecast,
    LargestBatch,
    Obstacle,
)
from mpprof.model.quantities import first_of
from mpprof.report import words

_MOST_LAYERS = 4
_LEAST_RATIO = 0.001
"""Obstacles that hold up less of the matrix operations are counted, not listed."""
_COLUMNS = (
    "policy",
    "step's time at peak rates",
    "no faster than",
    "typical step",
    "typical speedup",
    "speedup at peak rates",
    "peak memory",
)
_LARGEST = "largest batch"


# --- text --------------------------------------------------------------------------------------------------


def text(forecast: Forecast) -> str:
    """Return the table by card and policy, the obstacles with their remedies, and what is not forecast."""
    batch = forecast.runs[0].batch_size if forecast.runs else 0
    by = f" (JAX {words.plain(forecast.versions['jax'])})" if "jax" in forecast.versions else ""
    lines = [
        f"{words.plain(forecast.model)}, batch {batch}: forecast of the train step as XLA compiles it{by}",
        "",
        *_table(forecast.runs),
        *(f"  {one.card}, {one.policy}: {one.reason}" for one in forecast.not_compiled),
        "",
        *_alive(forecast.runs),
        *_notes(forecast.runs),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(runs: Sequence[CardForecast]) -> list[str]:
    asked = any(run.largest_batch for run in runs)
    heads = (*_COLUMNS, _LARGEST) if asked else _COLUMNS
    cells = [heads, *map(_cells, runs)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
    lines = [_padded(heads, widths)]
    for at, run in enumerate(runs):
        if at == 0 or run.card != runs[at - 1].card:
            lines.append(f"{run.card}, sold with {run.card_memory_bytes >> 30} GB")
        lines.append(_padded(cells[at + 1], widths))
    return lines


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _cells(run: CardForecast) -> tuple[str, ...]:
    bound = quantities.format_ns(run.at_least_ns)
    cells = (run.policy, _units(run), bound, _times(run.typical_ns), *_gains(run), _peak(run))
    return (*cells, _batches(run.largest_batch))


def _units(run: CardForecast) -> str:
    """Return the shares of the step's roofline time in products that can use the matrix units, that cannot,
    that are open, and in the rest."""
    if run.can_ratio is None:
        return "no products"
    if run.time is None:
        return "not known"
    named = ("can", "cannot", "open")
    found = ((word, getattr(run.time, word)) for word in named)
    shares = [f"{quantities.format_ratio(share)} {word}" for word, share in found if share >= 5e-4]
    return f"{', '.join(shares)}; {quantities.format_ratio(run.time.other)} no products"


def _times(band: Band | None) -> str:
    if band is None:
        return "not known"
    return f"{quantities.format_ns(band.low)} to {quantities.format_ns(band.high)}"


def _gains(run: CardForecast) -> tuple[str, str]:
    """Return the typical speedup and the one at peak rates, each over what float32 runs as there."""
    if run.policy == "float32":
        return "", ""
    if run.speedup is None:
        return "not known", "not known"
    over = "TF32" if run.speedup.over == "tf32" else "float32"
    ratio, other, likely = run.speedup.at_roofline, run.speedup.at_roofline_float32, run.speedup.typical
    beside = f" ({other:.1f}x over float32 without it)" if run.speedup.over == "tf32" else ""
    told = "not known" if likely is None else f"{likely.low:.1f}x to {likely.high:.1f}x over {over}"
    return told, f"{ratio:.1f}x over {over}{beside}"


def _peak(run: CardForecast) -> str:
    peak = run.memory.peak_bytes
    low, high = quantities.format_bytes(peak.low), quantities.format_bytes(peak.high)
    size = low if low == high else f"{low} to {high}"
    return f"{size}, more than the card has" if peak.low > run.card_memory_bytes else size


def _batches(found: LargestBatch | None) -> str:
    if found is None:
        return "not forecast"
    if found.fits is None:
        return "not found" if found.too_large is None else f"below {found.too_large:,}"
    if found.too_large is None:
        return f"at least {found.fits:,}"
    return f"{found.fits:,} to {found.too_large - 1:,}"


def _notes(runs: Sequence[CardForecast]) -> Iterable[str]:
    yield "What keeps matrix operations off the matrix units, or leaves it open:"
    told = False
    for obstacle, where in _by_obstacle(runs):
        told = True
        yield f"  {obstacle.reason}"
        for place, one in where:
            of = "the step at peak rates" if one.time_ratio is not None else "the model's matrix operations"
            share = quantities.format_ratio(one.flops_ratio if one.time_ratio is None else one.time_ratio)
            yield f"    {place}: {share} of {of} ({_layers(one.layers)})"
        if obstacle.remedy:
            yield f"    do: {obstacle.remedy}"
    if not told:
        yield "  nothing"
    yield ""
    yield from _float8(runs)
    yield "How to read it:"
    yield "  step's time at peak rates: where it goes. can: types, sizes and compiled kernels allow the"
    yield "    matrix units; which kernel runs is chosen on the card. open: decided on the card."
    yield "  no faster than: a bound from bytes and operations, kernel by kernel; not an estimate."
    yield "  typical: by measured steps of two or more models of its family on such cards, as wide as the"
    yield f"    error with which they tell each other, if below {typical.WIDEST:.0f} to 1. Not known: too"
    yield "    few were measured, or they are too far apart. It is the device's time: a step that waits"
    yield "    for its input gains less, or nothing."
    yield "  speedup at peak rates: of the two steps' roofline times, each with its launches; a measured"
    yield "    speedup can lie on either side."
    yield "  peak memory: of the programs that were compiled; the card may mix them."
    if any(run.largest_batch for run in runs):
        yield "  largest batch: XLA's buffers take at most 90 % of the card's memory at the first of the two,"
        yield "    and more than all of it above the second; both were compiled."
        for run in runs:
            yield from _about_largest(run)
    for left_out in runs[0].memory.not_included if runs else ():
        yield f"  memory leaves out {left_out}."
    yield ""
    yield "Not forecast:"
    for line in dict.fromkeys(line for run in runs for line in run.unknown):
        yield f"  {line}"


def _float8(runs: Sequence[CardForecast]) -> Iterable[str]:
    """Yield, of layers that are quantised to float8, which XLA compiled to products in it."""
    if not any(run.float8 for run in runs):
        return
    yield "Layers in float8, as XLA compiled them:"
    for run in runs:
        whole = [one.layer for one in run.float8 if not one.turned_back]
        partly = [one.layer for one in run.float8 if one.in_float8 and one.turned_back]
        back = [one for one in run.float8 if not one.in_float8]
        into = " and ".join(sorted({each for one in back for each in one.turned_into}))
        said = []
        if whole:
            said.append(f"the library multiplies in float8 ({_layers(whole)})")
        if partly:
            said.append(f"the library multiplies some products in float8 ({_layers(partly)})")
        if back:
            named = _layers([one.layer for one in back])
            said.append(f"rounded to float8 and turned back, multiplied in {into} ({named})")
        if said:
            yield f"  {run.card}, {run.policy}: {'; '.join(said)}"
    if any(one.in_float8 for run in runs for one in run.float8):
        yield "  XLA's own kernels multiply in 16 bits or more; the card times both and takes the faster."
    yield ""


def _alive(runs: Sequence[CardForecast]) -> Iterable[str]:
    """Yield the layers whose tensors fill memory at the peak."""
    if not any(run.memory.alive for run in runs):
        return
    yield "What fills memory at the peak, in addition to weights, optimizer and batch:"
    for run in runs:
        whole = quantities.format_bytes(sum(one.bytes for one in run.memory.alive))
        sums: dict[str, int] = {}
        for one in run.memory.alive:
            name = f"{one.layer} {one.dtype}".strip() if one.layer else ""
            sums[name] = sums.get(name, 0) + one.bytes
        named = sorted((name for name in sums if name), key=lambda name: -sums[name])[:_MOST_LAYERS]
        listed = ", ".join(f"{name} {quantities.format_bytes(sums[name])}" for name in named)
        if run.memory.alive:
            yield f"  {run.card}, {run.policy}: {whole}: {listed or 'no layer named'}"
    yield ""


def _about_largest(run: CardForecast) -> Iterable[str]:
    found = run.largest_batch
    if found is not None and found.recomputes:
        yield (
            f"    {run.card}, {run.policy}: at {found.fits:,} XLA computes activations a second time to save "
            "memory, which takes time."
        )
    if found is not None and found.reason:
        yield f"    {run.card}, {run.policy}: the search ended early: {found.reason}"


def _by_obstacle(
    runs: Sequence[CardForecast],
) -> list[tuple[Obstacle, list[tuple[str, Obstacle]]]]:
    """Return each obstacle once, with the cards and policies where it counts."""
    found: dict[str, tuple[Obstacle, list[tuple[str, Obstacle]]]] = {}
    for run in runs:
        for obstacle in run.obstacles:
            if obstacle.flops_ratio >= _LEAST_RATIO:
                entry = found.setdefault(obstacle.code, (obstacle, []))
                entry[1].append((f"{run.card}, {run.policy}", obstacle))
    return list(found.values())


def _layers(names: Sequence[str]) -> str:
    if not names:
        return "of no layer"
    return first_of(names, _MOST_LAYERS)
