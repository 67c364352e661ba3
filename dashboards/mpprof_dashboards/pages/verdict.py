"""Verdict: the answer first, then where the time goes, why, and what would give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.report import limits, window, words
from mpprof.report.content import gap, lowered_by_host, plan, recorded_peak, step_ns, time_doubt
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import placement, waterfall

if TYPE_CHECKING:
    from mpprof.model import document as doc


def layout(context: Context) -> list[Any]:
    document = context.report()
    name = context.name_of(context.choice.baseline) if context.choice.baseline else None
    return content(document, baseline=name, export=f"/report.html{context.choice.query()}")


def content(document: doc.Report, *, baseline: str | None = None, export: str = "") -> list[Any]:
    """The verdict of a report. `baseline` is the chosen baseline's name, `export` where to save it from."""
    return [
        _hero(document, baseline, export),
        cards.warnings(document["warnings"]),
        tiles(document),
        _plan(document),
        _findings(document),
        _time(document),
        _matrix(document),
        _bounds(document),
        _unable(document),
        _clear(document),
        _not_applicable(document),
        _absent(document),
    ]


def _hero(document: doc.Report, baseline: str | None, export: str) -> html.Header:
    run = document["run"]
    batch = run["batch_size"]
    facts = [
        run["policy"], words.computes(run), run["backend"], run["device"],
        f"batch {words.count(batch)}" if batch is not None else None,
        words.compiled(run["backend"], run["jit_compile"]),
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


def _against(document: doc.Report, baseline: str | None) -> str:
    speedup = document["speedup"]
    if baseline is None and speedup and speedup["baseline"] == "measured":
        baseline = speedup["baseline_id"]
    return f"against {baseline}" if baseline else "no baseline chosen"


def tiles(document: doc.Report) -> html.Div:
    """The five numbers that everybody asks for, each with what qualifies it or why it is missing."""
    return cards.tiles(
        _step_tile(document), _speedup_tile(document), _tensor_core_tile(document), _skip_tile(document),
        _memory_tile(document),
    )  # fmt: skip


def _step_tile(document: doc.Report) -> html.Div:
    time, steps, value = document["time"], document["steps"], step_ns(document)
    if value is None and "window" in document:
        found = document["window"]
        detail = f"no step can be told apart; busy {words.percent(found['busy_ns'] / found['span_ns'])}"
        return cards.tile("Whole window", words.duration(found["span_ns"]), detail, id="window-span")
    if value is None:
        return cards.missing("Step time", why_absent(document, "steps.median_ns", "steps", "time"))
    p95 = steps["p95_ns"] if steps else None
    spread = f"95th percentile {words.duration(p95)}" if p95 is not None else ""
    basis = "of the profiled window" if time and time["basis"] == "window" else "median of steady steps"
    return cards.tile(
        "Step time", words.duration(value), "; ".join(t for t in (basis, spread) if t), id="step-time"
    )


def _speedup_tile(document: doc.Report) -> html.Div:
    speedup = document["speedup"]
    if not speedup:
        return cards.missing("Speedup", why_absent(document, "speedup"))
    attainable, ceiling = document["facts"]["attainable"], speedup["ceiling"]
    if speedup["observed"] is not None:
        low_high = speedup["interval"]
        notes = [
            f"95 % interval {words.speedup(low_high[0])} to {words.speedup(low_high[1])}" if low_high else "",
            f"{words.speedup(attainable)} attainable" if attainable is not None else "",
            f"{words.speedup(ceiling)} ceiling" if attainable is None and ceiling is not None else "",
            f"{words.speedup(speedup['expected'])} by the device alone" if lowered_by_host(speedup) else "",
        ]
        return cards.tile(
            "Speedup over the baseline", words.speedup(speedup["observed"]),
            "; ".join(note for note in notes if note), id="speedup",
        )  # fmt: skip
    estimated = speedup["estimated"]
    if estimated:
        text = f"{words.speedup(estimated['low'])} to {words.speedup(estimated['high'])}"
        return cards.tile("Speedup (estimated)", text, "no baseline was measured", id="speedup")
    return cards.missing("Speedup", why_absent(document, "speedup.observed", "speedup"))


def _tensor_core_tile(document: doc.Report) -> html.Div:
    share = document["tensor_core"]
    label = "On Tensor Cores"
    if not share:
        return cards.missing(label, why_absent(document, "tensor_core"))
    unknown = f"unknown: {words.percent(share['unknown_ratio'])} of kernel time"
    if share["ratio"] is None:
        return cards.missing(label, f"{share['reason'] or 'no matrix work'}; {unknown}")
    by = ", ".join(f"{name} {words.duration(ns)}" for name, ns in share["by_precision"].items())
    of = "of the matrix time" + (" in the whole window" if "of" in share else "")
    detail = "; ".join(text for text in (of, by, unknown) if text)
    return cards.tile(label, words.percent(share["ratio"]), detail, id="tensor-core-share")


def _skip_tile(document: doc.Report) -> html.Div:
    steps = document["steps"]
    if steps is None or steps["skipped"] is None:
        return cards.missing("Skipped updates", why_absent(document, "steps.skipped", "steps"))
    scale = steps["loss_scale"]
    count = f"{words.count(steps['skipped'])} of {words.count(steps['count'])}"
    detail = f"{count} steps" + (f"; loss scale now {words.scale(scale['last'])}" if scale else "")
    return cards.tile("Skipped updates", words.percent(steps["skipped_ratio"]), detail, id="skipped")


def _memory_tile(document: doc.Report) -> html.Div:
    peak, memory = recorded_peak(document), document["memory"]
    if peak is None and memory:
        peak = memory["peak_bytes"]
    if peak is None:
        return cards.missing("Peak memory", why_absent(document, "steps.peak_memory_bytes", "memory"))
    saved = memory["saved_bytes"] if memory else None
    detail = f"{words.size(saved)} less than the baseline" if saved is not None else "allocated on the device"
    return cards.tile("Peak memory", words.size(peak), detail, id="peak-memory")


def _time(document: doc.Report) -> html.Section:
    title, time = "Where the step goes", document["time"]
    if "window" in document:
        return _window(document["window"])
    figure = waterfall.account(time) if time else None
    if figure is None or time is None:
        return cards.section(
            title, cards.empty("No account of the step", why_absent(document, "time"), _HOW_TO_PROFILE)
        )
    basis = "the CPU's executor threads" if time["basis"] == "host" else "the device"
    step = "profiled step" if "unlike" in time else "step"
    note = f"Every instant of a {step} on {basis}, in exactly one class. Crossed: nothing identifies it."
    drawing = graph(figure, "waterfall", title=f"The {step}, class by class", note=note)
    doubt = time_doubt(time)
    remarks = [*([doubt] if doubt else []), *time["notes"]]
    return cards.section(title, drawing, _estimate(document), cards.remarks(remarks))


def _window(found: doc.Window) -> html.Section:
    """The whole window, where no step can be told apart: its title says so."""
    note = "Every instant of the window, in exactly one class; not a step. Crossed: nothing identifies it."
    figure = waterfall.window(found)
    body = [*window.lines(found), *window.what_is_not_said(found)]
    return cards.section(
        "Where the window goes",
        graph(figure, "waterfall", title=window.heading(found), note=note) if figure is not None else None,
        html.Div(html.Ul([html.Li(sentence(line)) for line in body]), className="mp-card", id="window"),
        cards.remarks(found["notes"]),
    )


_HOW_TO_PROFILE = 'Record a profile window: MPProfilerCallback(logdir, profile_steps="auto").'


def _estimate(document: doc.Report) -> html.Div | None:
    """Without a measured speedup: why, and what the estimate rests on."""
    speedup = document["speedup"]
    if speedup and speedup["observed"] is not None:
        return None
    parts: list[Any] = [
        html.Div("Why there is no measured speedup", className="mp-overline"),
        html.P(why_absent(document, "speedup.observed", "speedup")),
    ]
    if speedup and (estimated := speedup["estimated"]):
        parts.append(html.Div("What the estimate rests on", className="mp-overline mp-next"))
        parts.append(html.Ul([html.Li(sentence(text)) for text in estimated["assumptions"]]))
    return html.Div(parts, className="mp-card")


def _matrix(document: doc.Report) -> html.Section | None:
    figure = placement.matrix_work(document)
    if figure is None:
        return None
    note, share = "By the unit and the precision it ran in.", document["tensor_core"]
    if share is None or share["ratio"] is None:
        reason = share["reason"] if share else None
        why = sentence(reason) if reason else why_absent(document, "tensor_core")
        note += f" There is no Tensor Core share: {why}"
    else:
        note += " Ordinary cores are the fallback where Tensor Cores could not be used."
    return cards.section("Matrix work", graph(figure, "matrix-work", title="Where it ran", note=note))


def _plan(document: doc.Report) -> html.Section | None:
    """What each cause costs, in the order to mend them, and what all of them together would give."""
    figure, lines = waterfall.causes(document["facts"]), plan(document)
    if figure is None and not lines:
        return None
    note = "What each costs after those above it are mended. Hatched: computed, not measured."
    if (speedup := document["speedup"]) and (way := gap(speedup)):
        note += f" {sentence(way)}"
    body = html.Ul([html.Li(sentence(line.replace("->", "→"))) for line in lines])
    return cards.section(
        "What if",
        graph(figure, "causes", title="From this run to the step without its causes", note=note)
        if figure is not None
        else None,
        html.Div(body, className="mp-card", id="whatif") if lines else None,
        note="Estimated.",
    )


def _findings(document: doc.Report) -> html.Section:
    findings = document["findings"]
    if not findings:
        return cards.section(
            "Findings",
            cards.empty("No cause was found", "No rule that could be judged found anything wrong."),
        )
    return cards.section(
        "Findings", *(cards.finding(item) for item in findings), note="In the order to mend them."
    )


def _bounds(document: doc.Report) -> html.Section | None:
    bounds = document["bounds"]
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


def _unable(document: doc.Report) -> html.Section | None:
    table = cards.unable(document["unable"])
    return table and cards.section(
        "Could not be judged", table, note="Open, not clear: this is what was missing."
    )


def _clear(document: doc.Report) -> html.Section | None:
    clear = document["clear"]
    if not clear:
        return None
    codes = html.Ul([html.Li(limits.about(code), title=code) for code in clear], className="mp-codes")
    return cards.section("Looked at and clear", html.Div(codes, className="mp-card"))


def _not_applicable(document: doc.Report) -> html.Section | None:
    lines = limits.not_applicable(document)
    return cards.section("Does not apply", cards.remarks(lines)) if lines else None


def _absent(document: doc.Report) -> html.Section | None:
    absent = document["absent"]
    if not absent:
        return None
    rows = [
        (limits.field_words(field), sentence(why))
        for field, why in absent.items()
        if not field.startswith("facts.")
    ]
    title = f"{words.count(len(rows))} values, and why each is missing"
    return cards.section("Not measured", html.Details([html.Summary(title), cards.pairs(rows)]))


PAGE = Page("/", "Verdict", layout)
