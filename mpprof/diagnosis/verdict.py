"""The verdict: a few sentences that a manager can read, with the numbers in them."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.analysis.comparison.observed import NEEDS
from mpprof.analysis.steps.idle import COPYING
from mpprof.analysis.steps.validity import timings
from mpprof.diagnosis.outcomes import Found, known
from mpprof.diagnosis.signals import Case, Signals
from mpprof.diagnosis.wording import (
    CLASS_WORDS,
    LOW_SPEEDUP,
    as_profiled,
    attainable_range,
    limiting,
    listed,
    more_launches,
    precisions,
    sentence,
)
from mpprof.model.account import AttainableRange, Class, Slice, Speedup, covered
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.kernels import Precision
from mpprof.model.quantities import format_after, format_ns, format_ratio, format_speedup

NOTABLE_GAP_RATIO, NOTABLE_STEP_RATIO = 0.20, 0.10
"""A fifth of what was lost against the attainable time or a tenth of the step: what a normal cost must come
to for the sentence to name it."""
MEETS_RATIO = 1.02
"""Above the expectation by more than the reading error of a median: better than expected, and said so."""
CLEAR_GAIN = 1.5
"""Below it a speedup wants an explanation even where the records leave two."""
PAYING_RATIO = 0.01
"""A remedy that gains less than a hundredth of the step is no advice."""
NOTABLE_MEMORY_RATIO = 0.80
"""A fifth of the memory saved is worth saying."""
_NO_EXPLANATION = frozenset(("MP910", "MP911"))
"""Too little was recorded: true, and the cause of nothing that was measured."""
HIDDEN_IDLE_RATIO = 0.20
"""A fifth of the step without a cause is more than most causes."""
NOTABLE_PART_RATIO, MOST_PARTS = 0.03, 3
"""Where so much of the step is none of its own work, and no finding is about it, a cause is open."""
_JUDGED_BY: dict[Class, frozenset[str]] = {
    "comm": frozenset(("MP701", "MP703", "MP704")), "copy": frozenset(("MP306", "MP310")),
    "unknown": frozenset(("MP907",)),
    "idle_input": frozenset(("MP301",)), "idle_launch": frozenset(("MP302", "MP304", "MP308", "MP311")),
    "idle_sync": frozenset(("MP304",)), "idle_compile": frozenset(("MP902",)),
    "idle_between_steps": frozenset(("MP305",)), "idle_stall": frozenset(("MP301", "MP305", "MP902")),
    "idle_other": frozenset(("MP306",)),
}  # fmt: skip
"""What a device does in a step beside the step's work, and the causes that are about it."""
_LOST_WORDS: dict[Class, str] = CLASS_WORDS | {
    "comm": "exposed communication",
    "copy": "exposed copies",
    "idle_other": "other idling",
}
_POLICY_NAMES = {"float16": "mixed_float16", "bfloat16": "mixed_bfloat16", "float32": "float32"}
"""By what is computed in, where the types of the variables are not known."""


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that cost time or come before all that do, ranked as they are: without those that
    are only worth a mention, and without those that only say that too little was recorded, unless nothing
    else is wrong."""
    told = [found for found in findings if found.severity != "info" or found.gain_ns_per_step is not None]
    explain = [found for found in told if found.code not in _NO_EXPLANATION]
    return explain if any(found.severity != "info" for found in explain) else told


def changes_type(found: Finding) -> bool:
    """Return whether the finding's remedy changes the type to compute in: what the others gain, they gain in
    this one."""
    return any(remedy.other_type for remedy in found.remedies)


_UNLIKE, _ENDED_BY_ERROR = "MP906", "MP913"


def unlike(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return in which respects the baseline differs beside its precision; empty: in none that is known."""
    found = next((each for each in diagnosis.findings if each.code == _UNLIKE), None)
    if found is not None and (said := said_of_unlike(found)):
        return said
    speedup = diagnosis.speedup
    refused = (speedup.absent or {}).get("observed", "") if speedup and speedup.observed is None else ""
    return (refused,) if refused.startswith("they train different models") else ()


