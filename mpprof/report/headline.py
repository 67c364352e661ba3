"""What a reader takes in within ten seconds: one figure, one sentence of at most fifteen words.

Both come from the report's `facts`, so that they name the cause and the target that every other place names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mpprof.model.account import FEW_WORKS
from mpprof.model.frozen import frozen
from mpprof.report import content, words

if TYPE_CHECKING:
    from mpprof.model import document as doc

MOST_WORDS = 15
PAYING_RATIO = content.PAYING_RATIO
LOW_SHARE_RATIO = 0.5
"""With less than half of its matrix time on matrix units a 16-bit run wants an explanation."""
AS_GOOD_RATIO = 0.98
"""From here on an observed speedup is the attainable one."""
IDLE_RATIO = 0.2
"""Where the verdict names no cause, so much idle time that the trace does not explain comes first."""

_WITHOUT_UNITS = ("MP801", "MP802")
_EMULATED = "MP806"
_OTHER = "MP906"

Kind = Literal["measured", "unlike", "not comparable", "float32", "cpu", "no trace", "window", "alone"]


@frozen
class Hero:
    """`figure` with what it is `under` it. `estimated`: it was computed, not measured."""

    kind: Kind
    figure: str
    under: str
    estimated: bool = False


def hero(document: doc.Report) -> Hero:
    """Return the one figure for a run: its speedup against the attainable one where a comparable baseline was
    measured, else the best that can be said without."""
    kind, facts, speedup = kind_of(document), document["facts"], document["speedup"]
    step = facts["step_ns"]
    of_step = Hero(kind, words.duration(step), "a step") if step is not None else None
    if kind == "unlike":
        return Hero(kind, "No speedup", "the baseline is unlike")
    if kind == "not comparable":
        return of_step or Hero(kind, "No speedup", "see why below")
    if kind == "measured" and facts["observed"] is not None:
        under = f"of {words.speedup(facts['attainable'])} attainable"
        if facts["attainable"] is None:
            under = "over float32 on a CPU" if on_cpu(document) else "over float32; attainable not known"
        return Hero(kind, words.speedup(facts["observed"]), under)
    if kind == "float32" and speedup and (could := speedup.get("attainable")):
        return Hero(
            kind, words.speedups(could["low"], could["high"]), "attainable in 16 bits", estimated=True
        )
    share = document["tensor_core"]
    if kind in ("alone", "window") and share and share["ratio"] is not None:
        return Hero(
            kind, words.percent(share["ratio"]), f"of matrix time on {content.matrix_units(document)}"
        )
    where = {
        "cpu": "a step on a CPU",
        "float32": "a step in float32",
        "no trace": "a step; no trace shows why",
    }
    if of_step is None:
        return Hero(kind, "No trace" if kind == "no trace" else "No step", "the step time is not known")
    return Hero(kind, of_step.figure, where.get(kind, "a step"))


def kind_of(document: doc.Report) -> Kind:
    """Return what kind of answer a run allows."""
    facts, speedup = document["facts"], document["speedup"]
    if facts.get("unlike"):
        return "unlike"
    if speedup and speedup["baseline"] == "measured":
        return "measured" if facts["observed"] is not None else "not comparable"
    if "window" in document:
        return "window"
    if document["time"] is None:
        return "no trace"
    if on_cpu(document):
        return "cpu"
    computes = document["run"].get("computes_in")
    wide = computes["kind"] == "float32" if computes else document["run"]["policy"] == "float32"
    return "float32" if wide else "alone"


def on_cpu(document: doc.Report) -> bool:
    """Return whether the step that is split ran on a CPU."""
    time = document["time"]
    return time is not None and (
        time["basis"] == "host" or "CPU" in (document["run"]["device"] or "").split()
    )


def headline(document: doc.Report, *, sized: bool = True) -> str:
    """Return the first cause with its size (without it, unless `sized`), else what there is to say; at most
    fifteen words."""
    kind, facts = kind_of(document), document["facts"]
    if kind == "unlike":
        return _unlike(document)
    step, first = facts["step_ns"], first_cause(document)
    if kind == "window" and not content.has_matrix_work(document) and content.shows_work(document):
        return "The window holds no matrix work: profile a later step."
    idle, known = content.other_idle(document)
    if document.get("cause") is None and idle >= IDLE_RATIO and (known is None or not on_cpu(document)):
        of = "the step" if document["time"] else "the window"
        why = f": {known}" if known else "; the trace does not show what for"
        return f"The device idles {words.percent(idle)} of {of}{why}."
    findings = {found["code"]: found for found in document["findings"]}
    if first is not None:
        found = findings[first["code"]]
        title, gain = found["title"], first["gain_ns_per_step"]
        if not sized and (gain is not None or not on_cpu(document)):
            return _first_that_fits(f"{title}.", title)
        if gain is not None and step and gain >= PAYING_RATIO * step:
            wasted, of = words.duration(gain), words.duration(step)
            return _first_that_fits(
                f"{title}: {wasted} to gain in each {of} step.",
                f"{title}: {wasted} of {of} to gain.",
                f"{title}: {wasted} to gain.",
                f"{title}.",
                title,
            )
        if not on_cpu(document):
            return _first_that_fits(*_share(document, found), f"{title}.", title)
    return _without_a_cause(document, kind)


def _share(document: doc.Report, found: doc.Finding) -> list[str]:
    """A cause without a gain with the first share that was measured, and what that is a share of."""
    if "window" in document and (cost := found.get("cost_ns_in_window")) is not None:
        of_window = words.percent(cost / document["window"]["span_ns"])
        return [f"{found['title']}: {of_window} of the window."]
    shares = (each for each in found["evidence"] if each["unit"] == "ratio" and each["value"] is not None)
    if (size := next(shares, None)) is None:
        return []
    return [f"{found['title']}: {words.quantity(size['value'], 'ratio')} ({words.plain(size['name'])})."]


def changes_type(document: doc.Report) -> bool:
    """Return whether the first remedy changes the type to compute in, so that the gains of the others, which
    are those in this run's type, do not follow from it."""
    first = first_cause(document)
    named = [found for found in document["findings"] if first and found["code"] == first["code"]]
    return any(remedy.get("other_type") for found in named for remedy in found.get("remedies", []))


