"""What a comparison says, in sentences and rows, before anybody lays it out (for a report: `content`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpprof.analysis.steps.stalls import BEGINS
from mpprof.model.account import GapSlice
from mpprof.model.finding import Finding, KernelChange, Rung
from mpprof.model.frozen import frozen
from mpprof.model.outcome import RemediesTotal, RemedyOutcome
from mpprof.model.quantities import first_of
from mpprof.model.report import ComparedRuns, Report
from mpprof.report import content, two_windows, units, without_finding, words

NOTABLE_RATIO = 0.005
"""A part whose gap is below this share of the step is folded into the last row,"""
NOTABLE_LOSS = 0.10
"""unless it is a tenth of all that was lost."""
REPEATS = "repeats may differ by more"
MOST_ROWS = 12
MOST_OPS = 3
_WITHOUT = "-"
REMEDIES = "What the earlier report predicted, and what was obtained"


@frozen
class GapRow:
    """One row of the gap between two runs: `ns` is `mixed_ns` less `could_ns`."""

    label: str
    ns: float
    baseline_ns: float
    could_ns: float
    mixed_ns: float


# --- one rung ----------------------------------------------------------------------------------------------


def heading(document: ComparedRuns, rung: Rung) -> str:
    """Return the two runs of one comparison with their step times."""
    start, end = _ends(document, rung)
    names = f"{words.plain(start.run.name)} → {words.plain(end.run.name)}"
    steps_ns = [content.step_ns(run) for run in (start, end)]
    if rung.windows is not None and (None in steps_ns or _shows_other(start, end)):
        spans = [words.duration(ns) for ns in two_windows.ends(rung.windows.span_ns)]
        return f"{names}: windows of {spans[0]} and {spans[1]}, not steps"
    times = [words.duration(ns) for ns in steps_ns]
    return f"{names}: {units.worded(f'{times[0]} → {times[1]} a step', end.time)}"


def _shows_other(*reports: Report) -> bool:
    """Return whether the account of one of these is of something else than a step."""
    return any(report.time.unit != "step" for report in reports if report.time is not None)


def answer(rung: Rung) -> list[str]:
    """Return the answer on the later run against the earlier: its figure, its sentence, why, and what to do
    first; empty where they cannot be compared."""
    found = rung.answer
    if not found:
        return []
    said = [content.head(found), found.sentence, " ".join(found.because)]
    return [*filter(None, said), *([f"First: {found.do}"] if found.do else [])]


def lines(document: ComparedRuns, rung: Rung) -> list[str]:
    """Return what one comparison observed against what was expected, and in what the two runs are unlike."""
    if rung.refused:
        return [f"not compared: {rung.refused}"]
    said = [rate] if (rate := throughput(rung)) else []
    absent = {f"speedup.{key}": why for key, why in rung.absent.items()}
    if rung.windows is not None:
        said += rung.windows.statements
        if _shows_other(*_ends(document, rung)):
            said.append(rung.absent.get("observed", ""))
    if rung.windows is None or rung.observed is not None:
        said += content.measured(rung, absent)
    said += learned(document, rung)
    if rung.labels:
        labels = "; ".join(words.plain(label) for label in rung.labels)
        said.append(
            f"the runs differ in more than precision, so it is not the only cause of the difference: {labels}"
        )
    said += [words.plain(note) for note in rung.notes or []]
    if cards := rung.cards:
        said.append(cards)
    start, end = _ends(document, rung)
    said += [f"matrix work: {text}" for text in [_matrix_work(start, end)] if text]
    said += [f"peak memory: {text}" for text in [peak_memory(document, rung)] if text]
    return said


def learned(document: ComparedRuns, rung: Rung) -> list[str]:
    """Return the speedup per applied update, where updates were skipped, and the losses after as many of
    them. For runs that recorded no step, return nothing: there are no losses to compare."""
    found = rung.learning
    if found is None or all(run.steps is None for run in _ends(document, rung)):
        return []
    flag = f" [{found.severity}]" if found.severity else ""
    said = [found.per_update_text, words.plain(found.text) + flag]
    return [line for line in said if line]


def remedies(document: ComparedRuns, rung: Rung) -> list[str]:
    """Return what the earlier report promised against what the later run obtained: a line for each remedy
    that is seen, their sum, and one line for those that are not. Between runs of different precision, which
    are not meant as before and after, only what was applied for certain."""
    found = rung.remedies
    before, after = _ends(document, rung)
    same = _computed_in(before) == _computed_in(after)
    if not found:
        why = rung.absent.get("remedies", "")
        promised = any(cause.gain_ns_per_step for cause in before.facts.causes)
        return [f"not judged: {words.plain(why)}"] if promised and same and not rung.refused else []
    counted = [one for one in found if one.counted]
    said = [_remedy(one) for one in counted]
    if (total := rung.remedies_total) is not None:
        said.append(f"in all: predicted {_range(total.predicted_ns)} a step, {_obtained(total)}")
    left = [f"{one.code} {one.slug}" for one in found if not one.counted]
    if left and (same or counted):
        said.append(f"not seen in {words.plain(after.run.name)}: {', '.join(left)}")
    return said


def _computed_in(report: Report) -> str | None:
    found = report.run.computes_in
    return found.dtype if found else None


_AFTER = {
    "gone": "its cause is gone",
    "remains": "its cause remains",
    "not judged": "its cause is not judged",
}


def _remedy(found: RemedyOutcome) -> str:
    applied = f"applied ({words.plain('; '.join(found.evidence))}), " if found.evidence else ""
    why = f" ({words.plain(found.reason)})" if found.obtained_ns is None and found.reason else ""
    return (
        f"{found.code} {found.slug}: predicted {_range(found.predicted_ns)} a step, "
        f"{_obtained(found)}{why}; {applied}{_AFTER[found.after]}"
    )


def _obtained(found: RemedyOutcome | RemediesTotal) -> str:
    ns, interval = found.obtained_ns, found.interval_ns
    if ns is None:
        return "its gain is not known"
    ends = f" (95 %: {_signed(interval[0])} to {_signed(interval[1])})" if interval else ""
    return f"obtained {_signed(ns)}{ends}"


def _range(ends: tuple[float, float]) -> str:
    low, high = (words.duration(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _signed(ns: float) -> str:
    return f"-{words.duration(-ns)}" if ns < 0 else words.duration(ns)


def throughput(rung: Rung) -> str:
    """Return examples per second of both runs of a comparison; empty where no batch size is on record."""
    rates = rung.examples_per_s
    if rates is None or (first := rates[0]) is None or (last := rates[1]) is None:
        return ""
    if rung.observed is None:
        return ""
    return f"{words.count(round(first))} → {words.count(round(last))} examples/s"


def interval(rung: Rung) -> str:
    """Return the interval of the observed speedup and what is not in it, or why it has none; empty without a
    speedup, and where the answer has said why."""
    if rung.refused or rung.observed is None:
        return ""
    absent = {f"speedup.{key}": why for key, why in rung.absent.items()}
    if rung.interval is not None:
        return f"{content.span(rung, absent)}; {REPEATS}"
    why, said = rung.absent.get("interval", ""), rung.answer.because if rung.answer else ()
    return content.span(rung, absent) if why and why not in " ".join(said) else ""


def bursts(document: ComparedRuns) -> list[str]:
    """Return what is said of each run's stalls, with the run's name; its mean step is in the heading."""
    return [
        f"{words.plain(report.run.name)}: {said.partition(': ')[2]}"
        for report in document.runs
        for said in report.warnings
        if said.startswith(BEGINS)
    ]


def _ends(document: ComparedRuns, rung: Rung) -> tuple[Report, Report]:
    return document.runs[rung.start], document.runs[rung.end]


def _matrix_work(start: Report, end: Report) -> str:
    """Return the time of the matrix work of both runs, and how much of it ran on matrix units in which
    precision."""
    parts = []
    for report in (start, end):
        share = report.tensor_core
        if share is None or share.ratio is None:
            return ""
        units = content.matrix_units(report)
        used = [
            words.type_name(name)
            for name, ns in sorted(share.by_precision.items(), key=lambda i: -i[1])
            if ns
        ]
        kinds = f" ({' and '.join(used[:2])})" if used else ""
        of = words.duration(share.matmul_ns_per_step)
        parts.append(f"{of}, {words.percent(share.ratio)} on {units}{kinds}")
    return " → ".join(parts)


def peak_memory(document: ComparedRuns, rung: Rung) -> str:
    """Return the memory peaks of both runs; empty where one is not known, or they are the same."""
    start, end = _ends(document, rung)
    before, after = content.recorded_peak(start), content.recorded_peak(end)
    if before is None or after is None or before == after:
        return ""
    return f"{words.size(before)} → {words.size(after)}"


def gap_rows(rung: Rung, step_ns: float | None, most: int = MOST_ROWS) -> list[GapRow]:
    """Return the slices of a gap, what was lost first and what was gained last; they sum to the gap. Parts
    that are too small to matter, and all beyond `most`, are folded into one row. `step_ns`: the later run's
    step."""
    ordered = sorted(rung.slices, key=lambda part: -part.ns_per_step)
    lost_ns = sum(max(0.0, part.ns_per_step) for part in ordered)
    least = min(NOTABLE_RATIO * (step_ns or 0.0), NOTABLE_LOSS * lost_ns)
    by_weight = sorted(range(len(ordered)), key=lambda at: -abs(ordered[at].ns_per_step))
    weighty = {at for at in by_weight[:most] if abs(ordered[at].ns_per_step) >= least}
    weighty = weighty or set(by_weight[:1])
    kept = [part for at, part in enumerate(ordered) if at in weighty]
    rest = [part for at, part in enumerate(ordered) if at not in weighty]
    if len(rest) == 1:
        kept, rest = ordered, []
    rows = [_row(_label(part), [part]) for part in kept]
    return [*rows, _row(f"{len(rest)} others", rest)] if rest else rows


def _label(part: GapSlice) -> str:
    return f"{part.category} {words.plain(part.layer)}" if part.layer else str(part.category)


def _row(label: str, parts: list[GapSlice]) -> GapRow:
    gap = sum(part.ns_per_step for part in parts)
    before, now = sum(part.baseline_ns for part in parts), sum(part.mixed_ns for part in parts)
    return GapRow(label, gap, before, now - gap, now)


def total(rows: list[GapRow]) -> GapRow:
    """Return the sum of the rows: the baseline's step, the step that could be reached, and the step now."""
    sums = (sum(getattr(row, key) for row in rows) for key in ("ns", "baseline_ns", "could_ns", "mixed_ns"))
    return GapRow("sum", *sums)


