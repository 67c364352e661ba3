"""The report as a JSON document: schemas `mpprof.report/1` and `mpprof.compare/1`.

Text, markdown, HTML and the dashboard are all made from these documents, so whatever a person reads can
be read by a program too. Numbers are raw, in the unit that ends their name. What is not known is null,
with its reason in `absent` (a nested field by its path: "steps.skipped"). The documents are strict JSON:
non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".

The types are the model's own: `model.report` has the top of both documents. What stands here is what a report
composes of a judgement: the views of an account, the facts of its verdict, a reason for each null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.breakdown.communication import straggling
from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.steps.accounted_steps import spread
from mpprof.analysis.steps.run_time import run_time, why_none
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.leading import causes, changes_type, per_update, unlike
from mpprof.model.account import NO_WORK_SEEN, Account, Cell, DeviceAccount, Slice
from mpprof.model.answer import Remedy
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Comparison, Diagnosis, Rung
from mpprof.model.hosts import Communication, DeviceName, Hosts
from mpprof.model.kernels import Family
from mpprof.model.memory import MemoryAccount, MemoryCause, OutOfMemory
from mpprof.model.report import (
    AccountOf,
    Cause,
    ComparedRuns,
    Facts,
    FamilyTime,
    Report,
    ReportedEnd,
    ReportedRun,
    Time,
    Window,
    WindowCause,
    WindowDevice,
    WindowShare,
    WindowSlice,
)
from mpprof.model.run import Run
from mpprof.model.run_time import RunTime
from mpprof.model.trace import NamedRanges
from mpprof.model.written import is_written, items
from mpprof.report import units
from mpprof.report.to_json import dumps as dumps
from mpprof.report.to_json import to_json

# Why a value of the report is not known.

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


_LONGEST_ERROR = 300
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "google": "Google", "intel": "Intel", "apple": "Apple"}


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the report of one run as JSON, schema `mpprof.report/1`."""
    made: dict[str, Any] = to_json(report(diagnosis))
    return made


def comparison(compared: Comparison) -> ComparedRuns:
    """Return the comparison of several runs, which text, markdown, page and JSON are made from."""
    return ComparedRuns(
        runs=tuple(map(report, compared.runs)),
        steps=tuple(map(_told, compared.rungs)),
        kernels=tuple(
            replace(change, step=row) for row, rung in enumerate(compared.rungs) for change in rung.kernels
        ),
        batches=compared.batches,
    )


def _told(rung: Rung) -> Rung:
    if rung.windows is None:
        return rung
    from mpprof.report.two_windows import told  # seldom needed

    return replace(rung, windows=told(rung.windows))


