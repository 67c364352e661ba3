"""Verdict: the answer first, then where the time goes, why, and what would give it back."""

from __future__ import annotations

from typing import Any

from dash import html

from mpprof.model.source import Document
from mpprof.report import words
from mpprof.report.content import gap, lowered_by_host, plan
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import placement, waterfall


def layout(context: Context) -> list[Any]:
    document = context.report()
    name = context.name_of(context.choice.baseline) if context.choice.baseline else None
    return content(document, baseline=name, export=f"/report.html{context.choice.query()}")


def content(document: Document, *, baseline: str | None = None, export: str = "") -> list[Any]:
    """The verdict of a report. `baseline` is the chosen baseline's name, `export` where to save it from."""
    return [
        _hero(document, baseline, export),
        cards.warnings(document.get("warnings") or []),
        tiles(document),
        _time(document),
        _matrix(document),
        _plan(document),
        _findings(document),
        _bounds(document),
        _unable(document),
        _clear(document),
        _absent(document),
    ]


def _hero(document: Document, baseline: str | None, export: str) -> html.Header:
    run = document["run"]
    batch = run.get("batch_size")
    facts = [
        run.get("policy"), run.get("backend"), run.get("device"),
        f"batch {words.count(batch)}" if batch is not None else None,
        words.compiled(run.get("backend"), run.get("jit_compile")),
        _against(document, baseline),
    ]  # fmt: skip
    return html.Header(
        [
            html.Div(run["name"], className="mp-overline"),
            html.H1(document["verdict"], className="mp-verdict", id="verdict"),
            html.P(" ".join(document["explanation"]), className="mp-note", id="explanation")
            if document.get("explanation")
            else None,
            html.Div(
                [
                    html.Ul([html.Li(str(fact)) for fact in facts if fact], className="mp-facts"),
                    html.A("Save as HTML", href=export, download="", className="mp-button", id="export")
                    if export
                    else None,
                ],
                className="mp-hero-foot",
            ),
        ],
        className="mp-hero",
    )


def _against(document: Document, baseline: str | None) -> str:
    speedup = document.get("speedup") or {}
    if baseline is None and speedup.get("baseline") == "measured":
        baseline = speedup.get("baseline_id")
    return f"against {baseline}" if baseline else "no baseline chosen"


def tiles(document: Document) -> html.Div:
    """The five numbers that everybody asks for, each with what qualifies it or why it is missing."""
    return cards.tiles(
        _step_tile(document), _speedup_tile(document), _tensor_core_tile(document), _skip_tile(document),
        _memory_tile(document),
    )  # fmt: skip


def _step_tile(document: Document) -> html.Div:
    time, steps = document.get("time"), document.get("steps") or {}
    value = time["step_ns"] if time else steps.get("median_ns")
    if value is None:
        return cards.missing("Step time", why_absent(document, "steps.median_ns", "steps", "time"))
    spread = f"95th percentile {words.duration(steps['p95_ns'])}" if steps.get("p95_ns") is not None else ""
    basis = "of the profiled window" if time and time.get("basis") == "window" else "median of steady steps"
    return cards.tile(
        "Step time", words.duration(value), "; ".join(t for t in (basis, spread) if t), id="step-time"
    )


def _speedup_tile(document: Document) -> html.Div:
    speedup = document.get("speedup")
    if not speedup:
        return cards.missing("Speedup", why_absent(document, "speedup"))
    expected, ceiling = speedup.get("expected"), speedup.get("ceiling")
    if speedup.get("observed") is not None:
        low_high = speedup.get("interval")
        notes = [
            f"95 % interval {words.speedup(low_high[0])} to {words.speedup(low_high[1])}" if low_high else "",
            f"{words.speedup(expected)} expected" if expected is not None else "",
            f"{words.speedup(ceiling)} ceiling" if expected is None and ceiling is not None else "",
            f"{words.speedup(speedup['expected_with_host'])} with this host"
            if lowered_by_host(speedup)
            else "",
        ]
        return cards.tile(
            "Speedup over the baseline", words.speedup(speedup["observed"]),
            "; ".join(note for note in notes if note), id="speedup",
        )  # fmt: skip
    estimated = speedup.get("estimated")
    if estimated:
        text = f"{words.speedup(estimated['low'])} to {words.speedup(estimated['high'])}"
        return cards.tile("Speedup (estimated)", text, "no baseline was measured", id="speedup")
    return cards.missing("Speedup", why_absent(document, "speedup.observed", "speedup"))


def _tensor_core_tile(document: Document) -> html.Div:
    share = document.get("tensor_core")
    label = "On Tensor Cores"
    if not share:
        return cards.missing(label, why_absent(document, "tensor_core"))
    unknown = f"unknown: {words.percent(share.get('unknown_ratio'))} of kernel time"
    if share.get("ratio") is None:
        return cards.missing(label, f"{share.get('reason') or 'no matrix work'}; {unknown}")
    by = ", ".join(f"{name} {words.duration(ns)}" for name, ns in (share.get("by_precision") or {}).items())
    of = "of the matrix time" + (" in the whole window" if share.get("of") == "window" else "")
    detail = "; ".join(text for text in (of, by, unknown) if text)
    return cards.tile(label, words.percent(share["ratio"]), detail, id="tensor-core-share")


