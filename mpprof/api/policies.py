"""`mpprof.compare_policies`: what mixed precision brings to a model, by training it briefly both ways."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.api import ladder, workflows
from mpprof.api.results import Comparison, comparison_of
from mpprof.errors import UnableError, UsageError
from mpprof.model.frozen import frozen
from mpprof.model.run import Run

POLICIES = ("float32", "mixed_float16")
FEWEST_STEPS = 20
"""Fewer than these would be nothing but warm-up and the profile window."""


DATA_FOR_ALL = (
    "Give data that can be iterated again (arrays, a tf.data.Dataset, a PyDataset), or enough "
    "data for all policies; and no callback or epochs= that ends a training early"
)
SHORT_EPOCH_RATIO = 0.5
"""Data may hold a few batches more or fewer each time. Of a generator that has nothing left, Keras goes on
with the first batches, which it keeps."""


@frozen
class PolicyComparison(Comparison):
    """The comparison of the runs under `path`, one directory per policy. Printing gives the report."""

    path: Path


def compare_policies(
    build_model: Callable[[], Any],
    data: Any,
    steps: int = 60,
    *,
    policies: Sequence[str] = POLICIES,
    logdir: str | Path | None = None,
    batch_size: int | None = None,
    **fit: Any,
) -> PolicyComparison:
    """Train a model for `steps` steps under each policy, with the callback, and compare the runs.

    Args:
        build_model: returns a new compiled model; called once per policy, with that policy set.
        data: what `fit` takes first: a data set, a generator function's result, or (x, y) or (x, y,
            sample_weight) arrays. It is iterated as often as needed; one that can be used only once must
            hold enough for all policies.
        steps: optimizer steps per policy, at least 20; with `steps_per_execution`, rounded up to whole calls.
        policies: two or more names of dtype policies, the baseline first.
        logdir: where the records go; None: a new temporary directory (see the result's `path`).
        batch_size, fit: further arguments of `fit`.

    The policy of the process is restored afterwards. The runs share this process: what the first one warms up
    (files, allocator) is warm for the others, which the steps kept for the comparison leave out.

    Raises `UsageError` for arguments of other kinds, for too few steps or policies, and for models of
    Keras 2, which has a policy of its own; `UnableError` where `compare` does, and where a training ends
    before its last step, as when the data run out.
    """
    import keras

    names = _checked(build_model, steps, policies)
    path = Path(logdir) if logdir is not None else Path(tempfile.mkdtemp(prefix="mpprof-"))
    roots = []
    before = keras.config.dtype_policy()
    try:
        for policy in names:
            keras.config.set_dtype_policy(policy)
            roots.append(_train(_built(build_model), data, steps, path / policy, batch_size, fit))
    finally:
        keras.config.set_dtype_policy(before)
    runs = [workflows.load_at(root) for root in roots]
    if (why := _ran_out(dict(zip(names, runs, strict=True)), steps)) is not None:
        raise UnableError(why, where=str(path), next=DATA_FOR_ALL)
    compared = comparison_of(ladder.compare(runs))
    return PolicyComparison(compared.runs, compared.rungs, path)


def _checked(build_model: Any, steps: Any, policies: Any) -> list[str]:
    """Return the policies' names."""
    import keras

    if isinstance(build_model, keras.Model) or not callable(build_model):
        raise UsageError(
            f"build_model is not a function, but a {type(build_model).__name__}",
            next="Give a function that builds and compiles the model: its layers take the policy when built",
        )
    if type(steps) is not int:
        raise UsageError(
            f"steps is {steps!r}, not a whole number", next=f"Give a number of at least {FEWEST_STEPS}"
        )
    if steps < FEWEST_STEPS:
        raise UsageError(f"{steps} steps are too few", next=f"Give a number of at least {FEWEST_STEPS}")
    given = [policies] if isinstance(policies, str) else list(policies)
    names = [str(getattr(policy, "name", policy)) for policy in given]
    for name in names:
        try:
            keras.DTypePolicy(name)
        except (TypeError, ValueError) as error:
            raise UsageError(f"no policy {name!r}", next='Give names such as "mixed_float16"') from error
    if len(set(names)) < max(2, len(names)):
        raise UsageError(
            f"one policy cannot be compared with itself: {', '.join(names)}",
            next='Give two that differ: ("float32", "mixed_float16")',
        )
    return names


def _ran_out(runs: dict[str, Run], steps: int) -> str | None:
    """Return why these runs, by policy, are not of the same data; None where they are."""
    longest = 0
    for policy, run in runs.items():
        if run.steps is None:
            continue
        ran = int(run.steps.covers.sum())
        if ran < steps:
            return (
                f"only {ran} of {steps} steps ran under {policy}: runs of different length are not compared"
            )
        _, epoch = np.unique(run.steps.epoch, return_inverse=True)
        epochs = np.bincount(epoch, run.steps.covers).astype(int)
        ended = epochs[: max(1, len(epochs) - 1)]  # the last one is broken off
        longest = max(longest, int(ended.max()))
        if ended.min() < SHORT_EPOCH_RATIO * longest:
            return (
                f"the data ran out under {policy}: {int(ended.min())} of {longest} steps an epoch were left"
            )
    return None


def _built(build_model: Callable[[], Any]) -> Any:
    import keras

    model = build_model()
    if isinstance(model, keras.Model):
        return model
    raise UsageError(
        f"build_model returned a {type(model).__module__.partition('.')[0]} {type(model).__name__}",
        next="Let it return a compiled model of Keras 3",
    )


def _train(
    model: Any,
    data: Any,
    steps: int,
    logdir: Path,
    batch_size: int | None,
    fit: dict[str, Any],
) -> Path:
    from mpprof.record import MPProfilerCallback
    from mpprof.record.callback import stop_after

    recorded = MPProfilerCallback(logdir, verbose=0, announce=None)
    given = fit.get("callbacks") or ()
    others = given if isinstance(given, list | tuple) else (given,)
    arguments = {
        "epochs": steps,
        "verbose": 0,
        **fit,
        "callbacks": [recorded, stop_after(steps, recorded), *others],
    }
    if batch_size is not None:
        arguments["batch_size"] = batch_size
    inputs = data if isinstance(data, tuple) else (data,)
    if not 1 <= len(inputs) <= 3:
        raise UsageError(
            f"data is a tuple of {len(inputs)} values", next="Give (x, y) or (x, y, sample_weight)"
        )
    try:
        model.fit(**dict(zip(("x", "y", "sample_weight"), inputs, strict=False)), **arguments)
    finally:
        recorded.close()  # an error in `fit` must leave no thread behind
    if recorded.root is None:
        raise UsageError("nothing could be recorded", where=str(logdir), next="Give another logdir")
    return recorded.root
