"""Why: the answer in one figure and one sentence, the causes that add up, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from mpprof.model.account import tells
from mpprof.report import units, whole_window, without_finding, words
from mpprof.report.content import (
    PAYING_RATIO,
    SMALL_RATIO,
    loss_scale,
    lost_per_update,
    matrix_units,
    own_ns,
    peak,
    time_doubt,
    time_per,
    time_slices,
    time_whole,
    undecided,
)
from mpprof_dashboards import theme
from mpprof_dashboards.components import bars, cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.remedies import after_note, proof_href, remedies
from mpprof_dashboards.components.strip import legend, strip
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import waterfall

if TYPE_CHECKING:
    from mpprof.model.account import Slice
    from mpprof.model.answer import Answer
    from mpprof.model.finding import Finding
    from mpprof.model.report import Report, Time, Window
    from mpprof.model.timeline import Timeline

STRIP_WIDTH = 1200
"""Pixels into which the step is merged: what is shorter cannot be seen."""
MOST_CAUSES = 6
MOST_LAYERS = 2


def layout(context: Context) -> list[Any]:
    document = context.report()
    entry = context.entry
    return content(
        document,
        baseline=context.name_of(context.choice.baseline) if context.choice.baseline else None,
        query=context.choice.query(),
        state=entry.state if entry else None,
        timeline=context.source.timeline(context.run, width=STRIP_WIDTH),
    )


def content(
    document: Report,
    *,
    baseline: str | None = None,
    query: str = "",
    state: str | None = None,
    timeline: Timeline | None = None,
) -> list[Any]:
    """Return the page of a report. `baseline` is the chosen baseline's name; without `query` nothing is a
    link."""
    return [
        _hero(document, baseline, state),
        _causes(document, query),
        remedies(document, query),
        _strip(timeline, query),
        cards.warnings(document.warnings),
        _time(document),
        _matrix(document),
        _findings(document),
        _bounds(document),
        _unable(document),
        _not_applicable(document),
        _absent(document),
    ]


def card(document: Report) -> list[Any]:
    """Return the answer, the causes and the remedies: the page's first screen, without links."""
    return [_hero(document, None, None), _causes(document, ""), remedies(document, "")]


# --- the first screen --------------------------------------------------------------------------------------


def _hero(document: Report, baseline: str | None, state: str | None) -> html.Div:
    answer = document.answer
    figure = html.Div(
        [
            html.Div(answer.figure, className="mp-figure-number" + _length(answer), id="hero"),
            html.Div(answer.label, className="mp-figure-under", id="hero-under"),
            _per_update(document),
        ],
        className="mp-hero-figure",
    )
    because, do = " ".join(answer.because), answer.do
    text = html.Div(
        [
            html.H1(answer.sentence, className="mp-headline", id="headline"),
            html.P(_subject(document, baseline, state), className="mp-subject"),
            html.P(because, className="mp-subject", id="because") if because else None,
            html.P(["First: ", do], className="mp-subject", id="do") if do else None,
            cards.inline_figures(figures(document)),
        ],
        className="mp-hero-text",
    )
    return html.Div([figure, text] if answer.figure else [text], className="mp-hero")


def _length(answer: Answer) -> str:
    return " mp-long" if len(answer.figure) > 7 else ""


def _per_update(document: Report) -> html.Div | None:
    """Return the speedup per applied update, where it differs from the speedup as shown."""
    facts = document.facts
    each, observed = facts.observed_per_update, facts.observed
    if each is None or observed is None or facts.unlike or undecided(document):
        return None
    if words.speedup(each) == words.speedup(observed):
        return None
    return html.Div(f"{words.speedup(each)} per applied update", className="mp-figure-under", id="per-update")


