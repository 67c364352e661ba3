"""`mpprof.forecast_memory(model)`: what a training will take of a card's memory, before it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.memory import training
from mpprof.analysis.memory.training import POLICIES
from mpprof.errors import MpprofError, UsageError
from mpprof.forecasts import compiling, targets
from mpprof.model.device import DeviceFacts
from mpprof.model.memory import MemoryForecast, PolicyMemory
from mpprof.model.run import Run


def forecast_memory(
    model: Any,
    *,
    batch_size: int | None = None,
    card: str | None = None,
    policies: Sequence[str] = POLICIES,
    imports: Sequence[str] = (),
    compile: bool = False,
) -> MemoryForecast:
    """Say what parameters, gradients, optimizer slots and activations will take, and the largest batch.

    Args:
        model: a Keras model, a `.keras` file, `module:function` that returns a model, or a loaded run or log
            directory, whose recorded model is taken.
        batch_size: examples a step; None: the recorded one of a log directory, else 32.
        card: by name: "a100", "v100 32GB"; None: no largest batch, and no rule that depends on the card.
        policies: Keras dtype policies.
        imports: for a saved model: modules with the classes that it is made of.
        compile: compile the step with XLA for the card, too (needs mpprof[forecast]); where XLA's own buffer
            assignment is at hand it takes the place of the estimate.

    Returns a `MemoryForecast`. Raises `UsageError`, `NotFoundError` (an unknown card, a missing
    file), `UnreadableError`, and `UnableError` where the model does not state its layers' shapes.
    """
    from mpprof.record.facts import slots

    device = card_facts(card) if card is not None else None
    run, built = _run(model, imports)
    fit = run.last_fit
    batch = batch_size if batch_size is not None else (fit.batch_size if fit and fit.batch_size else 32)
    found = training.forecast(
        run,
        batch,
        policies=policies,
        card=device.name if device else None,
        card_bytes=device.memory_bytes if device else None,
        capability=device.compute_capability if device else None,
        counted_slots=lambda: slots.counted_slots_bytes(built),
    )
    if not compile:
        return found
    if card is None:
        raise UsageError("to compile for no card", next="Name one: --card a100")
    if isinstance(model, Run) or (isinstance(model, str | os.PathLike) and Path(model).is_dir()):
        raise UsageError(
            "a run's records hold no program", next="Give the model itself, a file or a function"
        )
    return _assigned(found, model, card, policies, imports)


def card_facts(name: str) -> DeviceFacts:
    """Return the card of that name. Raises `NotFoundError` with the nearest names."""
    try:
        return targets.card(name).facts
    except UsageError:  # a card that XLA's compiler here does not know: its memory may be known all the same
        found = device_peaks.find(name)
        product = device_peaks.by_name(name)
        if found is None or product is None:
            raise
        return replace(found, memory_bytes=min(product.memory_bytes, default=None))


def _run(model: Any, imports: Sequence[str]) -> tuple[Run, Any]:
    """The run, and the model that it describes; None where there are only records of it."""
    from mpprof.record.facts import saved_model, untrained

    if isinstance(model, Run):
        return model, None
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if isinstance(model, str) and compiling.is_function(model):
            model = _called(model)
        elif path.is_dir() and not (path / "saved_model.pb").is_file():
            from mpprof.runs import loading

            return loading.load(path), None
        else:
            model = saved_model.load_model(path, imports)
    return untrained.run_of(model, symbolic=True), model


def _called(name: str) -> Any:
    """What the function gives that `module:function` names, importable from here."""
    module, function = name.split(":", 1)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
        return found()
    except MpprofError:
        raise
    except Exception as error:  # the user's module may do anything
        raise UsageError(
            f"{name} gives no model: {type(error).__name__}: {error}",
            next="Give module:function, importable from this directory, that returns a Keras model",
        ) from error


def _assigned(
    found: MemoryForecast, model: Any, card: str, policies: Sequence[str], imports: Sequence[str]
) -> MemoryForecast:
    """The same with what XLA assigned, for the policies that it compiled."""
    from mpprof.api.forecasting import forecast

    compiled = forecast(model, [card], policies=policies, batch_size=found.batch_size, imports=imports)
    by_policy = {run.policy: run.memory for run in compiled.runs}
    runs = []
    for run in found.runs:
        memory = by_policy.get(run.policy)
        if memory is not None:
            temporaries = (int(memory.temporaries_bytes.low), int(memory.temporaries_bytes.high))
            peak = (int(memory.peak_bytes.low), int(memory.peak_bytes.high))
            run = replace(run, xla_temporaries_bytes=temporaries, xla_peak_bytes=peak, peak_bytes=peak[1],
                          largest_batch=_largest(run, found, peak[1]))  # fmt: skip
        runs.append(run)
    failed = tuple(
        f"{one.policy}: not compiled, so estimated ({one.reason})" for one in compiled.not_compiled
    )
    return replace(found, runs=tuple(runs), unknown=(*found.unknown, *failed))


def _largest(run: PolicyMemory, found: MemoryForecast, peak: int) -> int | None:
    """With what XLA assigned beyond parameters and slots taken to grow with the batch."""
    fixed = run.parameters_bytes + (run.slots_bytes or 0)
    each = max(1, (peak - fixed) // found.batch_size)
    return training.largest_batch(found.card_bytes, fixed, each)
