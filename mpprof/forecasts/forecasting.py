"""`mpprof.forecast(model, cards)`: what mixed precision would bring on cards that are not here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from mpprof.errors import MpprofError, NotFoundError, UnableError, UsageError
from mpprof.forecasts import compiling, judging, targets
from mpprof.forecasts.compiling import TIME_LIMIT_S, Progress
from mpprof.forecasts.judging import Compiled
from mpprof.forecasts.memory.training import checked_batch
from mpprof.forecasts.targets import Card
from mpprof.model.forecast import Band, BatchBytes, CardForecast, Forecast, LargestBatch, NotCompiled
from mpprof.model.run import Run

# The largest batch that a card holds, found by compiling again.
#
# What a step needs is fixed bytes and bytes for each example, until XLA nears the card's memory: then it
# computes activations anew rather than keep them, and needs less than a line through smaller batches says. So
# each end of the band is a batch that was compiled.

SHARE = 0.9
"""Of the card's memory, for a batch that is said to fit: cuDNN's workspaces and the CUDA context come on
top."""
CLOSE = 1 / 16
MOST_COMPILED = 8
_AIM = 0.02
"""How far on its side of the limit a guess aims, so that a line that is a little off still meets it."""
_MOST_AHEAD = 4  # times the largest batch compiled: a line through two small ones says little about more

Compile = Callable[[int], BatchBytes]


def largest_batch(compile: Compile, first: BatchBytes, memory_bytes: int) -> LargestBatch:
    """Search for the largest batch, starting at one compiled batch. `compile` compiles the step at a batch,
    and raises `UnableError` where it cannot: the band is then what was found before, with that reason."""
    known = {first.batch_size: first}
    reason = ""
    try:
        for guess in (_half_way, _fitting, _too_large):
            while len(known) < MOST_COMPILED and (batch := guess(known, memory_bytes)) is not None:
                known[batch] = compile(batch)
    except UnableError as error:
        reason = error.what
    fits, too_large = _ends(known, SHARE * memory_bytes, _most)[0], _ends(known, memory_bytes, _least)[1]
    compiled = tuple(known[batch] for batch in sorted(known))
    line = _line(compiled)
    return LargestBatch(
        fits=fits,
        too_large=too_large,
        recomputes=None if fits is None else known[fits].recomputed,
        compiled=compiled,
        fixed_bytes=line[0],
        example_bytes=line[1],
        reason=reason,
    )


def _most(need: BatchBytes) -> float:
    return need.bytes.high


def _least(need: BatchBytes) -> float:
    return need.bytes.low


_Known = Mapping[int, BatchBytes]
_Pick = Callable[[BatchBytes], float]


def _half_way(known: _Known, memory_bytes: int) -> int | None:
    """Return a second point for the line. The part of the bytes that is in proportion to the batch is never
    more than all of them, so that this point needs at most half of the memory."""
    if len(known) > 1:
        return None
    (first,) = known.values()
    wanted = int(first.batch_size * 0.5 * memory_bytes / first.bytes.high)
    if first.batch_size / 2 < wanted < 2 * first.batch_size:
        wanted = 2 * first.batch_size if first.bytes.high < 0.5 * memory_bytes else first.batch_size // 2
    chosen = _even(min(wanted, 64 * first.batch_size))
    return chosen if chosen >= 1 and chosen != first.batch_size else None


def _fitting(known: _Known, memory_bytes: int) -> int | None:
    """Return the next batch to compile in search of the largest that fits; None: it is found."""
    limit = SHARE * memory_bytes
    fits, over = _ends(known, limit, _most)
    if fits is not None and _most(known[fits]) >= (1 - CLOSE) * limit:
        return None
    return _between(known, _most, (1 - _AIM) * limit, fits, over)


def _too_large(known: _Known, memory_bytes: int) -> int | None:
    fits, over = _ends(known, memory_bytes, _least)
    if over is not None and _least(known[over]) <= (1 + CLOSE) * memory_bytes:
        return None
    return _between(known, _least, (1 + _AIM) * memory_bytes, fits, over)


def _ends(known: _Known, limit: float, pick: _Pick) -> tuple[int | None, int | None]:
    """Return the largest batch within the limit, and the smallest batch above it that is over the limit."""
    within = max((batch for batch in known if pick(known[batch]) <= limit), default=None)
    return within, min((batch for batch in known if batch > (within or 0)), default=None)


def _between(known: _Known, pick: _Pick, wanted: float, fits: int | None, over: int | None) -> int | None:
    """Return the batch that needs `wanted` bytes by the line through the two nearest points, between the
    largest that fits and the smallest that does not; None where no other lies between."""
    low = (fits or 0) + 1
    high = over - 1 if over is not None else _MOST_AHEAD * max(known)
    if low > high or (fits is not None and over is not None and over - fits <= CLOSE * fits):
        return None
    near = sorted(known, key=lambda batch: abs(pick(known[batch]) - wanted))[:2]
    one, other = (known[batch] for batch in near) if len(near) > 1 else (next(iter(known.values())),) * 2
    each = (pick(one) - pick(other)) / (one.batch_size - other.batch_size) if len(near) > 1 else 0.0
    if each <= 0:
        guess = (low + high) // 2 if over is not None else 2 * max(known)
    else:
        guess = int(one.batch_size + (wanted - pick(one)) / each)
    step = max(1, (high - low) // 8) if over is not None else max(1, low // 8)
    # Where what is needed does not grow as the line says, each turn still narrows the search.
    least = low if fits is None else low + step
    most = high if over is None else high - step
    return min(max(_even(min(max(guess, least), most)), low), high)


def _even(batch: int) -> int:
    """Return a multiple of 8, which suits matrix units, where that is no large change."""
    return batch // 8 * 8 if batch >= 64 else batch


def _line(compiled: Sequence[BatchBytes]) -> tuple[Band, Band] | tuple[None, None]:
    """Return the fixed bytes, and the bytes for each example."""
    plain = [one for one in compiled if not one.recomputed][:2]
    if len(plain) < 2:
        return None, None
    first, second = plain
    apart = second.batch_size - first.batch_size
    each = [(pick(second) - pick(first)) / apart for pick in (_least, _most)]
    fixed = [pick(first) - one * first.batch_size for pick, one in zip((_least, _most), each, strict=True)]
    return Band(min(fixed), max(fixed)), Band(min(each), max(each))


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

    return largest_batch(needed, judging.batch_bytes(done), card.memory_bytes)


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