def first_cause(document: doc.Report) -> doc.Cause | None:
    """Return the cause that the verdict names, else the one that comes first; None where there is none but
    dismissed ones."""
    dismissed = {found["code"] for found in document["findings"] if "dismissed" in found}
    causes = [cause for cause in document["facts"]["causes"] if cause["code"] not in dismissed]
    named = (cause for cause in causes if cause["code"] == document.get("cause"))
    return next(named, next(iter(causes), None))


def _unlike(document: doc.Report) -> str:
    """What makes the baseline another training than this one in float32."""
    why = [difference.partition(":")[0] for difference in document["facts"].get("unlike", [])]
    evidence = [
        each for found in document["findings"] if found["code"] == _OTHER for each in found["evidence"]
    ]
    differs = f"The two runs differ in {' and '.join(why[:2])}"
    if not any(each["name"] == "difference" for each in evidence):  # a sentence: swapped, other models
        differs = why[0][0].upper() + why[0][1:]
    return _first_that_fits(
        f"{differs}: no speedup of mixed precision.",
        "The two runs differ in more than their precision: no speedup to state.",
    )


def _without_a_cause(document: doc.Report, kind: Kind) -> str:
    facts, share = document["facts"], document["tensor_core"]
    observed, attainable = facts["observed"], facts["attainable"]
    if facts["causes"] and first_cause(document) is None:
        return (
            f"No cause of lost time was found beside {words.plural(len(facts['causes']), 'dismissed one')}."
        )
    if "window" in document and (kernels := document["window"]["kernels"]) < FEW_WORKS:
        return f"The window holds {words.plural(kernels, 'kernel')}: too little to judge a training."
    if kind == "window":
        return "No step can be told apart: all shares are of the whole profiler window."
    if kind == "no trace":
        return "No trace was recorded, so where the step goes is not known."
    if on_cpu(document):
        slower = " and emulates 16 bits" if observed is not None and observed < 1 else ""
        return f"This run used a CPU, which has no Tensor Cores{slower}."
    if kind == "not comparable":
        return "The two runs cannot be compared."
    could = document["speedup"].get("attainable") if document["speedup"] else None
    if kind == "float32" and could and could["eligible_ratio"] is not None:
        return (
            f"Mixed precision is off; {words.percent(could['eligible_ratio'])} of device time could use it."
        )
    if kind == "float32" and (none := without_units(document)):
        return f"{none}."
    if kind == "float32":
        return "Mixed precision is off, and no cause of lost time was found."
    if observed is not None and attainable is not None and observed >= AS_GOOD_RATIO * attainable:
        return "This run is as fast as this card allows."
    if share and share["ratio"] is not None and share["ratio"] < LOW_SHARE_RATIO:
        units = content.matrix_units(document)
        return f"Only {words.percent(share['ratio'])} of matrix time ran on {units}; the reason is not known."
    if observed is not None and observed < 1:
        return "Slower than float32, and no cause with a cost was found."
    return "No cause of lost time was found."


def without_units(document: doc.Report) -> str | None:
    """What a report states of a card without matrix units; None of one that has them."""
    return next((found["title"] for found in document["findings"] if found["code"] in _WITHOUT_UNITS), None)


def _first_that_fits(*texts: str) -> str:
    """The first of at most fifteen words; else the last, cut there."""
    fits = next((text for text in texts if len(text.split()) <= MOST_WORDS), None)
    return fits or f"{' '.join(texts[-1].split()[: MOST_WORDS - 1])} …"


def to_change(document: doc.Report) -> list[str]:
    """Return the codes of the findings whose remedies are shown: the causes, by rank, without those that
    others leave nothing to gain; with none, what a CPU makes of 16 bits, which the headline states."""
    causes, step = document["facts"]["causes"], document["facts"]["step_ns"] or 0.0
    gains = [(cause["code"], cause["gain_ns_per_step"]) for cause in causes]
    paying = [code for code, gain in gains if gain is None or gain >= PAYING_RATIO * step]
    if causes or not on_cpu(document):
        return paying
    return [found["code"] for found in document["findings"] if found["code"] == _EMULATED]


def lost(document: doc.Report) -> str:
    """Return how much of each step is lost against the attainable one, and how much of it causes explain;
    empty where that is not known, or nothing is lost."""
    facts = document["facts"]
    step, attainable, unexplained = facts["step_ns"], facts["attainable_step_ns"], facts["unexplained_ns"]
    if step is None or attainable is None or facts.get("unlike") or step - attainable < PAYING_RATIO * step:
        return ""
    said = f"{words.duration(step - attainable)} of each {words.duration(step)} step are lost"
    if unexplained is None:
        return f"{said}."
    explained = min(1.0, max(0.0, 1.0 - unexplained / (step - attainable)))
    return f"{said}; the causes below explain {words.percent(explained)} of that."
