"""Compare: two runs, or a ladder of them in the order chosen; the gap and the kernels of each rung.

Of more than two runs, each is compared with the nearest comparable one before it or, if so chosen, with the
first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dash
import dash_mantine_components as dmc
from dash import Input, Output, State, html

from mpprof.errors import MpprofError
from mpprof.model.frozen import changed
from mpprof.model.source import RunEntry, RunSource
from mpprof.report import comparing, several_devices, two_windows, words
from mpprof.report.content import (
    difference_of,
    interval_covers,
    lowered_by_host,
    profiled_steps,
    recorded_peak,
    step_ns,
)
from mpprof.report.to_json import to_json
from mpprof_dashboards import choice as choices
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components import bars, cards, segments
from mpprof_dashboards.components.context import Context, Page, listed
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.text import or_dash, sentence
from mpprof_dashboards.figures import compare as figures
from mpprof_dashboards.figures import waterfall

if TYPE_CHECKING:
    from mpprof.model.finding import Finding, KernelChange, Rung, WindowsOfTwo
    from mpprof.model.report import ComparedRuns, Report

_MOST_ROWS = 40
"""Of kernels and of ops each, in a file."""
_CHANGE_HEADS = ("Name", "Before", "After", "Change")


def layout(context: Context) -> list[Any]:
    runs = chosen(context)
    readable = [entry for entry in context.entries if entry.problem is None]
    first = context.choice.against_first and len(runs) > 2
    chooser = dmc.MultiSelect(
        id="compare-runs",
        label="Runs, in the order they are compared",
        description=_HELD[first if len(runs) > 2 else None],
        data=[{"value": entry.id, "label": entry.name} for entry in readable],
        value=list(_offered(runs, context.entries)),
        searchable=True,
        hidePickedOptions=True,
        className="mp-chooser",
    )
    head = cards.section("Compare", html.Div(chooser, className="mp-card"))
    if len(runs) < 2:
        return [head, cards.empty("Choose at least two runs", "A comparison needs a baseline and a run.")]
    left_out: list[str] = []
    try:
        try:
            document = _compared(context.source, runs, first=first)
        except MpprofError:
            left_out = _left_out(runs, context.entries)
            runs = _offered(runs, context.entries)
            if not left_out or len(runs) < 2:
                raise
            document = _compared(context.source, runs, first=first)
    except MpprofError as error:  # the chooser stays: it is the way out
        return [head, cards.failure(error)]
    switch = _switch(replace(context.choice, ladder=runs)) if len(runs) > 2 else None
    return [head, cards.warnings(left_out), *content(document, switch=switch, first=first)]


_HELD = {
    None: "The first is the baseline.",
    True: "Each run is compared with the first.",
    False: "Each run is compared with the nearest one before it that allows a comparison.",
}


def _offered(runs: tuple[str, ...], entries: tuple[RunEntry, ...]) -> tuple[str, ...]:
    """Return those of the runs that can be chosen."""
    readable = {entry.id for entry in entries if entry.problem is None}
    return tuple(run for run in runs if run in readable)


def _left_out(runs: tuple[str, ...], entries: tuple[RunEntry, ...]) -> list[str]:
    """Return why a run of the address is not compared."""
    problems = {entry.id: entry.problem for entry in entries}
    said = []
    for run in runs:
        if run not in problems:
            said.append(f"Left out: {words.plain(run)}, which is not among these runs")
        elif problem := problems[run]:
            said.append(f"Left out: {words.plain(run)}, which cannot be read: {words.plain(problem)}")
    return said


def _compared(source: RunSource, runs: tuple[str, ...], *, first: bool) -> ComparedRuns:
    return against_first(source, runs) if first else against_nearest(source, runs)


def against_nearest(source: RunSource, runs: tuple[str, ...]) -> ComparedRuns:
    """Return each run against the nearest one before it that trains the same model and differs only in
    precision; where there is none, against the one before it. Of earlier runs that are alike, the nearest
    stands for all."""
    document = source.compare(runs)
    rungs, kernels = list(document.steps), list(document.kernels)
    kind = [0]  # by run: the first run that is comparable to it
    for row, rung in enumerate(document.steps):
        found, tried = (row if _comparable(rung) else None), {kind[row]}
        for at in range(row - 1, -1, -1) if found is None else ():
            if kind[at] in tried:
                continue
            tried.add(kind[at])
            pair = source.compare((runs[at], runs[row + 1]))
            if _comparable(pair.steps[0]):
                rungs[row] = changed(pair.steps[0], start=at, end=row + 1)
                kernels = [each for each in kernels if each.step != row]
                kernels += [changed(each, step=row) for each in pair.kernels]
                found = at
                break
        kind.append(row + 1 if found is None else kind[found])
    return changed(document, steps=tuple(rungs), kernels=tuple(kernels))


def _comparable(rung: Rung) -> bool:
    return not rung.refused and not rung.labels


def against_first(source: RunSource, runs: tuple[str, ...]) -> ComparedRuns:
    """Return each further run against the first: the comparisons of the pairs, as one document."""
    pairs = [source.compare((runs[0], run)) for run in runs[1:]]
    return changed(
        pairs[0],
        runs=(pairs[0].runs[0], *(pair.runs[1] for pair in pairs)),
        steps=tuple(changed(pair.steps[0], start=0, end=at) for at, pair in enumerate(pairs, start=1)),
        kernels=tuple(changed(change, step=at) for at, pair in enumerate(pairs) for change in pair.kernels),
    )


def _switch(choice: Choice) -> html.Div:
    links = [
        segments.link(
            title,
            f"/compare{replace(choice, against_first=first).query()}",
            on=first == choice.against_first,
        )
        for title, first in (("against the one before", False), ("against the first", True))
    ]
    label = "What each run is compared with"
    return segments.group(links, label, id="against", className="mp-segments mp-right")


def chosen(context: Context) -> tuple[str, ...]:
    """Return the ladder of the URL, else the chosen baseline and run."""
    if context.choice.ladder:
        return context.choice.ladder
    return tuple(run for run in (context.choice.baseline, context.choice.run) if run)


def content(
    document: ComparedRuns, *, switch: html.Div | None = None, first: bool | None = None
) -> list[Any]:
    """Return all runs at a glance, their causes side by side, and each rung; several rungs are folded under
    their titles. `first` states whether each run is compared with the first; None means that this is read
    from the rungs."""
    rungs, runs = document.steps, document.runs
    if first is None:
        first = len(rungs) > 1 and all(rung.start == 0 for rung in rungs)
    struck = _struck(rungs, runs)
    parts: list[Any] = [_ladder(rungs, runs, struck, switch, first=first), _causes(runs, struck)]
    parts += [_devices(report) for report in document.runs]
    for row, rung in enumerate(rungs):
        changes = [change for change in document.kernels if change.step == row]
        inside = [
            _rung(row, rung, document),
            *(_changes(changes, by, f"{id}-{row}") for by, id in (("name", "kernels"), ("op", "ops"))),
        ]
        parts += inside if len(rungs) == 1 else [_folded(row, rung, document, inside)]
    for at, statements in enumerate(comparing.batches(document)):
        body = html.Ul([html.Li(sentence(said)) for said in statements])
        card = html.Div(body, className="mp-card", id=f"batches-{at}")
        parts.append(cards.section("Over the batch sizes", card, note="From the step times alone."))
    return parts


def _folded(row: int, rung: Rung, document: ComparedRuns, inside: list[Any]) -> html.Details:
    """Return a rung folded under its title: five unfolded rungs would make a page of a dozen screens."""
    names = [document.runs[at].run.name for at in (rung.start, rung.end)]
    said = "cannot be compared" if rung.refused else _times(rung, struck=bool(rung.labels))
    title = [
        html.Span(f"{names[0]} → {names[1]}", className="mp-strong"),
        html.Span([" ", said], className="mp-note"),
    ]
    return html.Details([html.Summary(title), *inside], className="mp-section mp-folded", id=f"rung-{row}")


def _struck(rungs: Sequence[Rung], reports: Sequence[Report]) -> dict[int, str]:
    """Return for each row of `runs` why a run cannot be compared with its other, or in what the two are
    unlike."""
    found = {}
    for rung in rungs:
        if rung.refused:
            found[rung.end] = rung.refused
        elif rung.labels:
            other = words.plain(reports[rung.start].run.name)
            found[rung.end] = f"unlike {other}: {'; '.join(rung.labels)}"
    return found


def _ladder(
    rungs: Sequence[Rung],
    reports: Sequence[Report],
    struck: dict[int, str],
    switch: html.Div | None,
    *,
    first: bool,
) -> html.Section:
    """Return a dot for each run's step on one scale, with its speedup over the run that it is compared with.

    A run that cannot be compared is struck through, with the reason below."""
    steps = [step_ns(report) for report in reports]
    most = max((step for step in steps if step is not None), default=0.0)
    heads = ("Run", f"0 to {words.duration(most)}" if most else "", "Step", "Examples/s",
             "Against the first" if first else "Against the one before",
             "Tensor Cores", "Peak memory")  # fmt: skip
    head = [
        html.Td(text, className="mp-note") if at == 1
        else html.Th(text, scope="col", className="mp-number" if at > 1 else "")
        for at, text in enumerate(heads)
    ]  # fmt: skip
    body = [_run_row(row, rungs, reports, struck.get(row), most, first=first) for row in range(len(reports))]
    table = html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="mp-table", id="ladder")
    said = [f"{reports[row].run.name}: {reason}" for row, reason in struck.items()]
    return cards.section(
        "All runs",
        html.Div(table, className="mp-card mp-scroll"),
        cards.remarks(said),
        note="dot: one step; tick: the step attainable on its card",
        head=[switch],
    )


def _run_row(
    row: int,
    rungs: Sequence[Rung],
    reports: Sequence[Report],
    struck: str | None,
    most: float,
    *,
    first: bool,
) -> html.Tr:
    """Return the row of one run. `struck`: why it cannot be compared; `most`: the longest step of all."""
    report, rung = reports[row], next((rung for rung in rungs if rung.end == row), None)
    name, step = words.plain(report.run.name), step_ns(report)
    share = report.tensor_core.ratio if report.tensor_core else None
    against: Any = ""
    if rung is not None:
        against = "refused" if rung.refused else _times(rung, struck=struck is not None)
        if not first and rung.start != row - 1:
            base = words.plain(reports[rung.start].run.name)
            against = [against, html.Div(f"against {base}", className="mp-note")]
    numbers = (
        or_dash(step, words.duration),
        or_dash(comparing.examples_per_s(rungs, row), lambda rate: words.count(round(rate))),
        against,
        or_dash(share, words.percent),
        or_dash(recorded_peak(report), words.size),
    )
    title = name if struck is None else html.Del(name, title=struck)
    return html.Tr(
        [
            html.Th(title, scope="row"),
            html.Td(_dot(report, step, most)),
            *(html.Td(text, className="mp-number") for text in numbers),
        ],
        className="mp-struck" if struck is not None else "",
    )


def _times(rung: Rung, *, struck: bool) -> Any:
    """Return the speedup, struck through where the two runs are unlike: it is then not an effect of
    precision."""
    undecided = difference_of(rung) == "not known"
    times = words.NOT_KNOWN if undecided else or_dash(rung.observed, words.speedup)
    return html.Del(times) if struck and rung.observed is not None else times


def _dot(report: Report, step: float | None, most: float) -> html.Span | None:
    if step is None or not most:
        return None
    marks = [html.Span(className="mp-dot", style={"left": f"{100 * step / most:.2f}%"})]
    facts = report.facts
    attainable = None if facts.unlike else facts.attainable_step_ns
    if attainable is not None and attainable <= most:
        marks.append(html.Span(className="mp-dot-reach", style={"left": f"{100 * attainable / most:.2f}%"}))
    return html.Span(marks, className="mp-dots")


_MOST_CAUSES = 12


def _causes(reports: Sequence[Report], struck: dict[int, str]) -> html.Section | None:
    """Return what each cause would give back in each run: rows are causes, columns runs."""
    titles: dict[str, str] = {}
    gains: dict[str, dict[int, float | None]] = {}
    for row, report in enumerate(reports):
        titles |= {found.code: found.title for found in report.findings}
        for cause in report.facts.causes:
            gains.setdefault(cause.code, {})[row] = cause.gain_ns_per_step
    if not gains:
        return None
    order = sorted(gains, key=lambda code: -max((gain or 0.0) for gain in gains[code].values()))
    most = max((gain or 0.0) for by in gains.values() for gain in by.values()) or 1.0
    body = []
    for code in order[:_MOST_CAUSES]:
        name = html.Th([words.plain(titles[code]), " ", html.Span(code, className="mp-code")], scope="row")
        cells = [
            html.Td(
                _cell(report, code, gains[code].get(row), row in gains[code], most), className="mp-number"
            )
            for row, report in enumerate(reports)
        ]
        body.append(html.Tr([name, *cells]))
    heads = [
        html.Th(html.Del(name) if row in struck else name, scope="col", className="mp-number", title=name)
        for row, name in enumerate(words.plain(report.run.name) for report in reports)
    ]
    head = html.Thead(html.Tr([html.Th("Cause", scope="col"), *heads]))
    table = html.Table([head, html.Tbody(body)], className="mp-table mp-matrix", id="causes-by-run")
    left = len(order) - _MOST_CAUSES
    more = (
        html.P(f"{words.plural(left, 'smaller cause')} left out.", className="mp-note") if left > 0 else None
    )
    note = (
        "gain per step of its remedy, after those before it in the plan; –: not found; ?: could not be judged"
    )
    return cards.section("Causes by run", html.Div([table, more], className="mp-card mp-scroll"), note=note)


def _cell(report: Report, code: str, gain: float | None, found: bool, most: float) -> Any:
    if found and gain is not None:
        mark = html.Span(className="mp-matrix-bar", style={"width": f"{100 * gain / most:.1f}%"})
        return [mark, html.Span(words.duration(gain))]
    if found:
        return "found, no time"
    if any(item.code == code for item in report.unable):
        return html.Span("?", title="could not be judged")
    return html.Span("–", title="not found")


_ORDER = ("unit", "off", "other", "unknown", "wait")


def _devices(report: Report) -> html.Section | None:
    """Return several devices of one run as small multiples on one scale, with the device that the others wait
    for marked."""
    time = report.time
    if time is None or len(time.devices) < 2:
        return None
    most = max(device.step_ns for device in time.devices) or 1.0
    stragglers = report.communication.stragglers if report.communication is not None else ()
    slow = [(each.host, each.device) for each in stragglers]
    items = []
    for device in time.devices:
        sums: dict[str, float] = {}
        for part in device.slices:
            for _, kind, _, ns in waterfall.pieces(part):
                sums[kind] = sums.get(kind, 0.0) + max(ns, 0.0)
        at, fills = 0.0, []
        for kind in _ORDER:
            if ns := sums.get(kind, 0.0):
                place = {"left": f"{100 * at / most:.2f}%", "width": f"{100 * ns / most:.2f}%"}
                fills.append(
                    html.Span(className=f"mp-fill mp-k-{kind}", style=place, title=words.duration(ns))
                )
                at += ns
        straggles = (device.host, device.device) in slow
        name = several_devices.name_of(device.device, device.host)
        said = f"busy {words.duration(device.busy_ns)} of {words.duration(device.step_ns)}"
        title = [html.Span(name), " ", html.Span(said, className="mp-note")]
        if straggles:
            title += [" ", html.Span("straggler", className="mp-chip mp-chip-bad")]
        items.append(
            html.Li(
                [html.Div(title), html.Span(fills, className="mp-bar-track mp-multiple")],
                **{"data-device": name, "data-straggler": str(straggles).lower()},
            )
        )
    name = report.run.name
    return cards.section(
        f"Devices of {name}", html.Ul(items, className="mp-card mp-multiples", id=f"devices-{name}"),
        note="a step of each on one scale: Tensor Cores, matrix work off Tensor Cores, other work, waiting",
    )  # fmt: skip


def _rung(row: int, rung: Rung, document: ComparedRuns) -> html.Section:
    reports = document.runs
    start, end = reports[rung.start], reports[rung.end]
    title = f"{start.run.name} → {end.run.name}"
    if rung.refused:
        return cards.section(title, cards.empty("These runs cannot be compared", rung.refused))
    labels, card_note = rung.labels, rung.cards
    doubts = [*([f"The runs are unlike: {'; '.join(labels)}"] if labels else []), *(rung.notes or [])]
    if rung.windows is not None and None in (step_ns(start), step_ns(end)):
        return _windows(row, title, rung.windows, doubts, rung.findings)
    return cards.section(
        title,
        cards.warnings(doubts) if doubts else None,
        cards.remarks([*comparing.answer(rung), *([card_note] if card_note else [])]),
        cards.tiles(
            _tile(
                "Speedup",
                rung.observed,
                words.speedup,
                _interval(rung),
                f"rung-{row}-observed",
                _without_speedup(rung),
            ),
            _attainable(row, rung),
            _tile("Step before", step_ns(start), words.duration, "", f"rung-{row}-from"),
            _tile("Step after", step_ns(end), words.duration, "", f"rung-{row}-to"),
        ),
        _learning(row, rung, start, end),
        _gap(row, rung, start, end),
        _remedies(row, comparing.remedies(document, rung)),
        html.Div(cards.remarks(comparing.matching(rung)), id=f"matching-{row}"),
        *(cards.folded(item) for item in rung.findings),
        cards.not_possible(end),
    )


def _remedies(row: int, lines: list[str]) -> Any:
    """Return what the earlier report promised of its remedies, and what came of that."""
    if not lines:
        return None
    body = html.Ul([html.Li(sentence(line)) for line in lines])
    title = html.H3(comparing.REMEDIES, className="mp-figure-title")
    return html.Div([title, body], className="mp-card", id=f"remedies-{row}")


def _windows(
    row: int, title: str, found: WindowsOfTwo, doubts: list[str], findings: Sequence[Finding]
) -> html.Section:
    """Return two whole windows side by side, where not both runs have steps."""
    head = html.Tr(
        [html.Th(text, className="mp-number" if at else "") for at, text in enumerate(two_windows.COLUMNS)]
    )
    body = [
        html.Tr(
            [
                html.Td(f"\u2003{each.label}" if each.part else each.label),
                *(html.Td(text, className="mp-number") for text in (each.before, each.after, each.times)),
            ]
        )
        for each in two_windows.rows(found)
    ]
    table = html.Table([html.Thead(head), html.Tbody(body)], className="mp-table", id=f"windows-{row}")
    return cards.section(
        f"{title}: windows, not steps",
        cards.warnings(doubts) if doubts else None,
        cards.remarks(found.statements),
        html.Div(table, className="mp-card mp-scroll"),
        *(cards.finding(item) for item in findings),
    )


def _learning(row: int, rung: Rung, start: Report, end: Report) -> Any:
    """Return the losses after as many applied updates, and what they show; None where no step was
    recorded."""
    found = rung.learning
    if found is None or (start.steps is None and end.steps is None):
        return None
    said = [text for text in (found.text, found.per_update_text) if text]
    drawn = figures.losses(found, (start.run.name, end.run.name))
    doubts = cards.warnings(said) if found.severity in ("warning", "error") else cards.remarks(said)
    parts: list[Any] = [html.Div(doubts, id=f"learning-{row}")]
    if drawn is not None:
        note = "Means over stretches of steps, where Steps shows Keras' mean over the epoch so far."
        note += " Shaded: the part that is compared."
        parts.append(graph(drawn, f"losses-{row}", title="Loss against applied updates", note=note))
    return html.Div(parts)


def _tile(label: str, value: Any, form: Any, detail: str, id: str, why: str = "") -> html.Div:
    if value is None:
        return cards.missing(label, sentence(why or words.NOT_KNOWN))
    return cards.tile(label, form(value), detail, id=id)


def _attainable(row: int, rung: Rung) -> html.Div:
    """Return the attainable speedup with the host as it is, as Why and Runs show it; what the device alone
    could reach stands below."""
    lowered = lowered_by_host(rung)
    value = rung.expected_with_host if lowered else rung.expected
    alone = rung.expected if lowered else None
    detail = f"{words.speedup(alone)} by the device alone" if alone is not None else ""
    return _tile(
        "Attainable", value, words.speedup, detail, f"rung-{row}-expected", rung.absent.get("expected", "")
    )


def _without_speedup(rung: Rung) -> str:
    """Return why there is no speedup, and what the profiled steps show; empty where no reason is known."""
    why = rung.absent.get("observed", "")
    return f"{why}{profiled_steps(rung)}" if why else ""


def _interval(rung: Rung) -> str:
    ends = rung.interval
    said = f"{interval_covers(rung)}: {words.speedups(*ends)}" if ends else rung.absent.get("interval", "")
    if difference_of(rung) == "not known":
        said += "; the timings do not show which is faster"
    return f"{said}{profiled_steps(rung)}".removeprefix("; ")


def _gap(row: int, rung: Rung, start: Report, end: Report) -> Any:
    end_ns = step_ns(end)
    known = rung.expected is not None
    slices = rung.slices
    rows = waterfall.gap(slices, end_ns, step_ns(start), attainable=known) if end_ns is not None else []
    if not rows:
        return cards.empty(
            "No gap to split", "This needs a trace of both runs, and the attainable rates of this device."
        )
    note = (
        "from the attainable step to the observed one; hatched: computed, not measured"
        if known
        else "from the first run's step to the second's; the attainable step is not known"
    )
    return cards.section(
        "Where the gap lies", html.Div(bars.chart(rows, f"gap-{row}"), className="mp-card"), note=note
    )


_TITLES = {"name": "Kernels that changed", "op": "Ops that changed"}


def _changes(rows: list[KernelChange], by: str, id: str) -> html.Section | None:
    """Return the changes of kernels, matched by name, or of ops: both count the same time, so they never
    share a figure."""
    same = [row for row in rows if row.by == by]
    if not same:
        return None
    rows_ = figures.changes(same)
    drawn = bars.chart(rows_, f"{id}-figure", line_ns=rows_[0].start_ns) if rows_ else None
    return cards.section(
        _TITLES[by],
        html.Div(drawn, className="mp-card") if drawn is not None else None,
        html.Details(
            [html.Summary(f"All {words.count(len(same))}, as a table"), _table(same, f"{id}-table")]
        ),
        note="the largest differences per step; left: less time than before, right: more" if drawn else "",
    )


def _table(rows: list[KernelChange], id: str) -> html.Div:
    """Return the rows that changed most, as a table that needs no script."""
    largest = sorted(map(_flat, rows), key=lambda row: -abs(row["change_ns"]))[:_MOST_ROWS]
    body = []
    for row in largest:
        times = (row[f"{key}_text"] for key in ("from_ns", "to_ns", "change_ns"))
        body.append(html.Tr([html.Td(row["key"]), *(html.Td(text, className="mp-number") for text in times)]))
    heads = [
        html.Th(each, scope="col", className="mp-number" if at else "")
        for at, each in enumerate(_CHANGE_HEADS)
    ]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="mp-table", id=id)
    left = len(rows) - len(largest)
    more = html.P(f"{left} smaller ones left out.", className="mp-note") if left else None
    return html.Div([table, more], className="mp-card mp-scroll")


def _flat(item: KernelChange) -> dict[str, Any]:
    change = figures.change_ns(item)
    texts = {f"{side}_text": or_dash(ns, words.duration)
             for side, ns in (("from_ns", item.from_ns), ("to_ns", item.to_ns))}  # fmt: skip
    sign = "+" if change > 0 else "−" if change < 0 else ""
    row: dict[str, Any] = to_json(item)
    text = f"{sign}{words.duration(abs(change))}"
    return row | texts | {"change_ns": change, "change_ns_text": text}


def register(app: dash.Dash, source: RunSource) -> None:
    """Add the callbacks: the chooser writes the ladder into the URL, and the URL determines the page."""

    def choose_ladder(runs: list[str] | None, search: str | None) -> Any:
        entries = listed(source)[0]
        now = choices.read(search, entries)
        shown = now.ladder or tuple(run for run in (now.baseline, now.run) if run)
        ladder = tuple(runs or ())
        if ladder in (shown, _offered(shown, entries)):
            return dash.no_update
        return replace(now, ladder=ladder).query()

    app.callback(
        Output("url", "search", allow_duplicate=True),
        Input("compare-runs", "value"),
        State("url", "search"),
        prevent_initial_call=True,
    )(choose_ladder)


PAGE = Page("/compare", "Compare", layout, register)
