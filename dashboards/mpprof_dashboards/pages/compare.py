"""Compare: two runs, or a ladder of them in the order chosen; the gap and the kernels of each rung."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dash
import dash_mantine_components as dmc
from dash import Input, Output, State, html

from mpprof.errors import MpprofError
from mpprof.report import comparing, windows, words
from mpprof.report.content import recorded_peak, step_ns
from mpprof_dashboards import choice as choices
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, listed
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import compare as figures
from mpprof_dashboards.figures import waterfall

if TYPE_CHECKING:
    from mpprof.model import document as doc

_MOST_ROWS = 40
"""Of kernels and of ops each, in a file."""
_HEADS = ("Name", "Before", "After", "Change")


def layout(context: Context) -> list[Any]:
    runs = chosen(context)
    readable = [entry for entry in context.entries if entry.problem is None]
    chooser = dmc.MultiSelect(
        id="compare-runs",
        label="Runs, in the order they are compared",
        description="The first is the baseline; every further run is compared with the one before.",
        data=[{"value": entry.id, "label": entry.name} for entry in readable],
        value=[run for run in runs if run in {entry.id for entry in readable}],
        searchable=True,
        hidePickedOptions=True,
        className="mp-chooser",
    )
    head = cards.section("Compare", html.Div(chooser, className="mp-card"))
    if len(runs) < 2:
        return [head, cards.empty("Choose at least two runs", "A comparison needs a baseline and a run.")]
    try:
        document = context.source.compare(runs)
    except MpprofError as error:  # the chooser stays: it is the way out
        return [head, cards.failure(error)]
    return [head, *content(document)]


def chosen(context: Context) -> tuple[str, ...]:
    """The ladder of the URL, else the chosen baseline and run."""
    if context.choice.ladder:
        return context.choice.ladder
    return tuple(run for run in (context.choice.baseline, context.choice.run) if run)


def content(document: doc.Comparison, *, plain: bool = False) -> list[Any]:
    """All rungs of a comparison. `plain`: tables of HTML in place of the page's grids, for a file."""
    rungs = document["steps"]
    parts: list[Any] = [_ladder(rungs, document["runs"])] if len(rungs) > 1 else []
    for row, rung in enumerate(rungs):
        parts.append(_rung(row, rung, document))
        changes = [change for change in document["kernels"] if change["step"] == row]
        parts += [
            _changes(changes, by, f"{id}-{row}", plain) for by, id in (("name", "kernels"), ("op", "ops"))
        ]
    for at, statements in enumerate(comparing.batches(document)):
        body = html.Ul([html.Li(sentence(said)) for said in statements])
        card = html.Div(body, className="mp-card", id=f"batches-{at}")
        parts.append(cards.section("Over the batch sizes", card, note="From the step times alone."))
    return parts


def _ladder(rungs: list[doc.Rung], reports: list[doc.Report]) -> html.Section:
    """All rungs at a glance: what each run does per step, against the one before it and the first."""
    heads = ("Run", "Step", "Examples/s", "Against the one before", "Against the first",
             "Tensor Cores", "Peak memory")  # fmt: skip
    body = []
    whole: float | None = 1.0  # the speedup since the first run, while every rung in between has one
    for row, report in enumerate(reports):
        rung = rungs[row - 1] if row else None
        step = None if rung is None or rung["refused"] else rung["observed"]
        share = report["tensor_core"]["ratio"] if report["tensor_core"] else None
        whole = whole * step if whole is not None and step is not None else whole if row == 0 else None
        cells = (
            report["run"]["name"],
            _known(step_ns(report), words.duration),
            _known(_examples_per_s(rungs, row), lambda rate: words.count(round(rate))),
            "" if rung is None else "refused" if rung["refused"] else _known(step, words.speedup),
            "" if rung is None else _known(whole, words.speedup),
            _known(share, words.percent),
            _known(recorded_peak(report), words.size),
        )
        kinds = ("", *["mp-number"] * (len(cells) - 1))
        body.append(html.Tr([html.Td(cell, className=kind) for cell, kind in zip(cells, kinds, strict=True)]))
    head = html.Tr([html.Th(text, className="mp-number" if text != "Run" else "") for text in heads])
    table = html.Table([html.Thead(head), html.Tbody(body)], className="mp-table", id="ladder")
    return cards.section("The ladder", html.Div(table, className="mp-card mp-scroll"))


