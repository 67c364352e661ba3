"""What a probe is asked, and the answers of one that knows nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mpprof.record.backends.compiles import Compiles, Told

# Several processes that train one model together.


@dataclass(frozen=True, slots=True)
class Worker:
    """Which of several processes this is, 0 the first; `cluster` is the same text in all of them."""

    index: int
    cluster: str


Facts = dict[str, Any]


def known(facts: Facts) -> Facts:
    """Return the facts without those that are None."""
    return {key: value for key, value in facts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Absent:
    """No answer, and why."""

    reason: str


class Reading(NamedTuple):  # made every few steps in a hook: a frozen dataclass costs ten times as much
    """The optimizer's counters at one moment, and with them the loss where its steps do not tell it. None: it
    has no such counter.

    `iterations` counts micro-steps (the inner optimizer's own `_iterations`); a skipped step does not
    advance it. `good_steps` counts finite steps since the loss scale last changed.
    `loss` is Keras' running mean over the epoch.
    """

    iterations: int | None = None
    loss_scale: float | None = None
    good_steps: int | None = None
    loss: float | None = None


class Snapshot(Protocol):
    """A reading that has been asked of the device and may not have arrived."""

    def ready(self) -> bool: ...

    def reading(self) -> Reading:
        """Return the values, and wait for them."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A reading that is there already."""

    value: Reading

    def ready(self) -> bool:
        return True

    def reading(self) -> Reading:
        return self.value


class Probe(Protocol):
    """The fixed questions. Every answer is a value, or `Absent` with the reason; a question may also
    raise, which its caller takes for a failure of that part.

    `asynchronous`: Keras' `fit` would wait in each step for a callback that has a batch end hook, so only
    begins are seen. `runs_behind`: the device then really runs behind the host. `timing_note`: what the times
    of this backend's `fit` mean, where it is not what they mean on every backend of its kind.
    `reading_waits`: the counters cannot be read, outside an epoch, before the device has finished all steps.
    """

    backend: str
    asynchronous: bool
    runs_behind: bool
    timing_note: str | None
    reading_waits: bool

    def framework(self) -> Facts:
        """Return run.json's `framework`, as far as this backend states it."""
        ...

    def settings(self) -> Facts:
        """Return `tf32_enabled`, `deterministic_ops`, `graph_rewrite`: values or Absent."""
        ...

    def devices(self) -> list[Facts]:
        """Return run.json's `devices`, the host's CPU last."""
        ...

    def distribution(self, model: Any) -> Facts:
        """Return `distribution` and `replicas`: values or Absent."""
        ...

    def worker(self, model: Any) -> Worker | None:
        """Return which one this is of several worker processes that train together; None: there is only this
        one."""
        ...

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        """Return a function that reads the optimizer's counters where its variables hold them: any time on a
        synchronous backend, outside an epoch on an asynchronous one. Ask for it anew when the optimizer has
        been built. `good_steps`: whether that counter is wanted, too, where reading it costs."""
        ...

    def snapshot(self, model: Any) -> Snapshot | None:
        """Return, within an epoch of an asynchronous backend, the counters after the step that was dispatched
        last, and the loss, asked for without a wait. None: there is nothing to ask yet."""
        ...

    def handed(self, optimizer: Any, variables: list[Any]) -> Reading | None:
        """Return the counters among `variables`, the optimizer's as a stateless loop holds them; None where
        they are not there."""
        ...

    def state(self, model: Any) -> int | None:
        """Return, where `fit` tells the begin of a call before it knows whether there is input for it, a
        number that changes with each call that runs. None elsewhere."""
        ...

    def wait(self, model: Any) -> None:
        """Return when the device has finished all steps that were dispatched."""
        ...

    def reset_memory_peak(self) -> str | None:
        """Reset the allocator's peak; the reason where that cannot be done."""
        ...

    def memory(self) -> list[Facts] | Absent:
        """Return {device, peak_bytes, live_bytes} of each accelerator, from the allocator."""
        ...

    def start_trace(self, folder: Path) -> None:
        """Start the framework's profiler, which will write below `folder`. Raises where it cannot."""
        ...

    def stop_trace(self) -> None: ...

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        """Return a step marker, to be entered when the call begins and left when the next one does."""
        ...

    def compiles(self, model: Any, told: Told) -> Compiles | Absent:
        """Begin to tell what is compiled from now on while the model trains, until the source is stopped."""
        ...


MARKER = "mpprof_step"
"""The name of our step markers in a trace; the step is in their `step_num`."""


ALONE = "nothing is distributed: there is one replica"


class Unanswered:
    """A probe without answers: for unknown backends and loops without a framework, and the base of the
    others."""

    asynchronous = False
    timing_note: str | None = None
    reading_waits = False

    def __init__(self, backend: str = "none") -> None:
        self.backend = backend
        self.runs_behind = self.asynchronous
        self._reason = f"no probe for the backend {backend}"

    def framework(self) -> Facts:
        return {}

    def settings(self) -> Facts:
        absent = Absent(self._reason)
        return {"tf32_enabled": absent, "deterministic_ops": absent, "graph_rewrite": absent}

    def devices(self) -> list[Facts]:
        return []

    def distribution(self, model: Any) -> Facts:
        return {"distribution": Absent(self._reason), "replicas": Absent(self._reason)}

    def worker(self, model: Any) -> Worker | None:
        return None

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        return Absent(self._reason)

    def snapshot(self, model: Any) -> Snapshot | None:
        return None

    def handed(self, optimizer: Any, variables: list[Any]) -> Reading | None:
        return None

    def state(self, model: Any) -> int | None:
        return None

    def wait(self, model: Any) -> None:
        return None

    def reset_memory_peak(self) -> str | None:
        return self._reason

    def memory(self) -> list[Facts] | Absent:
        return Absent(self._reason)

    def start_trace(self, folder: Path) -> None:
        raise RuntimeError(self._reason)

    def stop_trace(self) -> None:
        raise RuntimeError(self._reason)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def compiles(self, model: Any, told: Told) -> Compiles | Absent:
        return Absent(self._reason)


@dataclass(frozen=True, slots=True)
class Counters:
    """The variables of a Keras optimizer that are worth reading. None: it has no such variable (yet)."""

    iterations: Any
    loss_scale: Any
    good_steps: Any


def loss_of(model: Any) -> tuple[Any, Any] | None:
    """Return the variables (sum, count) of Keras' running mean of the loss over the epoch; None where Keras
    keeps none. A custom `train_step` need not change them: the count then stays 0."""
    tracker = getattr(model, "_loss_tracker", None)
    total, count = getattr(tracker, "total", None), getattr(tracker, "count", None)
    return None if total is None or count is None else (total, count)


def counters_of(optimizer: Any) -> Counters | Absent:
    """Find them. A LossScaleOptimizer has an `iterations` variable of its own that never moves, and
    `iterations` is divided by the accumulation steps: the inner optimizer's raw `_iterations` counts."""
    if optimizer is None:
        return Absent("the model was compiled without an optimizer")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    iterations = getattr(inner, "_iterations", None)
    if iterations is None:
        return Absent(f"{type(inner).__name__} has no counter of its steps")
    state = getattr(optimizer, "_loss_scale", None)  # Keras 2 keeps both in an object of their own
    return Counters(
        iterations,
        getattr(optimizer, "dynamic_scale", getattr(state, "current_loss_scale", None)),
        getattr(optimizer, "step_counter", getattr(state, "counter", None)),
    )