def _subject(document: Report, baseline: str | None, state: str | None) -> list[Any]:
    run = document.run
    batch = run.batch_size
    facts = [
        run.policy or words.computes(document),
        run.device,
        f"batch {words.count(batch)}" if batch is not None else None,
        words.compiled(run.backend, run.jit_compile),
    ]
    said: list[Any] = [" · ".join(words.plain(str(fact)) for fact in facts if fact) or run.name]
    if state in ("running", "interrupted", "exit", "failed", "stopped", "unfinished", "unrecorded"):
        hint = {
            "running": "The training goes on: this page follows it.",
            "interrupted": "The training was broken off.",
            "exit": "sys.exit ended the training.",
            "failed": "An error ended the training.",
            "stopped": "No end of the training was recorded, and nothing was written for 15 s.",
            "unfinished": "No end of the training was recorded.",
            "unrecorded": "Recording ended before the training did: later steps are not known.",
        }[state]
        said += [" ", html.Span(state, className=f"mp-chip mp-state-{state}", title=hint, id="state")]
    said += [" ", _chip(document, baseline)]
    return said


def _chip(document: Report, baseline: str | None) -> html.Span:
    """Return the baseline, and whether it differs in more than its precision."""
    facts, speedup = document.facts, document.speedup
    if baseline is None and speedup and speedup.baseline == "measured":
        baseline = speedup.baseline_id
    if baseline is None:
        return html.Span("no baseline", className="mp-chip", id="baseline-chip")
    if unlike := facts.unlike:
        hint = "; ".join(unlike)
        return html.Span(
            f"vs {baseline}: unlike, {words.shorten(hint, 90)}",
            title=hint,
            className="mp-chip mp-chip-bad",
            id="baseline-chip",
        )
    if "MP906" in document.clear:
        return html.Span(f"vs {baseline}: differs only in precision", className="mp-chip", id="baseline-chip")
    return html.Span(f"vs {baseline}: comparability not known", className="mp-chip", id="baseline-chip")


def figures(document: Report) -> list[tuple[str, str, str, str]]:
    """Return (value, name, id, what qualifies it or why it is missing) of the four figures that every reader
    asks for."""
    return [_step(document), _share(document), _skipped(document), _peak(document)]


def _step(document: Report) -> tuple[str, str, str, str]:
    value, steps = document.facts.step_ns, document.steps
    if value is None and document.window is not None:
        return words.duration(document.window.span_ns), "whole window", "window-span", ""
    if value is None:
        return "—", "step", "step-time", why_absent(document, "steps.mean_ns", "steps", "time")
    p95 = steps.p95_ns if steps else None
    name = units.one(document.time)
    return words.duration(value), name, "step-time", f"95th percentile {words.duration(p95)}" if p95 else ""


def _share(document: Report) -> tuple[str, str, str, str]:
    share, units = document.tensor_core, matrix_units(document)
    if not share or share.ratio is None:
        reason = (share.reason if share else None) or why_absent(document, "tensor_core")
        return "—", f"of matrix time on {units}", "tensor-core-share", reason
    unknown = share.unknown_ratio
    by = ", ".join(f"{name} {words.duration(ns)}" for name, ns in share.by_precision.items())
    name = f"of matrix time on {units}" + (" in the whole window" if share.of_window is not None else "")
    name += f", {words.percent(unknown)} of the work unknown" if unknown else ""
    return words.percent(share.ratio), name, "tensor-core-share", by


def _skipped(document: Report) -> tuple[str, str, str, str]:
    steps = document.steps
    if steps is None or steps.skipped is None:
        return "—", "updates skipped", "skipped", why_absent(document, "steps.skipped", "steps")
    scale = steps.loss_scale
    hint = f"loss scale now {words.scale(scale.last)}" if scale else ""
    name = f"of {words.count(steps.count)} updates skipped"
    if steps.skipped and (said := loss_scale(steps)):
        name += f", loss scale {said}"
    return words.count(steps.skipped), name, "skipped", hint


def _peak(document: Report) -> tuple[str, str, str, str]:
    found, memory = peak(document), document.memory
    if found is None:
        return "—", "peak memory", "peak-memory", why_absent(document, "steps.peak_memory_bytes", "memory")
    saved = memory.saved_bytes if memory else None
    name = "peak" + (f", {words.saved(saved)}" if saved is not None else "")
    size, of = found
    return words.size(size), name, "peak-memory", f"allocated{of or ' on the device'}"


