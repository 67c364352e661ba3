"""`mpprof.forecast(model, cards)`: what mixed precision would bring on cards that are not here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from mpprof.errors import MpprofError, NotFoundError, UnableError, UsageError
from mpprof.forecasts import batches, compiling, judging, targets
from mpprof.forecasts.compiling import TIME_LIMIT_S, Progress
from mpprof.forecasts.judging import Compiled
from mpprof.forecasts.memory.training import checked_batch
from mpprof.forecasts.targets import Card
from mpprof.model.forecast import BatchBytes, CardForecast, Forecast, LargestBatch, NotCompiled
from mpprof.model.run import Run

POLICIES = ("float32", "mixed_float16")
BATCH_SIZE = 32


def forecast(
    model: Any,
    cards: Sequence[str],
    *,
    policies: Sequence[str] = POLICIES,
    batch_size: int = BATCH_SIZE,
    largest_batch: bool = False,
    input_shapes: Sequence[Sequence[int]] | None = None,
    imports: Sequence[str] = (),
    time_limit_s: float = TIME_LIMIT_S,
    progress: Progress = lambda phase: None,
    trust: bool = False,
) -> Forecast:
    """Compile the train step of a model for cards that are not here, and say what follows.

    Args:
        model: a `.keras` file or `module:function` that returns a compiled model, or a compiled
            Keras model. A run does not hold its model, so that none can be forecast from one.
        cards: by name: "h100", "a100", "v100 32GB".
        policies: Keras dtype policies; float32 is added in front, since the speedup is over it.
        batch_size: examples per step.
        largest_batch: also search the largest batch that each card holds: up to seven more compilations for
            each card and policy.
        input_shapes: the shape of each input without the batch, where the model does not state it.
        imports: modules to import first, with the classes that a saved model is made of.
        time_limit_s: seconds for each card and policy.
        progress: called with the name of each phase as it begins.
        trust: for a saved model: load all of it, also the code that it holds; see `audit`.

    Returns a `Forecast`; print it. A card and policy that XLA does not compile (it refuses the program,
    crashes, or takes too long) is among its `not_compiled`, and the others go on. So is a card
    that is not known or not described. Raises `UsageError` or `NotFoundError` (with the nearest names) where
    no card can be forecast, and `UnableError` where none was compiled.
    """
    wanted, refused = _cards(cards)
    batch_size = checked_batch(batch_size)
    if not time_limit_s > 0:
        raise UsageError(
            f"the time limit cannot be {time_limit_s:g} s", next="Give --time-limit seconds above zero"
        )
    given = [policies] if isinstance(policies, str) else policies
    named = tuple(dict.fromkeys(("float32", *given)))
    with tempfile.TemporaryDirectory(prefix="mpprof-forecast-") as folder:
        compile = partial(
            compiling.compiled, _as_path(model, Path(folder)),
            input_shapes=input_shapes, imports=imports, time_limit_s=time_limit_s,
            trust=trust or not isinstance(model, str | os.PathLike),
        )  # fmt: skip
        found = _forecast(_name(model), compile, wanted, named, batch_size, largest_batch, progress)
    return replace(found, not_compiled=(*refused, *found.not_compiled))


def _cards(names: Sequence[str]) -> tuple[list[Card], list[NotCompiled]]:
    """Return the cards of those names, each once, and those that cannot be forecast with the reason; a text
    names them between its commas. Raises the first error where none can."""
    given = names.split(",") if isinstance(names, str) else names
    if not given:
        raise UsageError("no card was named", next="Name one or more, such as h100 or a100")
    cards: list[Card] = []
    errors: list[tuple[str, MpprofError]] = []
    for name in dict.fromkeys(given):
        try:
            cards.append(targets.card(name))
        except MpprofError as error:
            errors.append((name, error))
    if errors and not cards:
        raise errors[0][1]
    return cards, [NotCompiled(name, "all policies", error.what) for name, error in errors]


def _forecast(
    name: str,
    compile: Callable[..., Compiled],
    cards: Sequence[Card],
    policies: Sequence[str],
    batch_size: int,
    largest_batch: bool,
    progress: Progress,
) -> Forecast:
    """Compile the step for each card and policy. Raises the first `UnableError` where none was compiled."""
    runs: list[CardForecast] = []
    failed: list[NotCompiled] = []
    errors: list[UnableError] = []
    versions: dict[str, str] = {}
    float32: Compiled | None = None
    for card, policy in product(cards, policies):
        about = f"{card.name}, {policy}"
        step = partial(compile, card, policy)
        float32 = float32 if policy != "float32" else None
        try:
            done = step(batch_size, progress=_about(about, progress))
        except UnableError as error:
            errors.append(error)
            failed.append(NotCompiled(card.name, policy, error.what.removeprefix(f"{about}: ")))
            continue
        float32 = done if policy == "float32" else float32
        made = judging.card_forecast(done, card, _model_facts(done), float32)
        if largest_batch and not done.result["recurrent_layers"]:  # cuDNN's need differs from the loop's
            made = replace(made, largest_batch=_largest(step, done, card, about, progress))
        runs.append(made)
        versions = dict(done.result["versions"])
    if errors and not runs:
        raise errors[0]
    return Forecast(name, tuple(runs), versions, tuple(failed))


def _largest(
    step: Callable[..., Compiled], done: Compiled, card: Card, about: str, progress: Progress
) -> LargestBatch:
    def needed(batch: int) -> BatchBytes:
        return judging.batch_bytes(step(batch, progress=_about(f"{about}, batch {batch}", progress)))

    return batches.largest_batch(needed, judging.batch_bytes(done), card.memory_bytes)


def _about(what: str, progress: Progress) -> Progress:
    return lambda phase: progress(f"{what}: {phase}")


def _model_facts(done: Compiled) -> Any:
    from mpprof.store.facts import facts_of

    return facts_of({"run_id": "forecast", "model": done.result["model"]}).model


def _as_path(model: Any, folder: Path) -> str:
    if isinstance(model, str) and compiling.is_function(model):
        return model
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if not path.exists():
            raise NotFoundError(
                "no such file",
                where=str(path),
                next="Give a .keras file, or module:function that builds the model",
            )
        return str(path.resolve())
    if isinstance(model, Run):
        raise UsageError(
            f"{model.name} is a run, whose records describe the model and do not hold it",
            next="Give the .keras file, or module:function that builds the model",
        )
    if not hasattr(model, "save"):
        raise UsageError(f"{type(model).__name__} is not a Keras model, a path or module:function")
    path = folder / "model.keras"
    model.save(path)
    return str(path)


def _name(model: Any) -> str:
    return str(model) if isinstance(model, str | os.PathLike) else str(getattr(model, "name", "model"))