def gap_columns(rung: Rung) -> tuple[str, ...]:
    """Return the titles of the columns: without an expectation, those of the plain difference."""
    return (
        ("baseline", "could be", "now", "lost") if _expects(rung) else ("baseline", "now", "longer", "times")
    )


def gap_cells(rung: Rung, row: GapRow, column: Callable[[float], str]) -> tuple[str, ...]:
    """Return a row in words, by the same columns."""
    if _expects(rung):
        return tuple(map(column, (row.baseline_ns, row.could_ns, row.mixed_ns, row.ns)))
    times = words.speedup(row.mixed_ns / row.baseline_ns) if row.baseline_ns > 0 <= row.mixed_ns else _WITHOUT
    return (*map(column, (row.baseline_ns, row.mixed_ns, row.ns)), times)


def _expects(rung: Rung) -> bool:
    return rung.expected is not None


def changes(document: ComparedRuns, step: int, by: str, limit: int = 6) -> list[KernelChange]:
    """Return the kernels (`by` "name") or ops ("op") that differ most between the two runs of one
    comparison."""
    found = [change for change in document.kernels if change.step == step and change.by == by]

    def difference(change: KernelChange) -> float:
        return abs(float(change.to_ns or 0.0) - float(change.from_ns or 0.0))

    return sorted(found, key=difference, reverse=True)[:limit]


