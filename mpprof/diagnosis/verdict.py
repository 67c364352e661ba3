"""The verdict: one sentence that a manager can read, with the numbers in it."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.analysis.validity import timings
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import RECORD_BASELINE, Case, Signals
from mpprof.model.account import Speedup
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.quantities import format_ns, format_ratio, format_speedup

NOTABLE_GAP_RATIO, NOTABLE_STEP_RATIO = 0.20, 0.10
"""A fifth of what was lost against the reach or a tenth of the step: what a normal cost must come to for the
sentence to name it."""
MEETS_RATIO = 1.02
"""Above the expectation by more than the reading error of a median: better than expected, and said so."""
CLEAR_GAIN = 1.5
"""Below it a speedup wants an explanation even where the records leave two."""
NOTABLE_MEMORY_RATIO = 0.80
"""A fifth of the memory saved is worth saying."""
_NO_EXPLANATION = frozenset(("MP910", "MP911"))
"""Too little was recorded: true, and the cause of nothing that was measured."""
HIDDEN_IDLE_RATIO = 0.20
"""A fifth of the step without a cause is more than most causes."""
_POLICY_NAMES = {"float16": "mixed_float16", "bfloat16": "mixed_bfloat16", "float32": "float32"}
"""By what is computed in, where the types of the variables are not known."""


def verdict(diagnosis: Diagnosis) -> str:
    """One sentence: what was expected and what came, or what share of the matrix work ran on matrix units;
    then the worst cause, or what is missing to say more."""
    signals = _signals(diagnosis)
    parts = [_what_happened(signals, diagnosis), _why(signals, diagnosis)[0]]
    sentence = "; ".join(part for part in parts if part)
    return f"{sentence[0].upper()}{sentence[1:]}."


def cause(diagnosis: Diagnosis) -> Finding | None:
    """The finding that the verdict names; None where it names none."""
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
        )
    )


def _what_happened(signals: Signals, diagnosis: Diagnosis) -> str:
    speedup = diagnosis.speedup
    if speedup is not None and speedup.baseline == "measured" and speedup.observed is not None:
        return _against_baseline(signals, speedup) + _memory(diagnosis)
    share = signals.case.tensor_core
    step = _step(signals)
    if share is not None and share.ratio is not None:
        where = format_ratio(share.ratio)
        unknown = (
            f" ({format_ratio(share.unknown_ratio)} of the kernel time is not recognised)"
            if share.unknown_ratio >= 0.01
            else ""
        )
        ran = (
            f"{where} of the matrix time ran on {_units(signals)}{_in_precision(share.by_precision)}{unknown}"
        )
        if share.of == "window":
            ran += " in the whole profiler window"
        return f"a step takes {step}, and {ran}" if step else ran
    if share is not None and signals.case.account and signals.case.account.trace_basis == "device":
        return f"a step takes {step}; {share.reason or 'the trace does not show where its matrix work ran'}"
    if share is not None and share.of == "window" and share.reason:
        return f"a step takes {step}; {share.reason}" if step else share.reason
    # Kernels in 16 bits alone are no evidence of a policy.
    policy = _policy(signals) if known(signals.fit) else ""
    run = f"this {policy} run" if policy else "this run"
    if step and signals.on_cpu:
        why = f"which emulates {known(signals.compute_dtype)} and" if signals.half else "which"
        return f"{run} was on a CPU, {why} has no Tensor Cores; a step takes {step}"
    if step:
        return (
            f"a step of {run} takes {step}, and without a usable trace it is not known where its "
            "matrix work ran"
        )
    return f"of {run} neither step times nor a usable trace are there"


def _policy(signals: Signals) -> str:
    """The policy that the model trains under, by what was recorded of its types; "" where that is unknown."""
    fit, computes = known(signals.fit), known(signals.compute_dtype) or ""
    own = fit.policy.own if fit and fit.policy.compute_dtype == computes else None
    name = own or _POLICY_NAMES.get(computes, "")
    quantized = sorted({kind for layer in known(signals.layers) or () if (kind := layer.quantized)})
    return " and ".join(filter(None, [name, *quantized]))


def _memory(diagnosis: Diagnosis) -> str:
    """What was saved of the memory, where it is worth a manager's time."""
    held = diagnosis.memory
    if held is None or held.saved_bytes is None or held.peak_bytes + held.saved_bytes <= 0:
        return ""
    ratio = held.peak_bytes / (held.peak_bytes + held.saved_bytes)
    return f", and memory is down to {format_ratio(ratio)}" if ratio <= NOTABLE_MEMORY_RATIO else ""