def said_of_unlike(found: Finding | Found) -> tuple[str, ...]:
    """Return what MP906 says is unlike; empty: of rungs, which differ by design."""
    return () if found.severity == "info" else _differences(found) or (found.summary,)


def _differences(found: Finding | Found) -> tuple[str, ...]:
    return tuple(str(each.value) for each in found.evidence if each.name == "difference")


def per_update(diagnosis: Diagnosis) -> float | None:
    """Return the observed speedup per applied update: a skipped step took its time and taught nothing."""
    speedup, steps = diagnosis.speedup, diagnosis.steps
    if speedup is None or speedup.baseline != "measured" or speedup.observed is None:
        return None
    skipped = steps.skipped_ratio if steps else None
    return speedup.observed * (1.0 - skipped) if skipped else speedup.observed


def verdict(diagnosis: Diagnosis) -> str:
    """Return in sentences what was expected and what was measured, or what share of the matrix work ran on
    matrix units; then the worst cause, or what is missing to say more."""
    signals = _signals(diagnosis)
    return " ".join(map(sentence, [*_what_happened(signals, diagnosis), *_why(signals, diagnosis)[0]]))


def cause(diagnosis: Diagnosis) -> Finding | None:
    """Return the finding that the verdict names; None where it names none."""
    return _why(_signals(diagnosis), diagnosis)[1]


def _signals(diagnosis: Diagnosis) -> Signals:
    return Signals(
        Case(
            run=diagnosis.run,
            account=diagnosis.account,
            steps=diagnosis.steps,
            tensor_core=diagnosis.tensor_core,
            speedup=diagnosis.speedup,
            trace_problem=diagnosis.absent.get("time"),
            computes=diagnosis.computes,
            window=diagnosis.window,
        )
    )


def _what_happened(signals: Signals, diagnosis: Diagnosis) -> list[str]:
    """Return a clause for each sentence of the first half."""
    speedup, other = diagnosis.speedup, unlike(diagnosis)
    if speedup is not None and speedup.baseline == "measured" and speedup.observed is not None and not other:
        return [*_against_baseline(signals, speedup), *_memory(diagnosis)]
    said = _in_itself(signals, diagnosis)
    if speedup is not None and speedup.potential is not None:
        could = _could(signals, speedup.potential)
        off = "" if signals.computes.narrow else "mixed precision is off: "
        said += [f"{off}{could[0]}", *could[1:]]
    if speedup is not None and speedup.baseline == "measured":
        why = (speedup.absent or {}).get("observed") or _in_short(other, diagnosis)
        seen = "" if other else _profiled(speedup)
        said.append(f"no speedup over the baseline is stated ({why}){seen}")
    return said


def _in_short(other: Sequence[str], diagnosis: Diagnosis) -> str:
    """Return why the baseline is unlike this run, without the values."""
    heads = [difference.partition(":")[0] for difference in other]
    heads = [head for head in heads if not head.startswith("not known")] or heads
    named = any(_differences(found) for found in diagnosis.findings if found.code == _UNLIKE)
    return f"the runs differ in {listed(heads)}" if named else next(iter(heads), "not known")


