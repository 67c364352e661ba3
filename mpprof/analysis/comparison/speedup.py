"""Two runs side by side: what mixed precision should have gained, what it did, and where the gap lies.

The baseline B and the mixed run M are aligned by `MatchKey`: class, phase, layer, and op where both name it.
With `b` and `m` the time of a key in each, and `r` the ratio attainable for it on this device (`ratios`),

    attainable = sum(b / r + a)    gap = M - attainable = sum(m - b / r - a)
    expected = B / attainable      observed = B / M

where `a` is work that every healthy mixed run has and the baseline has not (`added`: casts, loss scaling).
The slices of the gap, `m - b / r - a` by class and layer, sum to it. Where some `r` is not known there is no
expectation: every `r` is taken as 1, and the slices are the plain differences that sum to `M - B`. Parts with
an unknown `r` that hold less than 1 % of the baseline are taken to stay as they are. There is no expectation
for another batch, another card, or a run that computes in the same type as its baseline.

`expected_with_host` takes the baseline's idle time out of the attainable time and puts the host's need under
it. As the host can only lower what the device attains, it never lies above `expected`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.attainable.evidence import Evidence, well_fed
from mpprof.analysis.attainable.work import SIXTEEN_BITS
from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.analysis.comparison.matching import aligned
from mpprof.analysis.comparison.observed import observed, step_times
from mpprof.analysis.comparison.potential import Share, limits, potential
from mpprof.analysis.comparison.precision_overhead import added
from mpprof.analysis.comparison.ratios import (
    MatchKey,
    Part,
    Ratio,
    Target,
    compiled,
    pairs,
    precision_of,
    ratio,
)
from mpprof.analysis.layers import kinds
from mpprof.analysis.steps.statistics import summarise
from mpprof.model.account import (
    Account,
    Class,
    ClassLaunches,
    ComputePrecision,
    GapSlice,
    Launches,
    Limit,
    ProfiledSpeedup,
    Speedup,
)
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import ACCELERATED, Placement, Precision
from mpprof.model.quantities import format_ns
from mpprof.model.run import Run

NEGLIGIBLE = 0.01  # share of the baseline whose unknown ratio does not spoil the expectation
HOST_BOUND = 0.25  # share of the step that the device waits for the host, from which the host is the limit
HOST_LIMITS = 0.99  # of the device's expectation: with the host's need below that, the host is the limit
_HOST_CLASSES: frozenset[Class] = frozenset(("idle_input", "idle_launch"))
_OTHER_BATCH = "the batch sizes differ: rates at one batch size do not give those at another"
_OTHER_CARD = "the cards differ: what one can attain says nothing about the other"
_SAME_TYPE = "both runs compute in {}: precision explains no difference between them"
_ONE_STEP = "a single profiled step gives a range and no expectation"
_OF_PROFILED = "the observed speedup is that of the profiled steps"
_PLAIN = "no expectation: plain difference from the baseline"


def speedup(
    mixed: Account | None,
    baseline: Account | None,
    *,
    mixed_run: Run,
    baseline_run: Run,
    peaks: DevicePeaks | None,
    other_card: bool = False,
) -> Speedup:
    """Return the expected and observed speedup of `mixed` over a measured `baseline`, and the gap in slices.

    A run without an account is compared by its step records alone; then there is no expectation. `peaks` are
    those of the mixed run's device; `other_card`: the baseline's is known to be another. `absent` says why a
    field is None.
    """
    scale = batch_ratio(baseline_run, mixed_run)
    if mixed is None or baseline is None:
        return _by_records(mixed_run, baseline_run, scale)
    times = step_times(baseline_run, baseline), step_times(mixed_run, mixed)
    timed = observed(*times, scale)
    seen = profiled_speedup((baseline_run, baseline), (mixed_run, mixed), scale=scale, other_card=other_card)
    by_window = timed.ratio is not None and times[0].basis == "window"
    profiled, no_profiled = _beside(seen, timed_by_window=by_window)
    baseline = _scaled(baseline, scale)
    before, after = aligned(baseline, mixed, baseline_run, mixed_run)
    computes = compute_precision(mixed_run, mixed.main.cells)
    was = compute_precision(baseline_run, baseline.main.cells)
    target = _target(mixed_run, computes, was, _float8(baseline_run))
    evidence = _evidence(mixed_run, mixed, before, after, peaks)
    ratios = _ratios(before, after, target, evidence, mixed.trace_basis == "host")
    dissimilar = _dissimilar(target, scale, other_card=other_card)
    why_none = dissimilar or _no_expectation(before, ratios, mixed, baseline, peaks)
    known = not why_none
    if not known:
        ratios = _plain(ratios, with_ceiling=not dissimilar)
    extra = added(before, after, mixed_run, peaks) if known and target.becomes and not target.same else {}
    slices = _slices(before, after, ratios, extra)
    added_ns = sum(extra.values())
    attainable_ns = sum(part.ns / (ratios[key].attainable or 1.0) for key, part in before.items()) + added_ns
    expected, with_host, no_expected = _expected(
        baseline, mixed, before, ratios, attainable_ns, added_ns, why_none
    )
    ceiling = _ceiling(baseline, before, ratios)
    no_ceiling = dissimilar or "the peak rates of this device, or what ran in the baseline, are not known"
    absent = timed.absent | no_profiled | no_expected | ({"ceiling": no_ceiling} if ceiling is None else {})
    return Speedup(
        baseline="measured",
        baseline_id=baseline_run.run_id,
        baseline_step_ns=baseline.step_ns,
        observed=timed.ratio,
        interval=timed.interval,
        interval_wide=timed.wide,
        sure=timed.sure,
        expected=expected,
        expected_with_host=with_host,
        ceiling=ceiling,
        attainable_ns=attainable_ns if known else None,
        gap_ns=mixed.step_ns - attainable_ns,
        slices=slices,
        unexplained_ns=None,
        absent=absent or None,
        per_example=scale != 1.0,
        baseline_dtype=was.dtype,
        limits=_limits(before, ratios, extra, baseline.step_ns, expected, with_host, _units(after, peaks))
        if known
        else (),
        launches=None if dissimilar else launches(baseline, mixed),
        potential=None if known or not _could(was, target, dissimilar, peaks) else potential(baseline, peaks),
        profiled=profiled,
    )


def _beside(
    seen: ProfiledSpeedup | str, *, timed_by_window: bool
) -> tuple[ProfiledSpeedup | None, dict[str, str]]:
    """Return what the profiled steps show beside the timings, and why there is nothing."""
    if timed_by_window:
        seen = _OF_PROFILED
    return (None, {"profiled": seen}) if isinstance(seen, str) else (seen, {})


def _expected(
    baseline: Account,
    mixed: Account,
    before: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    attainable_ns: float,
    added_ns: float,
    why_none: str | None,
) -> tuple[float | None, float | None, dict[str, str]]:
    """Return the expected speedup by the device alone and with the host's need, and why either is absent."""
    if why_none:
        return None, None, {"expected": why_none, "expected_with_host": "no expectation"}
    expected = baseline.step_ns / attainable_ns if attainable_ns > 0 else None
    with_host, no_host = _with_host(baseline, mixed, before, ratios, added_ns, expected)
    return expected, with_host, {} if with_host is not None else {"expected_with_host": no_host}


