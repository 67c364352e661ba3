"""The causes of a report in the order of its facts: which to remedy, what each gains, and the step after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.report.content.remedies import PAYING_RATIO, finding
from mpprof.report.content.speedup_lines import difference_of

if TYPE_CHECKING:
    from mpprof.model.answer import Answer
    from mpprof.model.finding import Finding
    from mpprof.model.report import Cause, Report

AS_GOOD_RATIO = 0.98
"""From here on a step after remedies is the attainable one."""
_EMULATED = "MP806"
_OF_SKIPS, _OF_MEMORY = "MP2", "MP6"


def head(answer: Answer) -> str:
    """Return the figure of an answer with its label, in one line; "" where it has none."""
    return answer.head


def to_change(document: Report) -> list[str]:
    """Return the codes of the findings whose remedies are shown: the causes, by rank, without those that
    others leave nothing to gain; with none, what a CPU makes of 16 bits."""
    causes, step = document.facts.causes, document.facts.step_ns or 0.0
    gains = [(cause.code, cause.gain_ns_per_step) for cause in causes]
    paying = [code for code, gain in gains if gain is None or gain >= PAYING_RATIO * step]
    if causes or not on_cpu(document):
        return paying
    return [found.code for found in document.findings if found.code == _EMULATED]


def first_cause(document: Report) -> Cause | None:
    """Return the answer's cause, else the one that comes first; None where there is none but dismissed
    ones."""
    dismissed = {found.code for found in document.findings if found.dismissed is not None}
    causes = [cause for cause in document.facts.causes if cause.code not in dismissed]
    named = (cause for cause in causes if cause.code == document.cause)
    return next(named, next(iter(causes), None))


def first_finding(document: Report) -> Finding | None:
    """Return the finding of the first cause."""
    first = first_cause(document)
    return finding(document, first.code) if first else None


def changes_type(document: Report) -> bool:
    """Return whether the first remedy changes the type to compute in, so that the gains of the others, which
    are those in this run's type, do not follow from it."""
    found = first_finding(document)
    return found is not None and any(remedy.other_type for remedy in found.remedies)


def back_to_baseline(document: Report) -> float | None:
    """Return the baseline's step, as measured, where the first remedy changes to the type that the baseline
    computes in and that step is shorter; None elsewhere."""
    facts, speedup, found = document.facts, document.speedup, first_finding(document)
    step, base = facts.step_ns, facts.baseline_step_ns
    computes = speedup.baseline_dtype if speedup else None
    if found is None or not computes or facts.unlike or step is None or base is None:
        return None
    other = [remedy for remedy in found.remedies if remedy.other_type]
    changes = any(f'"{computes}"' in (remedy.snippet or remedy.text) for remedy in other[:1])
    return base if changes and step >= (1 + PAYING_RATIO) * base else None


def lost_per_update(document: Report, code: str) -> float | None:
    """Return by how much skipped updates, where `code` is about them, lengthen each applied one; None of any
    other cause."""
    facts = document.facts
    step, each = facts.step_ns, facts.step_ns_per_update
    found = finding(document, code)
    wasted = found is not None and code.startswith(_OF_SKIPS) and found.cost_ns_per_step
    return each - step if wasted and step is not None and each is not None and each > step else None


def of_memory(code: str) -> bool:
    """Return whether a cause costs memory and no time: it comes behind those that do."""
    return code.startswith(_OF_MEMORY)


def own_ns(cause: Cause) -> float | None:
    """Return what of a cause's gain the baseline would not gain, too: this run lost it against the attainable
    step, or 16 bits brought it; None without a measured baseline that tells."""
    known = [ns for ns in (cause.recovers_ns_per_step, cause.added_ns_per_step) if ns is not None]
    return max(known) if known else None


def baseline_words(document: Report) -> str:
    """Return what the run is held against: float32 only where that is known of it."""
    speedup = document.speedup
    return "float32" if speedup and speedup.baseline_dtype == "float32" else "the baseline"


def speedup_after(document: Report, after_ns: float) -> float | None:
    """Return the speedup over the baseline of a step after remedies; None without a baseline, and where it is
    beyond the attainable one: those remedies shorten the baseline's step, too, so that it is none of mixed
    precision."""
    facts = document.facts
    base, attainable = facts.baseline_step_ns, facts.attainable_step_ns
    if not base or not after_ns or facts.unlike:
        return None
    beyond = attainable is not None and after_ns < AS_GOOD_RATIO * attainable
    return None if beyond else base / after_ns


def undecided(document: Report) -> bool:
    """Return whether the timings leave it open which of the two runs is faster."""
    return document.speedup is not None and difference_of(document.speedup) == "not known"


def on_cpu(document: Report) -> bool:
    """Return whether the step that is split ran on a CPU."""
    time = document.time
    return time is not None and (time.basis == "host" or "CPU" in (document.run.device or "").split())
