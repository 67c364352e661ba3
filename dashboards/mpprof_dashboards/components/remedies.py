"""What to change: one row per remedy with its switch; the steps of all combinations come with the page."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from dash import dcc, html

from mpprof.model.account import IDLE_CLASSES, tells
from mpprof.model.answer import Remedy
from mpprof.model.quantities import first_of
from mpprof.report import content, without_finding, words
from mpprof.report.content import PAYING_RATIO, one_step
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.text import or_dash, sentence
from mpprof_dashboards.drawings import flow

if TYPE_CHECKING:
    from mpprof.model.finding import Finding, WhatIfStep
    from mpprof.model.report import Report

MOST_NAMED = 8


def remedies(document: Report, query: str) -> html.Section | None:
    """Return the plan as a table; None where nothing was found at all."""
    findings = {found.code: found for found in document.findings}
    how = _how_to_switch(document)
    if not findings and not how:
        return None
    plan, facts = document.whatif, document.facts
    step = facts.step_ns
    order = plan.order if plan and step else []
    paying = [row for row in order if step and row.gain_ns >= PAYING_RATIO * step]
    gains = {cause.code: cause.gain_ns_per_step for cause in facts.causes}
    bits = {row.code: (bit, row) for bit, row in enumerate(paying)}
    first = document.answer.code
    shown = sorted(content.to_change(document), key=lambda code: code != first)
    told = [code for code in shown if code in bits or gains.get(code) is None]
    rows, lines = list[html.Tr](), set[str]()
    for code in told:
        rows.append(_row(document, findings[code], query, bits.get(code), lines))
        lines |= {each.snippet for each in findings[code].remedies[:1] if each.snippet}
    if how:
        rows.insert(0, _switch(document, how))
    if not rows:
        return cards.section(
            "What to change", html.P(_others(document, told), className="mp-note", id="notes"),
            note="no finding has a cost",
        )  # fmt: skip
    note = "switch a remedy off to see the step without it; computed, not measured" if paying else ""
    if any(
        (cause.gain_ns_per_step or 0.0) > 1.002 * own
        for cause in facts.causes
        if (own := content.own_ns(cause)) is not None
    ):
        note += f"; outlined: {content.baseline_words(document)} would gain it, too"
    answer = document.answer
    if answer.kind == words.ESTIMATED and answer.code is None and answer.do:
        note = words.joined(("the changes that were found", note)).replace(" · ", "; ")
    if paying and one_step(document):
        note += "; from a single step, which may not be representative"
    combos = combinations(document) if paying else []
    data = {"data-combinations": json.dumps(combos), "data-bits": str(min(len(paying), _bits(combos)))}
    head = [
        html.P(note, className="mp-note"),
        _total(combos),
    ]
    body = [
        html.Div(_table(rows), className="mp-scroll"),
        html.P(_others(document, told), className="mp-note", id="notes"),
    ]
    return cards.section(
        "What to change", html.Div(body, className="mp-card"), head=head, id="whatif", **data
    )


def _total(combos: Sequence[Combination]) -> html.Div:
    """Return the step with all remedies, with the room of the longest line that a switch may write there."""
    said = html.Div(combos[-1]["total"] if combos else "", id="whatif-total")
    most = max((each["total"] for each in combos), key=len, default="")
    return html.Div(said, className="mp-total", **{"data-most": most})


_GAINS, _AFTER = "Gains", "Step after"


def _table(rows: list[html.Tr]) -> html.Table:
    heads = [
        html.Th(text, className="mp-number" if text in (_GAINS, _AFTER) else "")
        for text in ("On", "Cause", "Change", _GAINS, _AFTER, "Proof")
    ]
    return html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="mp-table mp-remedies")


def _number(heading: str, text: Any, **data: str) -> html.Td:
    """Return a cell with the heading of its column, which a phone shows beside it."""
    return html.Td(text, className="mp-number", **{"data-heading": heading}, **data)


def _how_to_switch(document: Report) -> Sequence[Remedy]:
    """Return how to switch mixed precision on, for a float32 run that it may make faster."""
    speedup = document.speedup
    return speedup.how_to_switch if speedup else ()


def _switch(document: Report, how: Sequence[Remedy]) -> html.Tr:
    """Return mixed precision as a row of its own: its gain is estimated by itself."""
    step, speedup = document.facts.step_ns, document.speedup
    could = speedup.attainable_range if speedup else None
    gains, after, known = "—", "—", "not known: mpprof try measures it"
    first = document.answer.code is None and bool(document.answer.do)
    if step and could and tells(could):
        known = words.ESTIMATED
        best = step / could.high
        gains, after = f"up to −{words.duration(step - best)}", words.duration(best)
    apart = "Estimated by itself: the gains of the others are those in float32."
    return html.Tr(
        [
            html.Td(
                html.Span("first" if first else "apart", className="mp-chip", title=apart),
                className="mp-cell-switch",
            ),
            html.Td(html.Span("Mixed precision is off", className="mp-strong")),
            html.Td(_as_code(how)),
            _number(_GAINS, gains),
            _number(_AFTER, after),
            html.Td(known),
        ]
    )


class Combination(TypedDict):
    """What to show for a subset of the remedies: the step, the whole line, the speedup, the step's length,
    and that of the flow's segments by key (none: as long as they are)."""

    step: str
    total: str
    said: str
    ns: float
    parts: dict[str, int]


