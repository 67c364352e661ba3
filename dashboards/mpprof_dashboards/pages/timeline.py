"""Timeline: what the host and the device did when, drawn from windows that the server merges by pixel."""

from __future__ import annotations

import json
from typing import Any

from dash import html

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent


def layout(context: Context) -> list[Any]:
    timeline = context.source.timeline(context.run, width=1)
    if timeline is None:
        reason = why_absent(context.report(), "time", "trace")
        return [
            cards.section(
                "Timeline",
                cards.empty(
                    "No step to draw",
                    reason,
                    'Profile some: MPProfilerCallback(logdir, profile_steps="auto").',
                ),
            )
        ]
    skips = _skipped_steps(context)
    steps = timeline["steps"]
    marks = {timeline["median"]: "median", timeline["slowest"]: "slowest"}
    choices = [
        html.Option(
            _step_name(
                row,
                step["number"],
                step["end_ns"] - step["start_ns"],
                marks.get(row, ""),
                step["number"] in skips,
            ),
            value=str(row),
        )
        for row, step in enumerate(steps)
    ]
    tools = [
        html.Label(["Step ", html.Select(choices, id="tl-step", className="mp-button")], className="mp-tool"),
        html.Span(id="tl-search", className="mp-tool"),
        html.Button("whole step", id="tl-whole", className="mp-button"),
        html.Button("all steps", id="tl-all", className="mp-button"),
        html.Span("wheel or w/s zooms, drag or a/d moves, / searches", className="mp-note mp-right"),
    ]
    legend = html.Ul(
        [
            html.Li([html.Span(className="mp-swatch", style={"background": colour}), theme.LANE_LABELS[key]])
            for key, colour in theme.LANE_COLOURS.items()
            if key not in ("idle_sync", "idle_compile", "pipeline")
        ],
        className="mp-legend",
    )
    drawing = html.Div(
        id="timeline",
        className="mp-timeline",
        tabIndex="0",
        role="application",
        **{
            "aria-label": "Timeline. Arrow keys and w, a, s, d move and zoom.",
            "data-run": context.run,
            "data-baseline": context.choice.baseline or "",
            "data-colours": _colours(),
        },
    )
    panel = html.Aside(id="tl-panel", className="mp-card mp-panel", **{"aria-live": "polite"})
    return [
        html.Section(
            [
                html.Div(
                    [html.H2("Timeline", className="mp-section-title"), *tools], className="mp-section-head"
                ),
                html.Div(
                    [html.Div([legend, drawing], className="mp-card mp-timeline-card"), panel],
                    className="mp-timeline-area",
                ),
            ],
            className="mp-section",
        )
    ]


def _colours() -> str:
    return json.dumps(
        {"colours": theme.LANE_COLOURS, "labels": theme.LANE_LABELS, "places": theme.PLACEMENT_LABELS}
    )


def _step_name(row: int, number: int | None, length_ns: int, mark: str, skipped: bool) -> str:
    said = [
        f"{number}" if number is not None else f"{row + 1}.",
        words.duration(length_ns),
        mark,
        "skipped" if skipped else "",
    ]
    return " · ".join(part for part in said if part)


def _skipped_steps(context: Context) -> set[int]:
    """Steps whose record says that an update was skipped."""
    table = context.source.steps(context.run)
    if table is None:
        return set()
    return set(table.step[table.skipped > 0].tolist())


PAGE = Page("/timeline", "Timeline", layout)
