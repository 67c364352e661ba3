"""Numbers: where 16 bits overflow or flush to zero, by layer, as the look that shows most has it."""

from __future__ import annotations

from typing import Any

from dash import html

from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page
from mpprof_dashboards.components.drawn import drawing
from mpprof_dashboards.drawings import exponents

HOW = "Train with MPProfilerCallback(logdir, numerics=True), or under mpprof run --numerics."


def layout(context: Context) -> list[Any]:
    look = context.source.numbers(context.run)
    if look is None:
        return [
            cards.section("Numbers by layer", cards.empty("Not looked at", "No look was asked for.", HOW))
        ]
    said = [html.P(line, className="mp-note") for line in look.lines]
    parts = [cards.section("Numbers by layer", html.Div(said, className="mp-card"), note=look.heading)]
    drawn = drawing(exponents.draw(look.rows), "mp-card", id="exponents")
    if drawn is not None:
        parts.append(cards.section("Exponents", drawn, note=exponents.NOTE))
    if look.advice:
        told = [html.Li([text, html.Pre(code, className="mp-code")]) for text, code in look.advice]
        parts.append(cards.section("What to do", html.Div(html.Ul(told), className="mp-card")))
    return parts


PAGE = Page("/numbers", "Numbers", layout)