def _known(value: Any, form: Callable[[Any], str]) -> str:
    return "—" if value is None else form(value)


def _examples_per_s(rungs: list[doc.Rung], row: int) -> float | None:
    """Throughput of the run in this row, from the rung that ends there (the first run: that starts there)."""
    rates = rungs[max(row - 1, 0)].get("examples_per_s")
    return rates["to" if row else "from"] if rates else None


def _rung(row: int, rung: doc.Rung, document: doc.Comparison) -> html.Section:
    reports = document["runs"]
    start, end = reports[rung["from"]], reports[rung["to"]]
    title = f"{start['run']['name']} → {end['run']['name']}"
    if rung["refused"]:
        return cards.section(title, cards.empty("These runs cannot be compared", rung["refused"]))
    labels, card_note = rung["labels"], rung.get("cards")
    doubts = [*([f"The runs are unlike: {'; '.join(labels)}"] if labels else []), *(rung.get("notes") or [])]
    if "windows" in rung and None in (step_ns(start), step_ns(end)):
        return _windows(row, title, rung["windows"], doubts, rung["findings"])
    return cards.section(
        title,
        cards.warnings(doubts) if doubts else None,
        cards.remarks([*(rung.get("explanation") or []), *([card_note] if card_note else [])]),
        cards.tiles(
            _tile("Speedup", rung["observed"], words.speedup, _interval(rung), f"rung-{row}-observed"),
            _tile(
                "Expected",
                rung["expected"],
                words.speedup,
                "",
                f"rung-{row}-expected",
                rung["absent"].get("expected", ""),
            ),
            _tile("Step before", step_ns(start), words.duration, "", f"rung-{row}-from"),
            _tile("Step after", step_ns(end), words.duration, "", f"rung-{row}-to"),
        ),
        _learning(row, rung, start, end),
        _gap(row, rung, start, end),
        _remedies(row, comparing.remedies(document, rung)),
        html.Div(cards.remarks(comparing.matching(rung)), id=f"matching-{row}"),
        *(cards.finding(item) for item in rung["findings"]),
    )


def _remedies(row: int, lines: list[str]) -> Any:
    """What the earlier report promised of its remedies, and what came of it."""
    if not lines:
        return None
    body = html.Ul([html.Li(sentence(line)) for line in lines])
    title = html.H3(comparing.REMEDIES, className="mp-figure-title")
    return html.Div([title, body], className="mp-card", id=f"remedies-{row}")


def _windows(
    row: int, title: str, found: doc.WindowsOfTwo, doubts: list[str], findings: list[doc.Finding]
) -> html.Section:
    """Two whole windows side by side, where not both runs have steps."""
    head = html.Tr(
        [html.Th(text, className="mp-number" if at else "") for at, text in enumerate(windows.COLUMNS)]
    )
    body = [
        html.Tr(
            [
                html.Td(f"\u2003{each.label}" if each.part else each.label),
                *(html.Td(text, className="mp-number") for text in (each.before, each.after, each.times)),
            ]
        )
        for each in windows.rows(found)
    ]
    table = html.Table([html.Thead(head), html.Tbody(body)], className="mp-table", id=f"windows-{row}")
    return cards.section(
        f"{title}: windows, not steps",
        cards.warnings(doubts) if doubts else None,
        cards.remarks(found["statements"]),
        html.Div(table, className="mp-card mp-scroll"),
        *(cards.finding(item) for item in findings),
    )


def _learning(row: int, rung: doc.Rung, start: doc.Report, end: doc.Report) -> Any:
    """The losses after as many applied updates, and what they say; nothing where no step was recorded."""
    found = rung.get("learning")
    if found is None or (start["steps"] is None and end["steps"] is None):
        return None
    said = [text for text in (found["text"], found["speedup_per_update_text"]) if text]
    drawn = figures.losses(found, (start["run"]["name"], end["run"]["name"]))
    doubts = cards.warnings(said) if found["severity"] in ("warning", "error") else cards.remarks(said)
    parts: list[Any] = [html.Div(doubts, id=f"learning-{row}")]
    if drawn is not None:
        note = "Means of stretches of steps. Shaded: where the two are compared."
        parts.append(graph(drawn, f"losses-{row}", title="Loss against applied updates", note=note))
    return html.Div(parts)