def _in_itself(signals: Signals, diagnosis: Diagnosis) -> list[str]:
    """Return what one run shows: its step, and where its matrix work ran."""
    share = signals.case.tensor_core
    step = _step(signals)
    takes = [f"a step takes {step}"] if step else []
    if share is not None and share.ratio is not None:
        where = format_ratio(share.ratio)
        of = "the time in matrix products" if share.has_helpers else "the matrix time"
        unknown = (
            f" ({format_ratio(share.unknown_ratio)} of the kernel time is not recognised)"
            if share.unknown_ratio >= 0.01
            else ""
        )
        ran = f"{where} of {of} ran on {_units(signals)}{_in_precision(share.by_precision)}{unknown}"
        if share.of == "window":
            return [*takes, _window(signals), ran]
        return [f"a step takes {step}, and {ran}" if step else ran]
    if share is not None and signals.case.account and signals.case.account.trace_basis == "device":
        return [*takes, share.reason or "the trace does not show where its matrix work ran"]
    if share is not None and share.of == "window" and share.reason:
        return [*takes, _window(signals), share.reason]
    policy = _policy(signals)
    run = f"this {policy} run" if policy else "this run"
    if step and signals.on_cpu:
        why = f"which emulates {known(signals.compute_dtype)} and" if signals.half else "which"
        return [f"{run} was on a CPU, {why} has no Tensor Cores", *takes]
    if step and signals.host_only:
        return [
            f"a step of {run} takes {step}",
            "its trace shows ops of a CPU alone, which has no Tensor Cores",
        ]
    traced = diagnosis.device is not None
    if step:
        why = "its trace does not show" if traced else "without a usable trace it is not known"
        return [f"a step of {run} takes {step}, and {why} where its matrix work ran"]
    if traced:
        return [f"how long a step of {run} takes is not known"]
    return [f"{run} has neither step times nor a usable trace"]


def _window(signals: Signals) -> str:
    """Return the window that is judged in place of a step, and for how much of it the device worked."""
    account = signals.case.measured
    assert account is not None
    device = "the device" if account.trace_basis == "device" else "the CPU's executor"
    busy = format_ratio(signals.busy_ratio)
    window = f"a window of {format_ns(account.window_ns)}, which is not divided into steps"
    return f"{device} was busy for {busy} of {window}"


def _policy(signals: Signals) -> str:
    """Return the policy that the model trains under, by what was recorded of its types; "" where that is
    unknown."""
    fit, computes = known(signals.fit), signals.computes
    if computes.by != "policy":
        return ""
    own = fit.policy.own if fit and fit.policy.compute_dtype == computes.dtype else None
    name = own or _POLICY_NAMES.get(computes.dtype or "", "")
    quantized = sorted({kind for layer in known(signals.layers) or () if (kind := layer.quantized)})
    return " and ".join(filter(None, [name, *quantized]))


def _memory(diagnosis: Diagnosis) -> list[str]:
    """Return how much memory was saved, where that is worth a manager's time."""
    held = diagnosis.memory
    if held is None or held.saved_bytes is None or held.peak_bytes + held.saved_bytes <= 0:
        return []
    ratio = held.peak_bytes / (held.peak_bytes + held.saved_bytes)
    return [f"memory is down to {format_ratio(ratio)}"] if ratio <= NOTABLE_MEMORY_RATIO else []


def _against_baseline(signals: Signals, speedup: Speedup) -> list[str]:
    assert speedup.observed is not None
    number, than = format_speedup(speedup.observed), _baseline(signals, speedup)
    launches, seen = "", ""
    what = "an example" if speedup.per_example else "the step"
    undecided = speedup.difference == "not known"
    if undecided:
        span = f"{number}, without an interval: {(speedup.absent or {}).get('interval')}"
        if speedup.interval is not None:
            ends = " to ".join(map(format_speedup, speedup.interval))
            span = f"{covered(wide=speedup.interval_wide)}: {ends}"
        what, got = f"the timings do not show whether {what}", f"is shorter than {than} ({span})"
        seen = _profiled(speedup)
    elif speedup.difference == "none":
        got = f"takes as long as {than} ({number}: no measurable difference)"
    elif speedup.observed < 1.0:
        got = f"takes longer than {than} ({number})"
        launches = more_launches(speedup.launches)
    else:
        got = f"is {number} as fast as {than}"
    said = f"{_precision(signals)}{what} {got}"
    if signals.on_cpu and signals.half:
        said += f" on a CPU, which emulates {known(signals.compute_dtype)}"
    said += seen
    more = [f"there are {launches}"] if launches else []
    if speedup.attainable is not None:
        most = format_speedup(speedup.attainable)
        if speedup.observed > speedup.attainable * MEETS_RATIO and not undecided:
            return [f"{said}, more than the {most} that was estimated as attainable", *more]
        why = limiting(speedup.limits) if speedup.attainable < LOW_SPEEDUP else ""
        if why:
            return [f"no more than {most} is attainable, because {why}", said, *more]
        return [f"{said}, where {most} is attainable", *more]
    if speedup.potential is not None:
        return [said, *_could(signals, speedup.potential), *more]
    if speedup.ceiling is not None:
        return [f"{said}, with a ceiling of {format_speedup(speedup.ceiling)}", *more]
    return [said, *more]


