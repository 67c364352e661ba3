"""Two runs side by side: what mixed precision should have gained, what it did, and where the gap lies.

The baseline B and the mixed run M are aligned by role: class, phase, layer, and op where both name it. With
`b` and `m` the time of a role in each, and `r` what this device could reach for it (`reach`),

    reach = sum(b / r + a)    expected = B / reach    observed = B / M    gap = M - reach = sum(m - b / r - a)

where `a` is work that every healthy mixed run has and the baseline has not (`added`: casts, loss scaling).
The slices of the gap, `m - b / r - a` by class and layer, sum to it. Where some `r` is not known there is no
expectation: every `r` is taken as 1, and the slices are the plain differences that sum to `M - B`. Parts with
an unknown `r` that hold less than 1 % of the baseline are taken to stay as they are. Nor is anything expected
of another batch, another card, or a run that computes in the same type as its baseline.

`expected_with_host` takes the baseline's idle time out of the reach and puts the host's need under it. As the
host can only keep a run from what its device could reach, it never lies above `expected`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mpprof.analysis import layer_kinds
from mpprof.analysis.added import added
from mpprof.analysis.aligning import aligned
from mpprof.analysis.reach import (
    SIXTEEN_BITS,
    Part,
    Peers,
    Ratio,
    Role,
    Target,
    compiled,
    precision_of,
    ratio,
)
from mpprof.model.account import Account, Class, GapSlice, Speedup
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import Precision
from mpprof.model.run import Run

NEGLIGIBLE = 0.01  # share of the baseline whose unknown ratio does not spoil the expectation
HOST_BOUND = 0.25  # share of the step that the device waits for the host, from which the host is the limit
_HOST_CLASSES: frozenset[Class] = frozenset(("idle_input", "idle_launch"))
_OTHER_BATCH = "the batch sizes differ: rates at one batch do not tell those at another"
_OTHER_CARD = "the cards differ: what one could reach is no measure of the other"
_SAME_TYPE = "both runs compute in {}: precision explains no difference between them"
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
    """Expected and observed speedup of `mixed_run` over a measured `baseline_run`, and the gap in slices.

    A run without an account is compared by its step records alone; then there is no expectation. `peaks` are
    those of the mixed run's device; `other_card`: the baseline's is known to be another. `absent` says why a
    field is None.
    """
    interval, no_interval = _interval(mixed_run, baseline_run)
    if mixed is None or baseline is None:
        return _by_records(mixed_run, baseline_run, interval, no_interval)
    absent = {} if interval else {"interval": no_interval}
    scale = batch_ratio(baseline_run, mixed_run)
    baseline = _scaled(baseline, scale)
    before, after = aligned(baseline, mixed, baseline_run, mixed_run)
    target = _target(mixed_run, baseline_run, after, before)
    ratios = _ratios(before, after, target, peaks, mixed.trace_basis == "host")
    unalike = _unalike(target, scale, other_card=other_card)
    unknown = sum(before[role].ns for role, found in ratios.items() if found.reachable is None)
    known = unknown <= NEGLIGIBLE * baseline.step_ns and not unalike
    if not known:
        absent["expected"] = unalike or _why_not(before, ratios, mixed, peaks)
        ratios = {
            role: Ratio(1.0, None if unalike else found.ceiling, _PLAIN) for role, found in ratios.items()
        }
    extra = added(before, after, mixed_run, peaks) if known and target.becomes and not target.same else {}
    slices = _slices(before, after, ratios, extra)
    reach_ns = sum(part.ns / (ratios[role].reachable or 1.0) for role, part in before.items())
    added_ns = sum(extra.values())
    reach_ns += added_ns
    expected = baseline.step_ns / reach_ns if known and reach_ns > 0 else None
    with_host, no_host = None, "no expectation"
    if known:
        with_host, no_host = _with_host(baseline, mixed, before, ratios, added_ns)
    if with_host is not None and expected is not None:
        with_host = min(with_host, expected)
    if with_host is None:
        absent["expected_with_host"] = no_host
    ceiling = _ceiling(baseline, before, ratios)
    if ceiling is None:
        absent["ceiling"] = (
            unalike or "the peak rates of this device, or what ran in the baseline, are not known"
        )
    return Speedup(
        baseline="measured",
        baseline_id=baseline_run.run_id,
        baseline_step_ns=baseline.step_ns,
        observed=baseline.step_ns / mixed.step_ns if mixed.step_ns > 0 else None,
        interval=interval,
        expected=expected,
        expected_with_host=with_host,
        ceiling=ceiling,
        reach_ns=reach_ns if known else None,
        gap_ns=mixed.step_ns - reach_ns,
        slices=slices,
        unexplained_ns=None,
        absent=absent or None,
        per_example=scale != 1.0,
        baseline_dtype=_dtype(baseline_run),
    )


def _dtype(run: Run) -> str | None:
    return run.last_fit.policy.compute_dtype if run.last_fit else None


def _unalike(target: Target, scale: float, *, other_card: bool) -> str:
    """Why nothing is to be expected of these two runs, whatever their kernels did; empty: something is."""
    if scale != 1.0:
        return _OTHER_BATCH
    if other_card:
        return _OTHER_CARD
    return _SAME_TYPE.format(target.computes) if target.same else ""


def refused(baseline: Run, why: str) -> Speedup:
    """The comparison of runs that are none: nothing but the reason."""
    fields = (
        "observed",
        "interval",
        "expected",
        "expected_with_host",
        "ceiling",
        "reach_ns",
        "gap_ns",
        "slices",
    )
    return _measured(baseline, None, absent=dict.fromkeys(fields, why))


def batch_ratio(baseline: Run, mixed: Run) -> float:
    """By what the baseline's times are multiplied to be those of as many examples as a mixed step has; 1
    where the batches are alike or not both on record."""
    first, last = (run.last_fit.batch_size if run.last_fit else None for run in (baseline, mixed))
    return last / first if first and last else 1.0


def examples_per_s(run: Run, account: Account | None) -> float | None:
    """Examples per second of steady steps; None where the batch size or the step time is not known."""
    from mpprof.analysis.steps import summarise

    summary = summarise(run.steps, run.facts)
    step_ns = (summary.median_ns if summary else None) or (account.step_ns if account else None)
    batch = run.last_fit.batch_size if run.last_fit else None
    return batch / step_ns * 1e9 if batch and step_ns else None


def _scaled(account: Account, scale: float) -> Account:
    """The account as if every part had taken so many times as long."""
    if scale == 1.0:
        return account
    cells = tuple(replace(cell, ns_per_step=cell.ns_per_step * scale) for cell in account.main.cells)
    main = replace(account.main, step_ns=account.main.step_ns * scale, cells=cells)
    return replace(account, step_ns=account.step_ns * scale, main=main)


# --- by records alone --------------------------------------------------------------------------------------


def _interval(mixed: Run, baseline: Run) -> tuple[tuple[float, float] | None, str]:
    """The interval of the observed speedup, from those of both medians: their worst combination."""
    from mpprof.analysis.steps import summarise

    sides = [summarise(run.steps, run.facts) for run in (baseline, mixed)]
    spans = [side.interval_ns if side else None for side in sides]
    if spans[0] is None or spans[1] is None:
        return None, _no_interval(baseline, mixed)
    (b_low, b_high), (m_low, m_high) = spans[0], spans[1]
    if m_low <= 0 or m_high <= 0:
        return None, "a step time of zero"
    scale = batch_ratio(baseline, mixed)
    return (scale * b_low / m_high, scale * b_high / m_low), ""


def _no_interval(*runs: Run) -> str:
    from mpprof.analysis.steps import summarise
    from mpprof.analysis.validity import timings

    found = [summarise(run.steps, run.facts) for run in runs]
    without = " and ".join(run.name for run, side in zip(runs, found, strict=True) if side is None)
    if without:
        return f"no step records of {without}"
    few = [
        f"{timings(run)} of {run.name}"
        for run, side in zip(runs, found, strict=True)
        if side and side.interval_ns is None
    ]
    return f"too few timings of steady steps, {' and '.join(few)}"


def _by_records(mixed: Run, baseline: Run, interval: tuple[float, float] | None, no_interval: str) -> Speedup:
    from mpprof.analysis.steps import summarise

    before, after = (summarise(run.steps, run.facts) for run in (baseline, mixed))
    b, m = (side.median_ns if side else None for side in (before, after))
    scale = batch_ratio(baseline, mixed)
    b = b * scale if b else b
    why = "needs the traces of both runs: MPProfilerCallback(logdir) records one"
    absent = dict.fromkeys(("expected", "expected_with_host", "ceiling", "reach_ns", "gap_ns", "slices"), why)
    if interval is None:
        absent["interval"] = no_interval
    if not b or not m:
        absent["observed"] = "a run has no steady steps on record"
    return _measured(
        baseline,
        b,
        absent=absent,
        observed=b / m if b and m else None,
        interval=interval,
        per_example=scale != 1.0,
    )


def _measured(
    baseline: Run,
    step_ns: float | None,
    *,
    absent: dict[str, str],
    observed: float | None = None,
    interval: tuple[float, float] | None = None,
    per_example: bool = False,
) -> Speedup:
    """A comparison that holds no more than step times."""
    return Speedup(
        baseline="measured",
        baseline_id=baseline.run_id,
        baseline_step_ns=step_ns,
        observed=observed,
        interval=interval,
        expected=None,
        expected_with_host=None,
        ceiling=None,
        reach_ns=None,
        gap_ns=None,
        slices=(),
        unexplained_ns=None,
        absent=absent,
        per_example=per_example,
        baseline_dtype=_dtype(baseline),
    )


# --- ratios and slices -------------------------------------------------------------------------------------


def _target(mixed: Run, baseline: Run, after: Mapping[Role, Part], before: Mapping[Role, Part]) -> Target:
    wanted = _wanted(mixed)
    becomes, was = wanted or _compute(mixed) or _ran(after), _compute(baseline) or _ran(before)
    layers = mixed.facts.model.layers if mixed.facts and mixed.facts.model else ()
    by_layer = {layer.name: found for layer in layers if (found := precision_of(layer.compute_dtype))}
    norms = frozenset(f.name for f in layers if layer_kinds.is_norm(f) and not compiled(mixed))
    same = becomes is not None and becomes == was
    return Target(
        becomes if becomes in SIXTEEN_BITS else None, {} if wanted else by_layer, same, norms, becomes
    )


def _compute(run: Run) -> Precision | None:
    return precision_of(run.last_fit.policy.compute_dtype) if run.last_fit else None


def _wanted(run: Run) -> Precision | None:
    """The 16-bit type that the process' policy asks for where the model does not compute in it: what was
    expected of such a run is what the policy promised. None: the model does as its policy says."""
    policy = run.last_fit.policy if run.last_fit else None
    if policy is None or not (policy.global_name or "").startswith("mixed_"):
        return None
    wanted = precision_of(policy.global_name)
    return wanted if wanted in SIXTEEN_BITS and precision_of(policy.compute_dtype) == "fp32" else None


def _ran(run: Mapping[Role, Part]) -> Precision | None:
    """What a run without records computes in, by its matrix kernels: 16 bits if any ran so."""
    found = {part.precision for role, part in run.items() if role.role == "matmul"}
    return next(
        (p for p in ("fp16", "bf16", "fp32") if p in found or (p == "fp32" and "tf32" in found)), None
    )


def _ratios(
    before: Mapping[Role, Part],
    after: Mapping[Role, Part],
    target: Target,
    peaks: DevicePeaks | None,
    host: bool,
) -> dict[Role, Ratio]:
    if host:
        none = Ratio(None, None, "a CPU's rates by type are not known")
        return dict.fromkeys(before, none)
    peers = Peers(before, after)
    return {role: ratio(part, after.get(role), target, peers, peaks) for role, part in before.items()}


def _why_not(
    before: Mapping[Role, Part], ratios: Mapping[Role, Ratio], mixed: Account, peaks: DevicePeaks | None
) -> str:
    if mixed.trace_basis == "host":
        return "a run on the CPU: what its arithmetic could reach in 16 bits is not known"
    worst = max((r for r in ratios if ratios[r].reachable is None), key=lambda role: before[role].ns)
    where = f" (most of it in {worst.layer})" if worst.layer else ""
    device = "" if peaks else "; the device's peaks are not known either"
    return f"{ratios[worst].source}{where}{device}"


def _slices(
    before: Mapping[Role, Part],
    after: Mapping[Role, Part],
    ratios: Mapping[Role, Ratio],
    extra: Mapping[Role, float],
) -> tuple[GapSlice, ...]:
    """By class and layer, the largest first."""
    gathered: dict[tuple[Class, str | None], list[Role]] = defaultdict(list)
    for role in dict.fromkeys((*before, *after)):
        gathered[(role.role, role.layer)].append(role)
    slices = []
    for (name, layer), roles in gathered.items():
        b = sum(before[role].ns for role in roles if role in before)
        m = sum(after[role].ns for role in roles if role in after)
        reach = sum(before[role].ns / (ratios[role].reachable or 1.0) for role in roles if role in before)
        main = max((role for role in roles if role in before), key=lambda role: before[role].ns, default=None)
        source = ratios[main].source if main else "not in the baseline"
        new = sum(extra.get(role, 0.0) for role in roles)
        if new and not main:
            source = "not in the baseline; computing in 16 bits brings it"
        ratio = b / reach if reach > 0 else 1.0
        slices.append(GapSlice(name, layer, m - reach - new, b, m, ratio, source, new))
    return tuple(sorted(slices, key=lambda part: -abs(part.ns_per_step)))


def _ceiling(baseline: Account, before: Mapping[Role, Part], ratios: Mapping[Role, Ratio]) -> float | None:
    if any(found.ceiling is None and before[role].ns > 0 for role, found in ratios.items()):
        return None
    least = sum(part.ns / (ratios[role].ceiling or 1.0) for role, part in before.items())
    return baseline.step_ns / least if least > 0 else None


def _with_host(
    baseline: Account,
    mixed: Account,
    before: Mapping[Role, Part],
    ratios: Mapping[Role, Ratio],
    added_ns: float,
) -> tuple[float | None, str]:
    """The expectation under the host's floor: its need as the trace shows it, else, where the device waits
    for it for long, the step itself, as the host never rests."""
    need = mixed.host_ns
    if need is None:
        waiting = sum(part.ns_per_step for part in mixed.main.slices if part.role in _HOST_CLASSES)
        if waiting < HOST_BOUND * mixed.step_ns:
            return (
                None,
                "the trace does not show what the host needs per step, and the device hardly waits for it",
            )
        need = mixed.step_ns
    work = sum(
        part.ns / (ratios[role].reachable or 1.0)
        for role, part in before.items()
        if not role.role.startswith("idle_")
    )
    floor = max(work + added_ns, need)
    return (
        (baseline.step_ns / floor, "")
        if floor > 0
        else (None, "neither work nor a need of the host is known")
    )