def matching(rung: Rung) -> list[str]:
    """Return how much of the two runs is the same op, and what each has that the other has not."""
    found = rung.matching
    if not found or found.by_op_ratio[0] is None or found.by_op_ratio[1] is None:
        return []
    op, layer = found.by_op_ratio, found.by_layer_ratio
    text = (
        f"matched by op: {words.percent(op[0])} of the baseline's op time, {words.percent(op[1])} of "
        "this run's"
    )
    if layer != op:
        text += f"; by their layer {words.percent(layer[0])} and {words.percent(layer[1])}"
    said = [text]
    of_either = (("only in the baseline", found.only_from), ("only in this run", found.only_to))
    for title, alone in of_either:
        if alone:
            ns = words.duration(sum(item.ns_per_step for item in alone))
            named = first_of([words.op(words.plain(item.op), 56) for item in alone], MOST_OPS)
            said.append(f"{title}: {words.plural(len(alone), 'op')}, {ns}: {named}")
    of_layers = (("baseline", found.unmatched_from), ("run", found.unmatched_to))
    for whose, layers in of_layers:
        if layers:
            first = layers[0]
            reason = words.plain(f"{first.layer}: {first.reason}")
            more = f", and {len(layers) - 1} more" if len(layers) > 1 else ""
            said.append(f"layers of the {whose} without a counterpart: {reason}{more}")
    return said


