"""Memory: the peak, what was live at it, what the precision saved and what it could save."""

from __future__ import annotations

from typing import Any

from dash import html

from mpprof.model.source import Document
from mpprof.model.steps import StepTable
from mpprof.report import words
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.figures import memory as figures
from mpprof_dashboards.figures import steps as step_figures

_BY = (("kind", "By kind"), ("dtype", "By type"), ("layer", "By layer"), ("op", "By op"))

_NO_EVENTS = "No allocator events were recorded."


def layout(context: Context) -> list[Any]:
    return content(context.report(), context.source.steps(context.run))


def content(document: Document, steps: StepTable | None = None) -> list[Any]:
    return [_summary(document), _at_peak(document), _course(document, steps)]


def _summary(document: Document) -> html.Section:
    memory = document.get("memory") or {}
    peak = memory.get("peak_bytes")
    recorded = (document.get("steps") or {}).get("peak_memory_bytes")
    if peak is None and recorded is None:
        return cards.section("Memory", cards.empty("No memory was measured", why_absent(document, "memory")))
    # Without allocator events the account's peak is the records' own: it must not pass for a second witness.
    in_trace = peak if memory.get("at_peak") else None
    why = why_absent(document, "memory") if peak is None else _NO_EVENTS
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
                memory.get("saved_bytes"),
                why_absent(document, "memory.saved_bytes", "memory"),
                "saved",
            ),
            _tile(
                "Within reach (estimated)",
                memory.get("reachable_bytes"),
                why_absent(document, "memory.reachable_bytes", "memory"),
                "reachable",
            ),
        ),
    )


def _tile(label: str, value: int | None, reason: str, id: str) -> html.Div:
    if value is None:
        return cards.missing(label, reason)
    return cards.tile(label, words.size(value), id=id)


def _at_peak(document: Document) -> html.Section | None:
    memory = document.get("memory")
    if not memory:
        return None
    drawn = [(by, title, figures.at_peak(memory, by)) for by, title in _BY]
    parts = [graph(figure, f"peak-{by}", title=title) for by, title, figure in drawn if figure is not None]
    if not parts:
        parts = [cards.empty("Nothing is known of what was live", _NO_EVENTS)]
    return cards.section("Live at the peak", html.Div(parts, className="mp-grid-2"))


def _course(document: Document, steps: StepTable | None) -> html.Section | None:
    figure = step_figures.memory(steps)
    if figure is None:
        return None
    note = "As the allocator reported it at the steps where it was read."
    return cards.section(
        "Over the run", graph(figure, "memory-steps", title="Peak and live memory", note=note)
    )


PAGE = Page("/memory", "Memory", layout)
