"""A look at a model's numbers as text, from its JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpprof.model.frozen import frozen
from mpprof.model.quantities import NOT_KNOWN, format_ratio
from mpprof.numbers.band import LOWEST, MOST_LOST
from mpprof.numbers.tallies import HALF
from mpprof.store.formats import number

LAYER_WIDTH = 36


NOT_REPRODUCED = {
    "skipped": "An update was skipped, and this pass does not reproduce it.",
    "loss": "The loss was not finite, and this pass does not reproduce it.",
}
"""By why it was looked at."""


def is_broken(document: dict[str, Any]) -> bool:
    """Return whether something is not finite."""
    forward, backward = document["first_forward"], document["first_backward"]
    found = (each for each in (forward, backward) if each is not None)
    return any(each.get("kind") != "underflow" for each in found)


def headline(document: dict[str, Any]) -> str:
    """Return the first break in a sentence, of the forward pass before the backward pass; first that the pass
    does not reproduce what it was to explain."""
    missed = NOT_REPRODUCED.get(document.get("trigger", ""))
    return " ".join(filter(None, [None if is_broken(document) else missed, _first_break(document)]))


def _first_break(document: dict[str, Any]) -> str:
    forward, backward = document["first_forward"], document["first_backward"]
    if forward is not None:
        return f"{_tensor(forward)} is the first to break: {forward['reason']}."
    if backward is not None:
        return f"{_tensor(backward)} is the first to break: {backward['reason']}."
    what = "output" if "first_backward" in document.get("absent", {}) else "output and gradient"
    unseen = len(document["unable"])
    others = f" Layers not looked into, or not wholly: {unseen}." if unseen else ""
    lost = any(each.share > MOST_LOST for each in updates_lost(document["layers"]))
    nothing = "No value breaks, and updates are lost" if lost else "Nothing breaks"
    return f"{nothing}: every {what} that was seen is finite.{others}"


def table(document: dict[str, Any]) -> str:
    """Return the look as text: what breaks, what to do, the loss scales, and a row for each tensor."""
    return "\n".join(_lines(document))


def summary(document: dict[str, Any]) -> Iterator[str]:
    """Yield what breaks, how it was run, and the loss scales that are good."""
    yield headline(document)
    backward = document["first_backward"]
    if document["first_forward"] is not None and backward is not None:
        yield f"{_tensor(backward)}: {backward['reason']}."
    note = document.get("note")
    yield f"Basis: {document['basis']} step" + (f"; {note}." if note else ".")
    if document["loss_scale"] is not None:
        yield _scale(document["loss_scale"])
    yield from _updates(document["layers"])


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield from summary(document)
    for one in document["advice"]:
        yield ""
        yield f"{one['text']} ({one['code']})"
        yield from (f"    {line}" for line in one["snippet"].splitlines())
    yield ""
    yield from _rows(document["layers"])
    for name, reason in document.get("absent", {}).items():
        yield f"{name}: {NOT_KNOWN}: {reason}"
    for one in document["unable"]:
        yield f"not looked into: {one['layer']}: {one['reason']}"


def _tensor(found: dict[str, Any]) -> str:
    what = {"output": "The output", "gradient": "The gradient", "weight_gradient": "The weights' gradient"}
    return f"{what[found['tensor']]} of {found['layer']}"


def _scale(scale: dict[str, Any]) -> str:
    now, low, high = (number(scale[name]) for name in ("now", "low", "high"))
    if high is None:
        return f"Loss scale {power(now)}; the gradients are not finite at any."
    if low is None:
        ends = f"up to {power(high)} gradients are finite, and more than 1 % of their elements are 0 at each"
        return f"Loss scale {power(now)}; none is good: {ends}."
    from_low = f"from {power(low)} to" if low > 2.0**LOWEST else "up to"  # no lower one was tried
    return f"Loss scale {power(now)}; good {from_low} {power(high)}."


@frozen
class UpdatesLost:
    """Of all weights of one type of 16 bits, the share of their elements that an update changes in float32
    and not in that type; `instead`: not in the `other`."""

    dtype: str
    share: float
    other: str
    instead: float


def updates_lost(rows: list[dict[str, Any]]) -> Iterator[UpdatesLost]:
    """Yield what an update loses, by the type of the weights that have 16 bits."""
    for own, other in (HALF, HALF[::-1]):
        mine = [row for row in rows if row["dtype"] == own and row.get("update_lost")]
        in_own, in_other = (_lost_ratio(mine, name) for name in (own, other))
        if in_own is not None and in_other is not None:
            yield UpdatesLost(own, in_own, other, in_other)


def _updates(rows: list[dict[str, Any]]) -> Iterator[str]:
    for lost in updates_lost(rows):
        instead = f"{_share(lost.share)} of their elements in float32 and not in {lost.dtype}"
        other = f"in {lost.other}: {_share(lost.instead)}"
        yield f"Weights are {lost.dtype}: an update changes {instead} ({other})."


def _lost_ratio(rows: list[dict[str, Any]], name: str) -> float | None:
    """Return the share of all these weights that an update in this type leaves as it is; None where that is
    not known of each, and without weights."""
    shares = [number(row["update_lost"].get(name)) for row in rows]
    known = [share for share in shares if share is not None]
    if not rows or len(known) < len(rows):
        return None
    lost = sum(share * row["elements"] for share, row in zip(known, rows, strict=True))
    return float(lost / sum(row["elements"] for row in rows))


def power(value: float | None) -> str:
    """Return a loss scale as a power of two, where it is one."""
    if value is None:
        return NOT_KNOWN
    mantissa, _, exponent = value.hex().partition("p")
    return f"2^{int(exponent)}" if mantissa == "0x1.0000000000000" and value != 1 else f"{value:g}"


def _rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    head = ("layer", "tensor", "type", "largest", "not finite", "flushed", "subnormal", "float16")
    shown = [head, *(_cells(row) for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        left = "  ".join(cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True))
        right = "  ".join(cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True))
        yield f"{left}  {right}".rstrip()


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    layer = row["layer"] if (row.get("call") or 1) == 1 else f"{row['layer']} (call {row['call']})"
    layer = layer if len(layer) <= LAYER_WIDTH else f"…{layer[1 - LAYER_WIDTH :]}"
    largest = number(row["max_abs"])
    safe = row.get("safe_in_float16")
    return (
        layer,
        f"gradient of {row['weight']}" if row.get("weight") else row["tensor"],
        row["dtype"],
        NOT_KNOWN if largest is None else f"{largest:.3g}",
        _share(row["nonfinite_ratio"]),
        _share(row["flushed_ratio"]),
        _share(row["subnormal_ratio"]),
        "" if safe is None else "safe" if safe else "not safe",
    )


def _share(value: Any) -> str:
    ratio = number(value)
    return "-" if ratio is None else "0" if ratio == 0 else format_ratio(ratio)