def _causes(document: Report, query: str) -> html.Section | None:
    rows = cause_rows(document, query)
    if not rows:
        return None
    facts = document.facts
    attainable = None if facts.unlike else facts.attainable_step_ns
    compared = facts.observed is not None and not facts.unlike
    lost = compared and document.answer.leads != "nothing"
    title = "Where the speedup went" if lost else "Where the step could be shorter"
    drawing = bars.chart(
        rows,
        "causes",
        line_ns=attainable,
        line=f"attainable {words.duration(attainable)}" if attainable is not None else "",
    )
    note = "time per step"
    if query and any(row.href for row in rows):
        note += "; a cause leads to its proof"
    if any(row.tail_ns > row.brought_ns for row in rows):
        note += "; pale: float32 loses it, too"
    if any(row.brought_ns for row in rows):
        note += "; half pale: 16 bits bring it"
    title, note = (units.worded(text, document.time) for text in (title, note))
    return cards.section(title, html.Div(drawing, className="mp-card"), note=note)


def cause_rows(document: Report, query: str) -> list[bars.Row]:
    """Return bars for the float32 run, this run, each cause by its gain, what no cause explains, the step
    after all remedies, and the attainable step. Empty where nothing costs time and there is nothing to
    compare with."""
    facts = document.facts
    step, alike = facts.step_ns, not facts.unlike
    base = facts.baseline_step_ns if alike else None
    if step is None:
        return []
    causes = _cause_bars(document, step, query)
    could = _in_16_bits(document, step)
    if not causes and base is None and not could:
        return []
    rows = _per_applied_update(document, query)
    if base is not None:
        rows.insert(0, bars.Row("float32 run", base, words.duration(base), "plain", "baseline"))
    times = words.speedup(facts.observed) if facts.observed and alike else ""
    rows.append(bars.Row("This run", step, words.duration(step), "run", "step", strong=True, note=times))
    return [*rows, *causes, *_last_bars(document, step, causes), *could]


def _last_bars(document: Report, step: float, causes: list[bars.Row]) -> list[bars.Row]:
    """Return the bars below the causes: what none explains, the step after all, and the attainable one."""
    facts, rows = document.facts, []
    alike, after = not facts.unlike, facts.after_remedies_ns
    attainable = facts.attainable_step_ns if alike else None
    unexplained = facts.unexplained_ns if alike else None
    if unexplained is not None and attainable is not None and unexplained > SMALL_RATIO * step:
        rows.append(
            bars.Row(
                "Not explained",
                -unexplained,
                f"−{words.duration(unexplained)}",
                "unknown",
                "unexplained",
                start_ns=step + sum(row.length_ns for row in causes),
                note="no remedy recovers it: it stays",
            )
        )
    if causes and after is not None:
        rows.append(
            bars.Row(
                "After all remedies",
                after,
                words.duration(after),
                "unit",
                "after",
                computed=True,
                note=after_note(document, after, every=True),
            )
        )
    if attainable is not None:
        rows.append(
            bars.Row(
                "Attainable by precision alone",
                attainable,
                words.duration(attainable),
                "unit",
                "attainable",
                computed=True,
                note=f"{words.speedup(facts.attainable)} attainable, computed",
            )
        )
    return rows


def _per_applied_update(document: Report, query: str) -> list[bars.Row]:
    """Return the time of one applied update and what skipped ones add to it, above the bar of the step."""
    facts = document.facts
    each, step = facts.step_ns_per_update, facts.step_ns
    for cause in facts.causes:
        lost = lost_per_update(document, cause.code)
        if lost is not None and each and step:
            found = next(found for found in document.findings if found.code == cause.code)
            return [
                bars.Row("An applied update", each, words.duration(each), "run", "update"),
                bars.Row(
                    short(found),
                    -lost,
                    f"−{words.duration(lost)}",
                    theme.cause_kind(cause.code),
                    "skipped",
                    start_ns=each,
                    note="of steps that changed no weight",
                    hint=found.summary or found.title,
                    href=proof_href(found, query) if query else "",
                ),
            ]
    return []


def _in_16_bits(document: Report, step: float) -> list[bars.Row]:
    """Return the range of the step that a float32 run could reach in 16 bits, as the report estimates it."""
    speedup = document.speedup
    could = speedup.attainable_range if speedup and document.answer.kind == "float32" else None
    if not could or not tells(could):
        return []
    return [
        bars.Row(
            f"In 16 bits, at {bound}",
            step / times,
            words.duration(step / times),
            "unit",
            f"attainable-{end}",
            computed=True,
            note=f"{words.speedup(times)}, estimated",
        )
        for bound, end, times in (("least", "low", could.low), ("best", "high", could.high))
    ]