def _no_expectation(
    before: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    mixed: Account,
    baseline: Account,
    peaks: DevicePeaks | None,
) -> str:
    """Return why the kernels of two comparable runs give no expectation; empty: they do."""
    unknown_ns = sum(before[key].ns for key, found in ratios.items() if found.attainable is None)
    if unknown_ns > NEGLIGIBLE * baseline.step_ns:
        return _why_not(before, ratios, mixed, peaks)
    return _ONE_STEP if mixed.one_step or baseline.one_step else ""


def _plain(ratios: Mapping[MatchKey, Ratio], *, with_ceiling: bool) -> dict[MatchKey, Ratio]:
    """Return ratios that make the slices plain differences from the baseline."""
    return {key: Ratio(1.0, found.ceiling if with_ceiling else None, _PLAIN) for key, found in ratios.items()}


def _could(was: ComputePrecision, target: Target, dissimilar: str, peaks: DevicePeaks | None) -> bool:
    """Return whether there is a range of what could be expected, though no number: there is one for a float32
    baseline on such a card."""
    units = peaks is not None and peaks.has_matrix_units
    return units and not dissimilar and target.becomes is not None and was.kind == "float32"


def _limits(
    before: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    extra: Mapping[MatchKey, float],
    whole_ns: float,
    expected: float | None,
    with_host: float | None,
    units: Placement | None,
) -> tuple[Limit, ...]:
    """Return what the attainable step consists of. `units`: the matrix units that it could use."""
    shares = [
        Share(
            key.category, part.ns, part.ns / (ratios[key].attainable or 1.0), part.work.bound_by_launching,
            part.placement, part.precision, _at_best(part, ratios[key].attainable or 1.0, units),
        )
        for key, part in before.items()
    ]  # fmt: skip
    shares += [Share(key.category, 0.0, ns) for key, ns in extra.items()]
    by_host = with_host is not None and expected is not None and with_host < HOST_LIMITS * expected
    return limits(shares, whole_ns, whole_ns / with_host if by_host and with_host else None)


