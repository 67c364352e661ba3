"""The bookkeeping of the loss scale takes a noticeable part of the step.

What it means
    A dynamic loss scale checks every gradient for infinities, divides each by the scale, and waits for the
    result on the host before the update: several small kernels per variable and a wait.

How we know
    The time of such kernels in the account (`loss_scale`), and the idle time in which the device waited for
    their launches: they are short, so that the host often falls behind. XLA fuses the check into the sums
    that make a gradient (split-K), which then runs far below the memory's rate; the fusion's body shows it.

What it costs
    The time of these kernels and waits, less what the profiler added to launches where unprofiled steps show
    it. If the device also waits for the launches of other kernels, the run is launch-bound as a whole, and
    MP302 counts all these waits. For a sum that includes the check, only the time beyond one pass over its
    bytes counts.

    The wait for the flag is part of `idle_sync`. With a baseline, the time that this run waits longer than
    the baseline is counted. Without one, the trace does not distinguish it from the wait for the logs.

When to ignore
    Below a few percent of the step: float16 needs it.

Sources
    Executed with Keras 3.15.1: 5.5 to 7.6 more graph ops per variable. NVIDIA/apex#977 (1.9 -> 1.0 s a step
    with a static scale), TensorFlow guide "Optimize GPU performance" ("additional conditional ops").
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis import launch_waits
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.skips import without_loss_scale

CODE, SLUG, TITLE = (
    "MP304",
    "loss-scale-overhead",
    "Loss-scale bookkeeping takes a noticeable part of the step",
)
ABOUT = "the cost of loss scaling"
SAYS = "checking and un-scaling gradients takes[ {time}]"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.10, error_ratio=0.25, normal=True)
"""A healthy small model without XLA spends a few percent on this; a tenth is worth a change of the script."""
MOST = 0.5
"""Share of the time between launches: below half, something else makes the device wait."""


def judge(signals: Signals) -> Outcome:
    without = without_loss_scale(signals)
    if without is not None and signals.in_window:
        return without
    need(signals.gpu_account)
    rows = signals.of("loss_scale")
    fused = () if without else attainable.streamed(signals, signals.select(_checks_within))
    claims = attainable.whole(rows) + fused + _waits_for_launches(signals) + _waits_for_the_flag(signals)
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return without or Clear(
            f"the loss scale's kernels and their launches take {format_ratio(ratio)} of the step"
        )
    return Found(
        summary="checking and un-scaling gradients takes {cost} a step ({share})",
        evidence=(
            evidence.ratio("loss-scale work and its waits in the step", ratio, SCALE.info_ratio),
            evidence.count("loss-scale kernels per step", signals.calls(rows)),
            *_within_sums(signals, [claim.cell for claim in fused]),
        ),
        scale=SCALE,
        claims=claims,
    )


def _checks_within(cell: Cell) -> bool:
    """Return whether the cell is other work that checks for infinities as it goes."""
    return cell.category in ("reduce", "elementwise") and cell.hlo is not None and cell.hlo.holds("is-finite")


def _within_sums(signals: Signals, rows: Sequence[int]) -> tuple[Evidence, ...]:
    """Return how long sums with the check in them take, and the rate of the one that takes longest."""
    if not rows:
        return ()
    longest = max((signals.cells[row] for row in rows), key=lambda cell: cell.ns_per_step)
    rate = (longest.bytes_per_step or 0.0) / (longest.busy_ns_per_step or longest.ns_per_step) * 1e9
    return (
        evidence.ns("sums with the check in them", signals.time(rows)),
        evidence.rate(f"rate of {longest.kernel}", rate),
    )


def _waits_for_launches(signals: Signals) -> tuple[Claim, ...]:
    """Return claims on idle time that a kernel of the loss scale ended, because the host had not launched it
    yet; nothing where kernels of other work are waited for more than those."""
    waits = launch_waits.between(signals)
    own = {row for row in waits if signals.cells[row].cause == launch_waits.OF_THE_LOSS_SCALE}
    if signals.time(own) < MOST * signals.time(waits):
        return ()
    return tuple(claim for claim in launch_waits.claims(signals) if claim.cell in own)


def _waits_for_the_flag(signals: Signals) -> tuple[Claim, ...]:
    """Return claims on idle time in which the host waited, above that of the baseline: with a dynamic scale
    the host waits for the flag that says whether the gradients are finite. Without a baseline this wait
    cannot be told from others."""
    optimizer, baseline = known(signals.optimizer), known(signals.baseline)
    if optimizer is None or not optimizer.dynamic or baseline is None or baseline.case.account is None:
        return ()
    had = baseline.time(baseline.of("idle_sync"))
    return tuple(Claim(row, had) for row in signals.of("idle_sync"))
