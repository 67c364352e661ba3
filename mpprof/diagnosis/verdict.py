"""The verdict: one sentence that a manager can read, with the numbers in it."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import RECORD_BASELINE, Case, Signals
from mpprof.model.account import Speedup
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.quantities import format_ns, format_ratio, format_speedup

_POLICY_NAMES = {"float16": "mixed_float16", "bfloat16": "mixed_bfloat16", "float32": "float32"}


def verdict(diagnosis: Diagnosis) -> str:
    """One sentence: what was expected and what came, or what share of the matrix work ran on matrix units;
    then the worst cause, or what is missing to say more."""
    signals = Signals(
        Case(
            run=diagnosis.run,
            account=diagnosis.account,
            steps=diagnosis.steps,
            tensor_core=diagnosis.tensor_core,
            speedup=diagnosis.speedup,
            trace_problem=diagnosis.absent.get("time"),
        )
    )
    parts = [_what_happened(signals, diagnosis.speedup), _why(signals, diagnosis.findings)]
    sentence = "; ".join(part for part in parts if part)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _what_happened(signals: Signals, speedup: Speedup | None) -> str:
    if speedup is not None and speedup.baseline == "measured" and speedup.observed is not None:
        return _against_baseline(signals, speedup)
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
        return f"a step takes {step}, and {ran}" if step else ran
    policy = _POLICY_NAMES.get(known(signals.compute_dtype) or "", "")
    run = f"this {policy} run" if policy else "this run"
    if step and signals.on_cpu:
        return f"{run} was on a CPU, where there are no Tensor Cores to use; a step takes {step}"
    if step:
        return (
            f"a step of {run} takes {step}, and without a usable trace it is not known where its "
            "matrix work ran"
        )
    return f"of {run} neither step times nor a usable trace are there"


def _against_baseline(signals: Signals, speedup: Speedup) -> str:
    assert speedup.observed is not None
    low, high = speedup.interval or (speedup.observed, speedup.observed)
    got = format_speedup(speedup.observed)
    policy = _POLICY_NAMES.get(known(signals.compute_dtype) or "", "the run")
    name = policy if signals.half else "this run"
    if speedup.interval and low <= 1.0 <= high:
        got = f"no measurable difference ({got})"
    elif speedup.observed < 1.0:
        got = f"{got}, that is slower,"
    else:
        got = f"a speedup of {got}"
    if speedup.expected is not None:
        return f"{name} gave {got} over float32 where {format_speedup(speedup.expected)} could be expected"
    if speedup.ceiling is not None:
        return f"{name} gave {got} over float32, with a ceiling of {format_speedup(speedup.ceiling)}"
    return f"{name} gave {got} over float32"


def _why(signals: Signals, findings: Sequence[Finding]) -> str:
    serious = [f for f in findings if f.severity != "info"]
    if serious:
        return _cause(serious[0])
    case = signals.case
    if case.account is None and not signals.on_cpu:
        return str(signals.account)
    if not findings and signals.half is None and case.speedup is None:
        return ""
    nothing = "no cause of lost time was found"
    if case.speedup is None or case.speedup.observed is None:
        return (
            f"{nothing}; for the speedup, {RECORD_BASELINE}"
            if signals.half and not signals.on_cpu
            else nothing
        )
    return nothing


def _cause(top: Finding) -> str:
    label = f"{top.code} {top.slug}"
    summary = top.summary or top.title
    if top.cost_ns_per_step and top.whatif_step_ns and top.severity != "info":
        return (
            f"the first cause is that {summary} ({label}), without which it would take "
            f"{format_ns(top.whatif_step_ns)}"
        )
    return f"the first thing to settle is that {summary} ({label})"


def _step(signals: Signals) -> str | None:
    steps, account = signals.case.steps, signals.case.account
    if steps is not None and steps.median_ns:
        return format_ns(steps.median_ns)
    return format_ns(account.step_ns) if account else None


def _units(signals: Signals) -> str:
    others = any(cell.placement == "matrix_core" for cell in signals.cells)
    return "matrix cores" if others else "Tensor Cores"


def _in_precision(by_precision: dict[str, float]) -> str:
    used = [name for name, time in sorted(by_precision.items(), key=lambda item: -item[1]) if time > 0]
    return f" in {' and '.join(used[:2])}" if used else ""
