"""Why: the answer in one figure and one sentence, the causes that add up, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.errors import MpprofError
from mpprof.model.run import NO_END
from mpprof.report import units, whole_window, without_finding, words
from mpprof.report.content import (
    SMALL_RATIO,
    busy_heading,
    busy_kernels,
    busy_shares,
    loss_scale,
    matrix_units,
    mean_of,
    on_cpu,
    parts_of,
    peak,
    precision_is_done,
    ran_out_of_memory,
    spread,
    time_doubt,
    time_per,
    time_slices,
    time_whole,
    undecided,
    without_rate,
)
from mpprof_dashboards import theme
from mpprof_dashboards.components import bars, cards, drawn, proof
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.remedies import remedies
from mpprof_dashboards.components.text import sentence
from mpprof_dashboards.figures import waterfall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpprof.model.account import Slice
    from mpprof.model.answer import Answer
    from mpprof.model.report import Report, Time, Window
    from mpprof.model.run import ProfilePlan
    from mpprof.model.source import RunTables
    from mpprof.model.steps import StepTable

Figure = tuple[str, str, str, str]


def layout(context: Context) -> list[Any]:
    document = context.report()
    entry = context.entry
    return content(
        document,
        baseline=context.name_of(context.choice.baseline) if context.choice.baseline else None,
        query=context.choice.query(),
        state=entry.state if entry else None,
        plan=entry.plan if entry else None,
        base=baseline_time(context.source, document, context.choice.baseline),
        given=proof.material(context.source, context.run, document),
    )


def baseline_time(source: RunTables, document: Report, baseline: str | None) -> Time | None:
    """Return the account of the baseline, which tells where its matrix work ran; None where it tells nothing
    of this run."""
    if baseline is None or document.facts.unlike:
        return None
    try:
        return source.report(baseline).time
    except MpprofError:  # the page of the run itself says what is wrong with the baseline
        return None


def content(
    document: Report,
    *,
    baseline: str | None = None,
    query: str = "",
    state: str | None = None,
    plan: ProfilePlan | None = None,
    base: Time | None = None,
    given: proof.Material | None = None,
) -> list[Any]:
    """Return the page of a report. `baseline` is the chosen baseline's name, `base` its account, `plan` that
    of a profile window that has not opened; without `query` nothing is a link."""
    given = given or proof.Material()
    curves = drawn.run_of(document, given.steps, without_scale=proof.shows_scale(document, given))
    first, *step = proof.sections(document, given, query) or (None,)
    pair = [part for part in (first, curves) if part is not None]
    parts = [
        drawn.flow_of(document, base, query),
        _floor(document),
        remedies(document, query),
        *([html.Div(pair, className="mp-pair")] if len(pair) > 1 else pair),
    ]
    if document.answer.leads == "error" and ran_out_of_memory(document):  # of memory, not of time
        parts.reverse()
    return [
        _hero(document, baseline, state, plan, given.steps),
        *parts,
        *step,
        cards.warnings(_warnings(document, state)),
        _time(document),
        _matrix(document),
        _kernels(document),
        _findings(document),
        _bounds(document),
        _unable(document),
        _not_applicable(document),
        _absent(document),
    ]


def _warnings(document: Report, state: str | None) -> list[str]:
    """Return the warnings of a run; a missing end is not a warning while the training runs."""
    return [said for said in document.warnings if not (state == "running" and said.startswith(NO_END))]


def card(document: Report) -> list[Any]:
    """Return the answer, the flow and the remedies: the page's first screen, without links."""
    return [
        _hero(document, None, None),
        drawn.flow_of(document, None),
        _floor(document),
        remedies(document, ""),
    ]


# --- the first screen --------------------------------------------------------------------------------------


def _hero(
    document: Report,
    baseline: str | None,
    state: str | None,
    plan: ProfilePlan | None = None,
    steps: StepTable | None = None,
) -> html.Div:
    answer, known = document.answer, figures(document)
    if state == "running" and document.time is None and document.window is None:
        return _running(document, baseline, plan, steps)
    figure = html.Div(
        [
            html.Div(answer.figure, className="mp-figure-number" + _length(answer), id="hero"),
            html.Div(answer.label, className="mp-figure-under", id="hero-under"),
            drawn.ruler_of(document),
            _per_update(document),
        ],
        className="mp-hero-figure",
    )
    shown = figure if answer.figure else _without_figure(document, known)
    because, do = " ".join(answer.because), answer.do
    text = html.Div(
        [
            html.H1(answer.sentence, className="mp-headline", id="headline"),
            html.P(_subject(document, baseline, state), className="mp-subject"),
            html.P(because, className="mp-subject", id="because") if because else None,
            html.P([_first(document), do], className="mp-subject", id="do") if do else None,
            cards.inline_figures(known),
        ],
        className="mp-hero-text",
    )
    return html.Div([shown, text] if shown else [text], className="mp-hero")


def _without_figure(document: Report, known: Sequence[Figure]) -> html.Div | None:
    """Return the figure that the answer is about, of an answer without one: of a run that does not learn the
    skipped updates. None where the sentence says all that is known."""
    value, name, *_ = next(each for each in known if each[2] == "skipped")
    if document.answer.leads != "learning" or not document.steps or not document.steps.skipped:
        return None
    told = [html.Div(value, className="mp-figure-number"), html.Div(name, className="mp-figure-under")]
    return html.Div(told, className="mp-hero-figure")