def minor(rung: Rung) -> str:
    """Return the findings that are only worth a mention, in one line."""
    noted = [f"{found.code} {found.slug}" for found in _told(rung) if found.severity == "info"]
    return f"also noted: {', '.join(noted)} (mpprof report RUN --baseline BASELINE)" if noted else ""


def serious(rung: Rung) -> list[Finding]:
    """Return the findings that are more than a mention."""
    return [found for found in _told(rung) if found.severity != "info"]


def _told(rung: Rung) -> list[Finding]:
    """Return the findings without those that the lines above say: that the runs are unlike, and that there is
    no trace."""
    said = {without_finding.COMPARED} if rung.labels else set()
    said |= {without_finding.NO_WINDOW} if not rung.slices else set()
    return [found for found in rung.findings if found.code not in said]


# --- all rungs ---------------------------------------------------------------------------------------------


def ladder(document: ComparedRuns) -> list[dict[str, str]]:
    """Return a row in words for each run, by the keys of `ComparedRow`; empty for two runs, which one
    comparison already describes."""
    rungs = document.steps
    if len(rungs) < 2:
        return []
    rows = []
    whole: float | None = 1.0
    known = True  # so far every pair's timings tell
    for at, report in enumerate(document.runs):
        rung = rungs[at - 1] if at else None
        step = rung.observed if rung else 1.0
        known = known and (rung is None or content.difference_of(rung) != "not known")
        whole = whole * step if whole is not None and step is not None else None
        rate = examples_per_s(rungs, at)
        share = report.tensor_core.ratio if report.tensor_core else None
        peak = content.recorded_peak(report)
        rows.append(
            {
                "run": words.plain(report.run.name),
                "policy": _what(report),
                "step_ns": words.duration(content.step_ns(report)),
                "examples_per_s": _WITHOUT if rate is None else words.count(round(rate)),
                "speedup_over_before": ""
                if rung is None
                else _times(step, content.difference_of(rung) != "not known"),
                "speedup_over_first": "" if not at else _times(whole, known),
                "tensor_core_ratio": _WITHOUT if share is None else words.percent(share),
                "peak_memory_bytes": _WITHOUT if peak is None else words.size(peak),
            }
        )
    return rows


def examples_per_s(rungs: Sequence[Rung], row: int) -> float | None:
    """Return the throughput of the run in this row, from the rung that ends there (for the first run, the
    rung that starts there)."""
    rates = rungs[max(row - 1, 0)].examples_per_s
    return rates[1 if row else 0]


def _times(speedup: float | None, known: bool) -> str:
    """Return a speedup for a cell; `known`: the timings tell that there is one, or none."""
    if speedup is None:
        return _WITHOUT
    return words.speedup(speedup) if known else words.NOT_KNOWN


def _what(report: Report) -> str:
    run = report.run
    parts = [
        run.policy,
        words.computes(report),
        words.compiler(run.backend) if run.jit_compile is True else None,
    ]
    if run.batch_size is not None:
        parts.append(f"batch {words.count(run.batch_size)}")
    return ", ".join(words.plain(str(part)) for part in parts if part) or _WITHOUT


def batches(document: ComparedRuns) -> list[list[str]]:
    """Return what several batch sizes tell, one list of sentences for each model and type."""
    return [list(found.statements) for found in document.batches or []]
