"""What an engineer needs after the verdict, in three sentences: where the step goes, why, and what to do."""

from __future__ import annotations

from mpprof.diagnosis.verdict import cause
from mpprof.model.account import IDLE_CLASSES, Account, Class, Speedup, TensorCoreShare
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.quantities import format_ns, format_ratio

NOTABLE_RATIO = 0.01
"""Parts of the step below a hundredth are left out of a sentence."""
MOST_PARTS = 3
DISTORTED_RATIO = 0.5
"""With more than half a step on top (or missing) while it was profiled, its parts are those of another."""
PAYING_RATIO = 0.01
"""A remedy that gives less than a hundredth of the step is no advice."""

_CEILINGS = "MP8"
"""What is done about a ceiling (another type, another card) changes what all other remedies rest on."""

_WORDS: dict[Class, str] = {
    "matmul": "matrix work", "norm": "normalisation", "elementwise": "elementwise work", "reduce": "sums",
    "gather_scatter": "lookups", "cast": "casts", "layout": "layout changes", "optimizer": "the optimizer",
    "loss_scale": "loss scaling", "other": "other work", "unknown": "unidentified work",
    "comm": "communication", "copy": "copies", "idle_input": "waiting for input",
    "idle_launch": "waiting for launches", "idle_sync": "waits of the host", "idle_compile": "compiling",
    "idle_between_steps": "the loop between steps", "idle_other": "idling for no recorded cause",
    "profiling": "the profiler",
}  # fmt: skip


def explanation(diagnosis: Diagnosis) -> tuple[str, ...]:
    """One to three sentences, each with its numbers; empty where the run has no account of a step."""
    account = diagnosis.account
    if account is None:
        return ()
    said = [_where(account, diagnosis.tensor_core), _why(diagnosis, account), _what_to_do(diagnosis, account)]
    return tuple(f"{sentence[0].upper()}{sentence[1:]}." for sentence in said if sentence)


def _where(account: Account, share: TensorCoreShare | None) -> str:
    """The largest parts of the step; of matrix work, where it ran. Of the profiled step, where profiling
    changed it."""
    profiling = sum(part.ns_per_step for part in account.main.slices if part.role == "profiling")
    distorted = abs(profiling) > DISTORTED_RATIO * account.step_ns
    whole = account.window_ns if distorted else account.step_ns
    added = 0.0 if distorted else max(0.0, -profiling)
    parts = {part.role: part.ns_per_step for part in account.main.slices if part.role != "profiling"}
    left_out = account.trace_basis == "device" and parts.get("idle_launch", 0.0) >= added
    if left_out and added:
        parts["idle_launch"] -= added  # a profiler works where launches are made: as in MP302
    largest = sorted(parts.items(), key=lambda item: -item[1])
    named = []
    for role, ns in [item for item in largest if item[1] >= NOTABLE_RATIO * whole][:MOST_PARTS]:
        ran = f" ({_on_units(share)})" if role == "matmul" and _on_units(share) else ""
        named.append(f"{format_ratio(ns / whole)} {_WORDS[role]}{ran}")
    idle = sum(ns for role, ns in largest if role in IDLE_CLASSES) / whole if whole else 0.0
    device = "the device" if account.trace_basis == "device" else "the CPU's executor"
    step = f"step of {format_ns(whole)}"
    if distorted:
        step = f"profiled step, which takes {format_ns(whole)} and not {format_ns(account.step_ns)}"
    said = f"of a {step}, {_listed(named)}; {device} idles {format_ratio(idle)}"
    if added < NOTABLE_RATIO * whole:
        return said
    if left_out:
        return f"{said}, the {format_ratio(added / whole)} that profiling added left out"
    return f"{said}; in these shares are the {format_ratio(added / whole)} that profiling added"


