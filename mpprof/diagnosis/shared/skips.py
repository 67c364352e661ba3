"""What the rules on skipped updates share: when a skip is part of the start, and when skips are many."""

from __future__ import annotations

from mpprof.diagnosis.outcomes import NOT_IN_16_BITS, NotApplicable, known
from mpprof.diagnosis.signals import Signals

STARTUP_STEPS = 20
"""2^15 falls to 1 in fifteen halvings: what is still skipping after 20 steps is not looking for its scale."""
MANY_RATIO = 0.01
"""A healthy dynamic scale skips one step in 2000; this is twenty times that."""


def without_loss_scale(signals: Signals) -> NotApplicable | None:
    """Return NotApplicable where nothing scales the loss, so that no update can be skipped."""
    optimizer = known(signals.optimizer)
    if known(signals.compute_dtype) in ("float32", "bfloat16") and not (optimizer and optimizer.inner):
        return NOT_IN_16_BITS if signals.wide else NotApplicable("nothing scales the loss")
    return None
