"""Rows of the commands' tables made ready for a grid: reasons flattened, words beside numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.grid import Column
from mpprof_dashboards.components.text import shorten

if TYPE_CHECKING:
    from mpprof.model import document as doc

NOT_ATTRIBUTED = "not attributed"
_OP_WIDTH = 36
_DURATIONS, _RATIOS = ("_ns", "_ns_per_step"), ("ratio",)


def prepared(rows: Sequence[doc.Row]) -> list[dict[str, Any]]:
    """One flat dict per row: `reason` as its text, placements in words, `<field>_text` beside each number."""
    return [_prepared(row) for row in rows]


def _prepared(row: doc.Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field, value in row.items():
        if field == "reason" and isinstance(value, dict):
            flat["reason"], flat["reason_code"] = value.get("text", ""), value.get("code", "")
        elif field == "eligible_reason" and isinstance(value, dict):
            flat["eligible_text"], flat["eligible_code"] = value.get("text", ""), value.get("code", "")
        elif field == "eligible":
            flat[field] = value.replace("_", " ") if isinstance(value, str) else value
        elif field == "placement":
            flat[field] = theme.PLACEMENT_LABELS.get(value, value)
        elif field in ("op", "layer", "name") and not value:
            flat[field] = NOT_ATTRIBUTED
        elif isinstance(value, dict | list):
            continue  # a split of the row's time: the figures show it
        else:
            flat[field] = value
        if field == "op":  # scopes differ at their end, which a narrow column would cut off
            flat["op_text"] = shorten(flat["op"], _OP_WIDTH)
        if field.endswith(_DURATIONS):
            flat[f"{field}_text"] = words.duration(value)
        elif field.endswith(_RATIOS):
            flat[f"{field}_text"] = words.percent(value)
        elif field == "flops_per_s":
            flat["flops_per_s_text"] = "" if value is None else words.quantity(value, field)
        elif field == "calls":
            flat["calls_text"] = words.count(value)
    return flat


TIME = Column("total_ns", "Total time", width=120, number=True, shown="total_ns_text", sort="desc")
SHARE = Column("ratio", "Share", width=100, number=True, shown="ratio_text")
CALLS = Column("calls", "Calls", width=90, number=True, shown="calls_text")
PLACED = (
    Column("placement", "Ran on", flex=2, width=165),
    Column("precision", "Precision", width=110),
    Column("family", "Family", width=120),
    Column("reason", "Because", flex=3, width=220, tooltip="reason"),
    Column("reason_code", "Reason code", width=130),
)
ELIGIBLE = (
    Column("eligible", "Used Tensor Cores", width=130, tooltip="eligible_text"),
    Column("eligible_code", "Why not", width=110, tooltip="eligible_text"),
    Column("flops_per_s", "Rate", width=125, number=True, shown="flops_per_s_text"),
    Column("roofline_ratio", "Of roofline", width=110, number=True, shown="roofline_ratio_text"),
    Column("bound", "Bound by", width=105),
)
DEVICE = Column("device", "Device", width=130)


def present(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """The columns that at least one row can fill; the device only where there are several."""
    fields = {field for row in rows for field, value in row.items() if value is not None}
    kept = [column for column in columns if column.field in fields]
    if len({row.get("device") for row in rows}) < 2:
        kept = [column for column in kept if column.field != "device"]
    return tuple(kept)