def _could(signals: Signals, found: AttainableRange) -> list[str]:
    return attainable_range(found, one_step=signals.one_step, units=_units(signals))


def _precision(signals: Signals) -> str:
    """Return "with mixed_float16 ", or "in float16 " where kernels tell the type and no policy is known; ""
    for what is not 16-bit."""
    if not signals.computes.narrow:
        return ""
    policy = _policy(signals)
    inner = signals.computes.words
    partly = signals.computes.kind == "partly 16-bit"
    return f"with {policy} " if policy else f"{inner if partly else f'in {inner}'} "


def _baseline(signals: Signals, speedup: Speedup) -> str:
    """Return what the run is compared with: float32 only where that is known of the baseline, and this run is
    in 16 bits."""
    float32 = speedup.baseline_dtype == "float32" and signals.computes.narrow
    return "in float32" if float32 else "in the baseline"


def _why(signals: Signals, diagnosis: Diagnosis) -> tuple[list[str], Finding | None]:
    """Return a clause for each sentence of the second half, and the finding that they name."""
    findings = [found for found in diagnosis.findings if found.code not in diagnosis.dismissed]
    case = signals.case
    ranked = causes(findings)
    serious = [found for found in ranked if found.severity != "info"]
    explain = [found for found in ranked if found.code not in _NO_EXPLANATION]
    of_a_cpu = signals.on_cpu or signals.host_only
    best = _ceiling(signals, explain)
    top = next((found for found in explain if found.severity != "info"), None)
    if top is not None and best is not None and not of_a_cpu:
        top = min(top, best, key=explain.index)  # what every run of this kind has may gain more
    open_ = diagnosis.absent.get("bounds")
    if (
        top is None
        and open_
        and case.speedup is not None
        and (case.speedup.observed or CLEAR_GAIN) < CLEAR_GAIN
    ):
        return [open_], None
    top = top or next(iter(serious), None) or _notable(signals, findings)
    if signals.ran_out_of_memory and (top.code == _ENDED_BY_ERROR if top else best is None):
        return ["training ran out of memory: mpprof memory says what to try"], top
    if of_a_cpu and (top is None or top.severity == "info"):
        return [], None  # what costs time on a CPU says nothing about a GPU
    if idle := _idle(top, signals):
        return [idle], None
    if top is not None:
        return _cause(top, signals), top
    if case.measured is not None and case.measured.too_little:
        return [f"{signals.activity}: too little to judge a training"], None
    if signals.in_window:
        return ["what costs time in a step is not known, because its steps cannot be told apart"], None
    if case.account is None and not signals.on_cpu:
        return [str(signals.account)], None
    if signals.half is None and case.speedup is None:
        return [], None
    nothing = [_no_cause(signals, diagnosis), *(_left(best, signals) if best else _largest_note(ranked))]
    undecided = case.speedup is not None and case.speedup.difference == "not known"
    measured = case.speedup is not None and case.speedup.observed is not None
    if signals.half and (undecided or not measured) and not signals.on_cpu:
        few = undecided or NEEDS in ((case.speedup and case.speedup.absent) or {}).get("observed", "")
        how = "train both runs for longer" if few else signals.advice("record other precision")
        return [*nothing, f"for the speedup, {how}"], best
    return nothing, best


