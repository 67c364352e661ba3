"""What an engineer needs after the verdict, in three sentences: where the step goes, why, and what to do."""

from __future__ import annotations

from mpprof.diagnosis.remedies.choosing import joined
from mpprof.diagnosis.verdict import PAYING_RATIO, cause, changes_type, unlike
from mpprof.diagnosis.wording import CLASS_WORDS, class_words, listed, precisions, sentence
from mpprof.model.account import IDLE_CLASSES, Account, Class, Speedup, TensorCoreShare
from mpprof.model.finding import Diagnosis
from mpprof.model.quantities import format_after, format_ns, format_ratio

NOTABLE_RATIO = 0.01
"""Parts of the step below a hundredth are left out of a sentence."""
MOST_PARTS = 3

_BETWEEN: Class = "idle_between_steps"
_UNPROFILED: tuple[Class, ...] = ("profiling", "idle_stall")
"""What no profiled step holds."""
_NO_CAUSE = "for no recorded cause"
_ROOM = "MP303"
"""Whether a larger batch fits, where the first thing to do is to make it larger."""


def explanation(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return up to three sentences, each with its numbers; empty where the run has no account. Of a window
    without steps the last sentence says how to record steps."""
    account = diagnosis.account or diagnosis.window
    if account is None:
        return ()
    last = _what_to_do(diagnosis, account) if diagnosis.account else _to_have_steps(diagnosis)
    said = [
        _where(account, diagnosis.tensor_core, diagnosis.unlike is not None),
        _why(diagnosis, account),
        last,
    ]
    return tuple(sentence(clause) for clause in said if clause)


def _where(account: Account, share: TensorCoreShare | None, distorted: bool) -> str:
    """Return the largest parts of the step, and of matrix work, where it ran. They are parts of the profiled
    step where that is unlike the others (`distorted`)."""
    added = 0.0 if distorted else account.added_by_profiling_ns
    left = _UNPROFILED if distorted else ("profiling",)
    slices = {part.category: part.ns_per_step for part in account.main.slices}
    parts = {category: ns for category, ns in slices.items() if category not in left}
    if distorted and _BETWEEN in parts:  # of profiled steps, as all other parts
        own = sum(ns for category, ns in parts.items() if category != _BETWEEN)
        parts[_BETWEEN] = max(0.0, account.window_ns - own)
    whole = sum(max(0.0, ns) for ns in (parts if distorted else slices).values())  # as the breakdown's table
    left_out = account.trace_basis == "device" and parts.get("idle_launch", 0.0) >= added
    if left_out and added:
        parts["idle_launch"] -= added  # a profiler works where launches are made: as in MP302
        whole -= added
    largest = sorted(parts.items(), key=lambda item: -item[1])
    named = []
    for category, ns in [item for item in largest if item[1] >= NOTABLE_RATIO * whole][:MOST_PARTS]:
        ran = f" ({_on_units(share)})" if category == "matmul" and _on_units(share) else ""
        what = _waits(account, category, whole) or class_words(category, account)
        named.append(f"{format_ratio(ns / whole)} {what}{ran}")
    idle_ns = sum(max(0.0, ns) for category, ns in largest if category in IDLE_CLASSES)
    idle = idle_ns / whole if whole else 0.0
    device = "the device" if account.trace_basis == "device" else "the CPU's executor"
    step = f"{account.of} of {format_ns(account.step_ns)}"
    if distorted:
        step = f"profiled step, which takes {format_ns(whole)} instead of {format_ns(account.unprofiled_ns)},"
    said = f"a {step} is {listed(named)}; {device} idles {format_ratio(idle)}"
    if added < NOTABLE_RATIO * whole:
        return said
    if left_out:
        return f"{said}, without the {format_ratio(added / whole)} that profiling added"
    return f"{said}; these shares include the {format_ratio(added / whole)} that profiling added"


def _waits(account: Account, category: Class, whole_ns: float) -> str:
    """Return what the device waited for where the class does not say it: the largest part of `idle_other`."""
    if category != "idle_other":
        return ""
    found = next((part for part in account.main.slices if part.category == category), None)
    causes = {each.cause: each.ns_per_step for each in found.causes} if found else {}
    unknown_ns = (found.ns_per_step if found else 0.0) - sum(causes.values())
    cause, ns = max([*causes.items(), (_NO_CAUSE, unknown_ns)], key=lambda item: item[1])
    if not causes:
        return f"idling {_NO_CAUSE}"
    if ns < NOTABLE_RATIO * whole_ns:
        return ""
    return f"idling ({format_ratio(ns / whole_ns)} {cause})"


def _on_units(share: TensorCoreShare | None) -> str:
    if share is None or share.ratio is None:
        return ""
    units = "matrix cores" if share.unit == "matrix_core" else "Tensor Cores"
    said = precisions(share.by_precision)
    what = "its products" if share.has_helpers else "it"
    return f"{format_ratio(share.ratio)} of {what} on {units}{f' in {said}' if said else ''}"


def _why(diagnosis: Diagnosis, account: Account) -> str:
    """Return where the difference from a measured baseline lies that is comparable."""
    speedup = diagnosis.speedup
    if speedup is None or speedup.baseline != "measured" or speedup.gap_ns is None or unlike(diagnosis):
        return ""
    return _against(speedup, account) if speedup.slices else ""


def _against(speedup: Speedup, account: Account) -> str:
    """Return by class what takes longer than it could (or did), and what is faster."""
    by_class: dict[Class, float] = {}
    for part in speedup.slices:
        by_class[part.category] = by_class.get(part.category, 0.0) + part.ns_per_step
    by_class.pop("profiling", None)
    if account.grouped:
        by_class.pop("idle_stall", None)  # what profiling adds is in it
    ordered = sorted(by_class.items(), key=lambda item: -item[1])
    least = NOTABLE_RATIO * account.step_ns
    lost = [f"{CLASS_WORDS[part]} {format_ns(ns)}" for part, ns in ordered if ns >= least][:MOST_PARTS]
    ordered.reverse()
    gained = [f"{CLASS_WORDS[part]} {format_ns(-ns)}" for part, ns in ordered if -ns >= least][:MOST_PARTS]
    if speedup.expected is not None:
        if not lost:
            return "no part of the step takes notably longer than this device allows"
        return f"longer than this device allows: {listed(lost)} a step"
    if not (lost or gained):
        return "no part of the step differs notably from the baseline's"
    parts = [f"longer than in the baseline: {listed(lost)} a step" if lost else ""]
    parts.append(f"shorter: {listed(gained)}" if gained else "")
    return "; ".join(part for part in parts if part)


def _what_to_do(diagnosis: Diagnosis, account: Account) -> str:
    """Return the remedy to apply first (of the finding that the verdict names, else of the one that gains
    most), then all that is left to gain."""
    plan = diagnosis.whatif
    if account.trace_basis == "host" or plan is None:
        return ""
    now, one_step = account.step_ns, account.one_step
    paying = [
        found
        for found in diagnosis.findings
        if (found.gain_ns_per_step or 0.0) >= PAYING_RATIO * now and found.code not in diagnosis.dismissed
    ]
    first = cause(diagnosis) or next(iter(paying), None)
    if first is None:
        return ""
    raising = [remedy for remedy in first.remedies if remedy.larger_batch]
    remedy = joined([remedy for remedy in first.remedies if not remedy.larger_batch]) or first.remedy
    said = f"first: {remedy} ({first.code})"
    if first in paying:
        after = format_after(now - (first.gain_ns_per_step or 0.0), now, one_step=one_step)
        said += f", which gives {after}"
    more = [found.code for found in paying if found.code != first.code]
    if more and not changes_type(first):
        limit = ", limited by the host" if plan.floor.by == "host" else ""
        left_ns = [step.step_ns for step in plan.order if step.code not in diagnosis.dismissed][-1]
        best = format_after(left_ns, now, one_step=one_step)
        said += f"; with {', '.join(more[:MOST_PARTS])} as well {best}{limit}"
    if raising and remedy != first.remedy:
        said += "; a larger batch raises examples per second"
    if room := next((found.summary for found in diagnosis.findings if found.code == _ROOM), ""):
        said += f"; {room}" if raising else ""
    return said


def _to_have_steps(diagnosis: Diagnosis) -> str:
    """Return what to record, or to say, so that times can be told per step."""
    how = "; ".join(remedy.text for remedy in diagnosis.how_to_mark)
    return f"to get an account of a step, {how}" if how else ""