def _against_baseline(signals: Signals, speedup: Speedup) -> str:
    assert speedup.observed is not None
    number, than = format_speedup(speedup.observed), _baseline(signals, speedup)
    if _no_difference(speedup):
        got = f"takes as long as {than} ({number}: no measurable difference)"
    elif speedup.observed < 1.0:
        got = f"takes longer than {than} ({number})"
    else:
        got = f"is {number} as fast as {than}"
    policy = _policy(signals) if signals.half else ""
    what = "an example" if speedup.per_example else "the step"
    said = f"{f'with {policy} ' if policy else ''}{what} {got}"
    if signals.on_cpu and signals.half:
        said += f" on a CPU, which emulates {known(signals.compute_dtype)}"
    if speedup.interval is None:
        why = (speedup.absent or {}).get("interval", "too few timings")
        said += f" (no error bar: {'a profiler window alone' if why.startswith('no step') else why})"
    if speedup.expected is not None:
        better = speedup.observed > speedup.expected * MEETS_RATIO
        where = "more than the" if better else "where"
        return (
            f"{said}, {where} {format_speedup(speedup.expected)} {'that ' if better else ''}could be expected"
        )
    if speedup.ceiling is not None:
        return f"{said}, with a ceiling of {format_speedup(speedup.ceiling)}"
    return said


def _no_difference(speedup: Speedup) -> bool:
    """The interval of the observed speedup holds 1."""
    return speedup.interval is not None and speedup.interval[0] <= 1.0 <= speedup.interval[1]


def _baseline(signals: Signals, speedup: Speedup) -> str:
    """What it is held against: float32 only where its records say so, and this run is in 16 bits."""
    return "in float32" if speedup.baseline_dtype == "float32" and signals.half else "in the baseline"


def _why(signals: Signals, diagnosis: Diagnosis) -> tuple[str, Finding | None]:
    """The second half of the sentence, and the finding that it names."""
    findings, case = diagnosis.findings, signals.case
    serious = [f for f in findings if f.severity != "info"]
    top = next((f for f in serious if f.code not in _NO_EXPLANATION), None)
    open_ = diagnosis.absent.get("bounds")
    if (
        top is None
        and open_
        and case.speedup is not None
        and (case.speedup.observed or CLEAR_GAIN) < CLEAR_GAIN
    ):
        return open_, None
    top = top or next(iter(serious), None) or _costliest(signals, findings)
    best = _ceiling(signals, findings) if top is None else None
    if signals.on_cpu and (top is None or top.severity == "info"):
        return "", None  # what costs time on a CPU says nothing about a GPU
    hidden = known(signals.unattributed_idle_ratio) or 0.0
    if hidden >= HIDDEN_IDLE_RATIO and _is_less(top, hidden, signals):
        said = f"the device idles {format_ratio(hidden)} of the step, and the trace does not show what for"
        return said, None
    if top is not None:
        return _cause(top), top
    if case.tensor_core is not None and case.tensor_core.of == "window":
        return "its steps cannot be told apart", None
    if case.account is None and not signals.on_cpu:
        return str(signals.account), None
    if signals.half is None and case.speedup is None:
        return "", None
    nothing = (
        "no finding explains what was lost" if _unexplained(diagnosis) else "no cause of lost time was found"
    )
    nothing += f"; {_left(best)}" if best else ""
    measured = case.speedup is not None and case.speedup.observed is not None
    if signals.half and not measured and not signals.on_cpu:
        return f"{nothing}; for the speedup, {RECORD_BASELINE}", best
    return nothing, best


