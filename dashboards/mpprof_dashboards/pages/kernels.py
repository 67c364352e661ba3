"""Kernels: what ran, where, whether it could use Tensor Cores, and how close it is to the card's peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from dash import html

from mpprof.errors import MpprofError
from mpprof.report import words
from mpprof_dashboards import theme, work
from mpprof_dashboards.components import bars, cards, segments
from mpprof_dashboards.components.context import HOW_TO_PROFILE, Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.table import plain, table
from mpprof_dashboards.figures import roofline

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.rows import KernelRow, OpRow
    from mpprof.model.source import RunTables


def layout(context: Context) -> list[Any]:
    document = context.report()
    try:
        kernels = context.source.kernels(context.run, in_steps=True)
    except MpprofError:
        kernels = []
    if not kernels:
        reason = why_absent(document, "kernels", "time", "trace")
        return [
            cards.section("Kernels", cards.empty("No trace to read kernels from", reason, HOW_TO_PROFILE))
        ]
    kind = kind_of(context.search)
    ops = context.source.ops(context.run, in_steps=True)
    return [
        where(document, kernels),
        _table(context, document, kind),
        _roofline(document, ops, context, picks=kind != "product"),
    ]


def kind_of(search: str | None) -> str:
    """Return which table a query asks for with `by`: kernel, product, op or layer."""
    asked = parse_qs((search or "").removeprefix("?")).get("by", ["kernel"])[0]
    return asked if asked in work.KINDS else "kernel"


def where(document: Report, kernels: list[KernelRow]) -> html.Section:
    """Return all kernel time by where it ran, always with the part that is unknown."""
    each = work.per(document)
    main = document.time.device if document.time else None
    sums: dict[str, float] = {}
    for row in kernels:
        if main is None or row["device"] == main:
            sums[row["placement"]] = sums.get(row["placement"], 0.0) + row["total_ns"]
    whole = sum(sums.values())
    order = [place for place in theme.PLACEMENT_LABELS if place in sums]
    rows = [
        bars.Row(
            theme.PLACEMENT_LABELS[place],
            each.ns(sums[place]),
            words.duration(each.ns(sums[place])),
            theme.PLACEMENT_KINDS.get(place, "unknown"),
            place,
            note=words.percent(sums[place] / whole) if whole else "",
        )
        for place in order
    ]
    share = document.tensor_core
    note = f"kernel time {each.text}" + (f" on {main}" if main else "")
    note += "" if "unknown" in sums else ", none of it unknown"
    if share is None:
        note += f". There is no Tensor Core share: {why_absent(document, 'tensor_core')}"
    return cards.section(
        "Where it ran", html.Div(bars.chart(rows, "kernel-time"), className="mp-card"), note=note
    )


_TITLES = {"kernel": "Kernels", "product": "Products", "op": "Ops", "layer": "Layers"}


def _table(context: Context, document: Report, kind: str) -> html.Section:
    each = work.per(document)
    asks = {"run": context.run, "baseline": context.choice.baseline or "", "table": kind}
    query = context.choice.query()
    switch = segments.group(
        [
            segments.link(_TITLES[other], f"/kernels{query}&by={other}", on=other == kind)
            for other in work.KINDS
        ],
        "One row for each",
    )
    note = f"times {each.text}{work.over(document)}; a click opens a row; filters: words, or >= 1 ms"
    rows = table(
        f"{kind}s",
        work.table(context.source, context.run, document, kind),
        label=f"{_TITLES[kind]} of the run",
        asks=asks,
        sort=work.SORT,
        version=context.source.version(context.run),
    )
    return cards.section(
        _TITLES[kind],
        html.Div(rows, className="mp-card mp-flush"),
        head=[switch, html.P(note, className="mp-note")],
    )


def _roofline(document: Report, ops: list[OpRow], context: Context, *, picks: bool) -> html.Section | None:
    """Return the ops below the card's roofs. `picks`: the table above knows which row is of which op."""
    try:
        roofs = context.source.roofs(context.run)
    except MpprofError:
        return None
    figure = roofline.figure(ops, roofs, work.per(document))
    if figure is None:
        reason = "No op's shapes and rate are known, or the card's peak rates are not known."
        return cards.section("Roofline", html.P(reason, className="mp-note"))
    card = roofs["card"] if roofs else ""
    note = f"Each dot is an op, larger where it takes longer; the roofs are the peak rates of {card}."
    note += " Drag over dots to filter the table above by them." if picks else ""
    drawn = graph(figure, "roofline", title="Operations a byte against operations a second", note=note)
    return cards.section("Roofline", drawn)


def content(source: RunTables, run: str, document: Report) -> list[Any]:
    """Return where the kernel time went and the longest kernels, without a script, for a file."""
    known = work.table(source, run, document, "kernel")
    if not known.rows:
        return []
    return [
        where(document, source.kernels(run, in_steps=True)),
        cards.section("Kernels", plain("kernels", known), note=f"times {work.per(document).text}"),
    ]


PAGE = Page("/kernels", "Kernels", layout, by_host=True)