def _cause_bars(document: Report, step: float, query: str) -> list[bars.Row]:
    facts = document.facts
    titles = {found.code: found for found in document.findings}
    paying = [(c, gain) for c in facts.causes if (gain := c.gain_ns_per_step or 0) >= PAYING_RATIO * step]
    rest = sum(c.gain_ns_per_step or 0 for c in facts.causes) - sum(gain for _, gain in paying[:MOST_CAUSES])
    rows, position = [], step
    for cause, gain in paying[:MOST_CAUSES]:
        found, recovers, own = titles[cause.code], cause.recovers_ns_per_step, own_ns(cause)
        pale = max(0.0, gain - recovers) if recovers is not None else 0.0
        brought = own - recovers if own is not None and recovers is not None else 0.0
        rows.append(
            bars.Row(
                short(found),
                -gain,
                f"−{words.duration(gain)}",
                theme.cause_kind(cause.code),
                cause.code,
                start_ns=position,
                tail_ns=pale if pale > SMALL_RATIO * gain else 0.0,
                brought_ns=brought if brought > SMALL_RATIO * gain else 0.0,
                note=units.worded(f"{words.percent(gain / step)} of the step", document.time),
                hint=found.summary or found.title,
                href=proof_href(found, query) if query else "",
            )
        )
        position -= gain
    if rest > SMALL_RATIO * step:
        rows.append(
            bars.Row("smaller ones", -rest, f"−{words.duration(rest)}", "other", "rest", start_ns=position)
        )
    return rows


def short(found: Finding) -> str:
    """Return a cause in few words, with its layers where it has one or two."""
    name, layers = found.slug.replace("-", " "), [words.plain(layer) for layer in found.layers]
    if not 1 <= len(layers) <= MOST_LAYERS:
        return name
    return f"{name}: {', '.join(words.shorten(layer, 24 // len(layers)) for layer in layers)}"


def _strip(timeline: Timeline | None, query: str) -> html.Section | None:
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
        head=[legend(timeline), html.P(said, className="mp-note mp-right")],
    )


# --- below it ----------------------------------------------------------------------------------------------


def _time(document: Report) -> html.Section | None:
    title, time = "Where the step goes", document.time
    if document.window is not None:
        return _window(document.window)
    if time is None:
        if document.facts.step_ns is None:
            return None
        reason = why_absent(document, "time")
        return cards.section(title, cards.empty("No account of the step", reason, _HOW_TO_PROFILE))
    basis = "the CPU's executor threads" if time.basis == "host" else "the device"
    drawing = html.Div(bars.chart(account_rows(time), "account"), className="mp-card")
    doubt = time_doubt(time)
    remarks = [*([doubt] if doubt else []), *time.notes]
    title, note = (
        units.worded(text, time)
        for text in (title, f"{time_per(time)}; every instant on {basis}, in one class")
    )
    return cards.section(title, drawing, cards.remarks(remarks), note=note)


def _window(found: Window) -> html.Section:
    """Return the whole window, where no step can be told apart: its title says so."""
    span = found.span_ns
    rows = [*_account(whole_window.as_slices(found), span, "in the window"),
            bars.Row("Whole window", span, words.duration(span), "run", "step", strong=True)]  # fmt: skip
    body = [*whole_window.lines(found), *whole_window.what_is_not_said(found)]
    return cards.section(
        "Where the window goes",
        html.Div(bars.chart(rows, "account"), className="mp-card"),
        html.Div(html.Ul([html.Li(sentence(line)) for line in body]), className="mp-card", id="window"),
        cards.remarks(found.notes),
        note=f"{whole_window.heading(found)}; every instant in one class; not a step",
    )


_HOW_TO_PROFILE = 'Record a profile window: MPProfilerCallback(logdir, profile_steps="auto").'


