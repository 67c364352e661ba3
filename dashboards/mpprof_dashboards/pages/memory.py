"""Memory: the peak, what was live at it, what the precision saved and what it could save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.errors import MpprofError
from mpprof.model.steps import StepTable
from mpprof.report import words
from mpprof.report.content import live_memory_unknown, recorded_peak
from mpprof.report.memory import account
from mpprof_dashboards import theme
from mpprof_dashboards.components import bars, cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import memory as figures
from mpprof_dashboards.figures import steps as step_figures
from mpprof_dashboards.work import short_op

if TYPE_CHECKING:
    from mpprof.model.memory import MemoryAccount
    from mpprof.model.report import Report

_BY = (("kind", "By kind"), ("dtype", "By type"), ("layer", "By layer"), ("op", "By op"))


def layout(context: Context) -> list[Any]:
    document, other = context.report(), context.choice.baseline
    baseline = None
    if other and not document.facts.unlike:
        try:
            baseline = context.source.report(other).memory
        except MpprofError:  # the page of the run itself says what is wrong with the baseline
            baseline = None
    return content(document, context.source.steps(context.run), baseline)


def content(
    document: Report, steps: StepTable | None = None, baseline: MemoryAccount | None = None
) -> list[Any]:
    return [
        _summary(document),
        _saved(document),
        _in_trace(document, baseline),
        _map(document),
        _at_peak(document),
        _tensors(document),
        _course(steps),
    ]


def written(document: Report) -> list[Any]:
    """Return what a document says of memory: no picture that needs a script."""
    return [_summary(document), _saved(document), _at_peak(document), _tensors(document)]


def _summary(document: Report) -> html.Section:
    """Return the figures that are known, and one sentence on what is not known."""
    memory, recorded = document.memory, recorded_peak(document)
    if memory is None and recorded is None:
        return cards.section("Memory", cards.empty("No memory was measured", live_memory_unknown(document)))
    # Without allocator events the account's peak is the records' own: it must not pass for a second witness.
    in_trace = memory.peak_bytes if memory and memory.at_peak else None
    saved = memory.saved_bytes if memory else None
    told = [
        ("peak-bytes", in_trace, "peak in the trace"),
        ("peak-recorded", recorded, "peak in the records"),
        ("saved", None if saved is None else abs(saved), _saved_words(saved)),
        ("reachable", memory.reachable_bytes if memory else None, "attainable (estimated)"),
    ]
    shown = [
        html.Li([html.Strong(words.size(value), id=id), " ", html.Span(name)])
        for id, value, name in told
        if value is not None and (id, value) != ("saved", 0)
    ]
    if memory and memory.saved_bytes == 0:
        shown.append(html.Li(html.Span(words.saved(0), id="saved")))
    reasons = [
        live_memory_unknown(document),
        (
            None
            if recorded is not None
            else f"No peak was recorded: {why_absent(document, 'steps.peak_memory_bytes', 'steps')}"
        ),
        (
            None
            if memory is None or memory.saved_bytes is not None
            else f"What was saved is not known: {why_absent(document, 'memory.saved_bytes', 'memory')}"
        ),
    ]
    said = [html.P(sentence(reason), className="mp-note") for reason in reasons if reason]
    body = [html.Ul(shown, className="mp-inline-figures"), *said]
    return cards.section("Memory", html.Div(body, className="mp-card"))


def _saved(document: Report) -> html.Section | None:
    """Return what was saved, what could have been saved, and what prevents it; None without a part by
    cause."""
    first, *parts = account.saving(document) or [""]
    if not parts:
        return None
    items = html.Ul([html.Li(sentence(" ".join(part.split()))) for part in parts])
    body = html.Div([html.P(sentence(first)), items], className="mp-card", id="memory-saved")
    return cards.section("Against the baseline", body)


def _saved_words(saved: int | None) -> str:
    return "more than the baseline" if saved is not None and saved < 0 else "saved against the baseline"


def _map(document: Report) -> html.Section | None:
    memory = document.memory
    figure = figures.treemap(memory) if memory else None
    if figure is None:
        return None
    note = "Areas show bytes: each kind, and within it the largest tensors."
    return cards.section("At the peak", graph(figure, "peak-map", title="What is live", note=note))


def _at_peak(document: Report) -> html.Section | None:
    memory = document.memory
    if not memory:
        return None
    parts = [
        html.Figure(
            [html.Figcaption(html.H3(title, className="mp-figure-title")), bars.chart(rows, f"peak-{by}")],
            className="mp-card mp-figure",
        )
        for by, title in _BY
        if (rows := figures.at_peak(memory, by))
    ]
    return (
        cards.section("Live at the peak", html.Div(parts, className="mp-grid-2 mp-wide")) if parts else None
    )


def _in_trace(document: Report, baseline: MemoryAccount | None) -> html.Section | None:
    memory = document.memory
    if memory is None:
        return None
    outline = [("baseline", theme.ACCENT)] if baseline and baseline.course else []
    parts = [
        graph(
            figure,
            f"memory-{by}",
            title=f"Live memory by {'type' if by == 'dtype' else by}",
            legend=[*((part.name, part.colour) for part in reversed(figures.parts(memory, by))), *outline],
        )
        for by in ("dtype", "kind")
        if (figure := figures.course(memory, by, baseline)) is not None
    ]
    return cards.section("Over the trace", html.Div(parts, className="mp-grid-2 mp-wide")) if parts else None


_COLUMNS = ("Size", "Count", "Type", "Shape", "Kind", "Layer", "Op", "Lives")


def _tensors(document: Report) -> html.Section | None:
    """Return the largest tensors at the peak, and what outlives its step."""
    memory = document.memory
    tensors = memory.tensors if memory else []
    if not tensors:
        return None
    rows = [
        (
            words.size(t.bytes), words.count(t.count), t.dtype, t.shape, t.kind, t.layer,
            short_op(t.op), account.life(t, document),
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


def _course(steps: StepTable | None) -> html.Section | None:
    figure = step_figures.memory(steps)
    if figure is None:
        return None
    if not step_figures.changes(steps, "memory"):
        said = "; ".join(text for text in step_figures.steady_texts(steps, None) if "memory" in text)
        return cards.section("Over the run", html.P(f"Never changed: {said}.", className="mp-note"))
    note = "As reported by the allocator, at the steps where it was read."
    return cards.section(
        "Over the run", graph(figure, "memory-steps", title="Peak and live memory", note=note)
    )


PAGE = Page("/memory", "Memory", layout, by_host=True)