def _on_units(share: TensorCoreShare | None) -> str:
    if share is None or share.ratio is None:
        return ""
    units = "matrix cores" if share.unit == "matrix_core" else "Tensor Cores"
    used = [name for name, ns in sorted(share.by_precision.items(), key=lambda item: -item[1]) if ns > 0]
    kinds = f" in {' and '.join(used[:2])}" if used else ""
    return f"{format_ratio(share.ratio)} of it on {units}{kinds}"


def _why(diagnosis: Diagnosis, account: Account) -> str:
    """Against a baseline where the difference lies; without one, the cause with its evidence."""
    speedup = diagnosis.speedup
    if speedup is not None and speedup.baseline == "measured" and speedup.gap_ns is not None:
        return _against(speedup, account)
    found = cause(diagnosis)
    if found is None:
        return ""
    known = [e for e in found.evidence if e.value is not None]
    shown = [e for e in known if e.unit != "text"][:2] or known[:1]  # words say it in the verdict already
    held = [f"{e.name} {_value(e.value, e.unit)}" for e in shown]
    return f"evidence of {found.code} {found.slug}: {'; '.join(held)}" if held else ""


def _against(speedup: Speedup, account: Account) -> str:
    """By class: what takes longer than it could (or did), and what is faster. Nothing where profiling changed
    the steps of either run."""
    by_class: dict[Class, float] = {}
    for part in speedup.slices:
        by_class[part.role] = by_class.get(part.role, 0.0) + part.ns_per_step
        steps = (part.baseline_ns, speedup.baseline_step_ns or 0.0), (part.mixed_ns, account.step_ns)
        if part.role == "profiling" and any(abs(ns) > DISTORTED_RATIO * step for ns, step in steps):
            return ""
    by_class.pop("profiling", None)
    ordered = sorted(by_class.items(), key=lambda item: -item[1])
    least = NOTABLE_RATIO * account.step_ns
    lost = [f"{_WORDS[role]} {format_ns(ns)}" for role, ns in ordered if ns >= least][:MOST_PARTS]
    gained = [f"{_WORDS[role]} {format_ns(-ns)}" for role, ns in reversed(ordered) if -ns >= least][
        :MOST_PARTS
    ]
    if speedup.expected is not None:
        if not lost:
            return "nothing takes notably longer than this device could reach"
        return f"above what this device could reach: {_listed(lost)} a step"
    if not (lost or gained):
        return "no part of the step differs notably from the baseline's"
    parts = [f"longer than in the baseline: {_listed(lost)} a step" if lost else ""]
    parts.append(f"shorter: {_listed(gained)}" if gained else "")
    return "; ".join(part for part in parts if part)


def _what_to_do(diagnosis: Diagnosis, account: Account) -> str:
    """First what the verdict names, else what pays most; then all that is left to gain."""
    plan = diagnosis.whatif
    if account.trace_basis == "host" or plan is None:
        return ""
    by_code: dict[str, Finding] = {found.code: found for found in diagnosis.findings}
    paying = [
        step.code
        for step in plan.order
        if step.gain_ns >= PAYING_RATIO * account.step_ns and step.code in by_code
    ]
    first = cause(diagnosis) or (by_code[paying[0]] if paying else None)
    if first is None:
        return ""
    said = f"first: {first.remedy} ({first.code})"
    if first.whatif_step_ns is not None and first.whatif_step_ns < account.step_ns:
        said += f", which gives {format_ns(first.whatif_step_ns)} a step"
    more = [code for code in paying if code != first.code]
    if more and not first.code.startswith(_CEILINGS):
        limit = ", where the host is the floor" if plan.floor == "host" else ""
        said += f"; with {', '.join(more[:MOST_PARTS])} as well {format_ns(plan.best_step_ns)}{limit}"
    return said


def _value(value: object, unit: str) -> str:
    from mpprof.model.quantities import format_quantity

    return format_quantity(value, unit) if isinstance(value, (int, float, str, bool)) else str(value)


def _listed(parts: list[str]) -> str:
    if len(parts) < 2:
        return "".join(parts) or "nothing stands out"
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