def _unexplained(diagnosis: Diagnosis) -> bool:
    """The step is notably longer than it could be, and no finding says why."""
    speedup, account = diagnosis.speedup, diagnosis.account
    if speedup is None or account is None or speedup.expected is None or not speedup.unexplained_ns:
        return False
    return speedup.unexplained_ns >= NOTABLE_STEP_RATIO * account.step_ns


def _is_less(top: Finding | None, hidden: float, signals: Signals) -> bool:
    """The finding is a cost, and a smaller one than this share of the step."""
    if top is None:
        return True
    return top.whatif_step_ns is not None and (top.cost_ns_per_step or 0.0) < hidden * signals.whole_ns


def _costliest(signals: Signals, findings: Sequence[Finding]) -> Finding | None:
    """The costliest of findings that are only worth a mention, where that is worth a manager's time."""
    costly = [
        f
        for f in findings
        if f.cost_ns_per_step
        and (
            (f.lost_ratio or 0.0) >= NOTABLE_GAP_RATIO
            or (signals.whole_ns and f.cost_ns_per_step / signals.whole_ns >= NOTABLE_STEP_RATIO)
        )
    ]
    return max(costly, key=lambda f: f.cost_ns_per_step or 0.0, default=None)


def _ceiling(signals: Signals, findings: Sequence[Finding]) -> Finding | None:
    """What every healthy run of this kind leaves on the table, where that is much."""
    step_ns = signals.case.account.step_ns if signals.case.account else 0.0
    found = [f for f in findings if f.whatif_step_ns is not None and f.cost_ns_per_step is None]
    best = min(found, key=lambda f: f.whatif_step_ns or 0.0, default=None)
    if best is None or best.whatif_step_ns is None or step_ns <= 0:
        return None
    return best if 1.0 - best.whatif_step_ns / step_ns >= NOTABLE_STEP_RATIO else None


def _left(best: Finding) -> str:
    return (
        f"the most that is left to gain: {best.summary} ({best.code} {best.slug}), and it would take "
        f"{format_ns(best.whatif_step_ns)}"
    )


def _cause(top: Finding) -> str:
    label = f"{top.code} {top.slug}"
    summary = top.summary or top.title
    if top.cost_ns_per_step and top.whatif_step_ns:
        cause = "a possible cause" if top.confidence == "low" else "the main cause"
        return (
            f"{cause} is that {summary} ({label}), without which it would take "
            f"{format_ns(top.whatif_step_ns)}"
        )
    return f"the first thing to settle is that {summary} ({label})"


def _step(signals: Signals) -> str | None:
    """The step time, with what it rests on where that is little."""
    steps, account = signals.case.steps, signals.case.account
    if steps is not None and steps.median_ns:
        if steps.interval_ns is not None:
            return format_ns(steps.median_ns)
        count = timings(signals.case.run)
        few = "one timing of steady steps" if count == 1 else f"the median of {count} timings of steady steps"
        return f"{format_ns(steps.median_ns)} ({few})"
    if account is None:
        return None
    return format_ns(account.step_ns) + (" (one profiled step)" if len(account.steps) == 1 else "")


def _units(signals: Signals) -> str:
    share = signals.case.tensor_core
    others = any(cell.placement == "matrix_core" for cell in signals.cells)
    others = others or (share is not None and share.unit == "matrix_core")
    return "matrix cores" if others else "Tensor Cores"


def _in_precision(by_precision: dict[str, float]) -> str:
    used = [name for name, time in sorted(by_precision.items(), key=lambda item: -item[1]) if time > 0]
    return f" in {' and '.join(used[:2])}" if used else ""
