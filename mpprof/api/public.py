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
    """Load a run; for a list of paths, return a tuple with a run for each.

    Args:
        path: a log directory, a trace file, or an https://, s3:// or gs:// address of one. A loaded run is
            returned as it is.
        run: which run to load where the path holds several: a name, an id, or "latest".
        step_range: ranges of the trace (NVTX, `record_function`, TraceMe) to take as its steps: an exact
            name, or a regular expression between slashes whose first group is the step's number. The step log
            is then left out.

    Traces are read when they are needed, not here. Raises `NotFoundError` where the path holds no run,
    `SeveralRunsError` where it holds several and `run` names none, `UnreadableError` for damaged records, and
    `UsageError` for a `step_range` that is not a regular expression.
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
    """Judge a run: where its step time goes, what ran on Tensor Cores, and what limits the speedup.

    Args:
        run: a path, a loaded run, or a list of either; for a list, return a tuple with one for each.
        baseline: the float32 run of the same model, as a path or a loaded run; None: no speedup is judged.
        strict: raise `UnreadableError` for a damaged trace. By default its whole part is judged, with a
            warning.

    Raises what `load` raises for a path. A run without a trace, or without records, is judged by what it has.
    """
    if isinstance(run, list | tuple):
        found = workflows.diagnose_each(run, baseline, strict=strict)
        return tuple(as_(Diagnosis, each) for each in found)
    return as_(Diagnosis, workflows.diagnose(run, baseline, strict=strict))


def compare(*runs: Given | Several, strict: bool = False) -> Comparison:
    """Compare two or more runs, in the order given: each with the first and with the one before.

    Args:
        runs: loaded runs, paths, or lists of either. A path stands for all runs under it, oldest first.
        strict: as for `diagnose`.

    Raises `UsageError` for fewer than two runs, and what `load` raises for a path.
    """
    return comparison_of(ladder.compare(*runs, strict=strict))


@overload
def forecast(model: Several, cards: Sequence[str], **options: Any) -> tuple[Forecast, ...]: ...
@overload
def forecast(model: Any, cards: Sequence[str], **options: Any) -> Forecast: ...
def forecast(model: Any, cards: Sequence[str], **options: Any) -> Forecast | tuple[Forecast, ...]:
    """Estimate what mixed precision brings a model on cards that are not at hand.

    Args:
        model: a `.keras` file, `module:function` that returns a compiled model, a compiled Keras model, or a
            list of these; for a list, return a tuple with a forecast for each.
        cards: by name: "h100", "a100", "v100 32GB".
        options: `policies`, `batch_size`, `largest_batch`, `input_shapes`, `imports`, `time_limit_s`,
            `progress` and `trust`, as for `mpprof.forecasts.forecasting.forecast`, which describes them.

    Needs mpprof[forecast]. Raises `UsageError`, `NotFoundError` for an unknown card (with the nearest names),
    and `UnableError` where XLA compiled none of the programs.
    """
    from mpprof.forecasts import forecasting

    if isinstance(model, list | tuple):
        return tuple(forecasting.forecast(each, cards, **options) for each in model)
    return forecasting.forecast(model, cards, **options)
