"""The look on PyTorch: the step as Keras' trainer runs it, eagerly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpprof.numbers import tallies
from mpprof.numbers.causes import Op, summary
from mpprof.numbers.counting import counted
from mpprof.numbers.job import Entry, Job, require_loss
from mpprof.numbers.result import Tensor
from mpprof.numbers.taps import LOSS, Place


class TorchStep:
    """See `job.Step`."""

    compiled = False

    def __init__(self, job: Job) -> None:
        import torch

        self._torch, self._job = torch, job
        self.gradients: list[Any] = []
        compiles = bool(getattr(job.model, "jit_compile", False)) and not job.model.run_eagerly
        self.note = (
            "the training's own step goes through torch.compile and may differ"
            if compiles
            else "the training's own step runs eagerly, too"
        )

    def run(self, scale: float) -> list[Entry]:
        torch, job = self._torch, self._job
        entries: list[Entry] = []
        outputs: list[tuple[Place, Any]] = []

        def entry(place: Place, tensor: Tensor, value: Any, weight: str | None = None) -> Entry:
            value = value.detach()
            value = value.coalesce().values() if value.is_sparse else value
            dtype = str(value.dtype).removeprefix("torch.")
            counts = counted(job.keras.ops, value, dtype, bits_of)
            return Entry(place, tensor, tallies.tally(dtype, counts.tolist()), weight)

        def take(place: Place, tensor: Any, dtype: str) -> Any:
            if tensor.requires_grad:
                outputs.append((place, tensor))
            with torch.no_grad():
                entries.append(entry(place, "output", tensor))
            return tensor

        job.taps.take, job.taps.reachable = take, lambda: True
        with torch.enable_grad(), job.scope():
            predicted = job.forward(job.x)
            if not job.with_loss:
                return entries
            loss = require_loss(job.loss_of(job.x, job.y, predicted, job.sample_weight))
            scaled = job.keras.ops.multiply(loss, scale)
        with torch.no_grad():
            entries.append(entry(LOSS, "output", loss))
        weights = [each for each in job.model.trainable_variables if each.value.requires_grad]
        sources = [tensor for _, tensor in outputs] + [each.value for each in weights]
        if not sources or not scaled.requires_grad:
            return entries
        found = torch.autograd.grad(scaled, sources, allow_unused=True)
        with torch.no_grad():
            for (place, _), gradient in reversed(list(zip(outputs, found, strict=False))):
                if gradient is not None:
                    entries.append(entry(place, "gradient", gradient))
            owners = job.owners()
            for variable, gradient in zip(weights, found[len(outputs) :], strict=True):
                if gradient is not None:
                    layer, name = owners[id(variable)]
                    entries.append(entry(Place(layer, 0, 0), "weight_gradient", gradient, name))
        self.gradients = [
            torch.zeros_like(variable.value) if gradient is None else gradient.to_dense()
            for variable, gradient in zip(weights, found[len(outputs) :], strict=True)
            if variable.dtype in tallies.HALF
        ]
        return entries


def step(job: Job) -> TorchStep:
    """Return the step of a job."""
    return TorchStep(job)


@contextlib.contextmanager
def kept(model: Any) -> Iterator[None]:
    """Keep PyTorch's random generators, from which Keras' dropout draws, and the buffers of its modules."""
    import torch

    before = _random(torch)
    buffers = [(each, each.detach().clone()) for each in model.buffers()]
    try:
        yield
    finally:
        _set_random(torch, before)
        with torch.no_grad():
            for buffer, values in buffers:
                buffer.copy_(values)


def _random(torch: Any) -> tuple[Any, list[Any]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _set_random(torch: Any, states: tuple[Any, list[Any]]) -> None:
    torch.set_rng_state(states[0])
    if states[1]:
        torch.cuda.set_rng_state_all(states[1])


def values(model: Any) -> list[tuple[Any, Any]]:
    """Return the trained variables with their values, which Keras' regularizers ask the scope for."""
    return [(each, each.value) for each in model.trainable_variables]


def put_back() -> Callable[[], None]:
    """Return what gives PyTorch's generators the state that they have now."""
    import torch

    states = _random(torch)
    return lambda: _set_random(torch, states)


def bits_of(tensor: Any, name: str) -> Any:
    """Return a tensor's bits as integers of that type."""
    import torch

    return tensor.contiguous().view(getattr(torch, name))


def tensors(keras: Any, structure: Any) -> Any:
    """Return arrays as the training is given them."""
    return keras.tree.map_structure(
        lambda each: None if each is None else keras.ops.convert_to_tensor(each), structure
    )


def operations(function: Callable[[], Any], job: Job) -> tuple[Any, list[Op]]:
    """Run a function eagerly; return its result and each operation that ran, in order."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Op] = []

    class Noting(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inputs = [each for each in job.keras.tree.flatten(args) if isinstance(each, torch.Tensor | float)]
            before = _summaries(torch, inputs)
            result = func(*args, **(kwargs or {}))
            outputs = [each for each in job.keras.tree.flatten(result) if isinstance(each, torch.Tensor)]
            same = len(inputs) == 2 and inputs[0] is inputs[1]
            found.append(Op(func.overloadpacket.__name__, before, _summaries(torch, outputs), same))
            return result

    with Noting():
        result = function()
    return result, found


def _summaries(torch: Any, values: Any) -> tuple[Any, ...]:
    found = []
    for each in values:
        if isinstance(each, float):
            found.append(summary(np.float64(each), "scalar"))
        elif each.is_floating_point():
            with torch.utils._python_dispatch._disable_current_modes():
                found.append(summary(each.detach().double().cpu().numpy(), str(each.dtype)[6:]))
    return tuple(found)