def account_rows(time: Time) -> list[bars.Row]:
    """Return the step class by class, adding up to the whole."""
    whole = time_whole(time)
    name = units.worded("Profiled step" if time.unlike is not None else "Whole step", time)
    total = bars.Row(name, whole, words.duration(whole), "run", "step", strong=True)
    return [*_account(time_slices(time), whole, units.worded("per step", time)), total]


def _account(parts: tuple[Slice, ...], whole: float, per_whole: str) -> list[bars.Row]:
    """Return the slices as bars placed end to end."""
    rows, position = list[bars.Row](), 0.0
    for part in sorted(parts, key=waterfall.account_order):
        for name, kind, key, ns in (piece for piece in waterfall.pieces(part) if piece[3]):
            share = "" if ns < 0 or not whole else words.percent(ns / whole)
            hint = waterfall.account_hover(part, per_whole)
            rows.append(
                bars.Row(name, ns, words.duration(ns), kind, key, start_ns=position, note=share, hint=hint)
            )
            position += ns
    return rows


def _matrix(document: Report) -> html.Section | None:
    slices = document.time.slices if document.time else []
    matmul = next((part for part in slices if part.category == "matmul"), None)
    if matmul is None or len(matmul.by) < 2:
        return None
    whole, share = matmul.ns_per_step, document.tensor_core
    rows = [
        bars.Row(
            theme.PLACEMENT_LABELS.get(part.placement, part.placement)
            + (f" · {part.precision}" if part.precision != "unknown" else ""),
            part.ns_per_step,
            words.duration(part.ns_per_step),
            theme.PLACEMENT_KINDS.get(part.placement, "unknown"),
            f"{part.placement}/{part.precision}",
            note=words.percent(part.ns_per_step / whole) if whole else "",
        )
        for part in sorted(matmul.by, key=lambda part: -part.ns_per_step)
    ]
    note = units.worded("per step, by unit and precision", document.time)
    if share is None or share.ratio is None:
        reason = share.reason if share else None
        note += f". There is no share: {sentence(reason) if reason else why_absent(document, 'tensor_core')}"
    return cards.section(
        "Matrix work", html.Div(bars.chart(rows, "matrix-work"), className="mp-card"), note=note
    )


def _findings(document: Report) -> html.Section | None:
    findings = document.findings
    if not findings:
        return None
    return cards.section(
        "Evidence",
        *(cards.folded(item, units.worded("per step", document.time)) for item in findings),
        note="by finding, in the order of the plan",
        id="findings",
    )


def _bounds(document: Report) -> html.Section | None:
    bounds = document.bounds
    if not bounds:
        return None
    rows = [
        (
            f"{item.statement} {words.quantity(item.value, item.unit)}",
            "if " + "; ".join(item.assumptions),
        )
        for item in bounds
    ]
    return cards.section("What the records alone prove", cards.pairs(rows))


def _unable(document: Report) -> html.Section | None:
    """Return what could not be judged, and why; how many checks found nothing."""
    table, clear = cards.not_possible(document), document.clear
    if table is None and not clear:
        return None
    parts: list[Any] = [table] if table is not None else []
    if clear:
        codes = html.Ul(
            [html.Li(without_finding.about(code), title=code) for code in clear], className="mp-codes"
        )
        parts.append(html.Details([html.Summary(f"{words.plural(len(clear), 'check')} clear"), codes]))
    return cards.section("Checks", *parts, id="checks")


def _not_applicable(document: Report) -> html.Section | None:
    lines = without_finding.not_applicable(document)
    if not lines:
        return None
    title = f"{words.plural(len(lines), 'check')} not applicable, and why"
    return cards.section(
        "Does not apply", html.Details([html.Summary(title), cards.remarks(lines)]), id="not-applicable"
    )


def _absent(document: Report) -> html.Section | None:
    groups = without_finding.absent_by_reason(document)
    if not groups:
        return None
    title = f"{words.plural(sum(len(names) for _, names in groups), 'value')}, and why each is missing"
    rows = [(_capital(", ".join(names)), sentence(why)) for why, names in groups]
    return cards.section(
        "Not measured", html.Details([html.Summary(title), cards.pairs(rows)]), id="not-measured"
    )


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


PAGE = Page("/", "Why", layout, heading=True)
