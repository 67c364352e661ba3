"""Bytes that a training keeps from step to step; of a recorded run by its model and optimizer."""

from __future__ import annotations

from mpprof.model.frozen import frozen
from mpprof.model.memory import Kind, StatesFrom
from mpprof.model.run import Run
from mpprof.tensors import SLOTS, WIDTHS


@frozen
class States:
    """In bytes. `trained`: of the parameters that the optimizer updates, as much as their gradients take.
    `slots` is None where it is not known what the optimizer keeps for them. `told_by` says where the figures
    come from."""

    parameters: int
    trained: int
    slots: int | None
    optimizer: str | None
    told_by: StatesFrom = "records"

    @property
    def kinds(self) -> tuple[tuple[Kind, int], ...]:
        """What of memory from before the window is theirs, the parameters first."""
        return ("parameters", self.parameters), ("optimizer slots", self.slots or 0)


def recorded(run: Run | None) -> States | None:
    """Return what the run's records say; None where they hold no model."""
    if run is None or run.facts is None or run.facts.model is None or run.facts.model.parameters is None:
        return None
    model = run.facts.model
    by_layer = [(layer.parameters or 0, layer.variable_dtype) for layer in model.layers]
    counted = sum(count for count, _ in by_layer)
    rest = max(0, (model.parameters or 0) - counted)  # of what is no layer
    size = sum(count * WIDTHS.get(dtype or "float32", 4) for count, dtype in by_layer) + 4 * rest
    if counted > (model.parameters or 0):  # shared layers stand several times
        size = 4 * (model.parameters or 0)
    trained = size
    stored = sum(
        layer.parameter_bytes - (layer.parameters or 0) * WIDTHS.get(layer.variable_dtype or "float32", 4)
        for layer in model.layers
        if layer.parameter_bytes is not None
    )
    if model.trainable_parameters is not None and model.parameters:
        trained = size * min(model.trainable_parameters, model.parameters) // model.parameters
    fit = run.last_fit
    optimizer = (fit.optimizer.inner or fit.optimizer.class_name) if fit else None
    stated = fit.optimizer.slots if fit else None
    each = SLOTS.get(optimizer or "") if stated is None else stated
    return States(max(0, size + stored), trained, None if each is None else each * trained, optimizer)
