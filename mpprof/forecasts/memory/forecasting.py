"""`mpprof.forecast_memory(model)`: what a training will take of a card's memory, before it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mpprof.analysis.kernels import device_peaks
from mpprof.errors import MpprofError, NotFoundError, UsageError
from mpprof.forecasts import compiling, targets
from mpprof.forecasts.memory import training
from mpprof.forecasts.memory.training import GIVE_A_MODEL, POLICIES
from mpprof.model.device import DeviceFacts
from mpprof.model.memory import MemoryForecast, PolicyMemory
from mpprof.model.run import Run


def forecast_memory(
    model: Any,
    *,
    batch_size: int | None = None,
    card: str | Sequence[str] | None = None,
    policies: str | Sequence[str] = POLICIES,
    imports: Sequence[str] = (),
    compile: bool = False,
    trust: bool = False,
) -> MemoryForecast:
    """Estimate the memory that a training will take, by kind, and the largest batch that fits.

    Args:
        model: a Keras model, a `.keras` file, `module:function` that returns a model, or a loaded run or log
            directory, whose recorded model is taken.
        batch_size: examples per step; None: the recorded one of a log directory, else 32.
        card: one or several cards by name ("a100", "v100 32GB"); None: no largest batch, and no rule that
            depends on the card.
        policies: one or several Keras dtype policies.
        imports: for a saved model: modules to import first, with the classes that it is made of.
        compile: also compile the step with XLA for the card (needs mpprof[forecast]); XLA's buffer
            assignment then takes the place of the estimate.
        trust: for a saved model: load all of it, also the code that it holds; see `audit`.

    Returns a `MemoryForecast` with a run for each card and policy. Raises `UsageError`, `NotFoundError` (an
    unknown card, a missing file), `UnreadableError`, and `UnableError` where the model does not state its
    layers' shapes.
    """
    names, given = _listed(card), _listed(policies)
    devices: list[DeviceFacts | None] = [card_facts(name) for name in names]
    run, counted = _run(model, imports, trust=trust)
    recorded = run.last_fit.batch_size if run.last_fit else None
    batch = batch_size if batch_size is not None else recorded or 32
    found = [_on_card(device, run, batch, given, counted) for device in devices or [None]]
    if compile:
        _check_compilable(model, names)
        found = [
            _assigned(one, model, name, imports, trust=trust) for one, name in zip(found, names, strict=True)
        ]
    return _together(found)


def _on_card(
    device: DeviceFacts | None,
    run: Run,
    batch: int,
    policies: Sequence[str],
    counted_slots: Callable[[], int | None],
) -> MemoryForecast:
    return training.forecast(
        run,
        batch,
        policies=policies,
        card=device.name if device else None,
        card_bytes=device.memory_bytes if device else None,
        capability=device.compute_capability if device else None,
        counted_slots=counted_slots,
    )


def _check_compilable(model: Any, cards: Sequence[str]) -> None:
    """Raise `UsageError` where there is no card to compile for, or no program to compile."""
    if not cards:
        raise UsageError("no card was named to compile for", next="Name one: --card a100")
    if isinstance(model, Run) or (isinstance(model, str | os.PathLike) and Path(model).is_dir()):
        raise UsageError(
            "a run's records hold no program", next="Give the model itself, a file or a function"
        )


def _listed(names: str | Sequence[str] | None) -> Sequence[str]:
    """Return each name once; for a text, the names between its commas."""
    given = names.split(",") if isinstance(names, str) else names or ()
    return list(dict.fromkeys(name.strip() for name in given))


def _together(found: Sequence[MemoryForecast]) -> MemoryForecast:
    """Return one forecast with the runs of all cards."""
    if len(found) == 1:
        return found[0]
    unknown = dict.fromkeys(text for one in found for text in one.unknown)
    runs = tuple(run for one in found for run in one.runs)
    return replace(found[0], card=None, card_bytes=None, runs=runs, unknown=tuple(unknown))


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


def _run(model: Any, imports: Sequence[str], *, trust: bool) -> tuple[Run, Callable[[], int | None]]:
    """Return the run, and what counts the bytes of its optimizer's slots; None is counted where there are
    only records of the model."""
    from mpprof.record.facts import described, slots, untrained

    if isinstance(model, Run):
        return model, lambda: None
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if isinstance(model, str) and compiling.is_function(model):
            model = called(model)
        elif path.is_dir() and not (path / "saved_model.pb").is_file():
            from mpprof.runs import loading

            return loading.load(path), lambda: None
        elif not path.exists():
            raise NotFoundError("no such file or directory", where=str(path), next=GIVE_A_MODEL)
        elif _is_trace(path):
            raise UsageError("is a trace, which holds no model", where=str(path), next=GIVE_A_MODEL)
        else:
            found = described.describe(path, imports, symbolic=True, trust=trust)
            return found.run, lambda: found.slots_bytes
    return untrained.run_of(model, symbolic=True), cache(lambda: slots.counted_slots_bytes(model))


def _is_trace(path: Path) -> bool:
    from mpprof import traces
    from mpprof.traces.common import file_head

    return path.is_file() and traces.reader_of(path.name, file_head.of(path)) is not None


def called(name: str) -> Any:
    """Return the result of the function that `module:function` names, importable from here. Raises
    `UsageError` where there is none, or it fails."""
    module, function = name.split(":", 1)
    if sys.path[:1] != [here := str(Path.cwd())]:
        sys.path.insert(0, here)  # as `python -m` would have it
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
    found: MemoryForecast, model: Any, card: str, imports: Sequence[str], *, trust: bool
) -> MemoryForecast:
    """Return the forecast with what XLA assigned, for the policies that were compiled."""
    from mpprof.forecasts.forecasting import forecast

    policies = [run.policy for run in found.runs]
    compiled = forecast(
        model, [card], policies=policies, batch_size=found.batch_size, imports=imports, trust=trust
    )
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
        f"{one.policy} on {found.card}: not compiled, so estimated ({one.reason})"
        for one in compiled.not_compiled
    )
    return replace(found, runs=tuple(runs), unknown=(*found.unknown, *failed))


def _largest(run: PolicyMemory, found: MemoryForecast, peak: int) -> int | None:
    """Return the largest batch, where what XLA assigned beyond parameters and slots is taken to grow with the
    batch."""
    fixed = run.parameters_bytes + (run.slots_bytes or 0)
    each = max(1, (peak - fixed) // found.batch_size)
    return training.largest_batch(found.card_bytes, fixed, each)
