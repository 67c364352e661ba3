"""The causes of a report in the order of its facts: what each costs, what its remedy gains, the step after,
and what to run next."""

from __future__ import annotations

from mpprof.diagnosis.after_changes import PAYING_RATIO
from mpprof.diagnosis.answer.nothing import AS_GOOD_RATIO as ABOUT_ALL_RATIO
from mpprof.diagnosis.rules import mp806_other_vendor
from mpprof.diagnosis.wording import WORTH_RECORDING
from mpprof.model.answer import Answer
from mpprof.model.finding import Finding
from mpprof.model.quantities import first_of, format_after
from mpprof.model.report import Cause, Report, ReportedRun
from mpprof.model.run_time import THE_RUN
from mpprof.model.shell import quoted
from mpprof.model.trace import NamedRanges
from mpprof.report import words
from mpprof.report.content.breakdown import SMALL_RATIO
from mpprof.report.content.run import ran_out_of_memory
from mpprof.report.content.speedup_lines import difference_of

LIMITED_BY_WORK = ", limited by the device's work"
MOSTLY_WORK = 0.8
"""A step of which the device works less than this is limited by something else, too. What remedies free may
all have been work: only what is left without it counts."""
SURFACING_RATIO = 0.05
"""From a twentieth of the step after all remedies on, what surfaces in it stands beside its bar."""
HIDDEN_RATIO = 0.001
"""A gain below a thousandth of the step does not count: something else limits the step."""

_HOST_NEEDS = (
    ": the way to a step's first launch, its launches at their median distance, and the way back; no waits"
)
"""What the host's need is the sum of (`host_floor.need_ns`)."""


def finding(document: Report, code: str) -> Finding | None:
    """Return the finding of this code; None where the report has none."""
    return next((found for found in document.findings if found.code == code), None)


def gain(finding: Finding, step_ns: float | None) -> float | None:
    """Return the gain of the finding's remedy in a step, after those before it in the plan; None: it is no
    part of the plan."""
    if finding.gain_ns_per_step is not None:
        return words.number(finding.gain_ns_per_step)
    after = words.number(finding.whatif_step_ns)  # of an earlier version: by itself
    return None if after is None or step_ns is None else max(0.0, step_ns - after)


def cost(finding: Finding, report: Report) -> str:
    """Return the cost of a finding: "12.1 ms a step (29.4 % of it), 46.0 % of the loss"; empty: not known.
    The time is the gain of its remedy, where that is part of the plan."""
    parts = []
    now, ns = step_ns(report), finding.cost_ns_per_step
    gained = gain(finding, now) if ns is not None else None
    if gained is not None and now and gained < HIDDEN_RATIO * now:
        parts.append("hidden behind something else")
    elif ns is not None:
        ns = ns if gained is None else gained
        parts.append(f"{words.duration(ns)} a step{f' ({words.percent(ns / now)} of it)' if now else ''}")
    elif (ns := finding.cost_ns_in_window) is not None and report.window is not None:
        parts.append(f"{words.duration(ns)} in the window ({words.percent(ns / report.window.span_ns)})")
    if (ns := finding.cost_ns_of_run) is not None and (spent := report.run_time) is not None:
        share = words.percent(spent.share(ns))
        parts.append(f"{words.duration(ns)} outside the steps ({share} of {THE_RUN})")
    lost = finding.lost_ratio
    if lost is not None and lost >= SMALL_RATIO:
        parts.append(f"{words.percent(lost)} of the loss")
    if finding.cost_bytes is not None:
        parts.append(words.size(finding.cost_bytes))
    return ", ".join(parts)


def evidence(finding: Finding) -> list[str]:
    """Return the evidence of a finding, one text for each measured value: "idle_input 41.0 % (limit 15.0
    %)"."""
    lines = []
    for item in finding.evidence:
        limit = "" if item.limit is None else f" (limit {words.quantity(item.limit, item.unit)})"
        lines.append(f"{words.plain(item.name)} {words.quantity(item.value, item.unit)}{limit}")
    return lines