def _units(after: Mapping[MatchKey, Part], peaks: DevicePeaks | None) -> Placement | None:
    """Return the matrix units of the device: those that were seen at work, else NVIDIA's where it has any;
    None: it has none, or that is not known."""
    seen = [part.placement for part in after.values() if part.placement in ACCELERATED]
    return seen[0] if seen else "tensor_core" if peaks and peaks.has_matrix_units else None


def _at_best(part: Part, ratio: float, units: Placement | None) -> Placement | None:
    """Return where matrix work runs at best: what becomes faster runs on matrix units, where there are
    any."""
    if part.key.category != "matmul":
        return None
    return units if part.placement in ("cuda_core", "unknown") and units and ratio > 1.0 else part.placement


def _dissimilar(target: Target, scale: float, *, other_card: bool) -> str:
    """Return why no speedup is to be expected of these two runs, whatever their kernels did; empty: one
    is."""
    if scale != 1.0:
        return _OTHER_BATCH
    if other_card:
        return _OTHER_CARD
    return _SAME_TYPE.format(target.computes) if target.same else ""


def refused(baseline: Run, why: str) -> Speedup:
    """Return the comparison of two runs that cannot be compared: it holds nothing but the reason."""
    fields = (
        "observed",
        "interval",
        "expected",
        "expected_with_host",
        "ceiling",
        "reach_ns",
        "gap_ns",
        "slices",
        "profiled",
    )
    return _measured(baseline, None, absent=dict.fromkeys(fields, why))


def batch_ratio(baseline: Run, mixed: Run) -> float:
    """Return the factor that turns the baseline's times into those of as many examples as a mixed step has; 1
    where the batches are alike or not both on record."""
    first, last = (run.last_fit.batch_size if run.last_fit else None for run in (baseline, mixed))
    return last / first if first and last else 1.0


def examples_per_s(run: Run, account: Account | None) -> float | None:
    """Return the examples per second of steady steps; None where the batch size or the step time is not
    known."""
    from mpprof.analysis.steps.statistics import summarise

    summary = summarise(run.steps, run.facts, spans=run.spans)
    step_ns = (summary.mean_ns if summary else None) or (account.step_ns if account else None)
    batch = run.last_fit.batch_size if run.last_fit else None
    return batch / step_ns * 1e9 if batch and step_ns else None


def _scaled(account: Account, scale: float) -> Account:
    """Return the account as if every part had taken `scale` times as long."""
    if scale == 1.0:
        return account
    cells = tuple(replace(cell, ns_per_step=cell.ns_per_step * scale) for cell in account.main.cells)
    main = replace(account.main, step_ns=account.main.step_ns * scale, cells=cells)
    return replace(account, step_ns=account.step_ns * scale, main=main)