_MOST_DIVIDED = 32
"""So many subsets come with the lengths of their segments."""


def combinations(document: Report) -> list[Combination]:
    """Return what to show for each subset of the plan's first remedies, by the bits of the index. All numbers
    are the report's."""
    plan, facts = document.whatif, document.facts
    step = facts.step_ns
    steps_ns = plan.subsets_ns if plan else None
    if not steps_ns or not step:
        return []
    codes = content.paying(plan, step)
    bits = min(len(codes), len(steps_ns).bit_length() - 1)
    found = []
    for at, ns in enumerate(steps_ns[: 1 << bits]):
        chosen = [code for bit, code in enumerate(codes) if at >> bit & 1]
        found.append(_combination(document, step, ns, chosen, every=at == (1 << bits) - 1))
    return found


def _combination(
    document: Report, step: float, after: float, codes: Sequence[str], *, every: bool
) -> Combination:
    over = content.speedup_after(document, after)
    times = f" · {words.about(words.speedup(over))}" if over else ""
    facts = document.facts
    each = facts.step_ns_per_update
    begin = step
    if each and content.in_updates(document):
        begin, times = each, f" per applied update{times}"  # the remedy of skips comes before all
    elif content.changes_type(document):
        times += f" if it stays in {words.plain(document.run.policy or 'this type')}"
    elif _how_to_switch(document):
        times += " in float32"
    plan = document.whatif
    divided = plan is not None and len(plan.subsets_ns or ()) <= _MOST_DIVIDED
    parts = flow.after_parts(document, after, codes) if divided else ()
    told = not every or bool(document.answer.limits)  # below the bar
    limit = "" if told or not facts.limited_by else f"; then the {facts.limited_by} limits"
    return {
        "step": words.duration(after),
        "total": f"{words.duration(begin)} → {words.duration(after)}{times}{limit}",
        "said": flow.after_said(document, after, codes),
        "ns": after,
        "parts": {part.key: round(part.ns) for part in parts},
    }


def _bits(combos: list[Combination]) -> int:
    return max(0, len(combos).bit_length() - 1)


def _row(
    document: Report,
    found: Finding,
    query: str,
    planned: tuple[int, WhatIfStep] | None,
    lines: Collection[str] = (),
) -> html.Tr:
    """Return the row of one remedy. `planned` is its place in the plan and its step; None means that it is to
    be settled before all others. `lines`: the code that rows above it show."""
    code = found.code
    switch: Any = html.Span(
        "first", className="mp-chip", title="Do this first: until then the predicted gains may be wrong."
    )
    gains, after = _measured(document, code) or _of_updates(document, code)
    if content.of_memory(code):
        switch = html.Span("memory", className="mp-chip", title="It costs memory, and no time.")
        gains = or_dash(found.cost_bytes, lambda size: f"−{words.size(size)}")
    if planned is not None:
        bit, step = planned
        gains, after = _gain(document, code, step.gain_ns), words.duration(step.step_ns)
        if content.in_updates(document):  # beside a gain of each update
            gains.append(html.Div("per step", className="mp-note"))
        switch = html.Button(
            html.Span(className="mp-knob"),
            className="mp-switch",
            role="switch",
            **{
                "aria-checked": "true",
                "aria-label": f"With the remedy of {found.title}",
                "data-bit": str(bit),
            },
        )
    last = {"data-after": str(planned[0])} if planned is not None else {}
    return html.Tr(
        [
            html.Td(switch, className="mp-cell-switch"),
            html.Td(
                [html.Span(found.title, className="mp-strong"), " ", html.Span(code, className="mp-code")]
            ),
            html.Td(_change(found, lines)),
            _number(_GAINS, gains),
            _number(_AFTER, after, **last),
            html.Td(_proof(found, query)),
        ],
        **{"data-code": code},
    )


def _gain(document: Report, code: str, gain: float) -> list[Any]:
    """Return a gain with its bar, on one scale with the others: what this run alone gains, and outlined what
    the baseline would gain, too."""
    cause = next((cause for cause in document.facts.causes if cause.code == code), None)
    longest = max((cause.gain_ns_per_step or 0.0 for cause in document.facts.causes), default=0.0) or gain
    known = content.own_ns(cause) if cause else None
    own = gain if known is None else min(gain, max(0.0, known))
    parts = [
        html.Span(className=look, style={"width": f"{100 * ns / longest:.2f}%"})
        for look, ns in (("mp-gain-own", own), ("mp-gain-shared", gain - own))
        if ns > 0.002 * longest
    ]
    return [html.Span(parts, className="mp-gain"), html.Span(f"−{words.duration(gain)}")]


