"""The run, its step log, its warnings and its wall time, in sentences and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.frozen import frozen
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.run_time import RunPart
    from mpprof.model.steps import StepSummary, WorkerSummary

RUN_TIME_HEADING = "Where the run's time went"
RUN_TIME_COLUMNS = ("part", "time", "share", "by")
MOST_NAMED = 3
"""So many pieces of a part are named."""
LEAST_NAMED = 0.01
"""Pieces below a hundredth of their part are not."""


def subject(document: Report) -> str:
    """Return what was measured: "mixed_float16, tensorflow, Tesla V100, XLA off, batch 32"; only what is
    known."""
    run = document.run
    precision = [run.policy, words.computes(document)]
    facts = [*precision, run.backend, run.device, words.compiled(run.backend, run.jit_compile)]
    if run.batch_size is not None:
        facts.append(f"batch {words.count(run.batch_size)}")
    return ", ".join(words.plain(str(fact)) for fact in facts if fact) or "nothing recorded about the run"


def steps(document: Report) -> str:
    """Return the step log in one sentence."""
    log = document.steps
    if log is None:
        return f"not recorded: {document.absent.get('steps', 'there is no step log')}"
    parts = [f"{words.plural(log.count, 'step')}, {words.count(log.steady)} steady"]
    if (mean := log.mean_ns) is not None:
        parts.append(f"{words.duration(mean)} a step (mean)")
    if log.median_ns is not None:
        parts.append(f"median {words.duration(log.median_ns)}, p95 {words.duration(log.p95_ns)}")
    if (rate := log.examples_per_s) is not None:
        hours = log.gpu_hours_per_epoch
        each = f" ({hours:.3g} GPU-hours an epoch)" if hours is not None else ""
        parts.append(f"{words.count(round(rate)) if rate >= 100 else f'{rate:.3g}'} examples/s{each}")
    if log.skipped is not None:
        parts.append(f"{words.count(log.skipped)} skipped ({words.percent(log.skipped_ratio)})")
    if scale := loss_scale(log):
        parts.append(f"loss scale {scale}")
    if log.peak_memory_bytes is not None:
        parts.append(f"peak memory {words.size(log.peak_memory_bytes)}")
    return "; ".join([*parts, *_workers(log.workers)])


def loss_scale(log: StepSummary | None) -> str:
    """Return the first loss scale and the last: "2^15 to 2^-35"; empty where none was recorded."""
    scale = log.loss_scale if log else None
    if scale is None:
        return ""
    return " to ".join(dict.fromkeys(words.scale(end) for end in (scale.first, scale.last)))


def _workers(workers: tuple[WorkerSummary, ...]) -> list[str]:
    """Return how the step times of several workers compare, and which worker is the slowest."""
    timed = [(mean, each.worker) for each in workers if (mean := each.mean_ns) is not None]
    if len(timed) < 2:
        return []
    (fast, _), (slow, slowest) = min(timed), max(timed)
    said = f"{len(timed)} workers, steps of {words.duration(fast)}"
    if words.duration(slow) == words.duration(fast):
        return [f"{said} each"]
    return [f"{said} to {words.duration(slow)} (the slowest is worker {slowest})"]


def skips_arise(document: Report) -> bool:
    """Return whether steps may be skipped: not where nothing scales the loss (float32, bfloat16, an
    inference)."""
    computes = document.run.computes_in
    if any(each.code == _SKIPS for each in document.not_applicable):
        return False
    return computes is None or computes.kind not in ("float32", "float64")


_SKIPS = "MP201"
"""The rule that does not apply where no update can be skipped."""


def recorded_peak(document: Report) -> int | None:
    """Return the peak of the device's memory in the step log; None: not recorded."""
    steps = document.steps
    return steps.peak_memory_bytes if steps else None


def warnings(document: Report) -> list[str]:
    """Return the warnings, and what the account had to leave out or shift."""
    notes = document.time.notes if document.time else []
    notes = document.window.notes if document.window is not None else notes
    return list(dict.fromkeys((*document.warnings, *notes)))


@frozen
class SpentRow:
    label: str
    ns: float
    ratio: float
    by: str


def run_time_rows(document: Report) -> list[SpentRow]:
    """Return the parts that took time, in their fixed order, and last what is not known; empty where the run
    has no step log."""
    found = document.run_time
    if not found:
        return []
    rows = [
        SpentRow(part.name.replace("_", " "), part.ns, part.ratio, _by(part))
        for part in found.parts
        if part.ns
    ]
    if found.unknown_ns:
        ratio = found.unknown_ns / found.wall_ns
        rows.append(SpentRow("not known", found.unknown_ns, ratio, "steps whose lines were not read"))
    return rows


def _by(part: RunPart) -> str:
    """Return the largest pieces of a part with their times; of a single one its name, where that says
    more."""
    named = [each for each in part.by if each.ns >= LEAST_NAMED * part.ns]
    if len(named) == 1:
        name = words.plain(named[0].name)
        return "" if name == part.name.replace("_", " ") else name
    said = [f"{words.plain(each.name)} {words.duration(each.ns)}" for each in named[:MOST_NAMED]]
    more = len(named) - MOST_NAMED
    return ", ".join(said) + (f" and {more} more" if more > 0 else "")