# --- by records alone --------------------------------------------------------------------------------------


def _by_records(mixed: Run, baseline: Run, scale: float) -> Speedup:
    before, after = step_times(baseline, None), step_times(mixed, None)
    timed = observed(before, after, scale)
    why = "needs the traces of both runs: MPProfilerCallback(logdir) records one"
    fields = ("expected", "expected_with_host", "ceiling", "reach_ns", "gap_ns", "slices", "profiled")
    baseline_ns = before.mean_ns * scale if before.mean_ns else None
    return _measured(
        baseline,
        baseline_ns,
        absent=timed.absent | dict.fromkeys(fields, why),
        observed=timed.ratio,
        interval=timed.interval,
        interval_wide=timed.wide,
        sure=timed.sure,
        per_example=scale != 1.0,
    )


def _measured(
    baseline: Run,
    step_ns: float | None,
    *,
    absent: dict[str, str],
    observed: float | None = None,
    interval: tuple[float, float] | None = None,
    interval_wide: bool = False,
    sure: tuple[float, float] | None = None,
    per_example: bool = False,
) -> Speedup:
    """Return a comparison that holds no more than step times."""
    return Speedup(
        baseline="measured",
        baseline_id=baseline.run_id,
        baseline_step_ns=step_ns,
        observed=observed,
        interval=interval,
        interval_wide=interval_wide,
        sure=sure,
        expected=None,
        expected_with_host=None,
        ceiling=None,
        attainable_ns=None,
        gap_ns=None,
        slices=(),
        unexplained_ns=None,
        absent=absent,
        per_example=per_example,
        baseline_dtype=compute_precision(baseline).dtype,
    )


# --- ratios and slices -------------------------------------------------------------------------------------


def _float8(run: Run) -> frozenset[str]:
    """Return the layers of a run that are quantised to float8."""
    model = run.model
    layers = model.layers if model else ()
    return frozenset(layer.name for layer in layers if layer.quantized == "float8")


def _target(
    mixed: Run, computes: ComputePrecision, was: ComputePrecision, before: frozenset[str] = frozenset()
) -> Target:
    """Return what the mixed run computes in. `before`: layers in float8 in the baseline."""
    wanted = _wanted(mixed)
    becomes = wanted or computes.precision
    layers = mixed.layers
    by_layer = {layer.name: found for layer in layers if (found := precision_of(layer.compute_dtype))}
    norms = frozenset(f.name for f in layers if kinds.is_norm(f) and not compiled(mixed))
    narrower = _float8(mixed) - before
    same = becomes is not None and becomes == was.precision and was.kind != "partly 16-bit" and not narrower
    return Target(
        becomes if becomes in SIXTEEN_BITS else None,
        {} if wanted else by_layer,
        same,
        norms,
        becomes,
        narrower,
    )


def _wanted(run: Run) -> Precision | None:
    """Return the 16-bit type that the process' policy asks for where the model does not compute in it: what
    was expected of such a run is what the policy promised. None: the model does as its policy says."""
    policy = run.last_fit.policy if run.last_fit else None
    if policy is None or not (policy.global_name or "").startswith("mixed_"):
        return None
    wanted = precision_of(policy.global_name)
    return wanted if wanted in SIXTEEN_BITS and precision_of(policy.compute_dtype) == "fp32" else None


def _evidence(
    run: Run,
    mixed: Account,
    before: Mapping[MatchKey, Part],
    after: Mapping[MatchKey, Part],
    peaks: DevicePeaks | None,
) -> Evidence:
    layers = run.layers
    by_name = {layer.name: layer for layer in layers}
    fed = well_fed(mixed.main.cells, lambda name: by_name.get(name or ""), peaks)
    return Evidence(peaks, fed, pairs(before, after))


