"""Without a measured baseline: what float32 would have taken, as a range.

Every cell of the mixed run's account is turned back. Low and high are the two ends of what its float32 twin
may have taken. 16-bit matrix work on matrix units: at least twice its time on ordinary arithmetic and its own
in TF32, and where shapes tell its operations and bytes, no less than its roofline in float32 (convolutions
may do with a quarter of the operations); at most the ratio of the peaks. Other 16-bit work: between its own
time and twice that. Casts and loss scaling would not have been there; what stays float32 took the same.
Kernels that are bound by launching may have taken as long. Time that the device idles may, at the low end,
have been hidden behind the longer kernels, but no step is shorter than what the host needs for it. Whether
float32 products ran in TF32 is taken from the run's records where they say it.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.analysis.comparison.attainable import SHORTEST_NS, SIXTEEN_BITS
from mpprof.analysis.comparison.potential import potential
from mpprof.model.account import Account, AttainableRange, Cell, ComputePrecision, EstimatedSpeedup, Speedup
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import ACCELERATED, Precision
from mpprof.model.run import Run

_ONLY_IN_MIXED = frozenset(("cast", "loss_scale"))
_HALF_BYTES = 2.0
_FEWER_OPERATIONS = 4.0
"""What Winograd's F(4x4, 3x3) saves of a convolution's products: Lavin & Gray 2015, arXiv:1509.09308."""


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
    """Return what 16 bits could make of this run, or why nothing is said of it."""
    if account.trace_basis == "host":
        return "a run on the CPU: the attainable rate of its arithmetic in 16 bits is not known"
    if computes.kind not in ("float32", "float64"):
        return "needs a measured baseline" if computes.narrow else computes.reason
    if computes.kind == "float64":
        return "this run computes in float64: its speed in 16 bits is not known"
    if matrix_units is None:
        return "it is not known whether this device has matrix units"
    return potential(account, peaks) if matrix_units else "this device has no matrix units"


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
    cells = account.main.cells
    low_ns = max(min(sum(_low(cell, state, peaks) for cell in cells) for state in states), _host_ns(account))
    high_ns = max(sum(_high(cell, state, peaks) for cell in cells) for state in states)
    assumptions = [
        "16-bit matrix work took at least twice as long in float32 (in TF32 at least as long), no less than "
        "its roofline time, and at most as long as the ratio of the peak rates allows",
        "other 16-bit work took 1 to 2 times as long",
        "float32 has no casts and no loss scaling; the optimizer and float32 work take the same time",
        "idle time may have been hidden behind longer kernels"
        + (", but not what the host needs" if account.host_ns is not None else ""),
        *_tf32_said(account, states, peaks),
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


def _tf32_said(account: Account, states: tuple[bool, ...], peaks: DevicePeaks) -> Iterable[str]:
    if "tf32" not in peaks.flops_per_s:
        return ["this card has no TF32"]
    if len(states) == 1:
        return [f"float32 products run {'in TF32, as this run was set' if states[0] else 'without TF32'}"]
    ends = [
        sum(_high(cell, state, peaks) for cell in account.main.cells) / account.step_ns
        for state in states
        if account.step_ns > 0
    ]
    return (
        [f"TF32 not recorded: at most {ends[0]:.1f}x with it and {ends[1]:.1f}x without it"] if ends else []
    )


def _low(cell: Cell, tf32: bool, peaks: DevicePeaks) -> float:
    """Return the shortest time that the cell's float32 twin can have taken."""
    if cell.category in _ONLY_IN_MIXED or cell.category.startswith("idle_"):
        return 0.0
    if not _on_matrix_units_in_16_bits(cell) or _launch_limited(cell):
        return cell.ns_per_step
    usual = cell.ns_per_step * (1.0 if tf32 else _HALF_BYTES)
    return min(_high(cell, tf32, peaks), max(usual, _roofline_ns(cell, tf32, peaks)))


def _roofline_ns(cell: Cell, tf32: bool, peaks: DevicePeaks) -> float:
    """Return the time that the cell's operations and bytes take in float32 at the peaks, per step; 0 where
    its shapes do not tell."""
    rate = peaks.flops_per_s.get("tf32" if tf32 else "fp32_cuda")
    if not cell.flops_per_step or not rate:
        return 0.0
    operations = cell.flops_per_step
    if (cell.family or "").startswith("conv_"):
        operations /= _FEWER_OPERATIONS
    compute = operations / rate * 1e9
    if not cell.bytes_per_step or not peaks.bandwidth_bytes_per_s:
        return compute
    return max(compute, cell.bytes_per_step * _HALF_BYTES / peaks.bandwidth_bytes_per_s * 1e9)


def _launch_limited(cell: Cell) -> bool:
    calls = cell.calls_per_step
    return calls > 0 and cell.busy_ns_per_step / calls < SHORTEST_NS


def _host_ns(account: Account) -> float:
    """Return the least time that the host needs for a step of the float32 twin: its share of the launches,
    without those of casts and loss scaling; 0 where it is not known."""
    if account.host_ns is None:
        return 0.0
    launches = [
        (cell.category, cell.calls_per_step) for cell in account.main.cells if cell.kernel is not None
    ]
    whole = sum(calls for _, calls in launches)
    kept = sum(calls for category, calls in launches if category not in _ONLY_IN_MIXED)
    return account.host_ns * kept / whole if whole > 0 else account.host_ns


def _high(cell: Cell, tf32: bool, peaks: DevicePeaks) -> float:
    """Return the longest time that the cell's float32 twin can have taken."""
    if cell.category in _ONLY_IN_MIXED:
        return 0.0
    if cell.precision not in SIXTEEN_BITS:
        return cell.ns_per_step
    if cell.category == "matmul" and cell.precision is not None:
        return cell.ns_per_step * _peak_ratio(cell, cell.precision, tf32, peaks)
    return cell.ns_per_step * _HALF_BYTES


def _on_matrix_units_in_16_bits(cell: Cell) -> bool:
    return cell.category == "matmul" and cell.precision in SIXTEEN_BITS and cell.placement in ACCELERATED


def _peak_ratio(cell: Cell, precision: Precision, tf32: bool, peaks: DevicePeaks) -> float:
    rates = peaks.flops_per_s
    ran = rates.get(precision if cell.placement in ACCELERATED else f"{precision}_cuda")
    before = rates.get("tf32") if tf32 else rates.get("fp32_cuda")
    return max(1.0, ran / before) if ran and before and cell.placement in ACCELERATED else _HALF_BYTES
