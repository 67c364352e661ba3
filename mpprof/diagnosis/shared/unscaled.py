"""Whether a training step of the user's own scales its loss, which the optimizer then un-scales."""

from __future__ import annotations

from mpprof.diagnosis.outcomes import NotApplicable, known
from mpprof.diagnosis.signals import Signals

NEVER_SCALED = NotApplicable("the loss is never scaled, so that its scale says nothing (MP103)")


def scale_loss_called(signals: Signals) -> bool | None:
    """Return whether the optimizer's `scale_loss` was seen to be called; None: nobody could see it."""
    fit = known(signals.fit)
    return fit.scale_loss_called if fit is not None else None


def never_scaled(signals: Signals) -> bool:
    """Return whether the optimizer un-scales gradients of a loss that is known never to be scaled."""
    optimizer = known(signals.optimizer)
    un_scales = optimizer is not None and bool(optimizer.inner or optimizer.dynamic or optimizer.fixed_scale)
    return un_scales and scale_loss_called(signals) is False and known(signals.compute_dtype) == "float16"
