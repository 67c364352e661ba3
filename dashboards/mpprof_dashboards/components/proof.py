"""The proof of the first cause as a part of a page: what it is drawn from, its title and its legend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import dcc, html

from mpprof.errors import MpprofError
from mpprof.report import content, words
from mpprof_dashboards import theme, work
from mpprof_dashboards.components import cards, drawn
from mpprof_dashboards.components.strip import legend, strip
from mpprof_dashboards.drawings import exponents, proof
from mpprof_dashboards.figures.memory import parts

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.run import ShownLook
    from mpprof.model.source import RunTables
    from mpprof.model.steps import StepTable
    from mpprof.model.timeline import Roofs, Timeline

STRIP_WIDTH = 1200
"""Pixels into which the step is merged: what is shorter cannot be seen."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a proof is drawn from; None and (): there is none."""

    timeline: Timeline | None = None
    steps: StepTable | None = None
    dots: tuple[proof.Dot, ...] = ()
    roofs: Roofs | None = None
    look: ShownLook | None = None


def material(source: RunTables, run: str, document: Report, *, step: int | None = None) -> Material:
    """Return what the proof of a run is drawn from. Raises MpprofError where its records cannot be read."""
    timeline = source.timeline(run, step=step, width=STRIP_WIDTH)
    steps, kind = source.steps(run), proof.kind_of(document)
    if kind == "rail":
        return Material(timeline, steps, look=source.numbers(run))
    if kind != "roofline":
        return Material(timeline, steps)
    try:
        return Material(timeline, steps, _dots(source, run, document), source.roofs(run))
    except MpprofError:  # records without a trace have no ops
        return Material(timeline, steps)


def _dots(source: RunTables, run: str, document: Report) -> tuple[proof.Dot, ...]:
    """Return the ops whose work and bytes are known; those that the first cause is about are the first's. A
    cause of the whole run is about all of its matrix work."""
    ops, each, code = source.ops(run, in_steps=True), work.per(document), document.answer.code
    about = {
        work.op_key(row["device"], row["op"])
        for row in work.of_cause(document, code or "", source.kernels(run, in_steps=True), ops)
    }
    found = []
    for row in (work.op_row(op, each) for op in ops):
        if row["intensity"] and row["flops_per_s"]:
            matrix = row["kind"] in ("unit", "off")
            first = matrix and (row["key"] in about or not about)
            found.append(
                proof.Dot(
                    row["short"],
                    row["intensity"],
                    row["flops_per_s"],
                    row["ns"],
                    row["kind"],
                    first,
                    f"{row['precision']}_cuda" if row["kind"] == "off" else "",
                )
            )
    return tuple(found)


def sections(document: Report, given: Material, query: str) -> list[html.Section]:
    """Return the proof of the first cause and, where that is not the step itself, the step; all where they
    are known. Exponents prove that numbers are out of range; the course of the loss scale is shown below
    them."""
    step, kind = _step(document, given.timeline, query), proof.kind_of(document)
    first = {"rail": _rail, "roofline": _roofline, "staircase": _staircase}.get(kind)
    numbers = _exponents(given, query) if kind == "rail" else None
    found = first(document, given, query) if first else None
    if numbers is not None and found is not None:
        found.id = "proof-scale"
    return [each for each in (numbers, found, step) if each is not None]


def shows_scale(document: Report, given: Material) -> bool:
    """Return whether the proof is the loss scale, which the curves of the run then leave out."""
    return proof.kind_of(document) == "rail" and drawn.scale_of(document, given.steps) is not None


def _section(title: str, svg: str, query: str, page: str, *head: Any, note: str) -> html.Section | None:
    shown = drawn.drawing(svg, "mp-proof-place")
    if shown is None:
        return None
    more = [" ", dcc.Link(f"open {page}", href=f"/{page}{query}", className="mp-more")] if query else []
    said = html.P([html.Span(note), *more], className="mp-note mp-right")
    return cards.section(title, html.Div(shown, className="mp-card"), head=[*head, said], id="proof")


def _swatch(colour: str, *, hatched: bool = False) -> html.Span:
    look = "mp-swatch mp-swatch-hatched" if hatched else "mp-swatch"
    return html.Span(className=look, style={"background-color": colour})


