"""`mpprof.forecast(model, cards)`: what mixed precision would bring on cards that are not here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from mpprof.errors import NotFoundError, UnableError, UsageError
from mpprof.forecasts import compiling, judging, targets
from mpprof.forecasts.compiling import TIME_LIMIT_S, Progress
from mpprof.forecasts.judging import Compiled
from mpprof.model.forecast import CardForecast, Forecast, NotCompiled
from mpprof.model.run import Run
from mpprof.runs.loading import Several

POLICIES = ("float32", "mixed_float16")
BATCH_SIZE = 32


@overload
def forecast(
    model: Several,
    cards: Sequence[str],
    *,
    policies: Sequence[str] = ...,
    batch_size: int = ...,
    input_shapes: Sequence[Sequence[int]] | None = ...,
    imports: Sequence[str] = ...,
    time_limit_s: float = ...,
    progress: Progress = ...,
) -> tuple[Forecast, ...]: ...
@overload
def forecast(
    model: Any,
    cards: Sequence[str],
    *,
    policies: Sequence[str] = ...,
    batch_size: int = ...,
    input_shapes: Sequence[Sequence[int]] | None = ...,
    imports: Sequence[str] = ...,
    time_limit_s: float = ...,
    progress: Progress = ...,
) -> Forecast: ...
def forecast(
    model: Any,
    cards: Sequence[str],
    *,
    policies: Sequence[str] = POLICIES,
    batch_size: int = BATCH_SIZE,
    input_shapes: Sequence[Sequence[int]] | None = None,
    imports: Sequence[str] = (),
    time_limit_s: float = TIME_LIMIT_S,
    progress: Progress = lambda phase: None,
) -> Forecast | tuple[Forecast, ...]:
    """Compile the train step of a model for cards that are not here, and say what follows.

    Args:
        model: a `.keras` file or `module:function` that returns a compiled model, a compiled Keras model, or
            a list of these. A run does not hold its model, so that none can be forecast from one.
        cards: by name: "h100", "a100", "v100 32GB".
        policies: Keras dtype policies; float32 is added in front, since the speedup is over it.
        batch_size: of a step.
        input_shapes: of each input without the batch, where the model does not state them.
        imports: modules with the classes that a saved model is made of.
        time_limit_s: for each card and policy.
        progress: is called with each phase.

    Returns a `Forecast`, of a list one for each; print it. A card and policy that XLA does not compile (it
    refuses the program, crashes, or takes too long) is among its `not_compiled`, and the others go on. Raises
    `UsageError`, `NotFoundError` (an unknown card, with the nearest names), and `UnableError` where none was
    compiled.
    """
    asked = list(model) if isinstance(model, list | tuple) else [model]
    found = tuple(
        forecast_one(
            each, cards, policies=policies, batch_size=batch_size, input_shapes=input_shapes, imports=imports,
            time_limit_s=time_limit_s, progress=progress,
        )
        for each in asked
    )  # fmt: skip
    return found if isinstance(model, list | tuple) else found[0]


def forecast_one(
    model: Any,
    cards: Sequence[str],
    *,
    policies: Sequence[str],
    batch_size: int,
    input_shapes: Sequence[Sequence[int]] | None,
    imports: Sequence[str],
    time_limit_s: float,
    progress: Progress,
) -> Forecast:
    """The forecast of one model: see `forecast`."""
    wanted = [targets.card(name) for name in dict.fromkeys(cards)]
    if not wanted:
        raise UsageError("no card was named", next='Name one or more: cards=["h100", "a100"]')
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} examples")
    if not time_limit_s > 0:
        raise UsageError(f"a time limit of {time_limit_s:g} s", next="Give --time-limit seconds above zero")
    named = tuple(dict.fromkeys(("float32", *policies)))
    with tempfile.TemporaryDirectory(prefix="mpprof-forecast-") as folder:
        path = _as_path(model, Path(folder))
        runs: list[CardForecast] = []
        versions: dict[str, str] = {}
        failed: list[NotCompiled] = []
        first: UnableError | None = None
        for card in wanted:
            float32: Compiled | None = None
            for policy in named:
                try:
                    done = compiling.compiled(
                        path, card, policy, batch_size,
                        input_shapes=input_shapes, imports=imports, time_limit_s=time_limit_s,
                        progress=_about(f"{card.name}, {policy}", progress),
                    )  # fmt: skip
                except UnableError as error:
                    first = first or error
                    reason = error.what.removeprefix(f"{card.name}, {policy}: ")
                    failed.append(NotCompiled(card.name, policy, reason))
                    continue
                float32 = done if policy == "float32" else float32
                facts = _model_facts(done)
                runs.append(judging.card_forecast(done, card, facts, float32))
                versions = dict(done.result["versions"])
    if first is not None and not runs:
        raise first
    return Forecast(_name(model), tuple(runs), versions, tuple(failed))


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