def _measured(document: Report, code: str) -> tuple[Any, Any] | None:
    """Return what going back to the baseline's type gains, and the baseline's step, where it was measured."""
    cause, back = content.first_cause(document), content.back_to_baseline(document)
    step = document.facts.step_ns
    if cause is None or cause.code != code or back is None or step is None:
        return None
    note = html.Div("measured", className="mp-note")
    return [f"−{words.duration(step - back)}", note], [words.duration(back), note]


def _of_updates(document: Report, code: str) -> tuple[Any, Any]:
    """Return what the remedy of skipped updates gains, and what is left: for each applied update, not for a
    step."""
    lost, step = content.lost_per_update(document, code), document.facts.step_ns
    if lost is None or step is None:
        return "—", "—"
    note = html.Div("per update", className="mp-note")
    return [f"−{words.duration(lost)}", note], [words.duration(step), note]


def _change(found: Finding, lines: Collection[str]) -> list[Any]:
    """Return the first thing to do, in words and as code where there is some; further ones are folded. Code
    that stands above is not said again: that change is one, and gains in both rows."""
    first, *rest = found.remedies or (Remedy(found.remedy),)
    if first.snippet not in lines:
        return _as_code((first, *rest))
    same = html.Div("the same line as above: this gain comes on top", className="mp-note")
    return [*_said(Remedy(first.text)), same, *_as_code((Remedy(""), *rest))[1:]]


def _as_code(listed: Sequence[Remedy]) -> list[Any]:
    first, rest = listed[0], listed[1:]
    parts = _said(first)
    if rest:
        items = html.Ul([html.Li(_said(each)) for each in rest])
        summary = html.Summary(f"or {len(rest)} more")
        parts.append(html.Details([summary, items], className="mp-else"))
    return parts


def _said(remedy: Remedy) -> list[Any]:
    """Return what to do, then the code, unless the words are the code."""
    text, snippet = sentence(words.plain(remedy.text)), remedy.snippet
    if not snippet:
        return [html.Span(text)]
    told = [] if text.strip(". ") == snippet else [html.Span(text), " "]
    return [*told, cards.code(snippet)]


def _proof(found: Finding, query: str) -> Any:
    """Return the first thing measured, as a link to the page that shows it."""
    shown = next((row for row in found.evidence if row.unit != "text"), None)
    text = "evidence"
    if shown:  # what stands in brackets qualifies it: the finding says it below
        name = words.shorten(words.plain(shown.name).partition(" (")[0], 32)
        text = f"{name} {words.quantity(shown.value, shown.unit)}"
    if not query:
        return text
    return [text, " → ", dcc.Link(proof(found), href=proof_href(found, query))]


_PATHS = {"timeline": "/timeline", "steps": "/steps", "kernels": "/kernels"}


def proof(found: Finding) -> str:
    """Return the page on which a cause is seen: waiting on the timeline, skips and step times among the
    steps, work among the kernels."""
    seen = found.claimed or found.parts
    if seen and all(part.category in IDLE_CLASSES for part in seen):
        return "timeline"
    return "steps" if found.code.startswith(("MP2", "MP9")) else "kernels"


def proof_href(found: Finding, query: str) -> str:
    """Return the page that shows a cause, with its own kernels where it is about work."""
    where = proof(found)
    own = f"&kernels.cause={found.code}" if where == "kernels" and found.parts else ""
    return f"{_PATHS[where]}{query}{own}"


def _listed(found: Finding, listed: Sequence[Remedy]) -> bool:
    """Return whether what a note advises is already advised above it."""
    if found.code == without_finding.LARGER_BATCH:
        return any(remedy.larger_batch for remedy in listed)
    snippets = {remedy.snippet for remedy in listed if remedy.snippet}
    own = [remedy.snippet for remedy in found.remedies]
    return bool(own) and all(snippet in snippets for snippet in own)


def _others(document: Report, told: list[str]) -> list[Any]:
    """Return in a line each: what comes to light, what else was found, by name, and how many checks were
    clear or not possible."""
    above = [found for found in document.findings if found.code in told]
    listed = [remedy for found in above for remedy in found.remedies]
    others = [
        found.title for found in document.findings if found.code not in told and not _listed(found, listed)
    ]
    parts = list[str]()
    plan = document.whatif
    after = plan.best_step_ns if plan else 0.0
    surfacing = (
        [each for each in plan.surfacing if each.gain_ns >= content.SURFACING_RATIO * after] if plan else []
    )
    if surfacing:
        shown = ", ".join(
            f"{each.code} {without_finding.about(each.code)} ({words.duration(each.gain_ns)})"
            for each in surfacing[:3]
        )
        parts.append(f"Comes to light then: {shown}")
    if others:
        named = first_of(list(map(words.plain, others)), MOST_NAMED, "; ")
        parts.append(f"Noted, without a cost: {named}")
    checks = [
        f"{words.plural(len(listed_ones), 'check')} {what}"
        for listed_ones, what in ((document.clear, "clear"), (document.unable, "not possible"))
        if listed_ones
    ]
    parts += [", ".join(checks)] if checks else []
    return [html.Span(part, className="mp-line") for part in parts]