def _tile(label: str, value: Any, form: Any, detail: str, id: str, why: str = "") -> html.Div:
    if value is None:
        return cards.missing(label, sentence(why or words.NOT_KNOWN))
    return cards.tile(label, form(value), detail, id=id)


def _interval(rung: doc.Rung) -> str:
    ends = rung["interval"]
    return f"95 % interval {words.speedups(*ends)}" if ends else ""


def _gap(row: int, rung: doc.Rung, start: doc.Report, end: doc.Report) -> Any:
    end_ns = step_ns(end)
    known = rung["expected"] is not None
    slices = rung["slices"]
    figure = waterfall.gap(slices, end_ns, step_ns(start), reachable=known) if end_ns is not None else None
    if figure is None:
        return cards.empty(
            "No gap to split", "It needs a trace of both runs and a rate that this device can reach."
        )
    note = (
        "From the step within reach to the one observed. Hatched: computed, not measured."
        if known
        else "From the first run's step to the second's: what could be reached is not known."
    )
    return graph(figure, f"gap-{row}", title="Where the gap lies", note=note)


_TITLES = {"name": "Kernels that changed", "op": "Ops that changed"}


def _changes(rows: list[doc.KernelChange], by: str, id: str, plain: bool) -> html.Section | None:
    """Kernels, matched by name, or ops: the same time counted twice, so they never share a figure."""
    same = [row for row in rows if row["by"] == by]
    if not same:
        return None
    figure = figures.changes(same)
    note = "The largest differences per step. Green: less time than before; amber: more."
    return cards.section(
        _TITLES[by],
        graph(figure, f"{id}-figure", title="Change per step", note=note) if figure is not None else None,
        _table(same, f"{id}-table"),
    )


def _table(rows: list[doc.KernelChange], id: str) -> html.Div:
    """The rows that changed most, as a table that needs no script."""
    largest = sorted(map(_flat, rows), key=lambda row: -abs(row["change_ns"]))[:_MOST_ROWS]
    body = []
    for row in largest:
        times = (row[f"{key}_text"] for key in ("from_ns", "to_ns", "change_ns"))
        body.append(html.Tr([html.Td(row["key"]), *(html.Td(text, className="mp-number") for text in times)]))
    heads = [
        html.Th(each, scope="col", className="mp-number" if at else "") for at, each in enumerate(_HEADS)
    ]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="mp-table", id=id)
    left = len(rows) - len(largest)
    more = html.P(f"{left} more in the JSON inside this file.", className="mp-note") if left else None
    return html.Div([table, more], className="mp-card mp-scroll")


def _flat(item: doc.KernelChange) -> dict[str, Any]:
    change = figures.change_ns(item)
    texts = {f"{side}_text": "—" if ns is None else words.duration(ns)
             for side, ns in (("from_ns", item["from_ns"]), ("to_ns", item["to_ns"]))}  # fmt: skip
    sign = "+" if change > 0 else "−" if change < 0 else ""
    return item | texts | {"change_ns": change, "change_ns_text": f"{sign}{words.duration(abs(change))}"}


def register(app: dash.Dash) -> None:
    """The chooser writes the ladder into the URL; the URL draws the page."""

    def choose_ladder(runs: list[str] | None, search: str | None) -> Any:
        now = choices.read(search, listed(app.server.config["MPPROF_SOURCE"])[0])
        shown = now.ladder or tuple(run for run in (now.baseline, now.run) if run)
        ladder = tuple(runs or ())
        return dash.no_update if ladder == shown else replace(now, ladder=ladder).query()

    app.callback(
        Output("url", "search", allow_duplicate=True),
        Input("compare-runs", "value"),
        State("url", "search"),
        prevent_initial_call=True,
    )(choose_ladder)


PAGE = Page("/compare", "Compare", layout, register)
