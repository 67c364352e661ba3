"""Callbacks and the loop around the step take a noticeable part of the time.

What it means
    Between the end of one step and the beginning of the next Python runs: callbacks, metrics, progress bars,
    summaries. The device waits meanwhile.

How we know
    The recorded gap between steps (the end of a call to the next begin); in the trace the device's idle time
    between step markers.

What it costs
    That gap, in every step.

What to do
    Do that work every hundred steps, or at the end of an epoch:

        if step % 100 == 0:
            writer.add_scalar("loss", loss, step)

When to ignore
    In a model whose steps take microseconds: Keras' own loop is then a noticeable part.

Sources
    tf#37876 (two thirds of the time in on_train_batch_end). TensorFlow's warning "is slow compared to the
    batch update" starts where a hook takes longer than a step.
"""

from __future__ import annotations

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Claim, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP305", "slow-callbacks", "Callbacks take a noticeable part of the time"
ABOUT = "slow callbacks"
SPECIFICITY = GENERAL
BOUND = "host"
OF_TRAINING = True

SCALE = Scale(info_ratio=0.05, warning_ratio=0.10, error_ratio=0.30)
"""Keras' loop itself takes up to 5 % of a step of some milliseconds; an error where a third is lost."""
OWN_LOOP_NS = 50_000.0
"""What Keras' loop takes between two steps by itself (our judgement)."""
BUSY_LOOP_NS = 100_000.0
"""What it takes with a progress bar and a few metrics: so much is a mention in a short step, and no more."""


def judge(signals: Signals) -> Outcome:
    table, summary = need(signals.table), need(signals.summary)
    if not summary.median_ns:
        return Unable("there are no steady steps to measure the gap between; train longer")
    steady = table.step >= (summary.first_steady or 1)
    gaps = (table.gap_ns >= 0) & steady & ~table.profiled
    if not gaps.any():
        return Unable(f"the gaps between steps were not recorded{signals.hint('record run')}")
    gap_ns = median(table.gap_ns[gaps] / table.covers[gaps])
    ratio = gap_ns / summary.median_ns
    if SCALE.severity(ratio) is None:
        return Clear(f"the gap between steps is {format_ratio(ratio)} of the step")
    rows = signals.of("idle_between_steps")
    claimed = known(signals.share("idle_between_steps")) or 0.0
    return Found(
        summary=f"{format_ratio(ratio)} of the step lies between steps, in callbacks and the loop",
        evidence=(
            evidence.ratio("gap between steps", ratio, SCALE.crossed(ratio)),
            evidence.ns("median gap", gap_ns),
            *((evidence.ratio("device idle between steps", claimed),) if claimed else ()),
        ),
        confidence="high" if claimed else "medium",
        severity=SCALE.severity(max(0.0, gap_ns - BUSY_LOOP_NS) / summary.median_ns) or "info",
        claims=tuple(Claim(row, OWN_LOOP_NS) for row in rows),
        cost_ns=gap_ns,
    )
