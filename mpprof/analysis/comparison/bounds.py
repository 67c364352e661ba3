"""What step times, a model's operations and a card's peaks prove without a trace, and what they leave open.

The operations are those of direct algorithms (`roofline.model_flops`): Winograd and FFT convolutions do with
fewer, so every statement names that assumption.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.breakdown.roofline import model_flops
from mpprof.model.account import Bound
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_flops_per_s, format_ratio
from mpprof.model.run import Run

BUSY = 0.95
"""Recorded utilisation above which a run counts as bound by its GPU."""
WAITING = 0.05
"""Share of the step spent waiting for input below which a run counts as bound by its GPU."""

_DIRECT = "operations of direct algorithms: Winograd and FFT convolutions need fewer"
_ORDINARY = ("fp32_cuda", "fp16_cuda")


@frozen
class Side:
    """What the records of one run say. None: not recorded. `input_wait_ratio` is of the step."""

    step_ns: float
    utilization_ratio: float | None = None
    input_wait_ratio: float | None = None

    @property
    def bound_by_gpu(self) -> bool:
        """Known to be: False also where it is not known. Utilisation decides where it was recorded: a GPU
        that idles may wait for launches as well as for input."""
        if self.utilization_ratio is not None:
            return self.utilization_ratio > BUSY
        return self.input_wait_ratio is not None and self.input_wait_ratio < WAITING


@frozen
class Proof:
    """What is proven, and, where the question of the matrix work stays open, why and what would settle it."""

    bounds: tuple[Bound, ...]
    unable: str | None


def prove(
    flops: float, mixed: Side, baseline: Side | None, peaks: DevicePeaks | None, *, tf32: bool | None = None
) -> Proof:
    """Return the bounds from `flops` matrix operations per step and device, and two step times.

    `tf32`: whether the baseline's float32 products may use TF32 (None: not known, taken as may). The casts of
    the mixed run are left out of its matrix time's lower bound, which only makes the upper rate larger.
    """
    if flops <= 0 or mixed.step_ns <= 0:
        return Proof((), "the model's matrix operations are not known from the recorded layers")
    rate = flops / mixed.step_ns * 1e9
    bounds = [Bound("average rate of the step's matrix work, at least", rate, "FLOP/s", (_DIRECT,))]
    if baseline is not None and baseline.step_ns > 0:
        was = flops / baseline.step_ns * 1e9
        bounds.append(
            Bound("the baseline's average rate of matrix work, at least", was, "FLOP/s", (_DIRECT,))
        )
    if peaks is None:
        return Proof(tuple(bounds), "the card's peak rates are not known")
    if not peaks.has_matrix_units:
        return Proof(tuple(bounds), None)  # nothing ran on units that it does not have
    proven = _needs_matrix_units(flops, mixed, peaks)
    if proven is not None:
        bounds.append(proven)
    if baseline is None:
        why = "the step time is within what ordinary arithmetic can do: record a trace"
        return Proof(tuple(bounds), None if proven else why)
    most = _most_rate(flops, mixed, baseline, peaks, tf32)
    if mixed.bound_by_gpu and baseline.bound_by_gpu:
        bounds.extend(_rates(most, peaks, ("both runs are bound by the GPU, as recorded", _DIRECT)))
        return Proof(tuple(bounds), None)
    bounds.extend(_rates(most, peaks, ("both runs are bound by the GPU, which is not known", _DIRECT)))
    return Proof(tuple(bounds), None if proven else _host_not_excluded(most, mixed, baseline, peaks))


def from_records(run: Run, baseline: Run | None, peaks: DevicePeaks | None) -> Proof:
    """Return what `prove` gives from what the runs recorded: layers, batch size, replicas, steady steps,
    utilisation, waits."""
    model, fit = run.model, run.last_fit
    side = _side(run)
    if side is None:
        return Proof((), "no steady steps on record")
    if model is None or fit is None or not fit.batch_size:
        return Proof((), "the model's layers or the batch size were not recorded")
    counted = model_flops(model)
    flops = counted.training * fit.batch_size / (run.facts.replicas or 1 if run.facts else 1)
    tf32 = baseline.facts.tf32_enabled if baseline is not None and baseline.facts is not None else None
    before = _side(baseline) if baseline else None
    if before is not None and baseline is not None and baseline.last_fit and baseline.last_fit.batch_size:
        # as long as the baseline would take for as many examples
        scale = fit.batch_size / baseline.last_fit.batch_size
        before = Side(before.step_ns * scale, before.utilization_ratio, before.input_wait_ratio)
    return prove(flops, side, before, peaks, tf32=tf32)


def _side(run: Run) -> Side | None:
    from mpprof.analysis.steps.statistics import averaged

    if run.steps is None or not (step_ns := (times := averaged(run.steps, run.facts, run.spans)).mean_ns):
        return None
    row = times.row[run.steps.input_wait_ns[times.row] >= 0]
    wait_ns, steps = run.steps.input_wait_ns[row].sum(), run.steps.covers[row].sum()
    wait = min(1.0, float(wait_ns / steps) / step_ns) if len(row) else None
    return Side(step_ns, utilization(run), wait)


def utilization(run: Run) -> float | None:
    """Return the median of a run's samples of how busy its GPUs were, 0 to 1; None without a sample."""
    used = run.hardware.utilization_ratio if run.hardware is not None else np.empty(0)
    used = used[np.isfinite(used)]
    return median(used) if len(used) else None