def _skip_tile(document: Document) -> html.Div:
    steps = document.get("steps") or {}
    if steps.get("skipped") is None:
        return cards.missing("Skipped updates", why_absent(document, "steps.skipped", "steps"))
    scale = steps.get("loss_scale")
    count = f"{words.count(steps['skipped'])} of {words.count(steps['count'])}"
    detail = f"{count} steps" + (f"; loss scale now {words.scale(scale['last'])}" if scale else "")
    return cards.tile("Skipped updates", words.percent(steps.get("skipped_ratio")), detail, id="skipped")


def _memory_tile(document: Document) -> html.Div:
    peak = (document.get("steps") or {}).get("peak_memory_bytes")
    memory = document.get("memory") or {}
    peak = memory.get("peak_bytes") if peak is None else peak
    if peak is None:
        return cards.missing("Peak memory", why_absent(document, "steps.peak_memory_bytes", "memory"))
    saved = memory.get("saved_bytes")
    detail = f"{words.size(saved)} less than the baseline" if saved is not None else "allocated on the device"
    return cards.tile("Peak memory", words.size(peak), detail, id="peak-memory")


def _time(document: Document) -> html.Section:
    title = "Where the step goes"
    figure = waterfall.of_report(document)
    if figure is None:
        return cards.section(
            title, cards.empty("No account of the step", why_absent(document, "time"), _HOW_TO_PROFILE)
        )
    if waterfall.has_gap(document):
        if waterfall.has_expectation(document["speedup"]):
            start, graph_title = "the step this run could reach", "From expected to observed"
            drawn = " Hatched: computed, not measured."
        else:
            start, graph_title = "the baseline's step", "From the baseline to this run"
            drawn = " What could be reached is not known."
        note = f"From {start} to the one it took. A bar that points left gives time back.{drawn}"
        note += f" In all, {gap(document['speedup'])}."
    else:
        time = document["time"]
        basis = "the CPU's executor threads" if time["basis"] == "host" else "the device"
        note = f"Every instant of a step on {basis}, in exactly one class. Crossed: nothing identifies it."
        graph_title = "The step, class by class"
    estimate = None if waterfall.has_gap(document) else _estimate(document)
    notes = document["time"].get("notes") or []
    return cards.section(
        title, graph(figure, "waterfall", title=graph_title, note=note), estimate, cards.remarks(notes)
    )


_HOW_TO_PROFILE = 'Record a profile window: MPProfilerCallback(logdir, profile_steps="auto").'


def _estimate(document: Document) -> html.Div | None:
    """Without a measured speedup: why, and what the estimate rests on."""
    speedup = document.get("speedup") or {}
    estimated = speedup.get("estimated")
    if speedup.get("observed") is not None:
        return None
    parts: list[Any] = [
        html.Div("Why there is no measured speedup", className="mp-overline"),
        html.P(why_absent(document, "speedup.observed", "speedup")),
    ]
    if estimated:
        parts.append(html.Div("What the estimate rests on", className="mp-overline mp-next"))
        parts.append(html.Ul([html.Li(sentence(text)) for text in estimated["assumptions"]]))
    return html.Div(parts, className="mp-card")


def _matrix(document: Document) -> html.Section | None:
    figure = placement.matrix_work(document)
    if figure is None:
        return None
    note, share = "By the unit and the precision it ran in.", document.get("tensor_core") or {}
    if share.get("ratio") is None:
        why = sentence(share["reason"]) if share.get("reason") else why_absent(document, "tensor_core")
        note += f" There is no Tensor Core share: {why}"
    else:
        note += " Ordinary cores are the fallback where Tensor Cores could not be used."
    return cards.section("Matrix work", graph(figure, "matrix-work", title="Where it ran", note=note))


def _plan(document: Document) -> html.Section | None:
    """What all remedies together would give, in the order to apply them."""
    lines = plan(document)
    if not lines:
        return None
    body = html.Ul([html.Li(sentence(line.replace("->", "→"))) for line in lines])
    return cards.section("What if", html.Div(body, className="mp-card", id="whatif"), note="Estimated.")


def _findings(document: Document) -> html.Section:
    findings = document["findings"]
    if not findings:
        return cards.section(
            "Findings",
            cards.empty("No cause was found", "No rule that could be judged found anything wrong."),
        )
    return cards.section("Findings", *(cards.finding(item) for item in findings), note="Worst first.")


def _bounds(document: Document) -> html.Section | None:
    bounds = document.get("bounds") or []
    if not bounds:
        return None
    rows = [
        (
            f"{item['statement']} {words.quantity(item['value'], item['unit'])}",
            "if " + "; ".join(item["assumptions"]),
        )
        for item in bounds
    ]
    return cards.section("What the records alone prove", cards.pairs(rows))


def _unable(document: Document) -> html.Section | None:
    table = cards.unable(document.get("unable") or [])
    return table and cards.section(
        "Could not be judged", table, note="Open, not clear: this is what was missing."
    )


def _clear(document: Document) -> html.Section | None:
    clear = document.get("clear") or []
    if not clear:
        return None
    codes = html.Ul([html.Li(code) for code in clear], className="mp-codes")
    return cards.section("Looked at and clear", html.Div(codes, className="mp-card"))


def _absent(document: Document) -> html.Section | None:
    absent = document.get("absent") or {}
    if not absent:
        return None
    rows = [(str(field), sentence(str(reason))) for field, reason in absent.items()]
    title = f"{words.count(len(rows))} values, and why each is missing"
    return cards.section("Not measured", html.Details([html.Summary(title), cards.pairs(rows)]))


PAGE = Page("/", "Verdict", layout)
