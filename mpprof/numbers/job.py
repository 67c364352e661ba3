"""What is looked at, a model, a batch and a loss, and the pass over it that every backend computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mpprof.errors import UnableError
from mpprof.numbers import given
from mpprof.numbers.chance import Draws
from mpprof.numbers.result import Tensor
from mpprof.numbers.tallies import Tally
from mpprof.numbers.taps import Place, Taps


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor that was counted. `place.call` 0: a gradient of the weight of that name."""

    place: Place
    tensor: Tensor
    tally: Tally
    weight: str | None = None


def key(entry: Entry) -> tuple[Any, ...]:
    """Return what tells a tensor of one run from the others, the same in each run."""
    return entry.place, entry.tensor, entry.weight


class Step(Protocol):
    """A forward and backward pass that can be run at any loss scale; made once, compiled where it can be."""

    compiled: bool
    """Whether it is compiled as the training's own step is."""
    note: str | None
    """How it differs from the training's own step; None: not at all."""
    gradients: list[Any]
    """Of the last run, of the loss times the scale: those of the weights of 16 bits that are trained."""

    def run(self, scale: float) -> list[Entry]:
        """Return what was counted: outputs in the order of the forward pass, gradients in that of the
        backward pass."""
        ...


@dataclass(slots=True)
class Job:
    """`x`, `y` and `sample_weight` are tensors, or structures of them; `loss` None: what `compile` was given.
    `with_loss` False: only the forward pass can be looked at, for the reason in `why_not`. `values`: the
    variables with what they hold, where they do not hold it themselves; else None."""

    keras: Any
    model: Any
    taps: Taps
    draws: Draws
    x: Any
    y: Any
    sample_weight: Any
    loss: Callable[[Any, Any], Any] | None = None
    why_not: str | None = None
    values: list[tuple[Any, Any]] | None = None

    @property
    def with_loss(self) -> bool:
        return self.why_not is None

    def forward(self, x: Any) -> Any:
        """Return the model's outputs as its training step computes them."""
        self.taps.begin()
        self.draws.begin()
        model = self.model
        return model(x, training=True) if model._call_has_training_arg else model(x)

    def loss_of(self, x: Any, y: Any, outputs: Any, sample_weight: Any) -> Any:
        """Return the loss, before it is scaled."""
        if self.loss is None:
            given.check_labels(self.keras, getattr(self.model, "loss", None), self.y, outputs)
            return self.model._compute_loss(
                x=x, y=y, y_pred=outputs, sample_weight=sample_weight, training=True
            )
        loss = self.loss(y, outputs)
        for more in self.model.losses:
            loss = loss + more
        return self.keras.ops.mean(loss) if len(loss.shape) else loss

    def scope(self, mapping: Any = None) -> Any:
        """Return the scope in which no variable of Keras changes, and none that is new gets its value: within
        a function that is traced that would be none of its own."""
        mapping = self.values if mapping is None else mapping
        return self.keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False)

    def owners(self) -> dict[int, tuple[str, str]]:
        """Return the layer and the name of each trainable weight, by its id."""
        found: dict[int, tuple[str, str]] = {}
        for path, operation in self.taps.operations.items():
            for variable in getattr(operation, "_trainable_variables", ()):
                found.setdefault(id(variable), (path, str(variable.name)))
        for variable in self.model.trainable_variables:
            found.setdefault(id(variable), (str(self.model.name), str(variable.name)))
        return found


def require_loss(loss: Any) -> Any:
    """Return a loss that is one number. Raises UnableError where it is not."""
    if loss is None or len(loss.shape):
        raise UnableError(
            "the loss is not one number", where="numerics", next="Give `loss=`, a function of y and outputs"
        )
    return loss