def whatif(finding: Finding, report: Report) -> str:
    """Return the step time once the finding is remedied; empty: not known."""
    now = step_ns(report)
    gained = gain(finding, now)
    plan = report.whatif
    if gained is None or not now or (plan and [step.code for step in plan.order] == [finding.code]):
        return ""  # of the only remedy What if says it
    if gained < HIDDEN_RATIO * now:
        return "no gain while something else limits the step, such as the host"
    best = now - gained
    times = f" ({words.speedup(now / best)})" if best > 0 and not one_step(report) else ""
    return f"{_after(best, report)}{times}, {words.duration(now)} now"


def one_step(report: Report) -> bool:
    """Return whether all that the trace tells is of a single step: what follows from it is a range."""
    return report.time is not None and report.time.window_steps == 1


def _after(best_ns: float, report: Report) -> str:
    return format_after(best_ns, step_ns(report) or best_ns, one_step=one_step(report))


def plan(document: Report) -> list[str]:
    """Return the remedies in the order to apply them, the best step, and what limits it then; empty: none
    known."""
    found = document.whatif
    now = step_ns(document)
    if not found or not found.order or not now:
        return []
    paying = [step for step in found.order if step.gain_ns >= PAYING_RATIO * now]
    hidden = [step.code for step in found.order if step not in paying and step.hidden_ns > 0]
    lines = []
    if paying:
        path = first_of([f"{step.code} -> {words.duration(step.step_ns)}" for step in paying], 5)
        few = "; a single step may not be representative" if one_step(document) else ""
        lines.append(f"{words.duration(now)} a step now; remedied in this order, about: {path}{few}")
    if "facts.after_remedies_ns" in document.absent:
        return [*lines, document.absent["facts.after_remedies_ns"]] if lines else []
    best = _after(found.best_step_ns, document)
    host = found.floor.host_ns
    need = f" (it needs {words.duration(host)} a step now{_HOST_NEEDS})" if host is not None else ""
    if found.floor.by == "host":
        lines.append(f"after all remedies {best}, limited by the host{need}")
    elif len(paying) > 1:
        # A single step's range reaches from no gain to all of it: nothing says what limits it.
        time = None if one_step(document) else document.time
        freed_ns = now - found.best_step_ns
        works = time is not None and time.device_ns - freed_ns >= MOSTLY_WORK * found.best_step_ns
        lines.append(f"after all remedies {best}{LIMITED_BY_WORK if works else ''}")
    if surfacing := found.surfacing:
        shown = ", ".join(f"{each.code} ({words.duration(each.gain_ns)})" for each in surfacing[:3])
        lines.append(f"too small to be found in this step, but notable after these remedies: {shown}")
    if hidden:
        lines.append(f"no gain until the host needs less time: {', '.join(hidden[:6])}")
    return lines


def step_ns(document: Report) -> float | None:
    """Return the step time that costs are compared with: the account's, else the step log's."""
    if document.time:
        return float(document.time.step_ns)
    steps = document.steps
    return words.number(steps.mean_ns) if steps else None


def _named(document: Report) -> list[Finding]:
    """Return the finding that the answer names: its cause, else the one with most to gain; where no finding
    gains anything the first."""
    named = [finding for finding in document.findings if finding.code == document.cause]
    most = first_finding(document)
    return named or ([most] if most else list(document.findings[:1]))


def next_steps(document: Report, path: str | None) -> list[tuple[str, str]]:
    """Return the commands to run next, with what each would show; at most three."""
    run = quoted(path) if path else "PATH"
    steps = (
        [(f"mpprof memory {run}", "what did not fit, and what to try")] if ran_out_of_memory(document) else []
    )
    steps += [
        (f"mpprof explain {finding.code}", f"what {finding.slug} means and how to fix it")
        for finding in _named(document)
    ]
    if ranges := _ranges(document):
        name = quoted(ranges[0].name)
        steps.append((f"mpprof report {run} --step-range {name}", "makes steps of these ranges"))
    share = document.tensor_core
    if share and (share.fallback_ns_per_step or share.unknown_ratio):
        steps.append((f"mpprof kernels {run}", "every kernel: where it ran, and why"))
    elif document.time and document.time.basis == "host":
        steps.append((f"mpprof ops {run}", "the costliest ops"))
    gain = document.speedup
    could = gain.attainable_range if gain else None
    worth = not could or could.high >= WORTH_RECORDING
    if document.time and worth and (gain is None or gain.baseline != "measured"):
        steps.append(_comparison(document.run, run))
    if document.time is None and document.steps is not None:
        steps.append(('MPProfilerCallback(logdir, profile_steps="auto")', "records what the device ran"))
    return steps[:3]


