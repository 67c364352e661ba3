"""The answer of a judged run: what leads it, its figure, its sentence, why, and what to do first."""

from __future__ import annotations

from itertools import islice

from mpprof.diagnosis.answer import cause, nothing
from mpprof.diagnosis.answer.floor import floor, limits
from mpprof.diagnosis.answer.limits import because, idle
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.leading import BEFORE_COSTS, leads
from mpprof.diagnosis.rules import mp806_other_vendor
from mpprof.diagnosis.wording import LONGEST, fit, sentence
from mpprof.errors import is_of_file
from mpprof.model.answer import Answer
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.quantities import format_ns, format_ratio, format_speedup
from mpprof.model.shell import quoted

MOST_SENTENCES = 2


def compose(report: Diagnosis) -> Answer:
    """Return the one answer of a report."""
    view, (leading, code) = View(report), leads(report)
    found = next((each for each in report.findings if each.code == code), None)
    said = cause.clause(view, found) if found is not None else nothing.clause(view)
    figure, label = "", ""
    if leading not in BEFORE_COSTS:
        figure, label = _figure(view, found if leading == "time" else None)
    more = dict.fromkeys(because(view, leading, found))
    if found is None and view.mentioned is not None:
        more = {nothing.without_trace(view): None} | more
    told = tuple(sentence(fit(each, LONGEST - 1)) for each in islice(more, MOST_SENTENCES))
    return Answer(
        kind=view.kind,
        leads=leading,
        figure=figure,
        label=label,
        sentence=sentence(fit(said, LONGEST - 1)),
        because=told,
        do=cause.to_do(found) if found is not None else _without_cause(view),
        code=code,
        floor=floor(view),
        limits=limits(view),
    )


def _figure(view: View, found: Finding | None) -> tuple[str, str]:
    """Return the one figure for a run, and what it is of with the second figure, after the first remedy."""
    goal, step, speedup = cause.goal(view, found), view.step_ns, view.comparison
    if view.kind == "cpu":
        over = f"{format_speedup(speedup.observed)} as fast as {view.base}" if speedup else ""
        if speedup and (unsure := _interval(view)):  # no speed is stated that was not shown
            over = f"{format_speedup(speedup.observed)}{' ' if speedup.interval else ', '}{unsure}"
        takes = "; ".join(filter(None, (f"{format_ns(step)} a step" if step else "", goal)))
        return "CPU", over or takes
    if view.kind == "measured" and speedup is not None:
        unsure = _interval(view) if speedup.difference == "not known" or not goal else ""
        return format_speedup(speedup.observed), "; ".join(filter(None, (unsure, goal)))
    if view.kind == "float32" and found is None and view.report.account is not None:
        off = ("off", nothing.could_give(view))
        return (format_ns(step), "a step in float32") if view.without_units else off
    if found is not None and step:
        return format_ns(step), f"a step{f'; {goal}' if goal else ''}"
    if view.kind in ("estimated", "window") and view.share is not None:
        return format_ratio(view.share), f"of matrix time on {view.units}"
    return (format_ns(step), "a step") if step else ("", "")


def _interval(view: View) -> str:
    """Return the interval of a speedup that is little or not known to be one; "" of a clear one."""
    speedup = view.comparison
    if speedup is None or speedup.difference not in ("none", "not known"):
        return ""
    if speedup.interval is None:
        return "not certain: too few timings"
    return f"({' to '.join(map(format_speedup, speedup.interval))})"


def _without_cause(view: View) -> str:
    """Return what to do where nothing leads: what would tell more, or what gains most of what is normal."""
    report, best = view.report, view.best
    if view.kind == "float32" and report.how_to_switch and nothing.worth_trying(view) and not idle(view):
        return cause.one_line(report.how_to_switch[0].text)
    if view.kind == "window" and report.ranges:
        return f"mpprof report {view.signals.words['run']} --step-range {quoted(report.ranges[0].name)}"
    if view.kind == "window" and report.how_to_mark:
        return cause.one_line(report.how_to_mark[0].text)
    speedup = view.comparison
    if view.kind == "measured" and speedup is not None and speedup.difference == "not known":
        return "train both runs for longer"
    if view.mentioned is not None and (text := cause.to_do(view.mentioned)):
        return text
    if view.kind == "cpu":
        emulated = (each for each in report.findings if each.code == mp806_other_vendor.CODE)
        return cause.to_do(next(emulated, None))
    if view.kind == "records" or (view.kind == "measured" and report.account is None and view.mixed):
        again = not view.unread or is_of_file(view.unread)  # of a file that was read, another one is the same
        return cause.one_line(view.signals.advice("record window")) if again else ""
    if view.kind == "estimated" and view.signals.half:
        return cause.one_line(view.signals.advice("record other precision"))
    if best is not None and best.gain_ns_per_step and not view.on_cpu and (text := cause.to_do(best)):
        return f"{text} (about {format_ns(best.gain_ns_per_step)} a step)" if len(text) < 100 else text
    return ""
