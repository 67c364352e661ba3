"""The functions behind `import mpprof`: each takes paths, loaded runs, or lists of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from mpprof.api import ladder, workflows
from mpprof.api.results import Comparison, Diagnosis, Run, as_, comparison_of, run_of
from mpprof.runs.loading import Given, Several

if TYPE_CHECKING:
    from mpprof.model.forecast import Forecast

__all__ = ["compare", "diagnose", "forecast", "load"]


@overload
def load(path: Given, *, run: str | None = None, step_range: str | None = None) -> Run: ...
@overload
def load(path: Several, *, run: str | None = None, step_range: str | None = None) -> tuple[Run, ...]: ...
def load(path: Any, *, run: str | None = None, step_range: str | None = None) -> Run | tuple[Run, ...]:
    """Load the run at a path: a log directory, a trace file, an address; of a list one run for each.

    Args:
        path: of the run; a loaded run is returned as it is.
        run: which one, where the path holds several: a name, an id, or "latest".
        step_range: ranges of the trace (NVTX, `record_function`, TraceMe) to take as its steps: an exact
            name, or a regular expression between slashes whose first group is the step's number. The step log
            is then left out.

    Traces are read when they are needed, not here. Raises `NotFoundError`, `UnreadableError`, `UsageError`,
    or `SeveralRunsError` where a choice is needed.
    """
    if isinstance(path, list | tuple):
        return tuple(load(each, run=run, step_range=step_range) for each in path)
    return run_of(workflows.load(path, run=run, step_range=step_range))


@overload
def diagnose(run: Given, baseline: Given | None = None, *, strict: bool = False) -> Diagnosis: ...
@overload
def diagnose(
    run: Several, baseline: Given | None = None, *, strict: bool = False
) -> tuple[Diagnosis, ...]: ...
def diagnose(run: Any, baseline: Any = None, *, strict: bool = False) -> Diagnosis | tuple[Diagnosis, ...]:
    """Judge a run, or the one at a path: where its step goes, what ran on Tensor Cores, what is in the way.

    Args:
        run: a path, a loaded run, or a list of either, of which each is judged.
        baseline: the float32 run of the same model, for the speedup; a path or a loaded run.
        strict: raise `UnreadableError` for a damaged trace; else what is whole is judged, with a warning.
    """
    found = workflows.diagnose(run, baseline, strict=strict)
    return (
        tuple(as_(Diagnosis, each) for each in found) if isinstance(found, tuple) else as_(Diagnosis, found)
    )


def compare(*runs: Given | Several, strict: bool = False) -> Comparison:
    """Compare two runs or a ladder, in the order given: each against the first and against the one before.

    Each argument is a loaded run, a path, which stands for all runs under it, or a list of either. Raises
    `UsageError` for fewer than two."""
    return comparison_of(ladder.compare(*runs, strict=strict))


@overload
def forecast(model: Several, cards: Sequence[str], **options: Any) -> tuple[Forecast, ...]: ...
@overload
def forecast(model: Any, cards: Sequence[str], **options: Any) -> Forecast: ...
def forecast(model: Any, cards: Sequence[str], **options: Any) -> Forecast | tuple[Forecast, ...]:
    """Say what mixed precision would bring a model on cards that are not here; of a list one for each.

    Arguments, options and errors are those of `mpprof.api.forecasting.forecast`: a `.keras` file,
    `module:function` or a compiled Keras model, and cards by name."""
    from mpprof.api import forecasting

    if isinstance(model, list | tuple):
        return tuple(forecasting.forecast(each, cards, **options) for each in model)
    return forecasting.forecast(model, cards, **options)
