"""What of an update rounds away when it is added to a weight of 16 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpprof.numbers import given
from mpprof.numbers.job import Job
from mpprof.numbers.tallies import HALF

Lost = Mapping[tuple[str, str], Mapping[str, float]]
"""By layer and weight: of its elements, by type, the share that an update leaves as they are, and does not in
float32."""


def lost(job: Job, gradients: Sequence[Any], scale: float) -> Lost:
    """Return what one update loses of each weight of 16 bits.

    `gradients`: of these weights, in their order, of the loss times `scale`. The update is that of a copy of
    the optimizer, with its slots as they are, that computes in float32."""
    keras, ops = job.keras, job.keras.ops
    optimizer = getattr(job.model.optimizer, "inner_optimizer", job.model.optimizer)
    with keras.StatelessScope(given.optimizer_state(job.model)):
        own = {each.name: ops.convert_to_numpy(each.value) for each in optimizer.variables}
        config = optimizer.get_config()
    plain = {"gradient_accumulation_steps": None, "use_ema": False, "loss_scale_factor": None}
    twin = type(optimizer).from_config({**config, **plain})
    weights = [each for each in job.model.trainable_variables if each.dtype in HALF]
    owners = job.owners()
    with job.scope():
        before = [ops.convert_to_numpy(each.value).astype(np.float32) for each in weights]
    wide = [
        keras.Variable(value, dtype="float32", trainable=False, name=each.path.replace("/", "_"))
        for each, value in zip(weights, before, strict=True)
    ]
    twin.build(wide)
    for each in twin.variables:
        if each.name in own and each.shape == own[each.name].shape:
            each.assign(own[each.name].astype(each.dtype))
    unscaled = [ops.convert_to_numpy(each).astype(np.float32) / scale for each in gradients]
    twin.apply([ops.convert_to_tensor(each) for each in unscaled], wide)
    return {
        owners[id(weight)]: {name: _lost(ops, old, ops.convert_to_numpy(new.value), name) for name in HALF}
        for weight, old, new in zip(weights, before, wide, strict=True)
    }


def _lost(ops: Any, old: Any, new: Any, dtype: str) -> float:
    held = ops.cast(old, dtype)  # what the weight is in that type
    changed = ops.add(ops.cast(held, "float32"), ops.convert_to_tensor(new - old))
    stays = ops.equal(held, ops.cast(changed, dtype))
    return float(np.mean((old != new) & ops.convert_to_numpy(stays)))
