"""The speedup on a ruler: 1x, what was reached, what the first change makes of it, and a mark for what
precision alone allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpprof.report import words
from mpprof.report.content import changes_type, paying, undecided
from mpprof_dashboards import theme
from mpprof_dashboards.drawings import svg

if TYPE_CHECKING:
    from mpprof.model.report import Report

WIDTH = 300
"""Pixels for which the labels are placed."""
_LETTER = 6.2


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the ruler; `said` stands below it."""

    key: str
    times: float
    said: str


def marks_of(document: Report) -> tuple[Mark, ...]:
    """Return the marks of a measured pair, from 1x on; empty where there is no speedup to show."""
    facts, answer = document.facts, document.answer
    if facts.observed is None or facts.unlike or undecided(document) or not answer.figure:
        return ()
    marks = [Mark("one", 1.0, "1x"), Mark("now", facts.observed, "this run")]
    codes = paying(document.whatif, facts.step_ns)
    first = next((cause for cause in facts.causes if codes and cause.code == codes[0]), None)
    base = None if changes_type(document) else facts.baseline_step_ns
    if first is not None and first.step_ns and base:
        times = base / first.step_ns
        marks.append(Mark("after", times, f"first change: {words.about(words.speedup(times))}"))
    if facts.attainable is not None:
        marks.append(Mark("alone", facts.attainable, words.PRECISION_ALONE))
    return tuple(marks)


def draw(marks: tuple[Mark, ...]) -> str:
    """Return the ruler as SVG; "" without marks."""
    if not marks:
        return ""
    low, high = min(mark.times for mark in marks), max(mark.times for mark in marks)
    span = (high - low) or 1.0
    drawn = [svg.element("rect", x=0, y=8, width="100%", height=6, rx=3, class_="mp-ruler-line")]
    where = {mark.key: 0.02 + 0.94 * (mark.times - low) / span for mark in marks}
    left, right = sorted((where["one"], where["now"]))
    drawn.append(
        svg.element(
            "rect", x=svg.percent(left), y=8, width=svg.percent(right - left), height=6, class_="mp-ruler-got"
        )
    )
    below: list[list[tuple[float, float]]] = [[] for _ in marks]
    for mark in marks:
        at = where[mark.key]
        colour = theme.KIND_COLOURS["unit"] if mark.key == "alone" else None
        dash = "2 2" if mark.key in ("alone", "after") else None
        drawn.append(
            svg.element(
                "line",
                x1=svg.percent(at),
                x2=svg.percent(at),
                y1=2,
                y2=20,
                stroke_dasharray=dash,
                style=f"stroke:{colour}" if colour else None,
                class_="mp-ruler-mark",
                data_key=mark.key,
            )
        )
        half = _LETTER * len(mark.said) / 2 + 4
        middle = at * WIDTH
        place, anchor, begin = svg.percent(at), "middle", middle - half
        if begin < 0:
            place, anchor, begin = "0", "start", 0.0
        elif middle + half > WIDTH:
            place, anchor, begin = "100%", "end", WIDTH - 2 * half
        ends = begin, begin + 2 * half
        row = next(at for at, row in enumerate(below) if all(ends[0] >= e or ends[1] <= b for b, e in row))
        below[row].append(ends)
        drawn.append(
            svg.text(mark.said, x=place, y=33 + 14 * row, text_anchor=anchor, class_="mp-ruler-said")
        )
    height = 38 + 14 * sum(1 for row in below[1:] if row)
    label = words.joined([mark.said for mark in marks])
    return svg.element(
        "svg",
        "".join(drawn),
        class_="mp-ruler",
        xmlns=svg.NAMESPACE,
        width="100%",
        height=height,
        role="img",
        aria_label=label,
    )
