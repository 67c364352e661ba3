"""Layers: the kernel time of each layer of the model, and what no layer owns."""

from __future__ import annotations

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

_LAYERS = (
    Column("layer", "Layer", flex=4, width=200, mono=True),
    Column("class", "Class", flex=2, width=120),
    tables.TIME, tables.SHARE,
    Column("forward_ns", "Forward", width=120, number=True, shown="forward_ns_text"),
    Column("backward_ns", "Backward", width=120, number=True, shown="backward_ns_text"),
    Column("matmul_ns", "Matrix work", width=140, number=True, shown="matmul_ns_text"),
    Column("tensor_core_ns", "On Tensor Cores", width=160, number=True, shown="tensor_core_ns_text"),
    Column("fallback_ns", "Fallback", width=130, number=True, shown="fallback_ns_text"),
    Column("tensor_core_ratio", "Tensor Core share", width=140, number=True, shown="tensor_core_ratio_text"),
    Column("placement", "Ran on", flex=2, width=140),
    Column("precision", "Precision", width=110),
    Column("compute_dtype", "Compute type", width=130),
    Column("variable_dtype", "Variable type", width=130),
    tables.CALLS,
    tables.DEVICE,
)  # fmt: skip


def layout(context: Context) -> list[Any]:
    return content(context.report(), context.source.layers(context.run))


def content(document: doc.Report, layers: list[doc.LayerRow]) -> list[Any]:
    figure = placement.ranked(layers, "layer")
    if figure is None:
        reason = why_absent(document, "layers", "time", "trace")
        return [cards.section("Layers", cards.empty("No kernel time by layer", reason))]
    flat = tables.prepared(layers)
    over = summed_over(document)
    note = f"All devices together, over {over}. Crossed: kernels that no layer claims."
    return [
        cards.section("Layers", graph(figure, "layers", title="Kernel time by layer", note=note)),
        cards.section(
            "All layers",
            html.Div(grid("layers-grid", tables.present(_LAYERS, flat), flat), className="mp-card mp-flush"),
            note=f"{words.count(len(layers))} rows; times are sums over {over}.",
        ),
    ]


PAGE = Page("/layers", "Layers", layout)