def _no_cause(signals: Signals, diagnosis: Diagnosis) -> str:
    """Return a clause that no finding explains the lost time: what the step lost, or the time in which it did
    none of its work."""
    if _unexplained(diagnosis):
        return "no finding explains what was lost"
    found = {finding.code for finding in diagnosis.findings}
    measured = signals.case.measured
    parts = [
        part
        for part in (measured.main.slices if measured else ())
        if part.category in _JUDGED_BY
        and (part.ratio or 0.0) >= NOTABLE_PART_RATIO
        and not found & _JUDGED_BY[part.category]
        and not ("MP310" in found and _mostly_of(part) == COPYING[1])
        and not (part.category == "copy" and "MP310" in diagnosis.clear)  # looked at as a whole, and small
    ]
    if not parts and (dismissed := found & diagnosis.dismissed):
        return f"no cause of lost time was found beside those dismissed ({listed(sorted(dismissed))})"
    if not parts:
        return "no cause of lost time was found"
    parts.sort(key=lambda part: -part.ns_per_step)
    return f"no finding explains {listed([_lost(part, signals) for part in parts[:MOST_PARTS]])}"


def _lost(part: Slice, signals: Signals) -> str:
    """Return a part of the step that is none of its own work, and what is known of it."""
    said = f"{format_ns(part.ns_per_step)} ({format_ratio(part.ratio)}) of {_LOST_WORDS[part.category]}"
    if part.category == "comm" and len(signals.devices) < 2:
        return f"{said} (one rank does not show whether it waited for others)"
    return f"{said} (mostly {cause})" if (cause := _mostly_of(part)) else said


def _mostly_of(part: Slice) -> str:
    """Return the cause that has more than half of a slice; empty where none has."""
    most = max(part.causes, key=lambda each: each.ns_per_step, default=None)
    return most.cause if most and 2 * most.ns_per_step > part.ns_per_step else ""


def _unexplained(diagnosis: Diagnosis) -> bool:
    """Return whether the step is notably longer than it could be, and no finding says why."""
    speedup, account = diagnosis.speedup, diagnosis.account
    if speedup is None or account is None or speedup.expected is None or not speedup.unexplained_ns:
        return False
    return speedup.unexplained_ns >= NOTABLE_STEP_RATIO * account.step_ns


def _profiled(speedup: Speedup) -> str:
    """Return what the profiled steps show, after a semicolon; "" where they tell nothing."""
    found = speedup.profiled
    return f"; {as_profiled(found.ratio, per_example=speedup.per_example)}" if found else ""


def _idle(top: Finding | None, signals: Signals) -> str:
    """Return a clause on idle time that no finding is about, where it is much and costs more than the first
    finding; "" elsewhere."""
    of = "the window" if signals.in_window else "the step"
    hidden = known(signals.unattributed_idle_ratio) or 0.0
    if hidden >= HIDDEN_IDLE_RATIO and _is_less(top, hidden, signals):
        return f"the device idles {format_ratio(hidden)} of {of}, and the trace does not show what for"
    busy, runs = signals.code_on_host
    if busy >= HIDDEN_IDLE_RATIO and _is_less(top, busy, signals):
        return f"the device idles {format_ratio(busy)} of {of} while {runs}"
    return ""


def _is_less(top: Finding | None, hidden: float, signals: Signals) -> bool:
    """Return whether the finding is a cost, and a smaller one than this share of the step."""
    if top is None:
        return True
    cost_ns = top.cost_ns_in_window if signals.in_window else top.cost_ns_per_step or top.gain_ns_per_step
    stated = cost_ns is not None if signals.in_window else top.gain_ns_per_step is not None
    return stated and (cost_ns or 0.0) < hidden * signals.whole_ns


