"""The first steps were skipped while the loss scale was being found.

What it means
    The dynamic loss scale starts at 2^15 and halves itself on every overflow, and a step that overflows does
    not update the weights. A handful of skipped steps at the start is how it finds its place. It is normal.

How we know
    Updates were skipped within the first 20 steps, and hardly any later.

What it costs
    Those steps, once. Nothing per step.

What to do
    Nothing. To avoid them, start lower:

        keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**10)

When to ignore
    Always, unless a training is only a few dozen steps long.

Sources
    TensorFlow guide "Mixed precision": it "will likely skip the first few steps". Read in Keras 3.15.1: from
    2^15, growth every 2000 steps, times two, divided by two.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, known, need
from mpprof.diagnosis.rules.mp201_endless_skips import STARTUP_STEPS, WARNING_RATIO
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_count

CODE, SLUG, TITLE = "MP204", "startup-skips", "Steps skipped while the loss scale settled"
SPECIFICITY = GENERAL


def judge(signals: Signals) -> Outcome:
    optimizer = known(signals.optimizer)
    if known(signals.compute_dtype) in ("float32", "bfloat16") and not (optimizer and optimizer.inner):
        return Clear("there is no loss scale, so that nothing is skipped")
    history = need(signals.skips)
    early, _ = history.within(1, STARTUP_STEPS)
    late, steps = history.within(STARTUP_STEPS + 1)
    if not early:
        return Clear("no update was skipped at the start")
    if steps and late / steps >= WARNING_RATIO:
        return Clear("updates were skipped later too: see MP201")
    return Found(
        summary=(
            f"{format_count(early)} of the first {STARTUP_STEPS} updates were skipped while the loss "
            "scale settled: normal"
        ),
        remedy="none needed; a lower initial_scale of the LossScaleOptimizer avoids them",
        evidence=(
            evidence.count("skipped updates at the start", early),
            evidence.count("skipped updates later", late),
        ),
        severity="info",
    )
