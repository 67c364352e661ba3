"""Timeline: what the host and the device did when, drawn from windows that the server merges by pixel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.report import words
from mpprof.report.content import matrix_units
from mpprof_dashboards import theme
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent

if TYPE_CHECKING:
    from mpprof.model.timeline import Timeline


def layout(context: Context) -> list[Any]:
    timeline = context.source.timeline(context.run, width=1)
    if timeline is None:
        reason = why_absent(context.report(), "time", "trace")
        how = 'Profile some: MPProfilerCallback(logdir, profile_steps="auto").'
        return [cards.section("Timeline", cards.empty("No step to draw", reason, how))]
    waits = html.Div(id="tl-waits", className="mp-waits")
    legend = html.Ul(id="tl-legend", className="mp-legend")
    panel = html.Aside(id="tl-panel", className="mp-card mp-panel", **{"aria-live": "polite"})
    drawing = html.Div([waits, legend, _drawing(context)], className="mp-card mp-timeline-card")
    area = html.Div([drawing, panel], className="mp-timeline-area")
    return [cards.section("Timeline", area, head=_tools(context, timeline))]


def _tools(context: Context, timeline: Timeline) -> list[Any]:
    """Return what chooses the step, the colours and the window."""
    colours = [html.Option(name, value=key) for key, name in _COLOURS]
    return [
        html.Label(
            ["Step ", html.Select(_step_choices(context, timeline), id="tl-step", className="mp-button")],
            className="mp-tool",
        ),
        html.Label(
            ["Colour by ", html.Select(colours, id="tl-colour", className="mp-button")], className="mp-tool"
        ),
        html.Span(id="tl-search", className="mp-tool"),
        html.Span(
            [
                html.Button("−", id="tl-out", className="mp-button", title="Zoom out (s)",
                            **{"aria-label": "Zoom out"}),
                html.Button("+", id="tl-in", className="mp-button", title="Zoom in (w)",
                            **{"aria-label": "Zoom in"}),
            ],
            className="mp-tool mp-zoom",
        ),
        html.Button("whole step", id="tl-whole", className="mp-button"),
        html.Button("all steps", id="tl-all", className="mp-button"),
        html.Button(
            "save for Perfetto", id="tl-save", className="mp-button",
            title="All events of the window shown, as a Chrome trace: open it in ui.perfetto.dev",
        ),
        html.Span(
            "wheel or w/s zooms, drag or a/d moves, n/p walks the kernels, m or shift-drag measures",
            className="mp-note mp-keyboard",
        ),
        html.Span("Drag to move; tap a kernel for its whole name.", className="mp-note mp-touch"),
    ]  # fmt: skip


def _drawing(context: Context) -> html.Div:
    """Return the element that the script draws in, with what it has to know."""
    return html.Div(
        id="timeline",
        className="mp-timeline",
        tabIndex="0",
        role="application",
        **{
            "aria-label": "Timeline. Arrow keys and w, a, s, d move and zoom, n and p walk the kernels.",
            "data-run": context.run,
            "data-chosen": context.choice.run,
            "data-baseline": context.choice.baseline or "",
            "data-colours": _colours(matrix_units(context.report())),
        },
    )


_COLOURS = (
    ("placement", "where it ran"), ("precision", "precision"), ("layer", "layer"), ("class", "kind of work"),
)  # fmt: skip


_WORK = ("matrix_unit", "off_matrix_unit", "other", "copy", "unknown")
"""What is coloured anew where colours are not by placement."""


def _colours(units: str) -> str:
    colours = theme.LANE_COLOURS | theme.WORK_COLOURS
    return json.dumps(
        {
            "colours": colours,
            "text": {each: theme.text_on(each) for each in {*colours.values(), *theme.LAYER_COLOURS}},
            "edges": theme.EDGES,
            "quiet": dict.fromkeys(sorted(theme.QUIET_LANES), theme.QUIET_OPACITY),
            "labels": theme.lane_labels(units) | theme.WORK_LABELS,
            "lanes": list(theme.LANE_COLOURS),
            "work": _WORK,
            "layers": theme.LAYER_COLOURS,
            "places": theme.PLACEMENT_LABELS,
        }
    )


def _step_choices(context: Context, timeline: Timeline) -> list[Any]:
    """Return the steps that a reader looks for first, then all of them."""
    skips, steps = _skipped_steps(context), timeline["steps"]
    skipped = [row for row, step in enumerate(steps) if step["number"] in skips]
    marks = {timeline["median"]: "median", timeline["slowest"]: "slowest"}
    names = [
        _step_name(row, step["number"], step["end_ns"] - step["start_ns"], marks.get(row, ""), row in skipped)
        for row, step in enumerate(steps)
    ]
    first = list(dict.fromkeys((timeline["median"], timeline["slowest"], *skipped[:1])))
    return [
        html.Optgroup([html.Option(names[row], value=str(row)) for row in rows], label=label)
        for label, rows in (("Look at", first), ("All steps", range(len(steps))))
    ]


def _step_name(row: int, number: int | None, length_ns: int, mark: str, skipped: bool) -> str:
    said = [
        f"{number}" if number is not None else f"{row + 1}.",
        words.duration(length_ns),
        mark,
        "skipped" if skipped else "",
    ]
    return " · ".join(part for part in said if part)


def _skipped_steps(context: Context) -> set[int]:
    """Return the steps whose record says that an update was skipped."""
    table = context.source.steps(context.run)
    if table is None:
        return set()
    return set(table.step[table.skipped > 0].tolist())


PAGE = Page("/timeline", "Timeline", layout, by_host=True)
