"""One run of a survey: what is asked of it, and the row that answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import cast

from mpprof.api import workflows
from mpprof.errors import MpprofError
from mpprof.model import document as doc
from mpprof.model.document import SurveyRow
from mpprof.model.frozen import frozen
from mpprof.model.run import Run
from mpprof.report import content
from mpprof.report import json as documents
from mpprof.runs import loading

HOURS_PER_DAY = 24.0


@frozen
class Task:
    """One run to analyse: the directory of its records, or a lone trace; `baseline`: that of its float32
    twin. `signature` changes with the `files` that the row rests on."""

    name: str
    root: str
    baseline: str | None
    signature: str
    files: tuple[Path, ...] = ()


def row_of(task: Task) -> SurveyRow:
    """Analyse one run. Whatever goes wrong is the row's `problem`."""
    try:
        run = loading.load_at(Path(task.root))
        baseline = _baseline(task.baseline) if task.baseline is not None else None
        document = documents.document(workflows.judge(workflows.analyse(run), baseline))
        gpus = _gpus(run, document)
    except MpprofError as error:
        return broken(task, str(error))
    except MemoryError:
        return broken(task, "not enough memory to analyse it")
    except Exception as error:  # noqa: BLE001  a bug: one run must not stop the others
        return broken(task, f"{type(error).__name__}: {error} (a bug: `mpprof report` shows where)")
    return _row(task, document, gpus)


@lru_cache(maxsize=1)
def _baseline(root: str) -> workflows.Analysis:
    return workflows.analyse(loading.load_at(Path(root)))


def _gpus(run: Run, document: doc.Report) -> int | None:
    """Return the number of GPUs that train; None on a CPU."""
    if run.facts is not None:
        return run.facts.replicas if any(each.kind == "gpu" for each in run.facts.devices) else None
    time = document["time"]
    return len(time["devices"]) if time and time["basis"] != "host" else None


def _row(task: Task, document: doc.Report, gpus: int | None) -> SurveyRow:
    facts, run, steps = document["facts"], document["run"], document["steps"]
    share, gain = document["tensor_core"], document["speedup"]
    alike = not facts.get("unlike")
    cause = facts["causes"][0] if facts["causes"] else None
    low, high, estimated = _attainable(facts, gain, alike=alike)
    lost, lost_by = _lost(facts, alike=alike)
    peak, memory = content.recorded_peak(document), document["memory"]
    return {
        "run": task.name,
        "path": task.root,
        "id": run["id"],
        "baseline": task.baseline,
        "policy": run["policy"] or run.get("compute_dtype"),
        "card": run["device"],
        "gpus": gpus,
        "batch_size": run["batch_size"],
        "step_ns": facts["step_ns"],
        "examples_per_s": steps.get("examples_per_s") if steps else None,
        "speedup": facts["observed"] if alike else None,
        "attainable_low": low,
        "attainable_high": high,
        "estimated": estimated,
        "tensor_core_ratio": share["ratio"] if share else None,
        "unknown_ratio": share["unknown_ratio"] if share else None,
        "skipped_ratio": steps["skipped_ratio"] if steps else None,
        "peak_memory_bytes": peak if peak is not None or not memory else memory["peak_bytes"],
        "cause": cause["code"] if cause else None,
        "cause_slug": cause["slug"] if cause else None,
        "cause_gain_ns": cause["gain_ns_per_step"] if cause else None,
        "lost_ratio": lost,
        "lost_by": lost_by,
        "lost_gpu_hours_per_day": lost * HOURS_PER_DAY * gpus if lost is not None and gpus else None,
        "one_step": content.one_step(document),
        "warnings": len(content.warnings(document)),
        "problem": None,
    }


def _attainable(
    facts: doc.Facts, gain: doc.Speedup | None, *, alike: bool
) -> tuple[float | None, float | None, bool]:
    """Return the attainable speedup: worked out against a measured baseline, else an estimated range."""
    if facts["attainable"] is not None and alike:
        return facts["attainable"], facts["attainable"], False
    found = (gain.get("attainable") or gain["estimated"]) if gain and gain["baseline"] != "measured" else None
    return (found["low"], found["high"], True) if found else (None, None, False)


def _lost(facts: doc.Facts, *, alike: bool) -> tuple[float | None, str | None]:
    """Return the share of the step that is lost: against the attainable step, else against the step after all
    remedies."""
    step = facts["step_ns"]
    if not step:
        return None, None
    if alike and facts["attainable_step_ns"] is not None:
        return max(0.0, 1.0 - facts["attainable_step_ns"] / step), "attainable"
    if facts["after_remedies_ns"] is not None:
        return max(0.0, 1.0 - facts["after_remedies_ns"] / step), "remedies"
    return None, None


def broken(task: Task, problem: str) -> SurveyRow:
    """Return the row of a run that could not be analysed."""
    row = dict.fromkeys(SurveyRow.__annotations__)
    known = {"run": task.name, "path": task.root, "baseline": task.baseline, "problem": problem}
    return cast("SurveyRow", {**row, "estimated": False, "one_step": False, "warnings": 0, **known})
