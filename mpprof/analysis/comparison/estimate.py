"""Without a measured baseline: what float32 would have taken, as a range.

Every cell of the mixed run's account is turned back (`attainable.engine.least` in "fp32" or "tf32"): low and
high are the two ends of what its float32 twin may have taken. Time that the device idles may, at the low end,
have been hidden behind the longer kernels, but no step is shorter than what the host needs for it. Whether
float32 products ran in TF32 is taken from the run's records where they say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpprof.analysis.attainable.engine import ONLY_IN_16_BITS, Least, least
from mpprof.analysis.attainable.evidence import Evidence
from mpprof.analysis.attainable.work import work_of
from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.model.account import Account, AttainableRange, ComputePrecision, EstimatedSpeedup, Speedup
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import Precision
from mpprof.model.run import Run


def estimate(
    account: Account, run: Run, peaks: DevicePeaks | None, *, matrix_units: bool | None = None
) -> Speedup:
    """Return the estimated speedup of a run over a float32 run that was not recorded; of a float32 run, what
    16 bits could make of it. `observed` and `slices` are never estimated; `absent` says why a field is None.
    `matrix_units`: whether the device has any (None: not known)."""
    absent = {
        "observed": "needs a measured baseline",
        "expected": "needs a measured baseline",
        "expected_with_host": "needs a measured baseline",
        "interval": "needs a measured baseline",
    }
    computes = compute_precision(run, account.main.cells)
    why = _why_not(account, computes, peaks)
    could = _potential(account, computes, peaks, matrix_units)
    if isinstance(could, str):
        absent["attainable"] = could
    found = None
    if why or peaks is None:
        absent["estimated"] = absent["ceiling"] = why
    else:
        found = _range(account, run, peaks)
    return Speedup(
        baseline="estimated",
        baseline_id=None,
        baseline_step_ns=None,
        observed=None,
        interval=None,
        expected=None,
        expected_with_host=None,
        ceiling=found.high if found else None,
        attainable_ns=None,
        gap_ns=None,
        slices=(),
        unexplained_ns=None,
        estimated=found,
        absent=absent,
        potential=None if isinstance(could, str) else could,
    )


def _potential(
    account: Account, computes: ComputePrecision, peaks: DevicePeaks | None, matrix_units: bool | None
) -> AttainableRange | str:
    """Return what 16 bits could make of this run, or why there is no estimate."""
    if account.trace_basis == "host":
        return "a run on the CPU: the attainable rate of its arithmetic in 16 bits is not known"
    if computes.kind not in ("float32", "float64"):
        return "needs a measured baseline" if computes.narrow else computes.reason
    if computes.kind == "float64":
        return "this run computes in float64: its speed in 16 bits is not known"
    if matrix_units is None:
        return "it is not known whether this device has matrix units"
    if not matrix_units:
        return "this device has no matrix units"
    from mpprof.analysis.comparison.potential import potential  # of a float32 run alone

    return potential(account, peaks)


def _why_not(account: Account, computes: ComputePrecision, peaks: DevicePeaks | None) -> str:
    """Return why there is no estimate; empty: there is one."""
    if account.trace_basis == "host":
        return (
            "a run on the CPU: the attainable rates of its arithmetic in float32 and in 16 bits are not known"
        )
    if peaks is None:
        return "the peak rates of this device are not known"
    if computes.kind == "unknown":
        return computes.reason
    return "" if computes.narrow else f"this run computes in {computes.dtype}: it is a baseline itself"


def _range(account: Account, run: Run, peaks: DevicePeaks) -> EstimatedSpeedup:
    states = _tf32_states(run, peaks)
    twins = [_twin(account, tf32, peaks) for tf32 in states]
    highs = [sum(cell.high for cell in twin) for twin in twins]
    low_ns = max(min(sum(cell.low or 0.0 for cell in twin) for twin in twins), _host_ns(account))
    high_ns = max(highs)
    assumptions = [
        "16-bit matrix work took at least twice as long in float32 (in TF32 at least as long), no less than "
        "its roofline time, and at most as long as the ratio of the peak rates allows",
        "other 16-bit work took 1 to 2 times as long",
        "float32 has no casts and no loss scaling; the optimizer and float32 work take the same time",
        "idle time may have been hidden behind longer kernels"
        + (", but not what the host needs" if account.host_ns is not None else ""),
        *_tf32_said(account, states, highs, peaks),
        f"peaks: {peaks.name}, {peaks.source}",
    ]
    low = min(low_ns, high_ns) / account.step_ns if account.step_ns > 0 else 0.0
    high = max(low_ns, high_ns) / account.step_ns if account.step_ns > 0 else 0.0
    return EstimatedSpeedup(low, high, tuple(assumptions))


def _tf32_states(run: Run, peaks: DevicePeaks) -> tuple[bool, ...]:
    if "tf32" not in peaks.flops_per_s:
        return (False,)
    known = run.facts.tf32_enabled if run.facts else None
    return (True, False) if known is None else (known,)


def _twin(account: Account, tf32: bool, peaks: DevicePeaks) -> list[Least]:
    """Return what the float32 twin of each cell can have taken."""
    evidence = Evidence(peaks)
    precision: Precision = "tf32" if tf32 else "fp32"
    return [least(work_of(cell), precision, evidence) for cell in account.main.cells]


def _tf32_said(
    account: Account, states: tuple[bool, ...], highs: Sequence[float], peaks: DevicePeaks
) -> Iterable[str]:
    if "tf32" not in peaks.flops_per_s:
        return ["this card has no TF32"]
    if len(states) == 1:
        return [f"float32 products run {'in TF32, as this run was set' if states[0] else 'without TF32'}"]
    if account.step_ns <= 0:
        return []
    ends = [high / account.step_ns for high in highs]
    return [f"TF32 not recorded: up to {ends[0]:.1f}x with it and {ends[1]:.1f}x without it"]


def _host_ns(account: Account) -> float:
    """Return the least time that the host needs for a step of the float32 twin: its share of the launches,
    without those of casts and loss scaling; 0 where it is not known."""
    if account.host_ns is None:
        return 0.0
    launches = [
        (cell.category, cell.calls_per_step) for cell in account.main.cells if cell.kernel is not None
    ]
    whole = sum(calls for _, calls in launches)
    kept = sum(calls for category, calls in launches if category not in ONLY_IN_16_BITS)
    return account.host_ns * kept / whole if whole > 0 else account.host_ns
