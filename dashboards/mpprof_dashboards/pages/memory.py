"""Memory: the peak, what was live at it, what the precision saved and what it could save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.model.steps import StepTable
from mpprof.report import words
from mpprof.report.content import recorded_peak
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.figures import memory as figures
from mpprof_dashboards.figures import steps as step_figures

if TYPE_CHECKING:
    from mpprof.model import document as doc

_BY = (("kind", "By kind"), ("dtype", "By type"), ("layer", "By layer"), ("op", "By op"))

_NO_EVENTS = "No allocator events were recorded."


def layout(context: Context) -> list[Any]:
    return content(context.report(), context.source.steps(context.run))


def content(document: doc.Report, steps: StepTable | None = None) -> list[Any]:
    return [
        _summary(document),
        _in_trace(document),
        _at_peak(document),
        _tensors(document),
        _course(document, steps),
    ]


def _summary(document: doc.Report) -> html.Section:
    memory, recorded = document["memory"], recorded_peak(document)
    if memory is None and recorded is None:
        return cards.section("Memory", cards.empty("No memory was measured", why_absent(document, "memory")))
    # Without allocator events the account's peak is the records' own: it must not pass for a second witness.
    in_trace = memory["peak_bytes"] if memory and memory["at_peak"] else None
    why = why_absent(document, "memory") if memory is None else _NO_EVENTS
    return cards.section(
        "Memory",
        cards.tiles(
            _tile("Peak in the trace", in_trace, why, "peak-bytes"),
            _tile(
                "Peak in the records",
                recorded,
                why_absent(document, "steps.peak_memory_bytes"),
                "peak-recorded",
            ),
            _tile(
                "Saved against the baseline",
                memory["saved_bytes"] if memory else None,
                why_absent(document, "memory.saved_bytes", "memory"),
                "saved",
            ),
            _tile(
                "Within reach (estimated)",
                memory["reachable_bytes"] if memory else None,
                why_absent(document, "memory.reachable_bytes", "memory"),
                "reachable",
            ),
        ),
    )


def _tile(label: str, value: int | None, reason: str, id: str) -> html.Div:
    if value is None:
        return cards.missing(label, reason)
    return cards.tile(label, words.size(value), id=id)


def _at_peak(document: doc.Report) -> html.Section | None:
    memory = document["memory"]
    if not memory:
        return None
    drawn = [(by, title, figures.at_peak(memory, by)) for by, title in _BY]
    parts = [graph(figure, f"peak-{by}", title=title) for by, title, figure in drawn if figure is not None]
    if not parts:
        parts = [cards.empty("Nothing is known of what was live", _NO_EVENTS)]
    return cards.section("Live at the peak", html.Div(parts, className="mp-grid-2"))


def _in_trace(document: doc.Report) -> html.Section | None:
    memory = document["memory"]
    drawn = [(by, figures.course(memory, by)) for by in ("dtype", "kind")] if memory else []
    parts = [
        graph(figure, f"memory-{by}", title=f"Live memory by {'type' if by == 'dtype' else by}")
        for by, figure in drawn
        if figure is not None
    ]
    return cards.section("Over the trace", html.Div(parts, className="mp-grid-2")) if parts else None


_COLUMNS = ("Size", "Count", "Type", "Shape", "Kind", "Layer", "Op", "Lives")


def _tensors(document: doc.Report) -> html.Section | None:
    """The largest tensors at the peak, and what outlives its step."""
    memory = document["memory"]
    tensors = memory.get("tensors", []) if memory else []
    if not tensors:
        return None
    rows = [
        (
            words.size(t["bytes"]), words.count(t["count"]), t["dtype"], t["shape"], t["kind"], t["layer"],
            t["op"], "outlives the trace" if t["life_ns"] is None else words.duration(t["life_ns"]),
        )
        for t in tensors
    ]  # fmt: skip
    return cards.section(
        "Largest tensors at the peak",
        html.Div(
            html.Table(
                [
                    html.Thead(html.Tr([html.Th(column, scope="col") for column in _COLUMNS])),
                    html.Tbody([html.Tr([html.Td(words.plain(cell)) for cell in row]) for row in rows]),
                ],
                className="mp-table",
                id="memory-tensors",
            ),
            className="mp-card mp-scroll",
        ),
    )


def _course(document: doc.Report, steps: StepTable | None) -> html.Section | None:
    figure = step_figures.memory(steps)
    if figure is None:
        return None
    note = "As the allocator reported it at the steps where it was read."
    return cards.section(
        "Over the run", graph(figure, "memory-steps", title="Peak and live memory", note=note)
    )


PAGE = Page("/memory", "Memory", layout)
