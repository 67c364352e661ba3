"""Ops & Kernels: what ran, where, in which precision, and what that is concluded from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.report import words
from mpprof.report.tables import summed_over
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.grid import Column, grid
from mpprof_dashboards.figures import placement
from mpprof_dashboards.pages import tables

if TYPE_CHECKING:
    from mpprof.model import document as doc

_KERNELS = (
    Column("name", "Kernel", flex=4, width=240, mono=True),
    tables.TIME, tables.SHARE, *tables.PLACED, tables.CALLS,
    Column("op", "Op", flex=3, width=290, mono=True, shown="op_text"),
    Column("layer", "Layer", flex=2, width=130),
    tables.DEVICE,
)  # fmt: skip
_OPS = (
    Column("op", "Op", flex=4, width=300, mono=True, shown="op_text"),
    Column("type", "Type", flex=2, width=120),
    tables.TIME, tables.SHARE, *tables.PLACED, tables.CALLS, *tables.ELIGIBLE,
    Column("layer", "Layer", flex=2, width=130),
    Column("phase", "Phase", width=110),
    tables.DEVICE,
)  # fmt: skip


def layout(context: Context) -> list[Any]:
    run = context.run
    return content(context.report(), context.source.kernels(run), context.source.ops(run))


def content(document: doc.Report, kernels: list[doc.KernelRow], ops: list[doc.OpRow]) -> list[Any]:
    if not kernels and not ops:
        reason = why_absent(document, "kernels", "time", "trace")
        return [
            cards.section(
                "Ops & Kernels",
                cards.empty("No trace to read kernels from", reason,
                            "Open a profile window: MPProfilerCallback(logdir, profile_steps=\"auto\")."),
            )
        ]  # fmt: skip
    over = summed_over(document)
    return [_shares(document, kernels), _table("Kernels", "kernels-grid", _KERNELS, kernels, over),
            _table("Ops", "ops-grid", _OPS, ops, over)]  # fmt: skip


def _shares(document: doc.Report, kernels: list[doc.KernelRow]) -> html.Section:
    share = document["tensor_core"]
    matrix, everything = placement.matrix_work(document), placement.kernel_time(kernels)
    left = (
        graph(matrix, "matrix-work", title="Matrix work per step", note="By unit and precision.")
        if matrix is not None
        else cards.empty(
            "No matrix work to split", (share and share["reason"]) or why_absent(document, "tensor_core")
        )
    )
    right = (
        graph(everything, "kernel-time", title="All kernel time", note=f"Unknown: {_unknown(kernels)} of it.")
        if everything is not None
        else cards.empty("No kernels", why_absent(document, "time"))
    )
    note = "" if share else f"There is no Tensor Core share: {why_absent(document, 'tensor_core')}"
    return cards.section("Where it ran", html.Div([left, right], className="mp-grid-2"), note=note)


def _unknown(kernels: list[doc.KernelRow]) -> str:
    whole = sum(row["total_ns"] for row in kernels)
    unknown = sum(row["total_ns"] for row in kernels if row["placement"] == "unknown")
    return words.percent(unknown / whole if whole else None)


def _table(
    title: str, id: str, columns: tuple[Column, ...], rows: Sequence[doc.Row], over: str
) -> html.Section:
    if not rows:
        return cards.section(title, cards.empty(f"No {title.lower()}", "The trace names none."))
    flat = tables.prepared(rows)
    note = f"{words.count(len(rows))} rows over {over}. Click a head to sort; filter below it."
    table = html.Div(grid(id, tables.present(columns, flat), flat), className="mp-card mp-flush")
    return cards.section(title, table, note=note)


PAGE = Page("/ops", "Ops & Kernels", layout)