# --- the statements ----------------------------------------------------------------------------------------


def _needs_matrix_units(flops: float, mixed: Side, peaks: DevicePeaks) -> Bound | None:
    """Return the proof that matrix units worked: a step shorter than any other arithmetic can make it."""
    best = max((peaks.flops_per_s.get(key, 0.0) for key in _ORDINARY), default=0.0)
    if not peaks.has_matrix_units or not best or mixed.step_ns >= flops / best * 1e9:
        return None
    least = 1.0 - best * mixed.step_ns / 1e9 / flops
    return Bound(
        "matrix units did part of the work: share of the operations, at least", least, "ratio", (_DIRECT,)
    )


def _most_rate(
    flops: float, mixed: Side, baseline: Side, peaks: DevicePeaks, tf32: bool | None
) -> float | None:
    """Return the highest average matrix rate that the mixed run can have had, in FLOP/s; None where the bound
    is empty: none at all, or above the peak.

    The baseline's matrix work takes at least F / peak32, everything else at most the rest of its step. That
    rest does not grow in the mixed run, so the remainder there is matrix work.
    """
    keys = ("fp32_cuda",) if tf32 is False else ("fp32_cuda", "tf32")
    peak = max((peaks.flops_per_s.get(key, 0.0) for key in keys), default=0.0)
    if not peak:
        return None
    rest_ns = baseline.step_ns - flops / peak * 1e9
    matrix_ns = mixed.step_ns - max(0.0, rest_ns)
    most = flops / matrix_ns * 1e9 if matrix_ns > 0 else None
    return None if most is not None and most >= peaks.flops_per_s.get("fp16", np.inf) else most


def _rates(most: float | None, peaks: DevicePeaks, assumptions: tuple[str, ...]) -> list[Bound]:
    if most is None:
        return []
    found = [Bound("average rate of the mixed run's matrix kernels, at most", most, "FLOP/s", assumptions)]
    peak = peaks.flops_per_s.get("fp16") if peaks.has_matrix_units else None
    if peak:
        found.append(Bound("share of the matrix units' peak, at most", most / peak, "ratio", assumptions))
    return found


HOST_NOT_EXCLUDED = "a host bound is not excluded"


def _host_not_excluded(most: float | None, mixed: Side, baseline: Side, peaks: DevicePeaks) -> str:
    kernels = (
        f"then its matrix kernels ran at {format_flops_per_s(most)} at most{_of_peak(most, peaks)}"
        if most is not None
        else "then with the rest of its work, not with its matrix kernels"
    )
    return (
        f"{HOST_NOT_EXCLUDED}, so two explanations remain: input or host limits both runs "
        f"({_speaks_for_the_host(mixed, baseline)}), or the GPU does, and {kernels}. A profile window of "
        "a few steps settles it: MPProfilerCallback(logdir)"
    )


def _of_peak(rate: float, peaks: DevicePeaks) -> str:
    peak = peaks.flops_per_s.get("fp16")
    return f", {format_ratio(rate / peak)} of the matrix units' peak" if peak else ""


def _speaks_for_the_host(mixed: Side, baseline: Side) -> str:
    """Return which explanation the recorded utilisation makes likelier."""
    used = [side.utilization_ratio for side in (baseline, mixed) if side.utilization_ratio is not None]
    if not used:
        return "no utilisation and no input wait was recorded, which would decide"
    said = " and ".join(dict.fromkeys(format_ratio(ratio) for ratio in used))
    if max(used) > BUSY:
        return f"utilisation was {said}"
    idle = format_ratio(1 - max(used))
    return (
        f"the likelier: at a utilisation of {said} the GPU had nothing to do for {idle} of the time or more"
    )