def _ratios(
    before: Mapping[MatchKey, Part],
    after: Mapping[MatchKey, Part],
    target: Target,
    evidence: Evidence,
    host: bool,
) -> dict[MatchKey, Ratio]:
    if host:
        none = Ratio(None, None, "a CPU's rates by type are not known")
        return dict.fromkeys(before, none)
    return {key: ratio(part, after.get(key), target, evidence) for key, part in before.items()}


def _why_not(
    before: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    mixed: Account,
    peaks: DevicePeaks | None,
) -> str:
    if mixed.trace_basis == "host":
        return "a run on the CPU: the attainable rate of its arithmetic in 16 bits is not known"
    worst = max((r for r in ratios if ratios[r].attainable is None), key=lambda key: before[key].ns)
    where = f" (most of it in {worst.layer})" if worst.layer else ""
    device = "" if peaks else "; the device's peaks are not known either"
    return f"{ratios[worst].source}{where}{device}"


def _slices(
    before: Mapping[MatchKey, Part],
    after: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    extra: Mapping[MatchKey, float],
) -> tuple[GapSlice, ...]:
    """Return the slices of the gap by class and layer, the largest first."""
    gathered: dict[tuple[Class, str | None], list[MatchKey]] = defaultdict(list)
    for key in dict.fromkeys((*before, *after)):
        gathered[(key.category, key.layer)].append(key)
    slices = []
    for (name, layer), keys in gathered.items():
        b = sum(before[key].ns for key in keys if key in before)
        m = sum(after[key].ns for key in keys if key in after)
        best = sum(before[key].ns / (ratios[key].attainable or 1.0) for key in keys if key in before)
        main = max((key for key in keys if key in before), key=lambda key: before[key].ns, default=None)
        source = ratios[main].source if main else "not in the baseline"
        new = sum(extra.get(key, 0.0) for key in keys)
        if new and not main:
            source = "not in the baseline; computing in 16 bits brings it"
        ratio = b / best if best > 0 else 1.0
        slices.append(GapSlice(name, layer, m - best - new, b, m, ratio, source, new))
    return tuple(sorted(slices, key=lambda part: -abs(part.ns_per_step)))


def _ceiling(
    baseline: Account, before: Mapping[MatchKey, Part], ratios: Mapping[MatchKey, Ratio]
) -> float | None:
    if any(found.ceiling is None and before[key].ns > 0 for key, found in ratios.items()):
        return None
    least = sum(part.ns / (ratios[key].ceiling or 1.0) for key, part in before.items())
    return baseline.step_ns / least if least > 0 else None


def _with_host(
    baseline: Account,
    mixed: Account,
    before: Mapping[MatchKey, Part],
    ratios: Mapping[MatchKey, Ratio],
    added_ns: float,
    expected: float | None,
) -> tuple[float | None, str]:
    """Return the expectation that the host's need limits, never above `expected`, or why there is none. The
    need is that which the trace shows, else, where the device waits for the host for long, the step itself,
    as the host is then never idle."""
    need = mixed.host_ns
    if need is None:
        waiting = sum(part.ns_per_step for part in mixed.main.slices if part.category in _HOST_CLASSES)
        if waiting < HOST_BOUND * mixed.step_ns:
            return (
                None,
                "the trace does not show what the host needs per step, and the device hardly waits for it",
            )
        need = mixed.step_ns
    work = sum(
        part.ns / (ratios[key].attainable or 1.0)
        for key, part in before.items()
        if not key.category.startswith("idle_")
    )
    floor = max(work + added_ns, need)
    if floor <= 0:
        return None, "neither the device's work nor what the host needs is known"
    limited = baseline.step_ns / floor
    return (limited if expected is None else min(limited, expected)), ""


# --- How many more kernels a mixed run launches than its baseline, where launching is what limits both.
#
# The device's work explains nothing of such a pair: each step takes as long as the host needs to launch it.

HOST_BOUND_RATIO = 0.99
"""Share of the step from which the host's need is all of it."""
WAITING_RATIO = 0.25
"""Share of the step that the device waits for launches where the host spends its time on launching."""
_LEAST = 0.5  # launches per step: smaller differences do not count


