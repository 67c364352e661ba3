"""Clipping by the global norm takes a noticeable part of the step.

What it means
    Clipping by the global norm reads every float32 gradient to compute one number before any update, and
    again to scale it.

How we know
    Kernels whose op is a global norm, a clip, or the L2 loss that TensorFlow computes norms with.

What it costs
    Their time.

When to ignore
    When training needs it: it is a cost, not a fault.

Sources
    Read in Keras 3.15.1: LossScaleOptimizer refuses clipping arguments. allenai/allennlp#5426 and
    TorchSSL#59 (clipping before un-scaling).
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP506", "gradient-clipping", "Gradient clipping takes a noticeable part of the step"
ABOUT = "gradient clipping"
SAYS = "clipping gradients takes[ {time}]"
ONCE = "without it"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.10, error_ratio=0.25)
"""Clipping is chosen for the training's sake: only a tenth of the step is worth a second thought."""
_SCOPES = ("global_norm", "clip_by_global_norm", "clip_by_norm", "clip_by_value")


def judge(signals: Signals) -> Outcome:
    optimizer = known(signals.optimizer)
    if optimizer is not None and optimizer.clipping == {}:
        return NotApplicable("the optimizer clips nothing")
    need(signals.gpu_activity)
    rows = signals.select(_clips)
    claims = attainable.whole(rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear(f"clipping takes {format_ratio(signals.cost_ratio(claims))} of the step")
    return Found(
        summary="clipping gradients takes {cost} {each} ({share})",
        evidence=(evidence.count("clipping kernels {per}", signals.calls(rows)),),
        scale=SCALE,
        claims=claims,
    )


def _clips(cell: Cell) -> bool:
    return cell.op_type == "L2Loss" or any(scope in (cell.op or "") for scope in _SCOPES)


def check_model(model: Untrained) -> Iterator[Note]:
    """Yield a note where the training step clips gradients that are still scaled: such clipping does not act
    on the true gradients."""
    if model.fit is None or model.facts.train_step != "clips":
        return
    optimizer = model.fit.optimizer
    if optimizer.inner is not None:
        yield Note(
            "warning",
            None,
            "train_step clips gradients while the optimizer scales the loss: it clips gradients that are "
            "still scaled",
            "model.optimizer.inner_optimizer.global_clipnorm = 1.0  # or as its argument\n"
            "del type(model).train_step  # or remove the clipping from it",
            "Gradients are clipped before they are un-scaled",
        )