def _floor(document: Report) -> html.P | None:
    """Return why no more is to be gained. It stands behind the flow, whose end it explains, so that cause
    and remedies stay on the first screen."""
    floor = document.answer.floor
    return html.P([html.Strong(words.NO_MORE), floor], className="mp-floor", id="floor") if floor else None


def _running(
    document: Report, baseline: str | None, plan: ProfilePlan | None, steps: StepTable | None
) -> html.Div:
    """Return what is known of a training that goes on and has no trace yet: it has lost nothing so far."""
    last = int(steps.step.max(initial=0)) if steps is not None else 0
    opens = plan.first_step if plan is not None and plan.opens(last) else 0
    text = [
        html.H1(
            f"The training is running: {words.progress(last, plan)}.", className="mp-headline", id="headline"
        ),
        html.P(_subject(document, baseline, "running"), className="mp-subject"),
        html.P(" ".join(document.answer.because), className="mp-subject", id="because"),
        html.Progress(
            className="mp-reading-bar",
            **({"value": str(last), "max": str(opens)} if last < opens else {}),
            **{"aria-label": "Steps until the profile opens" if last < opens else "The training goes on"},
        ),
        cards.inline_figures(figures(document)),
    ]
    return html.Div(html.Div(text, className="mp-hero-text"), className="mp-hero")


def _first(document: Report) -> str:
    """Return what stands before the thing to do: what it is for where that is a measurement, and no change;
    that precision itself is done, where only other changes gain."""
    answer = document.answer
    if precision_is_done(document):
        return "To gain more: "
    measures = answer.kind == words.ESTIMATED and answer.code is None
    return "Whether it pays: " if measures else "First: "


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


_STATES = {
    "running": "The training goes on: this page follows it.",
    "interrupted": "The training was broken off.",
    "exit": "sys.exit ended the training.",
    "failed": "An error ended the training.",
    "stopped": "No end of the training was recorded, and nothing was written for 15 s.",
    "unfinished": "No end of the training was recorded.",
    "unrecorded": "Recording ended before the training did: later steps are not known.",
}


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
    if state in _STATES:
        told = {"title": _STATES[state], "id": "state"}
        said += [" ", html.Span(state, className=f"mp-chip mp-state-{state}", **told)]
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
    if without_finding.COMPARED in document.clear:
        return html.Span(f"vs {baseline}: differs only in precision", className="mp-chip", id="baseline-chip")
    return html.Span(f"vs {baseline}: comparability not known", className="mp-chip", id="baseline-chip")


def figures(document: Report) -> list[Figure]:
    """Return (value, name, id, what qualifies it or why it is missing) of the four figures that every reader
    asks for; of a CPU, which has no matrix units, of three."""
    share = [] if on_cpu(document) else [_share(document)]
    return [_step(document), *share, _skipped(document), _peak(document)]


def _step(document: Report) -> tuple[str, str, str, str]:
    value, steps = document.facts.step_ns, document.steps
    if value is None and document.window is not None:
        return words.duration(document.window.span_ns), "whole window", "window-span", ""
    if value is None:
        return "—", "step", "step-time", why_absent(document, "steps.mean_ns", "steps", "time")
    p95 = steps.p95_ns if steps else None
    name = units.one(document.time) + units.worded(mean_of(document.time), document.time)
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
    said = f"{time_per(time)}{spread(time)}; every instant on {basis}, in one class"
    less = -sum(part.ns_per_step for part in time_slices(time) if part.ns_per_step < 0)
    if less >= SMALL_RATIO * time_whole(time):
        said += f"; waits without {words.duration(less)} that only profiled steps have"
    title, note = (units.worded(text, time) for text in (title, said))
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
    """Return the slices as bars on one scale; the flow shows how they add up."""
    rows = list[bars.Row]()
    left = parts_of(parts)  # as the flow has them: what a class lacks is taken off the waits
    for part in sorted(parts, key=waterfall.account_order):
        for name, kind, key, ns in waterfall.pieces(part):
            role, _, place = key.partition("/")
            kept = left.get((part.category, (place or "unknown") if role == "matmul" else ""), 0.0)
            if role == "matmul":
                ns = kept
            elif part.ns_per_step:
                ns *= kept / part.ns_per_step
            if ns <= 0:
                continue
            share = words.percent(ns / whole) if whole else ""
            hint = waterfall.account_hover(part, per_whole)
            rows.append(bars.Row(name, ns, words.duration(ns), kind, key, note=share, hint=hint))
    return sorted(rows, key=lambda row: (row.kind == "wait", -row.length_ns))


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


def _kernels(document: Report) -> html.Section | None:
    rows = [
        (
            words.shorten(each.name, 64),
            words.joined(
                (
                    each.time,
                    each.share,
                    "no rate" if each.rate == "-" else each.rate,
                    f"{each.of_peak} of its roof, {each.roof}" if each.roof else "",
                )
            ),
        )
        for each in busy_kernels(document)
    ]
    if not rows:
        return None
    return cards.section(
        busy_heading(document), cards.pairs(rows), cards.remarks(without_rate(document)),
        note=busy_shares(document),
    )  # fmt: skip


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