def launches(baseline: Account, mixed: Account) -> Launches | None:
    """Compare the launches per step of two runs whose steps are both as long as the host needs to launch
    them; None of others, and where the trace does not show what the host needs."""
    if not (_bound_by_launching(baseline) and _bound_by_launching(mixed)):
        return None
    before, after = _by_class(baseline), _by_class(mixed)
    differ = [
        ClassLaunches(name, before[name], after[name])
        for name in dict.fromkeys((*before, *after))
        if abs(after[name] - before[name]) >= _LEAST
    ]
    return Launches(
        baseline=sum(before.values()),
        mixed=sum(after.values()),
        baseline_host_ns=baseline.host_ns or 0.0,
        mixed_host_ns=mixed.host_ns or 0.0,
        by_class=tuple(sorted(differ, key=lambda each: -abs(each.mixed - each.baseline))),
    )


def _bound_by_launching(account: Account) -> bool:
    waits = sum(part.ns_per_step for part in account.main.slices if part.category == "idle_launch")
    host_ns, step_ns = account.host_ns, account.step_ns
    return host_ns is not None and host_ns >= HOST_BOUND_RATIO * step_ns and waits >= WAITING_RATIO * step_ns


def _by_class(account: Account) -> Counter[Class]:
    """Return the kernels and copies per step by class; a `Counter` of floats."""
    found: Counter[Class] = Counter()
    for cell in account.main.cells:
        found[cell.category] += cell.calls_per_step  # type: ignore[assignment]
    return found


# --- The speedup that the profiled steps of two runs show: a second measurement, beside the step records.
#
# Few timings may leave it open whether a run is faster. A trace's steps are measured on the device itself,
# each by itself, and agree to a few per cent where nothing disturbs them; but there are few, and a profiler
# was running. So their ratio comes without an interval, and nothing is judged by it: it says what was seen.

FEWEST = 3
"""Profiled steps that agree, a side: one of two that differ cannot be told to be the odd one."""
AGREE_RATIO = 0.05
"""Steps agree that are no further from their median: what a speedup has to exceed to matter at all."""
SAME_RATIO = 0.10
"""A profiled step that is further from the unprofiled ones was changed by the profiler. What it adds to both
runs alike moves their ratio by less than it adds."""


def profiled_speedup(
    baseline: tuple[Run, Account], mixed: tuple[Run, Account], *, scale: float, other_card: bool
) -> ProfiledSpeedup | str:
    """Return the ratio of the median profiled steps, or why there is none; `scale` as by `batch_ratio`."""
    if other_card:
        return "the cards differ"
    if why := _unusable(*baseline) or _unusable(*mixed):
        return why
    before, after = (np.array(account.lengths_ns) for _, account in (baseline, mixed))
    baseline_ns, mixed_ns = scale * median(before), median(after)
    return ProfiledSpeedup(baseline_ns / mixed_ns, baseline_ns, mixed_ns, len(before), len(after))


def _unusable(run: Run, account: Account) -> str:
    """Return why the profiled steps of a run tell nothing; empty: they do."""
    if account.trace_basis != "device" or account.of != "step":
        return f"{run.name} has no steps of a device in its trace"
    lengths = np.array(account.lengths_ns)
    if len(lengths) < FEWEST:
        return f"{run.name} has {len(lengths)} whole profiled steps; it needs {FEWEST}"
    middle = median(lengths)
    alike = int((np.abs(lengths - middle) <= AGREE_RATIO * middle).sum())
    if middle <= 0 or alike < FEWEST or 2 * alike <= len(lengths):
        low, high = format_ns(float(lengths.min())), format_ns(float(lengths.max()))
        return f"the profiled steps of {run.name} do not agree: they take {low} to {high}"
    summary = summarise(run.steps, run.facts)
    timed = summary.median_ns if summary else None
    if timed is not None and abs(middle - timed) > SAME_RATIO * timed:
        both = f"{format_ns(middle)}, and an unprofiled one {format_ns(timed)}"
        return f"a profiled step of {run.name} takes {both}"
    return ""
