"""One run of a survey: the task, and the row that answers it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import cast

from mpprof.api import workflows
from mpprof.errors import MpprofError
from mpprof.model.account import Speedup
from mpprof.model.frozen import frozen
from mpprof.model.report import Facts, Report
from mpprof.model.rows import SurveyRow
from mpprof.model.run import Run
from mpprof.report import content
from mpprof.report import json as documents
from mpprof.runs import loading

HOURS_PER_DAY = 24.0


@frozen
class Task:
    """One run to analyse: the directory of its records, or a lone trace; `baseline`: that of its float32
    twin. `signature` changes with the files that the row rests on."""

    name: str
    root: str
    baseline: str | None
    signature: str


def row_of(task: Task) -> SurveyRow:
    """Analyse one run. Whatever goes wrong is the row's `problem`; if the trace cannot be read, the rest of
    the row comes from the records."""
    try:
        run = loading.load_at(Path(task.root))
        baseline = _baseline(task.baseline) if task.baseline is not None else None
        mine = workflows.analyse(run)
        document = documents.report(workflows.judge(mine, baseline))
        gpus = _gpus(run, document)
    except MpprofError as error:
        return broken(task, str(error))
    except MemoryError:
        return broken(task, "not enough memory to analyse it")
    except Exception as error:  # noqa: BLE001  a bug: one run must not stop the others
        return broken(task, f"{type(error).__name__}: {error} (a bug: `mpprof report` shows where)")
    unreadable = mine.trace_problem if run.traces and mine.trace is None else None
    return {**_row(task, document, gpus), "problem": unreadable}


@lru_cache(maxsize=1)
def _baseline(root: str) -> workflows.Analysis:
    return workflows.analyse(loading.load_at(Path(root)))


def _gpus(run: Run, document: Report) -> int | None:
    """Return the number of GPUs that train; None on a CPU."""
    if run.facts is not None:
        return run.facts.replicas if any(each.kind == "gpu" for each in run.facts.devices) else None
    time = document.time
    return len(time.devices) if time and time.basis != "host" else None


def _row(task: Task, document: Report, gpus: int | None) -> SurveyRow:
    facts, run, steps = document.facts, document.run, document.steps
    share, gain = document.tensor_core, document.speedup
    alike = not facts.unlike
    cause, answer = content.first_cause(document), document.answer
    low, high, estimated = _attainable(facts, gain, alike=alike)
    skipped = steps.skipped_ratio if steps else None
    lost, lost_by = _lost(facts, skipped, alike=alike)
    peak, memory = content.recorded_peak(document), document.memory
    return {
        "run": task.name,
        "path": task.root,
        "id": run.id,
        "baseline": task.baseline,
        "policy": run.policy or run.compute_dtype,
        "card": run.device,
        "gpus": gpus,
        "batch_size": run.batch_size,
        "step_ns": facts.step_ns,
        "examples_per_s": steps.examples_per_s if steps else None,
        "speedup": facts.observed if alike else None,
        "difference": content.difference_of(gain) if gain and alike else None,
        "attainable_low": low,
        "attainable_high": high,
        "estimated": estimated,
        "tensor_core_ratio": share.ratio if share else None,
        "unknown_ratio": share.unknown_ratio if share else None,
        "skipped_ratio": skipped,
        "peak_memory_bytes": peak if peak is not None or not memory else memory.peak_bytes,
        "cause": cause.code if cause else None,
        "cause_slug": cause.slug if cause else None,
        "cause_gain_ns": cause.gain_ns_per_step if cause else None,
        "lost_ratio": lost,
        "lost_by": lost_by,
        "lost_gpu_hours_per_day": lost * HOURS_PER_DAY * gpus if lost is not None and gpus else None,
        "figure": answer.figure,
        "label": answer.label,
        "sentence": answer.sentence,
        "do": answer.do,
        "one_step": content.one_step(document),
        "warnings": len(content.warnings(document)),
        "problem": None,
    }


def _attainable(
    facts: Facts, gain: Speedup | None, *, alike: bool
) -> tuple[float | None, float | None, bool]:
    """Return the attainable speedup: worked out against a measured baseline, else an estimated range."""
    if facts.attainable is not None and alike:
        return facts.attainable, facts.attainable, False
    found = (gain.attainable_range or gain.estimated) if gain and gain.baseline != "measured" else None
    return (found.low, found.high, True) if found else (None, None, False)


def _lost(facts: Facts, skipped_ratio: float | None, *, alike: bool) -> tuple[float | None, str | None]:
    """Return the share of the time that is lost, however it is lost, and by which bound: the shortest of the
    step after all remedies, which count what float32 loses as well (a device that waits for its input), and,
    with a comparable baseline, of the attainable step and the baseline's own. A step whose update is skipped
    is lost whole; where skips are not known, none is counted, so that the share is a lower bound."""
    step = facts.step_ns
    bounds = {"remedies": facts.after_remedies_ns}
    if alike:
        bounds |= {"attainable": facts.attainable_step_ns, "baseline": facts.baseline_step_ns}
    known = [(bound_ns, name) for name, bound_ns in bounds.items() if bound_ns is not None]
    if not step or not known:
        return None, None
    least_ns, by = min(known)
    return 1.0 - min(1.0, least_ns / step) * (1.0 - (skipped_ratio or 0.0)), by


def broken(task: Task, problem: str) -> SurveyRow:
    """Return the row of a run that could not be analysed."""
    row = dict.fromkeys(SurveyRow.__annotations__)
    known = {"run": task.name, "path": task.root, "baseline": task.baseline, "problem": problem}
    return cast("SurveyRow", {**row, "estimated": False, "one_step": False, "warnings": 0, **known})
