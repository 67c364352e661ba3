"""The report as a JSON document: schemas `mpprof.report/1` and `mpprof.compare/1`.

Text, markdown, HTML and the dashboard are all made from these documents, so whatever a person reads can
be read by a program too. Numbers are raw, in the unit that ends their name. What is not known is null,
with its reason in `absent` (a nested field by its path: "steps.skipped"). The documents are strict JSON:
non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".

`model.document` holds the types of both; `report.schema.json` and `compare.schema.json` are made from them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, cast, overload

from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis.verdict import causes, changes_type, per_update, unlike
from mpprof.model.account import (
    NO_WORK_SEEN,
    Account,
    DeviceAccount,
    GapSlice,
    Slice,
    Speedup,
)
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Comparison, Diagnosis, Finding, Matching, Remedy, Rung, WhatIf
from mpprof.model.hosts import Hosts
from mpprof.model.memory import Advice, DriverSaving, MemoryAccount, OutOfMemory, Tensor
from mpprof.model.outcome import Applied, Learning, LossPoint, Promises, RemedyOutcome
from mpprof.model.steps import StepSummary
from mpprof.report import several, window, windows

if TYPE_CHECKING:
    from mpprof.model import document as doc

REPORT_SCHEMA: Final = "mpprof.report/1"
COMPARE_SCHEMA: Final = "mpprof.compare/1"
_LONGEST_ERROR = 300
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "google": "Google", "intel": "Intel", "apple": "Apple"}


_FACT_OF = {
    "step_ns": ("steps.median_ns", "steps", "time"),
    "baseline_step_ns": ("speedup.baseline_step_ns", "speedup"),
    "observed": ("speedup.observed", "speedup"),
    "observed_per_update": ("speedup.observed", "speedup"),
    "attainable": ("speedup.expected", "speedup"),
    "attainable_step_ns": ("speedup.expected", "speedup"),
    "unexplained_ns": ("speedup.expected", "speedup.unexplained_ns", "speedup"),
    "after_remedies_ns": ("whatif",),
    "limited_by": ("whatif",),
}
"""Where in the document the reason stands for a fact that is not known."""


def document(diagnosis: Diagnosis) -> doc.Report:
    """The report of one run, schema `mpprof.report/1`.

    Times are rounded to a thousandth of a nanosecond, far inside the one nanosecond within which the
    slices sum to the step.
    """
    body: doc.Report = {
        "schema": REPORT_SCHEMA,
        "run": _run(diagnosis),
        "steps": _steps(diagnosis.steps),
        "time": _time(diagnosis.account, diagnosis.run.step_range, diagnosis.unlike, diagnosis.hosts),
        "tensor_core": _tensor_core(diagnosis),
        "speedup": _speedup(diagnosis.speedup, diagnosis.how_to_switch),
        "bounds": [
            {"statement": b.statement, "value": b.value, "unit": b.unit, "assumptions": list(b.assumptions)}
            for b in diagnosis.bounds
        ],
        "memory": _memory(diagnosis.memory, diagnosis.findings),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "unable": [{"code": unable.code, "reason": unable.reason} for unable in diagnosis.unable],
        "clear": list(diagnosis.clear),
        "warnings": _unique((*diagnosis.run.warnings, *diagnosis.warnings)),
        "absent": {},
        "verdict": diagnosis.verdict,
        "cause": diagnosis.cause,
        "explanation": list(diagnosis.explanation),
        "whatif": _whatif(diagnosis.whatif),
        "facts": _facts(diagnosis),
        "not_applicable": [{"code": each.code, "reason": each.reason} for each in diagnosis.not_applicable],
        "account": {"basis": "step" if diagnosis.account else "window" if diagnosis.window else None},
    }
    if diagnosis.run.facts is not None and diagnosis.run.facts.ended is not None:
        from mpprof.diagnosis.out_of_memory.failure import failure  # seldom needed

        if (failed := failure(diagnosis.run)) is not None:
            body["out_of_memory"] = out_of_memory(*failed)
    if diagnosis.window is not None:
        body["window"] = window.document(diagnosis.window, diagnosis.how_to_mark, diagnosis.ranges)
    if diagnosis.hosts is not None:
        body["hosts"] = several.hosts(diagnosis.hosts)
    if len(diagnosis.devices) > 1 or diagnosis.collectives:
        body["communication"] = several.communication(diagnosis.devices, diagnosis.collectives)
    body["absent"] = _absent(diagnosis, body)
    return cast("doc.Report", _strict(body))


def compare_document(comparison: Comparison) -> doc.Comparison:
    """Several runs against each other, schema `mpprof.compare/1`.

    `from` and `to` are rows of `runs`; a kernel's `step` is a row of `steps`.
    """
    body: doc.Comparison = {
        "schema": COMPARE_SCHEMA,
        "runs": [document(diagnosis) for diagnosis in comparison.runs],
        "steps": [_rung(rung) for rung in comparison.rungs],
        "kernels": [
            {
                "key": change.key,
                "by": change.by,
                "from_ns": _ns(change.from_ns),
                "to_ns": _ns(change.to_ns),
                "step": row,
            }
            for row, rung in enumerate(comparison.rungs)
            for change in rung.kernels
        ],
        "batches": [
            {
                "runs": list(found.runs),
                "batch_sizes": list(found.batch_sizes),
                "ns_per_example": [_ns(ns) for ns in found.ns_per_example],
                "spread_ratio": found.spread_ratio,
                "fixed_ns": _ns(found.fixed_ns),
                "utilization_ratio": found.utilization_ratio,
                "statements": list(found.statements),
            }
            for found in comparison.batches
        ],
    }
    return cast("doc.Comparison", _strict(body))


def dumps(value: Any, *, indent: int | None = 2) -> str:
    """Strict JSON text, ASCII only, so that any name from any file survives every terminal and pipe."""
    return json.dumps(_strict(value), indent=indent, allow_nan=False)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of "report" or "compare", as shipped."""
    from importlib import resources  # not needed to write a report

    text = resources.files("mpprof.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def _strict(value: Any) -> Any:
    """The same value of plain JSON types: numpy's scalars unwrapped, non-finite numbers as strings."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if hasattr(value, "item"):  # numpy.bool_ is registered with none of the number classes
        return _strict(value.item())
    return str(value)


@overload
def _ns(value: float) -> float: ...


@overload
def _ns(value: None) -> None: ...


@overload
def _ns(value: float | None) -> float | None: ...


def _ns(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _run(diagnosis: Diagnosis) -> doc.Run:
    run, fit = diagnosis.run, diagnosis.run.last_fit
    policy = fit.policy if fit else None
    framework = run.facts.framework if run.facts else {}
    found: doc.Run = {
        "name": run.name,
        "policy": policy.name if policy else None,
        "backend": framework.get("backend"),
        "device": _device_name(diagnosis),
        "jit_compile": fit.jit_compile if fit else None,
        "batch_size": fit.batch_size if fit else None,
        "id": run.run_id,
        "compute_dtype": policy.compute_dtype if policy else None,
    }
    if run.facts is not None and (ended := run.facts.ended) is not None:
        first = (ended.error or "").splitlines()[:1]
        found["ended"] = {"reason": ended.reason, "error": first[0][:_LONGEST_ERROR] if first else None}
    if (computes := diagnosis.computes) is not None:
        found["computes_in"] = {
            "kind": computes.kind,
            "dtype": computes.dtype,
            "by": computes.by,
            "ratio": computes.ratio,
            "text": computes.words,
            "reason": computes.reason,
        }
    return found


def _device_name(diagnosis: Diagnosis) -> str | None:
    """The main device's name; without one in the trace, the first accelerator of run.json, or its CPU."""
    recorded = diagnosis.run.facts.devices if diagnosis.run.facts else ()
    return device_name(([diagnosis.device] if diagnosis.device else []) + accelerators_first(recorded))


def accelerators_first(devices: Sequence[DeviceFacts]) -> list[DeviceFacts]:
    """The devices in their order, CPUs behind all others."""
    return sorted(devices, key=lambda device: device.kind == "cpu")


def device_name(candidates: Sequence[DeviceFacts]) -> str | None:
    """The first name among the candidates; where none has one, what is known of the first. None: there are
    no candidates."""
    named = next((device.name for device in candidates if device.name), None)
    if named or not candidates:
        return named
    first = candidates[0]
    if recognised := device_peaks.recognised_name(first):
        return f"{recognised} (by its figures, not its name)"
    vendor = "" if first.vendor == "unknown" else f"{_VENDORS.get(first.vendor, first.vendor)} "
    kind = f"{vendor}{first.kind.upper()}"
    if first.compute_capability and first.vendor in ("nvidia", "unknown"):
        major, minor = first.compute_capability
        return f"{kind}, compute capability {major}.{minor}"
    return kind


def _steps(steps: StepSummary | None) -> doc.Steps | None:
    if steps is None:
        return None
    scale = steps.loss_scale
    body: doc.Steps = {
        "count": steps.count,
        "steady": steps.steady,
        "median_ns": _ns(steps.median_ns),
        "p95_ns": _ns(steps.p95_ns),
        "skipped": steps.skipped,
        "skipped_ratio": steps.skipped_ratio,
        "loss_scale": None
        if scale is None
        else {"first": scale.first, "last": scale.last, "min": scale.min, "max": scale.max},
        "peak_memory_bytes": steps.peak_memory_bytes,
        "interval_ns": None if steps.interval_ns is None else [_ns(edge) for edge in steps.interval_ns],
        "first_steady": steps.first_steady,
        "examples_per_s": steps.examples_per_s,
        "steps_per_epoch": steps.steps_per_epoch,
        "gpu_hours_per_epoch": steps.gpu_hours_per_epoch,
        "workers": [
            {
                "worker": each.worker,
                "count": each.count,
                "median_ns": _ns(each.median_ns),
                "p95_ns": _ns(each.p95_ns),
            }
            for each in steps.workers
        ],
    }
    if (memory := steps.memory) is not None:
        body["memory"] = {
            "peak_bytes": memory.peak_bytes,
            "steady_peak_bytes": memory.steady_peak_bytes,
            "first_live_bytes": memory.first_live_bytes,
            "last_live_bytes": memory.last_live_bytes,
            "driver_bytes": memory.driver_bytes,
            "host_bytes": memory.host_bytes,
        }
    return body


def _time(
    account: Account | None, step_range: str | None, unlike: str | None, hosts: Hosts | None
) -> doc.Time | None:
    if account is None:
        return None
    body: doc.Time = {
        "basis": "host" if account.trace_basis == "host" else account.basis,
        "step_ns": _ns(account.step_ns),
        "function_ns": _ns(account.function_ns),
        "wall_ns": _ns(account.wall_ns),
        "window_ns": _ns(account.window_ns),
        "device_ns": _ns(account.device_ns),
        "between_steps": None
        if account.between is None
        else [
            {"name": part.name, "host_ns": _ns(part.host_ns), "device_ns": _ns(part.device_ns)}
            for part in account.between
        ],
        "slices": _slices(account.main.slices),
        "devices": _devices(account, hosts),
        "device": account.main.device,
        "window_steps": account.main.steps,
        "step_source": account.step_source,
        "notes": list(account.notes),
        "idle_between_steps_ns": _ns(account.between_ns),
    }
    if step_range is not None:
        body["step_range"] = step_range
    if unlike is not None:
        body["unlike"] = unlike
    if account.host_path is not None:
        body["call_ns"] = _ns(account.host_path.call_ns)
        body["launched_ns"] = _ns(account.host_path.launched_ns)
        body["waited_ns"] = _ns(account.host_path.waited_ns)
    return body


def _devices(account: Account, hosts: Hosts | None) -> list[doc.Device]:
    """All of the account's, and those of further hosts."""
    own = hosts.read[0].host if hosts is not None else None
    others = hosts.read[1:] if hosts is not None else ()
    return [
        *(_device(device, own) for device in account.devices),
        *(_device(device, each.host) for each in others for device in each.devices),
    ]


def _device(device: DeviceAccount, host: str | None) -> doc.Device:
    body: doc.Device = {
        "device": device.device,
        "step_ns": _ns(device.step_ns),
        "slices": _slices(device.slices),
        "busy_ns": _ns(device.busy_ns),
    }
    return body if host is None else {**body, "host": host}


def _slices(slices: tuple[Slice, ...]) -> list[doc.Slice]:
    return [_slice(part) for part in slices]


def _slice(part: Slice) -> doc.Slice:
    said: doc.Slice = {
        "class": part.category,
        "ns_per_step": _ns(part.ns_per_step),
        "ratio": part.ratio,
        "hidden_ns_per_step": _ns(part.hidden_ns_per_step),
        "by": [
            {
                "placement": share.placement,
                "precision": share.precision,
                "ns_per_step": _ns(share.ns_per_step),
                "transforms_ns_per_step": _ns(share.transforms_ns_per_step),
            }
            for share in part.by
        ],
        "causes": [{"cause": cause, "ns_per_step": _ns(ns)} for cause, ns in part.causes],
    }
    if part.pooling_ns_per_step:
        said["pooling_ns_per_step"] = _ns(part.pooling_ns_per_step)
    if part.longest_hidden is not None:
        name, ns = part.longest_hidden
        said["longest_hidden"] = {"name": name, "ns_per_step": _ns(ns)}
    return said


def _tensor_core(diagnosis: Diagnosis) -> doc.TensorCore | None:
    """Null for a run without an accelerator, too: a CPU has no share, not a share of nothing."""
    share = diagnosis.tensor_core
    if share is None or _on_host(diagnosis):
        return None
    body: doc.TensorCore = {
        "matmul_ns_per_step": _ns(share.matmul_ns_per_step),
        "ratio": share.ratio,
        "reason": share.reason,
        "by_precision": {precision: _ns(ns) for precision, ns in share.by_precision.items()},
        "fallback_ns_per_step": _ns(share.fallback_ns_per_step),
        "unknown_ratio": share.unknown_ratio,
    }
    if share.verified_ratio is not None:
        body["verified_ratio"] = share.verified_ratio
    if share.of == "window":
        body |= {"of": "window", "unit": share.unit}
    return body


def _speedup(speedup: Speedup | None, how_to_switch: Sequence[Remedy]) -> doc.Speedup | None:
    if speedup is None:
        return None
    estimated = speedup.estimated
    body: doc.Speedup = {
        "baseline": speedup.baseline,
        "baseline_id": speedup.baseline_id,
        "observed": speedup.observed,
        "interval": None if speedup.interval is None else list(speedup.interval),
        "expected": speedup.expected,
        "expected_with_host": speedup.expected_with_host,
        "ceiling": speedup.ceiling,
        "estimated": None
        if estimated is None
        else {"low": estimated.low, "high": estimated.high, "assumptions": list(estimated.assumptions)},
        "slices": _gap_slices(speedup.slices),
        "unexplained_ns": _ns(speedup.unexplained_ns),
        "baseline_step_ns": _ns(speedup.baseline_step_ns),
        "reach_ns": _ns(speedup.attainable_ns),
        "gap_ns": _ns(speedup.gap_ns),
        "per_example": speedup.per_example,
        "lost_ns": _ns(speedup.lost_ns),
        "gained_ns": _ns(speedup.gained_ns),
        "baseline_dtype": speedup.baseline_dtype,
        "attainable": _attainable(speedup),
        "limits": [
            {
                "class": limit.category,
                "kind": limit.kind,
                "ns_per_step": round(limit.ns_per_step, 3),
                "best_ns": round(limit.best_ns, 3),
                "ratio": limit.ratio,
            }
            for limit in (speedup.potential.limits if speedup.potential else speedup.limits)
        ],
        "above_attainable_ns": _ns(speedup.above_attainable_ns),
    }
    if how_to_switch:
        body["how_to_switch"] = list(map(_remedy, how_to_switch))
    return body


def _attainable(speedup: Speedup) -> doc.AttainableRange | None:
    found = speedup.potential
    if found is not None:
        body: doc.AttainableRange = {
            "low": found.low,
            "high": found.high,
            "eligible_ratio": found.eligible_ratio,
            "assumptions": list(found.assumptions),
        }
        if found.tf32_ratio is not None:
            body["tf32_ratio"] = found.tf32_ratio
        return body
    if speedup.attainable is None:
        return None
    return {"low": speedup.attainable, "high": speedup.attainable, "eligible_ratio": None, "assumptions": []}


def _whatif(plan: WhatIf | None) -> doc.WhatIf | None:
    if plan is None:
        return None
    body: doc.WhatIf = {
        "order": [
            {
                "code": step.code,
                "step_ns": _ns(step.step_ns),
                "gain_ns": _ns(step.gain_ns),
                "hidden_ns": _ns(step.hidden_ns),
            }
            for step in plan.order
        ],
        "best_step_ns": _ns(plan.best_step_ns),
        "floor": {"by": plan.floor, "host_ns": _ns(plan.host_ns)},
        "subsets_ns": [_ns(step_ns) for step_ns in plan.subsets_ns],
    }
    if plan.surfacing:
        body["surfacing"] = [{"code": each.code, "gain_ns": _ns(each.gain_ns)} for each in plan.surfacing]
    return body


def _facts(diagnosis: Diagnosis) -> doc.Facts:
    speedup, plan = diagnosis.speedup, diagnosis.whatif
    measured = speedup if speedup and speedup.baseline == "measured" else None
    attainable_ns = measured.attainable_step_ns if measured else None
    step_ns = diagnosis.account.step_ns if diagnosis.account else None
    if step_ns is None and diagnosis.steps:
        step_ns = diagnosis.steps.median_ns
    after_ns = {step.code: step.step_ns for step in plan.order} if plan else {}
    end = None if _other_type(diagnosis) else plan
    return {
        "step_ns": _ns(step_ns),
        "baseline_step_ns": _ns(measured.baseline_step_ns) if measured else None,
        "observed": measured.observed if measured else None,
        "attainable": measured.attainable if measured else None,
        "attainable_step_ns": _ns(attainable_ns),
        "unexplained_ns": _ns(measured.unexplained_ns) if measured and attainable_ns is not None else None,
        "after_remedies_ns": _ns(end.best_step_ns) if end else None,
        "limited_by": end.floor if end else None,
        "unlike": list(unlike(diagnosis)),
        "observed_per_update": per_update(diagnosis),
        "causes": [
            {
                "code": found.code,
                "slug": found.slug,
                "gain_ns_per_step": _ns(found.gain_ns_per_step),
                "recovers_ns_per_step": _ns(found.recovers_ns_per_step),
                "step_ns": _ns(after_ns.get(found.code)),
            }
            for found in causes(diagnosis.findings)
        ],
    }


def _other_type(diagnosis: Diagnosis) -> str | None:
    """The code of the first cause, where its remedy changes the type to compute in."""
    listed = (found for found in causes(diagnosis.findings) if found.code not in diagnosis.dismissed)
    first = next(listed, None)
    return first.code if first is not None and changes_type(first) else None


def _gap_slices(slices: tuple[GapSlice, ...]) -> list[doc.GapSlice]:
    return [
        {
            "class": part.category,
            "layer": part.layer,
            "ns_per_step": _ns(part.ns_per_step),
            "baseline_ns": _ns(part.baseline_ns),
            "mixed_ns": _ns(part.mixed_ns),
            "ratio": part.ratio,
            "ratio_source": part.ratio_source,
            "added_ns": _ns(part.added_ns),
        }
        for part in slices
    ]


def _memory(memory: MemoryAccount | None, findings: Sequence[Finding]) -> doc.Memory | None:
    if memory is None:
        return None
    body: doc.Memory = {
        "peak_bytes": memory.peak_bytes,
        "at_peak": memory_items(memory),
        "saved_bytes": memory.saved_bytes,
        "reachable_bytes": memory.reachable_bytes,
        "allocator": memory.allocator,
        "allocators": [
            {
                "name": each.name,
                "where": each.where,
                "peak_bytes": each.peak_bytes,
                "lifetime_peak_bytes": each.lifetime_peak_bytes,
                "capacity_bytes": each.capacity_bytes,
                "events": each.events,
            }
            for each in memory.allocators
        ],
        "peak_ns": memory.peak_ns,
        "rounding_bytes": memory.rounding_bytes,
        "fragmentation_ratio": memory.fragmentation_ratio,
        "tensors": [_tensor(each) for each in memory.tensors],
        "across_steps": None
        if memory.across_steps is None
        else [
            {"op": h.op, "layer": h.layer, "dtype": h.dtype, "count": h.count, "bytes": h.bytes}
            for h in memory.across_steps
        ],
        "course": None
        if memory.course is None
        else {
            "time_ns": list(memory.course.time_ns),
            "total_bytes": list(memory.course.total_bytes),
            "parts": {
                by: {name: list(values) for name, values in parts.items()}
                for by, parts in memory.course.parts.items()
            },
        },
        "expected_saving_bytes": memory.expected_saving_bytes,
        "gap": [{"code": part.code, "bytes": part.bytes} for part in memory.gap],
        "unexplained_bytes": memory.unexplained_bytes,
        "beside_gap": [
            {"code": found.code, "bytes": found.spare_bytes}
            for found in sorted(findings, key=lambda each: -(each.spare_bytes or 0))
            if found.spare_bytes is not None and memory.saved_bytes is not None
        ],
        "driver": _driver(memory.driver),
        "states_from": memory.states_from,
    }
    if memory.why_unassigned:
        body["why_unassigned"] = memory.why_unassigned
    return body


def _tensor(tensor: Tensor) -> doc.Tensor:
    body: doc.Tensor = {
        "kind": tensor.kind,
        "op": tensor.op,
        "layer": tensor.layer,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "count": tensor.count,
        "bytes": tensor.bytes,
        "born_ns": tensor.born_ns,
        "life_ns": tensor.life_ns,
    }
    if tensor.assigned:
        body["assigned"] = True
    return body


def _driver(driver: DriverSaving | None) -> doc.DriverSaving | None:
    if driver is None:
        return None
    body: doc.DriverSaving = {
        "bytes": driver.bytes,
        "baseline_bytes": driver.baseline_bytes,
        "saved_bytes": driver.saved_bytes,
        "peak_saved_bytes": driver.peak_saved_bytes,
        "hidden_bytes": driver.hidden_bytes,
        "unused_bytes": driver.unused_bytes,
    }
    if driver.code:
        body["code"] = driver.code
    return body


def memory_items(memory: MemoryAccount) -> list[doc.MemoryItem]:
    """What was live at the peak, as the report and the table give it."""
    return [
        {"by": item.by, "name": item.name, "bytes": item.bytes}
        | ({"estimated": True} if item.estimated else {})  # type: ignore[misc]
        | ({"assigned": True} if item.assigned else {})
        for item in memory.at_peak
    ]


def out_of_memory(found: OutOfMemory, advice: tuple[Advice, ...]) -> doc.OutOfMemory:
    """What an out-of-memory error states, and what to try, the likeliest first."""
    return {
        "schema": "mpprof.out_of_memory/1",
        "framework": found.framework,
        "asked_bytes": found.asked_bytes,
        "limit_bytes": found.limit_bytes,
        "used_bytes": found.used_bytes,
        "loose_bytes": found.loose_bytes,
        "others_bytes": found.others_bytes,
        "free_bytes": found.free_bytes,
        "device": found.device,
        "op": found.op,
        "parts": found.parts,
        "filled": [
            {"name": f.name, "dtype": f.dtype, "shape": f.shape, "count": f.count, "bytes": f.bytes}
            for f in found.filled
        ],
        "listed_bytes": found.listed_bytes,
        "advice": [{"cause": a.cause, "text": a.text, "snippet": a.snippet or None} for a in advice],
    }


def _on_host(diagnosis: Diagnosis) -> bool:
    measured = diagnosis.account or diagnosis.window
    return measured is not None and measured.trace_basis == "host"


def _finding(finding: Finding) -> doc.Finding:
    body: doc.Finding = {
        "code": finding.code,
        "slug": finding.slug,
        "title": finding.title,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "cost_ns_per_step": _ns(finding.cost_ns_per_step),
        "cost_bytes": finding.cost_bytes,
        "gap_ratio": finding.gap_ratio,
        "evidence": [
            {"name": item.name, "value": item.value, "unit": item.unit, "limit": item.limit}
            for item in finding.evidence
        ],
        "remedy": finding.remedy,
        "remedies": [_remedy(each) for each in finding.remedies],
        "whatif_step_ns": _ns(finding.whatif_step_ns),
        "summary": finding.summary,
        "layers": list(finding.layers),
        "lost_ratio": finding.lost_ratio,
        "gain_ns_per_step": _ns(finding.gain_ns_per_step),
        "recovers_ns_per_step": _ns(finding.recovers_ns_per_step),
    }
    if finding.spare_bytes is not None:
        body["spare_bytes"] = finding.spare_bytes
    if finding.cost_ns_in_window is not None:
        body["cost_ns_in_window"] = _ns(finding.cost_ns_in_window)
    return body


def _remedy(remedy: Remedy) -> doc.Remedy:
    body: doc.Remedy = {"text": remedy.text, "snippet": remedy.snippet or None}
    return {**body, "other_type": True} if remedy.other_type else body


def _rung(rung: Rung) -> doc.Rung:
    speedup = rung.speedup
    body: doc.Rung = {
        "from": rung.start,
        "to": rung.end,
        "observed": speedup.observed if speedup else None,
        "expected": speedup.expected if speedup else None,
        "interval": list(speedup.interval) if speedup and speedup.interval else None,
        "slices": _gap_slices(rung.slices),
        "findings": [_finding(finding) for finding in rung.findings],
        "expected_with_host": speedup.expected_with_host if speedup else None,
        "ceiling": speedup.ceiling if speedup else None,
        "gap_ns": _ns(speedup.gap_ns) if speedup else None,
        "unexplained_ns": _ns(speedup.unexplained_ns) if speedup else None,
        "labels": list(rung.labels),
        "refused": rung.refused,
        "absent": _absent_of_rung(rung),
        "per_example": speedup.per_example if speedup else False,
        "examples_per_s": {"from": rung.examples_per_s[0], "to": rung.examples_per_s[1]},
        "lost_ns": _ns(speedup.lost_ns) if speedup else None,
        "gained_ns": _ns(speedup.gained_ns) if speedup else None,
        "above_attainable_ns": _ns(speedup.above_attainable_ns) if speedup else None,
        "cards": rung.cards,
        "explanation": list(rung.explanation),
        "notes": list(rung.notes),
        "matching": None if rung.matching is None else _matching(rung.matching),
        "learning": None if rung.learning is None else _learning(rung.learning),
        "remedies": [_outcome(each) for each in rung.promises.outcomes] if rung.promises else [],
        "remedies_total": _remedies_total(rung.promises),
    }
    if rung.windows is not None:
        body["windows"] = windows.document(rung.windows)
    return body


def _absent_of_rung(rung: Rung) -> dict[str, str]:
    absent = dict(rung.speedup.absent or {}) if rung.speedup else {}
    found = rung.promises
    if found is None or found.refused:
        why = (found.refused if found else rung.refused) or "not compared"
        return absent | {"remedies": why, "remedies_total": why}
    return absent if found.predicted_ns else absent | {"remedies_total": "no remedy is seen in the later run"}


def _outcome(found: RemedyOutcome) -> doc.RemedyOutcome:
    return {
        "code": found.code,
        "slug": found.slug,
        "status": found.status,
        "cause_after": found.after,
        "evidence": list(found.evidence),
        "predicted_ns": [_ns(edge) for edge in found.predicted_ns],
        "obtained_ns": _ns(found.obtained_ns),
        "interval_ns": None if found.interval_ns is None else [_ns(edge) for edge in found.interval_ns],
        "reason": found.reason,
        "counted": found.counted,
    }


def _remedies_total(found: Promises | None) -> doc.RemediesTotal | None:
    if found is None or found.predicted_ns is None:
        return None
    return {
        "predicted_ns": [_ns(edge) for edge in found.predicted_ns],
        "obtained_ns": _ns(found.obtained_ns),
        "interval_ns": None if found.interval_ns is None else [_ns(edge) for edge in found.interval_ns],
    }


def _learning(found: Learning) -> doc.Learning:
    """The losses of both runs after as many updates, and why something of it is not known."""
    reason = found.reason or "the losses are not compared"
    absent = {
        field: reason
        for field, value in (
            ("window", found.window),
            ("loss", found.loss[0]),
            ("difference_ratio", found.difference_ratio),
            ("interval", found.interval),
        )
        if value is None
    }
    if found.verdict == "not finite":
        absent |= dict.fromkeys(absent, "one run's loss is not finite")
    for side, one in zip(("from", "to"), found.applied, strict=True):
        if one is None:
            absent[f"updates.{side}"] = "which updates were skipped is not on record"
    if found.per_update is None:
        unknown = None in found.applied
        absent["speedup_per_update"] = (
            "which updates were skipped is not on record"
            if unknown
            else "both runs have as many updates as steps, or there is no observed speedup: the value "
            "per step holds"
        )
    return {
        "verdict": found.verdict,
        "severity": found.severity,
        "text": found.text,
        "reason": found.reason,
        "window": None if found.window is None else list(found.window),
        "stretches": found.stretches,
        "loss": {"from": found.loss[0], "to": found.loss[1]},
        "difference_ratio": found.difference_ratio,
        "interval": None if found.interval is None else list(found.interval),
        "updates": {"from": _updates(found.applied[0]), "to": _updates(found.applied[1])},
        "speedup_per_update": found.per_update,
        "speedup_per_update_interval": None
        if found.per_update_interval is None
        else list(found.per_update_interval),
        "speedup_per_update_text": found.per_update_text,
        "curves": {"from": _points(found.curves[0]), "to": _points(found.curves[1])},
        "absent": absent,
    }


def _updates(applied: Applied | None) -> doc.Updates | None:
    if applied is None:
        return None
    return {"steps": applied.steps, "skipped": applied.skipped, "applied": applied.updates}


def _points(curve: tuple[LossPoint, ...]) -> list[doc.LossPoint]:
    return [{"updates": round(at, 3), "loss": loss} for at, loss in curve]


def _matching(matching: Matching) -> doc.Matching:
    """What of both runs found its like; times are per step."""
    return {
        "by_op_ratio": {"from": matching.by_op_ratio[0], "to": matching.by_op_ratio[1]},
        "by_layer_ratio": {"from": matching.by_layer_ratio[0], "to": matching.by_layer_ratio[1]},
        "only_from": [{"op": op, "ns_per_step": _ns(ns)} for op, ns in matching.only_from],
        "only_to": [{"op": op, "ns_per_step": _ns(ns)} for op, ns in matching.only_to],
        "unmatched_from": [{"layer": layer, "reason": why} for layer, why in matching.unmatched_from],
        "unmatched_to": [{"layer": layer, "reason": why} for layer, why in matching.unmatched_to],
    }


def _absent(diagnosis: Diagnosis, body: doc.Report) -> dict[str, str]:
    """Every reason that is known, and a true if general one for each null that came without."""
    run = diagnosis.run
    reasons: dict[str, str] = dict(run.facts.absent) if run.facts else {}
    reasons |= diagnosis.absent
    if diagnosis.account and diagnosis.account.absent:
        reasons |= {f"time.{field}": why for field, why in diagnosis.account.absent.items()}
    if diagnosis.speedup and diagnosis.speedup.absent:
        reasons |= {f"speedup.{field}": why for field, why in diagnosis.speedup.absent.items()}
    if diagnosis.speedup and (could := diagnosis.speedup.potential) and could.eligible_ratio is None:
        reasons["speedup.attainable.eligible_ratio"] = NO_WORK_SEEN
    if (code := _other_type(diagnosis)) is not None:
        why = (
            f"the remedy of {code} changes the compute type, and the gains of the others in that type "
            "are not known"
        )
        reasons |= {"facts.after_remedies_ns": why, "facts.limited_by": why}
    if diagnosis.hosts is not None:
        reasons |= several.why_no_skew(diagnosis.hosts)
    for field in _nulls(body):
        reasons.setdefault(field, _why_null(field, diagnosis, reasons))
    return reasons


def _nulls(body: doc.Report) -> list[str]:
    """Paths of the nulls at the top and one level down, in the order of the document."""
    paths = []
    for key, value in body.items():
        if value is None:
            paths.append(key)
        elif isinstance(value, dict):
            paths += [f"{key}.{inner}" for inner, item in value.items() if item is None]
    return [path for path in paths if path not in ("tensor_core.reason", "speedup.estimated")]


_NOT_IN_THE_LOG = {
    "examples_per_s": "the batch size or the step time is not known",
    "steps_per_epoch": "no epoch has ended yet",
    "gpu_hours_per_epoch": "no GPU is on record, or no epoch has ended, or the step time is not known",
}


_OF_SAVING = ("saved_bytes", "reachable_bytes", "expected_saving_bytes", "unexplained_bytes", "driver")
"""What of `memory` rests on a baseline."""


def _why_null(field: str, diagnosis: Diagnosis, reasons: dict[str, str]) -> str:
    """The reason for a null that nothing more exact explains."""
    run, room = diagnosis.run, field.partition(".")[0]
    leaf = field.rpartition(".")[2]
    if leaf in reasons:
        return reasons[leaf]
    memory = diagnosis.memory
    if room == "memory" and leaf in _OF_SAVING and memory is not None and memory.why_not_saved:
        return memory.why_not_saved
    if field == "memory.driver":
        return "the driver's figure and the allocator's peak are not on record for this run and a baseline"
    if field == "cause":
        return "the verdict names no finding"
    if field == "tensor_core" and _on_host(diagnosis):
        share = diagnosis.tensor_core
        return (share.reason if share else None) or "the trace holds no accelerator"
    if room == "facts":
        return next((reasons[path] for path in _FACT_OF[leaf] if path in reasons), "not derivable")
    if room == "account":
        return reasons.get("time", "the trace could not be accounted for; see warnings")
    if room == "run":
        return reasons.get("run", "run.json does not state it" if run.facts else "there is no run.json")
    if room == "steps":
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
    if room == "speedup" and diagnosis.speedup:
        return (
            "there is no measured baseline" if diagnosis.speedup.baseline == "estimated" else "not derivable"
        )
    if not run.traces:
        return "there is no trace"
    if diagnosis.account is None and room != "memory":
        return reasons.get("time", "the trace could not be accounted for; see warnings")
    if room == "memory":
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