def _notable(signals: Signals, findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding, of those that are only worth a mention, whose cost is worth a manager's
    time."""
    for found in findings:
        cost = found.cost_ns_per_step or found.cost_ns_in_window or 0.0
        if cost and (found.lost_ratio or 0.0) >= NOTABLE_GAP_RATIO:
            return found
        if cost and signals.whole_ns and cost >= NOTABLE_STEP_RATIO * signals.whole_ns:
            return found
    return None


def _ceiling(signals: Signals, findings: Sequence[Finding]) -> Finding | None:
    """Return the first of the findings that every healthy run of this kind has, where its gain is much."""
    step_ns = signals.case.account.step_ns if signals.case.account else 0.0
    for found in findings:
        gain = found.gain_ns_per_step or 0.0
        if _is_ceiling(found) and gain >= NOTABLE_STEP_RATIO * step_ns:
            return found
    return None


def _is_ceiling(found: Finding) -> bool:
    """Return whether the finding's remedy gains time although nothing was lost: every run of this kind has
    it."""
    return found.cost_ns_per_step is None and found.gain_ns_per_step is not None


def _largest_note(ranked: Sequence[Finding]) -> list[str]:
    """Return a clause on the first note that states a gain, which is no cause and still worth a remedy."""
    gains = [(found, found.gain_ns_per_step) for found in ranked if found.gain_ns_per_step]
    return [
        f"of the notes, {found.code} {found.slug} has most to gain, {format_ns(ns)} a step"
        for found, ns in gains[:1]
    ]


def _left(best: Finding, signals: Signals) -> list[str]:
    found = f"the finding with most to gain is that {best.summary} ({best.code} {best.slug})"
    return [found, _with_remedy(best, signals)]


def _cause(top: Finding, signals: Signals) -> list[str]:
    label = f"{top.code} {top.slug}"
    summary = top.summary or top.title
    if _is_ceiling(top):
        return _left(top, signals)
    if top.cost_ns_in_window is not None:
        return [f"a possible cause is that {summary} ({label})"]
    if top.gain_ns_per_step is None:
        return [f"the first thing to settle is that {summary} ({label})"]
    account = signals.case.account
    cause = "a possible cause" if top.confidence == "low" else "the main cause"
    said = [f"{cause} is that {summary} ({label})"]
    if account is None or top.gain_ns_per_step < PAYING_RATIO * account.step_ns:
        return said
    return [*said, _with_remedy(top, signals)]


def _with_remedy(found: Finding, signals: Signals) -> str:
    """Return the step time with the remedy of this finding: "with its remedy a step takes 70.0 ms at
    best"."""
    assert signals.case.account is not None
    now = signals.case.account.step_ns
    after = format_after(now - (found.gain_ns_per_step or 0.0), now, one_step=signals.one_step, each="")
    return f"with its remedy a step takes {after}"


def _step(signals: Signals) -> str | None:
    """Return the step time, and what it rests on where that is little."""
    steps, account = signals.case.steps, signals.case.account
    if steps is not None and steps.mean_ns:
        if steps.interval_ns is not None:
            return format_ns(steps.mean_ns)
        count = timings(signals.case.run)
        few = "one timing of steady steps" if count == 1 else f"the mean of {count} timings of steady steps"
        return f"{format_ns(steps.mean_ns)} ({few})"
    if account is None:
        return None
    return format_ns(account.step_ns) + (" (one profiled step)" if len(account.steps) == 1 else "")


def _units(signals: Signals) -> str:
    share = signals.case.tensor_core
    others = any(cell.placement == "matrix_core" for cell in signals.cells)
    others = others or (share is not None and share.unit == "matrix_core")
    return "matrix cores" if others else "Tensor Cores"


def _in_precision(by_precision: dict[Precision, float]) -> str:
    said = precisions(by_precision)
    return f" in {said}" if said else ""