def compare_document(compared: Comparison) -> dict[str, Any]:
    """Return the comparison of several runs as JSON, schema `mpprof.compare/1`."""
    made: dict[str, Any] = to_json(comparison(compared))
    return made


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of "report" or "compare", as shipped."""
    from importlib import resources  # not needed to write a report

    text = resources.files("mpprof.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def report(diagnosis: Diagnosis) -> Report:
    """Return the report of one run, which text, markdown, page and JSON are made from."""
    spent, answer = run_time(diagnosis.run), diagnosis.answer or compose(diagnosis)
    made = Report(
        run=_run(diagnosis),
        steps=diagnosis.steps,
        time=time_of(
            diagnosis.account,
            diagnosis.run.step_range,
            diagnosis.unlike,
            diagnosis.hosts,
            diagnosis.ranges,
        ),
        # A CPU has no such share, rather than a share of 0.
        tensor_core=None if on_host(diagnosis) else diagnosis.tensor_core,
        speedup=replace(diagnosis.speedup, how_to_switch=diagnosis.how_to_switch)
        if diagnosis.speedup
        else None,
        bounds=diagnosis.bounds,
        memory=_memory(diagnosis),
        findings=diagnosis.findings,
        unable=diagnosis.unable,
        clear=diagnosis.clear,
        warnings=tuple(dict.fromkeys((*diagnosis.run.warnings, *diagnosis.warnings))),
        absent={},
        verdict=answer.sentence,
        answer=answer,
        cause=answer.code,
        explanation=answer.because,
        whatif=diagnosis.whatif,
        facts=_facts(diagnosis),
        not_applicable=diagnosis.not_applicable,
        account=AccountOf("step" if diagnosis.account else "window" if diagnosis.window else None),
        run_time=spent,
        out_of_memory=_out_of_memory(diagnosis.run),
        window=None
        if diagnosis.window is None
        else window_of(diagnosis.window, diagnosis.how_to_mark, diagnosis.ranges),
        hosts=diagnosis.hosts,
        communication=_communication(diagnosis),
        kernels=diagnosis.kernels,
    )
    return units.document(replace(made, absent=absent_of(diagnosis, made, spent)))


def _out_of_memory(run: Run) -> OutOfMemory | None:
    if run.facts is None or run.facts.ended is None:
        return None
    from mpprof.diagnosis.out_of_memory.failure import failure  # seldom needed

    return failure(run)


def _communication(diagnosis: Diagnosis) -> Communication | None:
    if len(diagnosis.devices) < 2 and not diagnosis.collectives:
        return None
    slow = straggling(diagnosis.devices)
    return Communication(
        diagnosis.devices,
        diagnosis.collectives,
        tuple(DeviceName(each.host, each.device) for each in slow.slow) if slow else (),
    )


def _memory(diagnosis: Diagnosis) -> MemoryAccount | None:
    """Return the account of the memory, with what findings say beside it."""
    memory = diagnosis.memory
    if memory is None or memory.saved_bytes is None:
        return memory
    beside = [
        MemoryCause(found.code, found.spare_bytes)
        for found in diagnosis.findings
        if found.spare_bytes is not None
    ]
    return replace(memory, beside_gap=tuple(sorted(beside, key=lambda each: -each.bytes)))


def _run(diagnosis: Diagnosis) -> ReportedRun:
    run, fit = diagnosis.run, diagnosis.run.last_fit
    policy = fit.policy if fit else None
    framework = run.facts.framework if run.facts else {}
    model = run.model
    return ReportedRun(
        name=run.name,
        policy=policy.name if policy else None,
        backend=framework.get("backend"),
        device=_device_name(diagnosis),
        jit_compile=fit.jit_compile if fit else None,
        batch_size=fit.batch_size if fit else None,
        id=run.run_id,
        compute_dtype=policy.compute_dtype if policy else None,
        ended=_ended(run),
        model_parameters=model.parameters if model is not None else None,
        computes_in=diagnosis.computes,
    )


def _ended(run: Run) -> ReportedEnd | None:
    if run.facts is None or (ended := run.facts.ended) is None:
        return None
    first, said = ((text or "").splitlines()[:1] for text in (ended.error, ended.text))
    return ReportedEnd(
        ended.reason,
        first[0][:_LONGEST_ERROR] if first else None,
        said[0][:_LONGEST_ERROR] if said else None,
    )


def _device_name(diagnosis: Diagnosis) -> str | None:
    """Return the main device's name; where the trace has none, the name of the first accelerator of run.json,
    or of its CPU."""
    recorded = diagnosis.run.devices
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


def _facts(diagnosis: Diagnosis) -> Facts:
    speedup, plan = diagnosis.speedup, diagnosis.whatif
    measured = speedup if speedup and speedup.measured else None
    attainable_ns = measured.attainable_step_ns if measured else None
    step_ns = diagnosis.account.step_ns if diagnosis.account else None
    if step_ns is None and diagnosis.steps:
        step_ns = diagnosis.steps.mean_ns
    after_ns = {step.code: step.step_ns for step in plan.order} if plan else {}
    end = None if code_of_other_type(diagnosis) else plan
    return Facts(
        step_ns=_rounded(step_ns),
        baseline_step_ns=_rounded(measured.baseline_step_ns) if measured else None,
        observed=measured.observed if measured else None,
        attainable=measured.attainable if measured else None,
        attainable_step_ns=_rounded(attainable_ns),
        unexplained_ns=measured.unexplained_ns if measured and attainable_ns is not None else None,
        after_remedies_ns=_rounded(end.best_step_ns) if end else None,
        limited_by=end.floor.by if end else None,
        unlike=unlike(diagnosis),
        observed_per_update=per_update(diagnosis),
        step_ns_per_update=_per_update(step_ns, diagnosis),
        causes=tuple(
            Cause(
                code=found.code,
                slug=found.slug,
                gain_ns_per_step=_rounded(found.gain_ns_per_step),
                recovers_ns_per_step=found.recovers_ns_per_step,
                added_ns_per_step=found.added_ns_per_step,
                step_ns=after_ns.get(found.code),
            )
            for found in causes(diagnosis.findings)
        ),
    )


def _rounded(ns: float | None) -> float | None:
    """Return a time as the document states it: what is computed from it elsewhere is of the same number."""
    return None if ns is None else round(float(ns), 3)


def _per_update(step_ns: float | None, diagnosis: Diagnosis) -> float | None:
    """Return the time of a step for each applied update, including the steps that were skipped before it."""
    skipped = diagnosis.steps.skipped_ratio if diagnosis.steps else None
    return None if step_ns is None or skipped is None or skipped >= 1 else step_ns / (1 - skipped)


# --- the account of a step, and of a window ---------------------------------------------------------------


def time_of(
    account: Account | None,
    step_range: str | None,
    unlike: str | None,
    hosts: Hosts | None,
    ranges: tuple[NamedRanges, ...] = (),
) -> Time | None:
    """Return the view of an account of steps; None without one."""
    if account is None:
        return None
    path = account.host_path
    of_step = account.unit == "step" or account.unit == "window"
    return Time(
        basis="host" if account.trace_basis == "host" else account.basis,
        step_ns=account.step_ns,
        function_ns=account.function_ns,
        wall_ns=account.wall_ns,
        window_ns=account.window_ns,
        device_ns=account.device_ns,
        between_steps=account.between,
        slices=account.main.slices,
        devices=_devices(account, hosts),
        device=account.main.device,
        window_steps=account.main.steps,
        spread=spread(account.lengths_ns),
        step_source=account.step_source,
        notes=account.notes,
        idle_between_steps_ns=account.between_ns,
        unit="step" if account.unit == "window" else account.unit,
        ranges=None if of_step else ranges,
        unit_name="" if of_step else account.unit_name,
        step_range=step_range,
        unlike=unlike,
        call_ns=path.call_ns if path else None,
        launched_ns=path.launched_ns if path else None,
        waited_ns=path.waited_ns if path else None,
    )


def _devices(account: Account, hosts: Hosts | None) -> tuple[DeviceAccount, ...]:
    """Return all devices of the account, and those of further hosts."""
    if hosts is None:
        return account.devices
    own = [replace(device, host=hosts.read[0].host) for device in account.devices]
    others = [replace(device, host=each.host) for each in hosts.read[1:] for device in each.devices]
    return (*own, *others)


def window_of(
    window: Account, how_to_mark: tuple[Remedy, ...], ranges: tuple[NamedRanges, ...] = ()
) -> Window:
    """Return the view of an account of a whole window, whose "per step" is of the window."""
    span_ns, busy_ns = round(window.window_ns, 3), round(window.device_ns, 3)
    ran = [cell for cell in window.main.cells if cell.kernel is not None and cell.category != "copy"]
    calls = window.main.calls
    return Window(
        basis=window.trace_basis,
        span_ns=span_ns,
        busy_ns=busy_ns,
        idle_ns=span_ns - busy_ns,
        kernel_ns=calls.ns_per_step if calls else 0.0,
        kernels=round(calls.per_step if calls else 0.0),
        device=window.main.device,
        slices=_slices(window.main.slices),
        devices=tuple(
            WindowDevice(each.device, each.busy_ns, _slices(each.slices)) for each in window.devices
        ),
        families=_families(ran),
        reason=(window.absent or {}).get("step_ns", "no step can be told apart"),
        mark=how_to_mark,
        ranges=ranges,
        notes=window.notes,
    )


def _slices(slices: tuple[Slice, ...]) -> tuple[WindowSlice, ...]:
    return tuple(
        WindowSlice(
            part.category,
            part.ns_per_step,
            part.ratio,
            part.hidden_ns_per_step,
            tuple(
                WindowShare(share.placement, share.precision, share.ns_per_step, share.transforms_ns_per_step)
                for share in part.by
            ),
            tuple(WindowCause(each.cause, each.ns_per_step) for each in part.causes),
            part.pooling_ns_per_step,
        )
        for part in slices
    )


def _families(ran: list[Cell]) -> tuple[FamilyTime, ...]:
    ns: dict[Family, float] = {}
    calls: dict[Family, float] = {}
    for cell in ran:
        family = cell.family or "other"
        ns[family] = ns.get(family, 0.0) + cell.busy_ns_per_step
        calls[family] = calls.get(family, 0.0) + cell.calls_per_step
    longest = sorted(ns, key=lambda family: -ns[family])
    return tuple(FamilyTime(family, ns[family], round(calls[family])) for family in longest)
