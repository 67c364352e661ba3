"""The report of one run, `mpprof.report/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.steps.run_time import run_time
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.ranking import causes, per_update, unlike
from mpprof.model.answer import Answer
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Diagnosis
from mpprof.report import units
from mpprof.report.json import hosts, whole_window
from mpprof.report.json.absent import absent_of, code_of_other_type
from mpprof.report.json.memory import memory_of, out_of_memory
from mpprof.report.json.run_time import run_time_of
from mpprof.report.json.speedup import finding_of, speedup_of, whatif_of
from mpprof.report.json.time import steps_of, tensor_core_of, time_of
from mpprof.report.json.values import rounded, strict

if TYPE_CHECKING:
    from mpprof.model import document as doc

REPORT_SCHEMA: Final = "mpprof.report/1"

_LONGEST_ERROR = 300
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "google": "Google", "intel": "Intel", "apple": "Apple"}


def document(diagnosis: Diagnosis) -> doc.Report:
    """Return the report of one run, schema `mpprof.report/1`.

    Times are rounded to a thousandth of a nanosecond, far inside the one nanosecond within which the
    slices sum to the step.
    """
    spent, answer = run_time(diagnosis.run), diagnosis.answer or compose(diagnosis)
    body: doc.Report = {
        "schema": REPORT_SCHEMA,
        "run": _run(diagnosis),
        "steps": steps_of(diagnosis.steps),
        "time": time_of(
            diagnosis.account,
            diagnosis.run.step_range,
            diagnosis.unlike,
            diagnosis.hosts,
            diagnosis.ranges,
        ),
        "tensor_core": tensor_core_of(diagnosis),
        "speedup": speedup_of(diagnosis.speedup, diagnosis.how_to_switch),
        "bounds": [
            {"statement": b.statement, "value": b.value, "unit": b.unit, "assumptions": list(b.assumptions)}
            for b in diagnosis.bounds
        ],
        "memory": memory_of(diagnosis.memory, diagnosis.findings),
        "findings": [finding_of(finding) for finding in diagnosis.findings],
        "unable": [{"code": unable.code, "reason": unable.reason} for unable in diagnosis.unable],
        "clear": list(diagnosis.clear),
        "warnings": list(dict.fromkeys((*diagnosis.run.warnings, *diagnosis.warnings))),
        "absent": {},
        "verdict": answer.sentence,
        "answer": answer_of(answer),
        "cause": answer.code,
        "explanation": list(answer.because),
        "whatif": whatif_of(diagnosis.whatif),
        "facts": _facts(diagnosis),
        "not_applicable": [{"code": each.code, "reason": each.reason} for each in diagnosis.not_applicable],
        "account": {"basis": "step" if diagnosis.account else "window" if diagnosis.window else None},
        "run_time": run_time_of(spent),
    }
    if diagnosis.run.facts is not None and diagnosis.run.facts.ended is not None:
        from mpprof.diagnosis.out_of_memory.failure import failure  # seldom needed

        if (failed := failure(diagnosis.run)) is not None:
            body["out_of_memory"] = out_of_memory(*failed)
    if diagnosis.window is not None:
        body["window"] = whole_window.window_of(diagnosis.window, diagnosis.how_to_mark, diagnosis.ranges)
    if diagnosis.hosts is not None:
        body["hosts"] = hosts.hosts_of(diagnosis.hosts)
    if len(diagnosis.devices) > 1 or diagnosis.collectives:
        body["communication"] = hosts.communication_of(diagnosis.devices, diagnosis.collectives)
    body["absent"] = absent_of(diagnosis, body, spent)
    return cast("doc.Report", units.document(strict(body), body["time"]))


def answer_of(found: Answer) -> doc.Answer:
    """Return the answer as the documents hold it."""
    return {
        "kind": found.kind,
        "leads": found.leads,
        "figure": found.figure,
        "label": found.label,
        "sentence": found.sentence,
        "because": list(found.because),
        "do": found.do,
        "code": found.code,
    }


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
        if said := (ended.text or "").splitlines()[:1]:
            found["ended"]["text"] = said[0][:_LONGEST_ERROR]
    model = run.facts.model if run.facts is not None else None
    if model is not None and model.parameters is not None:
        found["model_parameters"] = model.parameters
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
    """Return the main device's name; where the trace has none, the name of the first accelerator of run.json,
    or of its CPU."""
    recorded = diagnosis.run.facts.devices if diagnosis.run.facts else ()
    return device_name(([diagnosis.device] if diagnosis.device else []) + accelerators_first(recorded))


def accelerators_first(devices: Sequence[DeviceFacts]) -> list[DeviceFacts]:
    """Return the devices in their order, with CPUs after all others."""
    return sorted(devices, key=lambda device: device.kind == "cpu")


def device_name(candidates: Sequence[DeviceFacts]) -> str | None:
    """Return the first name among the candidates; where none has a name, a description of the first one. None
    means that there are no candidates."""
    named = next((device.name for device in candidates if device.name), None)
    if named or not candidates:
        return named
    first = candidates[0]
    if recognised := device_peaks.recognised_name(first):
        return f"{recognised} (by its figures, not its name)"
    vendor = "" if first.vendor == "unknown" else f"{_VENDORS.get(first.vendor, first.vendor)} "
    kind = f"{vendor}{first.kind.upper()}"
    return f"{kind}, {first.architecture}" if first.architecture else kind


def _facts(diagnosis: Diagnosis) -> doc.Facts:
    speedup, plan = diagnosis.speedup, diagnosis.whatif
    measured = speedup if speedup and speedup.baseline == "measured" else None
    attainable_ns = measured.attainable_step_ns if measured else None
    step_ns = diagnosis.account.step_ns if diagnosis.account else None
    if step_ns is None and diagnosis.steps:
        step_ns = diagnosis.steps.mean_ns
    after_ns = {step.code: step.step_ns for step in plan.order} if plan else {}
    end = None if code_of_other_type(diagnosis) else plan
    unexplained_ns = measured.unexplained_ns if measured and attainable_ns is not None else None
    return {
        "step_ns": rounded(step_ns),
        "baseline_step_ns": rounded(measured.baseline_step_ns) if measured else None,
        "observed": measured.observed if measured else None,
        "attainable": measured.attainable if measured else None,
        "attainable_step_ns": rounded(attainable_ns),
        "unexplained_ns": rounded(unexplained_ns),
        "after_remedies_ns": rounded(end.best_step_ns) if end else None,
        "limited_by": end.floor if end else None,
        "unlike": list(unlike(diagnosis)),
        "observed_per_update": per_update(diagnosis),
        "step_ns_per_update": rounded(_per_update(step_ns, diagnosis)),
        "causes": [
            {
                "code": found.code,
                "slug": found.slug,
                "gain_ns_per_step": rounded(found.gain_ns_per_step),
                "recovers_ns_per_step": rounded(found.recovers_ns_per_step),
                "added_ns_per_step": rounded(found.added_ns_per_step),
                "step_ns": rounded(after_ns.get(found.code)),
            }
            for found in causes(diagnosis.findings)
        ],
    }


def _per_update(step_ns: float | None, diagnosis: Diagnosis) -> float | None:
    """Return the time of a step for each applied update, including the steps that were skipped before it."""
    skipped = diagnosis.steps.skipped_ratio if diagnosis.steps else None
    return None if step_ns is None or skipped is None or skipped >= 1 else step_ns / (1 - skipped)