def _ranges(document: Report) -> tuple[NamedRanges, ...]:
    """Return the ranges that may be steps, where none were found."""
    if document.time is not None:
        return document.time.ranges or ()
    return document.window.ranges if document.window is not None else ()


def _comparison(run: ReportedRun, path: str) -> tuple[str, str]:
    """Return the comparison that the run lacks: a float32 run with its mixed twin, any other with a float32
    run."""
    found = run.computes_in
    kind = found.kind if found else run.policy
    if kind == "float32":
        return (
            f"mpprof report MIXED --baseline {path}",
            "the same model in mixed precision, MIXED, against this",
        )
    other = "another run" if kind == "unknown" else "a float32 run"
    return f"mpprof report {path} --baseline BASE", f"against {other}, BASE, of the same model"


# --- the causes, by rank -----------------------------------------------------------------------------------

AS_GOOD_RATIO = 0.98
"""From here on a step after remedies is the attainable one."""
_EMULATED = mp806_other_vendor.CODE
_OF_SKIPS, _OF_MEMORY = "MP2", "MP6"


def head(answer: Answer) -> str:
    """Return the figure of an answer with its label, in one line; "" where it has none."""
    return answer.head


def to_change(document: Report) -> list[str]:
    """Return the codes of the findings whose remedies are shown: the first cause, the others by rank, without
    those that others leave nothing to gain; with none, what a CPU makes of 16 bits."""
    causes, step = document.facts.causes, document.facts.step_ns or 0.0
    gains = [(cause.code, cause.gain_ns_per_step) for cause in causes]
    kept = [code for code, gain in gains if gain is None or gain >= PAYING_RATIO * step]
    if causes or not on_cpu(document):
        first = first_cause(document)
        return sorted(kept, key=lambda code: first is None or code != first.code)
    return [found.code for found in document.findings if found.code == _EMULATED]


def first_cause(document: Report) -> Cause | None:
    """Return the answer's cause, else the one with most to gain, which its sentences name; None where there
    is none but dismissed ones."""
    dismissed = {found.code for found in document.findings if found.dismissed is not None}
    causes = [cause for cause in document.facts.causes if cause.code not in dismissed]
    named = (cause for cause in causes if cause.code == document.cause)
    return next(named, max(causes, key=lambda cause: cause.gain_ns_per_step or 0.0, default=None))


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


def precision_is_done(document: Report) -> bool:
    """Return whether the run is about as fast as its precision alone can make it, and nothing is to be
    mended."""
    answer, facts = document.answer, document.facts
    healthy = answer.kind == "measured" and answer.leads == "nothing"
    most = facts.attainable
    return healthy and bool(facts.observed and most and facts.observed >= ABOUT_ALL_RATIO * most)


def in_updates(document: Report) -> bool:
    """Return whether the first cause lengthens each applied update: its gain is not one of a step."""
    first = first_cause(document)
    return first is not None and lost_per_update(document, first.code) is not None


def of_memory(code: str) -> bool:
    """Return whether a cause costs memory and no time: it comes behind those that do."""
    return code.startswith(_OF_MEMORY)


def baseline_words(document: Report) -> str:
    """Return what the run is held against: float32 only where that is known of it."""
    speedup = document.speedup
    return "float32" if speedup and speedup.baseline_dtype == "float32" else "the baseline"


def speedup_after(document: Report, after_ns: float) -> float | None:
    """Return the speedup over the baseline of a step after remedies; None without a baseline, and where it is
    beyond the attainable one: those remedies shorten the baseline's step, too, so mixed precision is not what
    gains."""
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