def _exponents(given: Material, query: str) -> html.Section | None:
    rows = exponents.telling(given.look.rows) if given.look is not None else ()
    said = given.look.lines[0] if given.look is not None and given.look.lines else ""
    return _section(
        "The proof: exponents", exponents.draw(rows), query, "numbers",
        html.P(said, className="mp-note"), note=exponents.NOTE,
    )  # fmt: skip


def _rail(document: Report, given: Material, query: str) -> html.Section | None:
    table = given.steps
    curve = drawn.scale_of(document, table)
    if table is None or curve is None:
        return None
    broken = table.step[table.loss_known & ~np.isfinite(table.loss)]
    told = [("mp-tick-skip", "updates skipped")] if len(curve.ticks) else []
    told += [("mp-tick-broken", "the loss is not finite")] if len(broken) else []
    marks = html.Ul(
        [html.Li([html.Span(className=f"mp-tick {look}"), said]) for look, said in told],
        className="mp-legend",
    )
    return _section(
        "The proof: the loss scale", proof.rail(curve, broken.tolist()), query, "steps", marks,
        note=curve.said,
    )  # fmt: skip


def _roofline(document: Report, given: Material, query: str) -> html.Section | None:
    kinds = {dot.kind for dot in given.dots}
    marks = html.Ul(
        [
            html.Li(
                [_swatch(theme.KIND_COLOURS[kind]), theme.kind_word(kind, content.matrix_units(document))]
            )
            for kind in theme.KIND_WORDS
            if kind in kinds
        ],
        className="mp-legend",
    )
    card = given.roofs["card"] if given.roofs else ""
    return _section(
        "The proof: work below the roofs", proof.roofline(given.dots, given.roofs), query, "kernels", marks,
        note=f"each dot an op, larger where it takes longer; peak rates of {card}",
    )  # fmt: skip


def _staircase(document: Report, given: Material, query: str) -> html.Section | None:
    memory = document.memory
    if memory is None or memory.course is None:
        return None
    by = "kind" if "kind" in memory.course.parts else "dtype"
    stack = parts(memory, by)
    marks = html.Ul(
        [
            html.Li([_swatch(part.colour, hatched=part.estimated), words.plain(part.name)])
            for part in reversed(stack)
        ],
        className="mp-legend",
    )
    note = "live bytes over the trace, by what they are for"
    note += "; hatched: estimated" if any(part.estimated for part in stack) else ""
    failed = _failed(document)
    if failed:
        note += "; right: what was held" + ("" if _states_held(document) else " at most before")
        note += ", and what was asked for on top of it"
        note += "; dashed: in use, and not recorded" if failed.open_bytes > 0 else ""
    return _section(
        "The proof: what fills the memory", proof.staircase(memory.course.time_ns, stack, failed), query,
        "memory", marks, note=note,
    )  # fmt: skip


def _states_held(document: Report) -> bool:
    """Return whether the error itself states what was in use."""
    return document.out_of_memory is not None and document.out_of_memory.used_bytes is not None


def _failed(document: Report) -> proof.Failure | None:
    """Return the allocation that failed, with what its error states or the records have beside it; None
    where nothing failed, or no size is stated."""
    error = document.out_of_memory
    if error is None or not error.asked_bytes:
        return None
    before = content.peak(document)
    held = error.used_bytes if _states_held(document) else before[0] if before else None
    return proof.Failure(error.asked_bytes, held, error.limit_bytes or error.card_bytes)


def _step(document: Report, timeline: Timeline | None, query: str) -> html.Section | None:
    if timeline is None:
        return None
    length = words.duration(timeline["to_ns"] - timeline["from_ns"])
    number = timeline["steps"][timeline["step"]]["number"]
    which = f"step {number}, " if number is not None else ""
    more = dcc.Link("open the timeline", href=f"/timeline{query}", className="mp-more") if query else None
    place = "the median" if timeline["step"] == timeline["median"] else "one"
    said = [html.Span(f"{which}{place} of {len(timeline['steps'])} profiled, {length}"), " ", more]
    return cards.section(
        "One step",
        html.Div(strip(timeline), className="mp-card"),
        head=[
            legend(timeline, content.matrix_units(document), on_cpu=content.on_cpu(document)),
            html.P(said, className="mp-note mp-right"),
        ],
    )
