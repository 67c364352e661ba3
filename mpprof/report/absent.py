"""Why a value of the report is not known."""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.steps.run_time import why_none
from mpprof.diagnosis.leading import causes, changes_type
from mpprof.model.account import NO_WORK_SEEN
from mpprof.model.finding import Diagnosis
from mpprof.model.memory import MemoryAccount
from mpprof.model.report import Report
from mpprof.model.run_time import RunTime
from mpprof.model.written import is_written, items

_FACT_OF = {
    "step_ns": ("steps.mean_ns", "steps", "time"),
    "baseline_step_ns": ("speedup.baseline_step_ns", "speedup"),
    "observed": ("speedup.observed", "speedup"),
    "observed_per_update": ("speedup.observed", "speedup"),
    "step_ns_per_update": ("steps.skipped", "steps"),
    "attainable": ("speedup.expected", "speedup"),
    "attainable_step_ns": ("speedup.expected", "speedup"),
    "unexplained_ns": ("speedup.expected", "speedup.unexplained_ns", "speedup"),
    "after_remedies_ns": ("whatif",),
    "limited_by": ("whatif",),
}
"""Where in the document the reason stands for a fact that is not known."""


def on_host(diagnosis: Diagnosis) -> bool:
    """Return whether what was measured are ops on the host's threads, of a run without an accelerator."""
    measured = diagnosis.account or diagnosis.window
    return measured is not None and measured.trace_basis == "host"


def code_of_other_type(diagnosis: Diagnosis) -> str | None:
    """Return the code of the first cause, where its remedy changes the type to compute in."""
    listed = (found for found in causes(diagnosis.findings) if found.code not in diagnosis.dismissed)
    first = next(listed, None)
    return first.code if first is not None and changes_type(first) else None


def absent_of(diagnosis: Diagnosis, made: Report, spent: RunTime | None) -> dict[str, str]:
    """Return every reason that is known, and a general but true reason for each null that came without
    one."""
    run = diagnosis.run
    reasons: dict[str, str] = run.facts.reasons if run.facts else {}
    if spent is not None:
        reasons |= {f"run_time.{part}": why for part, why in spent.absent.items()}
    else:
        reasons["run_time"] = why_none(run)
    reasons |= diagnosis.absent
    if diagnosis.account and diagnosis.account.absent:
        reasons |= {f"time.{field}": why for field, why in diagnosis.account.absent.items()}
    if diagnosis.steps and diagnosis.steps.why_no_interval:
        reasons["steps.mean_interval_ns"] = diagnosis.steps.why_no_interval
    if diagnosis.speedup and diagnosis.speedup.absent:
        reasons |= {f"speedup.{field}": why for field, why in diagnosis.speedup.absent.items()}
    if diagnosis.speedup and (could := diagnosis.speedup.potential) and could.eligible_ratio is None:
        reasons["speedup.attainable.eligible_ratio"] = NO_WORK_SEEN
    if (code := code_of_other_type(diagnosis)) is not None:
        why = (
            f"the remedy of {code} changes the compute type, and the gains of the others in that type "
            "are not known"
        )
        reasons |= {"facts.after_remedies_ns": why, "facts.limited_by": why}
    if diagnosis.hosts is not None:
        for each in diagnosis.hosts.read[1:]:
            if each.clock_skew is None:
                reasons[f"hosts.{each.host}.clock_skew"] = each.absent
    for field in _nulls(made):
        reasons.setdefault(field, _why_null(field, diagnosis, reasons))
    return reasons


def _nulls(made: Report) -> list[str]:
    """Return the paths of the nulls at the top and one level down, in the order of the document."""
    paths = []
    for key, value in _items(made):
        if value is None:
            paths.append(key)
        paths += [f"{key}.{inner}" for inner, item in _items(value) if item is None]
    return [path for path in paths if path not in ("tensor_core.reason", "speedup.estimated")]


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of a section; none of any other value."""
    if isinstance(value, dict):
        yield from value.items()
    elif is_written(value):
        yield from ((each.key, given) for each, given in items(value))


_NOT_IN_THE_LOG = {
    "examples_per_s": "the batch size or the step time is not known",
    "steps_per_epoch": "no epoch has ended yet",
    "gpu_hours_per_epoch": "no GPU is on record, or no epoch has ended, or the step time is not known",
}

_OF_SAVING = ("saved_bytes", "reachable_bytes", "expected_saving_bytes", "unexplained_bytes", "driver")
"""What of `memory` rests on a baseline."""


def _why_null(field: str, diagnosis: Diagnosis, reasons: dict[str, str]) -> str:
    """Return the reason for a null that no more exact reason explains."""
    run, section = diagnosis.run, field.partition(".")[0]
    leaf = field.rpartition(".")[2]
    if section == "out_of_memory":
        return "the error's text does not state it"
    if field == "answer.code":
        return "nothing leads"
    if leaf in reasons:
        return reasons[leaf]
    memory = diagnosis.memory
    if section == "memory" and leaf in _OF_SAVING and memory is not None and memory.why_not_saved:
        return memory.why_not_saved
    if field == "memory.driver":
        return "the driver's figure and the allocator's peak are not on record for this run and a baseline"
    if field == "cause":
        return "nothing leads"
    if field == "tensor_core" and on_host(diagnosis):
        share = diagnosis.tensor_core
        return (share.reason if share else None) or "the trace holds no accelerator"
    if section == "facts":
        return next((reasons[path] for path in _FACT_OF[leaf] if path in reasons), "not derivable")
    if section == "account":
        return reasons.get("time", "the trace could not be accounted for; see warnings")
    if section == "run":
        return reasons.get("run", "run.json does not state it" if run.facts else "there is no run.json")
    if section == "steps":
        return (
            "there is no step log"
            if run.steps is None
            else _NOT_IN_THE_LOG.get(leaf, "the step log does not hold it")
        )
    if field == "tensor_core.ratio":
        return (diagnosis.tensor_core.reason if diagnosis.tensor_core else None) or "not known"
    if field == "time.wall_ns":
        return "no steady step outside the profiler window was recorded"
    if field == "speedup.attainable" and "speedup.expected" in reasons:
        return reasons["speedup.expected"]
    if section == "speedup" and diagnosis.speedup:
        return "needs a measured baseline" if diagnosis.speedup.baseline == "estimated" else "not derivable"
    if not run.traces:
        return "there is no trace"
    if diagnosis.account is None and section != "memory":
        return reasons.get("time", "the trace could not be accounted for; see warnings")
    if section == "memory":
        why = reasons.get("memory.allocator", "the trace holds no allocator events")
        return _why_no_memory(leaf, diagnosis.memory, why)
    return "the evidence that was recorded does not give it"


def _why_no_memory(leaf: str, memory: MemoryAccount | None, no_events: str) -> str:
    if memory is None or not memory.at_peak:
        return no_events
    if leaf == "across_steps":
        return "the trace does not hold two steps"
    if leaf in ("rounding_bytes", "fragmentation_ratio"):
        return "the trace's allocator events do not state it"
    if memory.saved_bytes is None:
        return "no baseline to compare it with"
    return memory.why_no_expectation or "not derivable"
