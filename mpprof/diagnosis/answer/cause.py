"""A finding in the answer's words: its sentence, what its remedy makes of the step, and what to do.

A rule's `SAYS` may leave open `{time}` ("25.5 of each 48.0 ms step"; what stands round it in brackets goes
where no time is known), `{layers}` with `{s}`, `{has}` and `{they}`, `{device}` and `{units}`.
"""

from __future__ import annotations

import re

from mpprof.diagnosis.after_changes import PAYING_RATIO
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.wording import fit, names, of_step
from mpprof.model.finding import Finding
from mpprof.model.quantities import format_bytes, format_ns, format_speedup

_WITH_TIME = re.compile(r"\[([^\[\]]*\{time\}[^\[\]]*)\]")
NO_SPEEDUP = 1.005
"""Below it a speedup is shown as 1.00x at most, and does not count as one."""
_NOTHING_TO_DO = ("none needed", "none:")
_LONGEST_TO_DO = 140


def clause(view: View, found: Finding) -> str:
    """Return the sentence about a cause, without its full stop."""
    if found.said:
        said = filled(view, found, found.said)
        return fit(said)
    time = _time(view, found)
    title = found.title[0].lower() + found.title[1:] if not found.title[:2].isupper() else found.title
    if time:
        return fit(f"{title}: {time}")
    if found.cost_bytes and not found.summary:
        return fit(f"{title}: {format_bytes(found.cost_bytes)}")
    return fit(found.summary or title, 149)


def filled(view: View, found: Finding, said: str) -> str:
    """Return a rule's words with what they leave open."""
    time, many = _time(view, found), len(found.layers) > 1
    said = _WITH_TIME.sub((lambda match: match[1]) if time else "", said)
    if time:
        said = said.replace("{time}", time)
    slots = {
        "{device}": view.device, "{units}": view.units, "{s}": "" if many else "s",
        "{they}": "they" if many else "it", "{has}": "have" if many else "has",
        "{layers}": names(found.layers) or "a layer",
    }  # fmt: skip
    for slot, word in slots.items():
        said = said.replace(slot, word)
    return said


def _time(view: View, found: Finding) -> str:
    """Return what a cause costs, of a step or of the window; "" where that is not known."""
    about = "about " if found.confidence == "low" and found.claimed else ""
    if view.report.window is not None and view.report.account is None:
        whole = view.report.window.step_ns
        ns = found.cost_ns_in_window
        return f"{about}{of_step(ns, whole, 'of the {} window')}" if ns else ""
    ns, step = found.cost_ns_per_step or found.gain_ns_per_step, view.step_ns
    if not ns or not step:
        return ""
    return f"{about}{of_step(min(ns, step), step)}"


def after_ns(view: View, found: Finding | None) -> float | None:
    """Return the step after a finding's remedy; None where that is not known, or next to nothing."""
    step = view.step_ns
    gain = found.gain_ns_per_step if found is not None else None
    return None if not step or gain is None or gain < PAYING_RATIO * step else step - gain


def once(view: View, found: Finding) -> str:
    """Return what follows the step time after the remedy."""
    return filled(view, found, found.once) if found.once else "after the first remedy"


def goal(view: View, found: Finding | None) -> str:
    """Return the second figure, after the first remedy: a speedup where it is one, else a step time; "" where
    no remedy gains time."""
    after, step, compared = after_ns(view, found), view.step_ns, view.comparison
    if found is None or after is None or not step or after <= 0:
        return ""
    if compared is not None and compared.observed is not None and compared.difference != "not known":
        times = compared.observed * step / after
        if times >= NO_SPEEDUP:
            return f"about {format_speedup(times)} {once(view, found)}"
    step_of = " a step" if view.kind == "measured" else ""
    return f"about {format_ns(after)}{step_of} {once(view, found)}"


def to_do(found: Finding | None) -> str:
    """Return the first remedy in one line; "" where there is nothing to do."""
    if found is None:
        return ""
    texts = [remedy.text for remedy in found.remedies if not remedy.larger_batch]
    texts = texts or [remedy.text for remedy in found.remedies] or [found.remedy]
    text = texts[0] if texts else ""
    return "" if text.startswith(_NOTHING_TO_DO) else one_line(text)


def one_line(text: str) -> str:
    """Return an instruction in one line, without clauses that have no room."""
    return fit(text.replace("\n", " "), _LONGEST_TO_DO) if len(text) > _LONGEST_TO_DO else text
