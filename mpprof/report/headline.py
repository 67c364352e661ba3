"""What a reader takes in within ten seconds: one figure, one sentence of at most fifteen words.

Both come from the report's `facts`, so that they name the cause and the target that every other place names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mpprof.diagnosis import wording
from mpprof.diagnosis.verdict import CLEAR_GAIN, MEETS_RATIO, NOTABLE_STEP_RATIO
from mpprof.model.account import FEW_WORKS, ClassLaunches, Launches, Limit, LimitKind
from mpprof.model.frozen import frozen
from mpprof.report import content, units, words

if TYPE_CHECKING:
    from mpprof.model.account import Speedup
    from mpprof.model.finding import Finding
    from mpprof.model.report import Cause, Report

MOST_WORDS = 15
PAYING_RATIO = content.PAYING_RATIO
OWN_RATIO = 0.05
"""Less than a twentieth of what remedies gain that a baseline would not gain, too, is not told apart."""
LOW_SHARE_RATIO = 0.5
"""With less than half of its matrix time on matrix units a 16-bit run wants an explanation."""
AS_GOOD_RATIO = 0.98
"""From here on an observed speedup is the attainable one."""
NO_SPEEDUP = 1.005
"""Below it a speedup is shown as 1.00x at most."""
WORKS_RATIO = 0.95
"""From here on little was lost: a twentieth of the attainable speedup."""
WORKS_SHARE_RATIO, WORKS_UNKNOWN_RATIO = 0.9, 0.1
"""Without a baseline: so much of the matrix time on matrix units, and no more of the work unknown."""
IDLE_RATIO = 0.2
"""Where the verdict names no cause, so much idle time that the trace does not explain comes first."""

_WITHOUT_UNITS = ("MP801", "MP802")
_EMULATED = "MP806"
_OTHER = "MP906"
_TF32 = "MP803"
_ENDED_BY_ERROR = "MP913"
_OF_SKIPS, _OF_MEMORY, _OF_VALIDITY = "MP2", "MP6", "MP9"
MOST_LAYERS, LONGEST_LAYER = 2, 24
"""So many layers, of so many letters each, have room in the headline."""

Kind = Literal["measured", "unlike", "not comparable", "float32", "cpu", "no trace", "window", "alone"]


@frozen
class Hero:
    """`figure` with what it is `under` it. `estimated`: it was computed, not measured."""

    kind: Kind
    figure: str
    under: str
    estimated: bool = False


def hero(document: Report) -> Hero:
    """Return the one figure for a run, with what its account is of by its own name."""
    found, time = _hero(document), document.time
    if found.under == "a step" and units.one(time) != "step":
        return replace(found, under=f"one {units.one(time)}")
    return replace(found, under=units.worded(found.under, time))


def _hero(document: Report) -> Hero:
    """Return the one figure for a run: its speedup against the attainable one where a comparable baseline was
    measured, else the best that can be said without."""
    kind, facts, speedup = kind_of(document), document.facts, document.speedup
    step = facts.step_ns
    of_step = Hero(kind, words.duration(step), "a step") if step is not None else None
    if kind == "unlike":
        return Hero(kind, "No speedup", "the baseline is unlike")
    if kind == "not comparable" and of_step is not None and speedup:
        return Hero(kind, of_step.figure, f"{of_step.under}{content.profiled_steps(speedup)}")
    if kind == "not comparable":
        return of_step or Hero(kind, "No speedup", "see why below")
    if kind == "measured" and speedup and undecided(document):
        ends = speedup.interval
        figure = words.speedups(*ends) if ends else words.speedup(facts.observed)
        return Hero(kind, figure, _of_undecided(document))
    if kind == "measured" and facts.observed is not None:
        return Hero(kind, words.speedup(facts.observed), _of_attainable(document))
    if kind == "float32" and speedup and (could := speedup.attainable_range):
        return Hero(kind, words.speedups(could.low, could.high), "attainable in 16 bits", estimated=True)
    if kind == "alone" and (of_cause := _of_cause(document)) is not None:
        return of_cause
    share = document.tensor_core
    if kind in ("alone", "window") and share and share.ratio is not None:
        return Hero(kind, words.percent(share.ratio), f"of matrix time on {content.matrix_units(document)}")
    where = {
        "cpu": "a step on a CPU",
        "float32": "a step in float32",
        "no trace": "a step; no trace shows why",
    }
    if of_step is None:
        return Hero(kind, "No trace" if kind == "no trace" else "No step", "the step time is not known")
    return Hero(kind, of_step.figure, where.get(kind, "a step"))


def _of_attainable(document: Report) -> str:
    """Return what an observed speedup is compared with; where it is no speedup, a text that says so."""
    facts = document.facts
    observed, attainable, base = facts.observed, facts.attainable, baseline_words(document)
    if attainable is None:
        return "over float32 on a CPU" if on_cpu(document) else "over float32; attainable not known"
    if at_its_end(document):
        why = " while the host limits" if limited_by_host(document) else ""
        than = f"slower than {base}" if observed is not None and observed < 1 else f"as fast as {base}"
        return f"{than}; precision alone can give no more{why}"
    of = f"{words.speedup(attainable)} attainable"
    return f"slower than {base}; {of}" if observed is not None and observed < 1 else f"of {of}"


def undecided(document: Report) -> bool:
    """Return whether the timings leave it open which of the two runs is faster."""
    return document.speedup is not None and content.difference_of(document.speedup) == "not known"


def _of_undecided(document: Report) -> str:
    """Return what stands under an interval that holds 1 and is wide."""
    speedup, attainable = document.speedup, document.facts.attainable
    assert speedup is not None
    sure = content.interval_covers(speedup) if speedup.interval else "without an interval"
    parts = [f"{sure}; the timings do not show which is faster{content.profiled_steps(speedup)}"]
    parts += [] if attainable is None else [f"{words.speedup(attainable)} attainable"]
    return "; ".join(parts)


def at_its_end(document: Report) -> bool:
    """Return whether a run has all that precision alone can give, and that is no speedup: "0.74x of 0.74x"
    would read as a success."""
    facts = document.facts
    if undecided(document):
        return False
    return not facts.unlike and no_more_than(facts.observed, facts.attainable)


def no_more_than(observed: float | None, attainable: float | None) -> bool:
    """Return whether a speedup is all that is attainable, and none at that; False where one is unknown."""
    if observed is None or attainable is None:
        return False
    return attainable < NO_SPEEDUP and observed >= AS_GOOD_RATIO * attainable


def limited_by_host(document: Report) -> bool:
    """Return whether the host is what keeps the attainable speedup low."""
    return _main_limit(document) == "host"


def _main_limit(document: Report) -> LimitKind | None:
    """Return the main reason that the attainable speedup is low; None where none is known."""
    limits = document.speedup.attainable_limits if document.speedup else ()
    return limits[0].kind if limits else None


def _of_cause(document: Report) -> Hero | None:
    """Return what share the first cause makes up in a run without a baseline, where nearly all matrix work
    ran on matrix units: the share on matrix units says nothing about what such a run loses."""
    first, share, step = first_cause(document), document.tensor_core, document.facts.step_ns
    if first is None or (share and (share.ratio or 0.0) < LOW_SHARE_RATIO) or holds(document):
        return None
    steps = document.steps
    if lost_per_update(document, first.code) is not None and steps and steps.skipped_ratio:
        return Hero("alone", words.percent(steps.skipped_ratio), "of all updates were skipped")
    gain = first.gain_ns_per_step
    if gain is None or not step or gain < PAYING_RATIO * step:
        return None
    return Hero("alone", words.percent(gain / step), "of the step to gain, at best", estimated=True)


def kind_of(document: Report) -> Kind:
    """Return what kind of answer a run allows."""
    facts, speedup = document.facts, document.speedup
    if facts.unlike:
        return "unlike"
    if speedup and speedup.baseline == "measured":
        return "measured" if facts.observed is not None else "not comparable"
    if document.window is not None:
        return "window"
    if document.time is None:
        return "no trace"
    if on_cpu(document):
        return "cpu"
    computes = document.run.computes_in
    wide = computes.kind == "float32" if computes else document.run.policy == "float32"
    return "float32" if wide else "alone"


def on_cpu(document: Report) -> bool:
    """Return whether the step that is split ran on a CPU."""
    time = document.time
    return time is not None and (time.basis == "host" or "CPU" in (document.run.device or "").split())


def _before_costs(document: Report) -> bool:
    """Return whether the first cause comes before all costs, on a CPU as anywhere."""
    answer = document.answer
    return answer is not None and answer.leads in ("error", "learning", "inactive")


def headline(document: Report, *, sized: bool = True) -> str:
    """Return the first cause with its size (without it, unless `sized`), else what there is to say; at most
    fifteen words."""
    return units.worded(_headline(document, sized=sized), document.time)


def _headline(document: Report, *, sized: bool) -> str:
    kind, facts = kind_of(document), document.facts
    if kind == "unlike":
        return _unlike(document)
    step, first = facts.step_ns, first_cause(document)
    if kind == "window" and not content.has_matrix_work(document) and content.shows_work(document):
        return "The window holds no matrix work: profile a later step."
    idle, known = content.other_idle(document)
    if document.cause is None and idle >= IDLE_RATIO and (known is None or not on_cpu(document)):
        of = "the step" if document.time else "the window"
        why = f": {known}" if known else "; the trace does not show what for"
        return f"The device idles {words.percent(idle)} of {of}{why}."
    if content.ran_out_of_memory(document) and (first is None or first.code == _ENDED_BY_ERROR):
        return "Training ran out of memory."
    if (good := holds(document)) is not None:
        return good if sized else f"{good.partition(':')[0].removesuffix('.')}."
    found = first_finding(document)
    if first is not None and found is not None:
        title, gain = found.title, first.gain_ns_per_step
        if not sized and (gain is not None or not on_cpu(document)):
            return _first_that_fits(f"{title}.", title)
        if gain is not None and step and gain >= PAYING_RATIO * step:
            wasted, of = words.duration(gain), words.duration(step)
            return _first_that_fits(
                *_with_layers(found, f": {wasted} to gain in each {of} step."),
                *_with_layers(found, f": {wasted} of {of} to gain."),
                f"{title}: {wasted} to gain in each {of} step.",
                f"{title}: {wasted} of {of} to gain.",
                f"{title}: {wasted} to gain.",
                f"{title}.",
                title,
            )
        if (back := back_to_baseline(document)) is not None and step:
            saves = f"{baseline_words(document)} saves {words.duration(step - back)}"
            return _first_that_fits(f"{title}: {saves} of each {words.duration(step)} step.", f"{title}.")
        if (each := lost_per_update(document, first.code)) is not None:
            return _first_that_fits(f"{title}: {words.duration(each)} lost per applied update.", f"{title}.")
        if not on_cpu(document) or _before_costs(document):
            return _first_that_fits(*_share(document, found), f"{title}.", title)
    return _without_a_cause(document, kind)


def holds(document: Report) -> str | None:
    """Return a sentence for a run that lost little to anything that other runs of its kind do not have; None
    for a run with a loss to explain, and where the loss is not known."""
    kind = kind_of(document)
    if kind == "measured":
        return _works(document)
    share = document.tensor_core
    if kind != "alone" or share is None or (share.ratio or 0.0) < WORKS_SHARE_RATIO:
        return None
    lost = (found for found in _named(document) if _is_serious(found) and not of_memory(found.code))
    if share.unknown_ratio > WORKS_UNKNOWN_RATIO or any(lost):
        return None
    ran = f"{words.percent(share.ratio)} of matrix time ran on {content.matrix_units(document)}"
    return f"Mixed precision is in effect: {ran}."


def _works(document: Report) -> str | None:
    """Return a sentence that a run has the speedup over its baseline that precision allows, and why that is
    no more."""
    observed, attainable = document.facts.observed, document.facts.attainable
    if observed is None or attainable is None or on_cpu(document) or undecided(document):
        return None
    each, serious = document.facts.observed_per_update, _serious(document)
    if min(observed, each or observed) < max(1.0, WORKS_RATIO * attainable):
        return None
    slow = serious and not serious.code.startswith((_OF_VALIDITY, _OF_MEMORY))
    if serious and slow and serious.gain_ns_per_step is None:
        return None  # it comes before all that costs time: the loss is not finite, say
    got, most = words.speedup(observed), words.speedup(attainable)
    if attainable >= CLEAR_GAIN:
        also = f"; {within(serious.title)}" if serious else ""
        if observed > attainable * MEETS_RATIO:
            more = f"Mixed precision works: {got}, more than the {most} estimated as attainable"
            return _first_that_fits(f"{more}{also}.", f"{more}.")
        return _first_that_fits(
            f"Mixed precision works: {got} of {most} attainable{also}.",
            f"Mixed precision works: {got} of {most} attainable.",
        )
    tf32 = content.finding(document, _TF32) is not None
    if tf32 and _main_limit(document) not in ("host", "wait"):
        return "Mixed precision works: little to gain, since float32 used Tensor Cores, too (TF32)."
    return None if serious else f"Mixed precision works: {got}, and no more than {most} is attainable."


def _serious(document: Report) -> Finding | None:
    """Return the finding of the first cause, unless every healthy run of this kind has that cause."""
    found = first_finding(document)
    return found if found and _is_serious(found) else None


def _is_serious(found: Finding) -> bool:
    return found.severity != "info"


def _named(document: Report) -> list[Finding]:
    """Return the findings of all causes except dismissed ones."""
    codes = {cause.code for cause in document.facts.causes}
    return [found for found in document.findings if found.code in codes and found.dismissed is None]


def still(document: Report) -> tuple[Finding, float] | None:
    """Return the cause that the verdict names beside what holds of a run without a baseline, and its gain;
    None where it names none that gains a tenth of the step."""
    first, step = first_cause(document), document.facts.step_ns
    if first is None or not step or first.code != document.cause:
        return None
    if holds(document) is None or kind_of(document) != "alone":  # a measured one: of the attainable speedup
        return None
    gain, found = first.gain_ns_per_step or 0.0, first_finding(document)
    return (found, gain) if found and gain >= NOTABLE_STEP_RATIO * step else None


def of_memory(code: str) -> bool:
    """Return whether a cause costs memory and no time: it comes behind those that do."""
    return code.startswith(_OF_MEMORY)


def within(title: str) -> str:
    """Return a title within a sentence: a name in capitals stays."""
    first = title.partition(" ")[0]
    return title if first.isupper() and len(first) > 1 else title[0].lower() + title[1:]


def lost_per_update(document: Report, code: str) -> float | None:
    """Return by how much skipped updates, where `code` is about them, lengthen each applied one; None of any
    other cause."""
    facts = document.facts
    step, each = facts.step_ns, facts.step_ns_per_update
    found = content.finding(document, code)
    wasted = found is not None and code.startswith(_OF_SKIPS) and found.cost_ns_per_step
    return each - step if wasted and step is not None and each is not None and each > step else None


def _with_layers(found: Finding, said: str) -> list[str]:
    """Return a sentence about a cause with the one or two layers that it is about; none where their names are
    long."""
    layers = [words.plain(layer) for layer in found.layers]
    if not 1 <= len(layers) <= MOST_LAYERS or max(map(len, layers)) > LONGEST_LAYER:
        return []
    return [f"{found.title} ({', '.join(layers)}){said}"]


def _share(document: Report, found: Finding) -> list[str]:
    """Return a sentence for a cause without a gain, with the first share that was measured and what that is a
    share of."""
    if document.window is not None and (cost := found.cost_ns_in_window) is not None:
        of_window = words.percent(cost / document.window.span_ns)
        return [f"{found.title}: {of_window} of the window."]
    share = document.tensor_core
    if found.code.startswith(_OF_VALIDITY) and share and share.ratio is not None:
        ran = f"{words.percent(share.ratio)} of its matrix time ran on {content.matrix_units(document)}"
        return [f"{found.title}; {ran}."]
    if of_memory(found.code) and found.cost_bytes:
        return [f"{found.title}: {words.size(found.cost_bytes)} of memory."]
    shares = (each for each in found.evidence if each.unit == "ratio" and each.value is not None)
    if (size := next(shares, None)) is None:
        return []
    return [f"{found.title}: {words.quantity(size.value, 'ratio')} ({words.plain(size.name)})."]


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


def first_cause(document: Report) -> Cause | None:
    """Return the cause that the verdict names, else the one that comes first; None where there is none but
    dismissed ones."""
    dismissed = {found.code for found in document.findings if found.dismissed is not None}
    causes = [cause for cause in document.facts.causes if cause.code not in dismissed]
    named = (cause for cause in causes if cause.code == document.cause)
    return next(named, next(iter(causes), None))


def first_finding(document: Report) -> Finding | None:
    """Return the finding of the first cause."""
    first = first_cause(document)
    return content.finding(document, first.code) if first else None


def _unlike(document: Report) -> str:
    """Return what makes the baseline a different training from this one in float32."""
    why = [difference.partition(":")[0] for difference in document.facts.unlike]
    evidence = [each for found in document.findings if found.code == _OTHER for each in found.evidence]
    differs = f"The two runs differ in {' and '.join(why[:2])}"
    if not any(each.name == "difference" for each in evidence):  # a sentence: swapped, other models
        differs = why[0][0].upper() + why[0][1:]
    return _first_that_fits(
        f"{differs}: no speedup of mixed precision.",
        "The two runs differ in more than their precision: no speedup to state.",
    )


def _without_a_cause(document: Report, kind: Kind) -> str:
    facts, share = document.facts, document.tensor_core
    observed, attainable = facts.observed, facts.attainable
    if facts.causes and first_cause(document) is None:
        return f"No cause of lost time was found beside {words.plural(len(facts.causes), 'dismissed one')}."
    if document.window is not None and (kernels := document.window.kernels) < FEW_WORKS:
        return f"The window holds {words.plural(kernels, 'kernel')}: too little to judge a training."
    if kind == "window":
        return "No step can be told apart: all shares are of the whole profiler window."
    if kind == "no trace":
        return "No trace shows where the step goes."
    if on_cpu(document):
        slower = " and emulates 16 bits" if observed is not None and observed < 1 else ""
        return f"This run used a CPU, which has no Tensor Cores{slower}."
    speedup = document.speedup
    if kind == "not comparable" and speedup and (seen := content.profiled_steps(speedup)):
        return f"The timings give no speedup{seen}."
    if kind == "not comparable":
        return "The two runs cannot be compared."
    could = document.speedup.attainable_range if document.speedup else None
    if kind == "float32" and could and could.eligible_ratio is not None:
        return f"Mixed precision is off; {words.percent(could.eligible_ratio)} of device time could use it."
    if kind == "float32" and (none := without_units(document)):
        return f"{none}."
    if kind == "float32":
        return "Mixed precision is off, and no cause of lost time was found."
    if undecided(document):
        return "No cause of lost time was found; train both runs for longer to know the speedup."
    if observed is not None and attainable is not None and observed >= AS_GOOD_RATIO * attainable:
        return "This run is as fast as this card allows."
    if share and share.ratio is not None and share.ratio < LOW_SHARE_RATIO:
        units = content.matrix_units(document)
        return f"Only {words.percent(share.ratio)} of matrix time ran on {units}; the reason is not known."
    if observed is not None and observed < 1:
        return "Slower than float32, and no cause with a cost was found."
    return "No cause of lost time was found."


def without_units(document: Report) -> str | None:
    """Return what a report states for a card without matrix units; None for a card that has them."""
    return next((found.title for found in document.findings if found.code in _WITHOUT_UNITS), None)


def _first_that_fits(*texts: str) -> str:
    """Return the first text of at most fifteen words; if none is that short, the last text, cut there."""
    fits = next((text for text in texts if len(text.split()) <= MOST_WORDS), None)
    return fits or f"{' '.join(texts[-1].split()[: MOST_WORDS - 1])} …"


def to_change(document: Report) -> list[str]:
    """Return the codes of the findings whose remedies are shown: the causes, by rank, without those that
    others leave nothing to gain; with none, what a CPU makes of 16 bits, which the headline states."""
    causes, step = document.facts.causes, document.facts.step_ns or 0.0
    gains = [(cause.code, cause.gain_ns_per_step) for cause in causes]
    paying = [code for code, gain in gains if gain is None or gain >= PAYING_RATIO * step]
    if causes or not on_cpu(document):
        return paying
    return [found.code for found in document.findings if found.code == _EMULATED]


def beside(document: Report) -> str:
    """Return what belongs to the headline in figures: what this run loses, how much of that causes explain,
    and what keeps the attainable speedup low; empty where none of it is known."""
    return " ".join(
        said for said in (_slower(document), _lost(document), _low(document), _left(document)) if said
    )


def _slower(document: Report) -> str:
    """Return by how much a run is slower than the baseline, or than it would be without skipped updates."""
    facts = document.facts
    step, base, first = facts.step_ns, facts.baseline_step_ns, first_cause(document)
    each, steps = facts.step_ns_per_update, document.steps
    if first and each and step and steps and lost_per_update(document, first.code) is not None:
        skipped = f"{words.count(steps.skipped or 0)} of {words.count(steps.count)} steps"
        return (
            f"An applied update takes {words.duration(each)}: {skipped} changed no weight, because their "
            "scaled gradients were not finite (overflow)."
        )
    if facts.unlike or step is None or base is None or kind_of(document) != "measured":
        return ""
    if step < (1 + PAYING_RATIO) * base or undecided(document):
        return ""
    more = more_launches(document)
    why = f": {more}, and the host limits both" if more else ""
    return f"A step takes {words.duration(step - base)} longer than in {baseline_words(document)}{why}."


def more_launches(document: Report) -> str:
    """Return what a run launches beyond its baseline where launching is all that either has time for: why it
    is the slower one; empty elsewhere."""
    found = document.speedup.launches if document.speedup else None
    if found is None:
        return ""
    by_class = [ClassLaunches(part.category, part.baseline, part.mixed) for part in found.by_class]
    host_ns = found.baseline_host_ns, found.mixed_host_ns
    return wording.more_launches(Launches(found.baseline, found.mixed, *host_ns, tuple(by_class)))


def _lost(document: Report) -> str:
    """Return how much of each step is lost against the attainable one, and how much of that the causes
    explain."""
    facts = document.facts
    step, attainable, unexplained = facts.step_ns, facts.attainable_step_ns, facts.unexplained_ns
    if step is None or attainable is None or facts.unlike or step - attainable < PAYING_RATIO * step:
        return ""
    said = f"{words.duration(step - attainable)} of each {words.duration(step)} step are lost"
    if unexplained is None or holds(document):
        return f"{said}."
    explained = min(1.0, max(0.0, 1.0 - unexplained / (step - attainable)))
    return f"{said}; the causes below explain {words.percent(explained)} of that."


def _low(document: Report) -> str:
    """Return what keeps the attainable speedup low, where it is too low to be a clear gain."""
    facts, speedup = document.facts, document.speedup
    most = facts.attainable
    if speedup is None or facts.unlike or facts.observed is None or most is None:
        return ""
    if holds(document):
        return ""
    step = f"{baseline_words(document)}'s step" if baseline_words(document) != "float32" else FLOAT32_STEP
    why = first_limit(speedup, step) if most < CLEAR_GAIN else ""
    allows = "can give no more" if at_its_end(document) else f"allows {words.speedup(most)} at most"
    return f"Precision alone {allows}: {why}." if why else ""


def _left(document: Report) -> str:
    """Return what remedies may still gain where nothing was lost."""
    facts = document.facts
    step, after = facts.step_ns, facts.after_remedies_ns
    if holds(document) is None or step is None or after is None or step - after < PAYING_RATIO * step:
        return ""
    if kind_of(document) == "measured":
        return _shared(document) if speedup_after(document, after) is None else ""
    return (
        f"No loss was found. Beyond precision, the changes below gain up to {words.duration(step - after)} "
        f"of each {words.duration(step)} step."
    )


def _shared(document: Report) -> str:
    """Return how much of the remedies' gains the baseline would have, too."""
    causes, base = document.facts.causes, baseline_words(document)
    gains = sum(cause.gain_ns_per_step or 0.0 for cause in causes)
    own = sum(own_ns(cause) or 0.0 for cause in causes)
    if own < OWN_RATIO * gains:
        return f"The changes below would shorten {base}, too."
    return (
        f"The changes below gain {words.duration(gains)}, of which {base} would gain "
        f"{words.duration(gains - own)}, too."
    )


def own_ns(cause: Cause) -> float | None:
    """Return what of a cause's gain the baseline would not gain, too: this run lost it against the attainable
    step, or 16 bits brought it; None without a measured baseline that tells."""
    known = [ns for ns in (cause.recovers_ns_per_step, cause.added_ns_per_step) if ns is not None]
    return max(known) if known else None


FLOAT32_STEP = "the float32 step"


def baseline_words(document: Report) -> str:
    """Return what the run is held against: float32 only where that is known of it."""
    speedup = document.speedup
    return "float32" if speedup and speedup.baseline_dtype == "float32" else "the baseline"


def first_limit(speedup: Speedup, step: str) -> str:
    """Return the first of what keeps the attainable speedup low, as a clause."""
    limits = [
        Limit(part.category, part.kind, part.ns_per_step, part.best_ns, part.ratio)
        for part in speedup.attainable_limits
    ]
    return wording.limiting(limits[:1], step)


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
