"""Several runs of one model at different batch sizes: what their step times tell without any trace.

A step takes a part whatever its size (launches, Python, callbacks) and a part for each example (input, and
the device's arithmetic). Where the time per example stays the same over many batch sizes, the first part is
not what limits; which of the two halves of the second does, only the device's utilisation hints at, and only
a trace settles.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.analysis.comparison.bounds import utilization
from mpprof.model.finding import Batches
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns, format_ratio, format_speedup
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary

FEWEST, LEAST_FACTOR = 3, 4.0
"""Batch sizes, and the factor between the smallest and the largest, from which they tell anything."""
CONSTANT_RATIO = 0.25
"""Largest over smallest time per example, less 1, that counts as constant (our judgement). A step of fixed
length would show at least 3 over a fourfold batch."""
IDLE_UTILIZATION = 0.80
"""Below it the device idles a fifth of the time or more: the hint is towards input or host."""
BUSY_UTILIZATION = 0.95
SETTLES = "a profile window of a few steps in any of these runs settles it: MPProfilerCallback(logdir)"


@frozen
class _Point:
    row: int
    batch: int
    step_ns: float
    utilization: float | None

    @property
    def each_ns(self) -> float:
        return self.step_ns / self.batch


def of(runs: Sequence[Run], steps: Sequence[StepSummary | None]) -> tuple[Batches, ...]:
    """Return one `Batches` for each model and type that was run at three batch sizes or more, the largest at
    least four times the smallest; empty where there is none. `steps`: those of `runs`, in their order."""
    groups: dict[tuple[object, ...], dict[int, _Point]] = {}
    for row, (run, summary) in enumerate(zip(runs, steps, strict=True)):
        fit, model = run.last_fit, run.model
        if fit is None or model is None or not fit.batch_size or summary is None or not summary.mean_ns:
            continue
        kinds = tuple(layer.class_name for layer in model.layers)
        dtype = compute_precision(run).dtype
        point = _Point(row, fit.batch_size, summary.mean_ns, utilization(run))
        groups.setdefault((kinds, model.parameters, fit.jit_compile, dtype), {}).setdefault(
            point.batch, point
        )
    found = []
    for key, points in groups.items():
        line = [points[batch] for batch in sorted(points)]
        if len(line) >= FEWEST and line[-1].batch >= LEAST_FACTOR * line[0].batch:
            single = groups.get((*key[:-1], "float32"), {}) if key[-1] != "float32" else {}
            found.append(_judged(line, single, str(key[-1] or "an unrecorded type")))
    return tuple(found)


def _judged(line: Sequence[_Point], single: dict[int, _Point], dtype: str) -> Batches:
    each = [point.each_ns for point in line]
    spread = max(each) / min(each) - 1.0
    first, last = line[0], line[-1]
    slope = (last.step_ns - first.step_ns) / (last.batch - first.batch)
    fixed = min(max(0.0, first.step_ns - slope * first.batch), first.step_ns)
    used = [point.utilization for point in line if point.utilization is not None]
    highest = max(used, default=None)
    statements = [_times(line, spread, dtype), _fixed(line, fixed, spread)]
    if spread <= CONSTANT_RATIO:
        statements.append(_explained(min(used, default=None), highest))
    statements += _against(line, single)
    return Batches(
        runs=tuple(point.row for point in line),
        batch_sizes=tuple(point.batch for point in line),
        ns_per_example=tuple(each),
        spread_ratio=spread,
        fixed_ns=fixed,
        utilization_ratio=highest,
        statements=tuple(statements),
    )


def _times(line: Sequence[_Point], spread: float, dtype: str) -> str:
    times = ", ".join(format_ns(point.each_ns) for point in line)
    sizes = ", ".join(format_count(point.batch) for point in line)
    over = f"over {format_count(line[-1].batch / line[0].batch)} times the batch"
    tail = f"it differs by {format_ratio(spread)} at most {over}"
    if spread > CONSTANT_RATIO and line[-1].each_ns < line[0].each_ns:
        tail = f"it falls to {format_ratio(line[-1].each_ns / line[0].each_ns)} {over}"
    return f"time per example in {dtype} at batch {sizes}: {times}; {tail}"


def _fixed(line: Sequence[_Point], fixed: float, spread: float) -> str:
    small, large = (format_ratio(fixed / point.step_ns) for point in (line[0], line[-1]))
    said = (
        "the part of a step that does not depend on its size (launches, Python, callbacks) takes about "
        f"{format_ns(fixed)}, {small} of the smallest step and {large} of the largest"
    )
    if spread <= CONSTANT_RATIO:
        return f"{said}: launches are not what limits it"
    return f"{said}: a larger batch, or fewer launches (jit_compile=True), is what helps the small ones"


def _explained(lowest: float | None, highest: float | None) -> str:
    """Return the two explanations of a constant time per example, the likelier first, and what settles it."""
    host = "input or host work for each example limits it"
    device = "the device does, at one rate whatever the batch"
    if lowest is None or highest is None:
        return (
            f"two explanations remain, and no recorded utilisation says which is likelier: {host}, or "
            f"{device}; {SETTLES}"
        )
    said = " to ".join(dict.fromkeys(format_ratio(value) for value in (lowest, highest)))
    if highest < IDLE_UTILIZATION:
        most = format_speedup(1.0 / highest) if highest > 0 else "all of it"
        return (
            f"two explanations remain: {host} (the likelier: at a utilisation of {said} the device had "
            f"nothing to do for {format_ratio(1.0 - highest)} of the time or more, and no batch fed it "
            f"better), or {device}; if it is the first, an input that never waits gives {most} at most, and "
            f"the rest is the kernels'; {SETTLES}"
        )
    if lowest > BUSY_UTILIZATION:
        return (
            f"the device limits it, at one rate whatever the batch: its utilisation was {said}; a trace "
            "shows which kernels"
        )
    return (
        f"two explanations remain: {device} (the likelier, at a utilisation of {said}), or {host}; {SETTLES}"
    )


def _against(line: Sequence[_Point], single: dict[int, _Point]) -> list[str]:
    """Return what the same batches in float32 show that input alone could not explain."""
    pairs = [(single[point.batch], point) for point in line if point.batch in single]
    if len(pairs) < FEWEST:
        return []
    ratios = [before.step_ns / after.step_ns for before, after in pairs]
    each = [before.each_ns - after.each_ns for before, after in pairs]
    said = (
        f"against float32 at the same batches: {format_speedup(min(ratios))} to {format_speedup(max(ratios))}"
    )
    if min(each) <= 0:
        return [said]
    return [
        f"{said}, {format_ns(min(each))} to {format_ns(max(each))} less for each example: input alone would "
        "leave no difference, so part of each step is the device's own work"
    ]
