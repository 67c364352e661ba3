"""`mpprof.compare_policies`: what mixed precision brings to a model, by training it briefly both ways."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpprof import workflows
from mpprof.errors import UsageError
from mpprof.model.finding import Comparison

POLICIES = ("float32", "mixed_float16")
FEWEST_STEPS = 20
"""Fewer than these would be nothing but warm-up and the profile window."""


@dataclass(frozen=True, slots=True, repr=False)
class PolicyComparison(Comparison):
    """The comparison of the runs under `path`, one directory per policy. Printing gives the report."""

    path: Path

    def __repr__(self) -> str:
        from mpprof.report import json as documents
        from mpprof.report import text

        return text.render_comparison(documents.compare_document(self))

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>"


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
        build_model: builds and compiles it; called once per policy, with that policy set.
        data: what `fit` takes first: a data set, a generator function's result, or (x, y) arrays. It is gone
            through as often as needed; one that can be used only once must hold enough for all policies.
        steps: per policy, at least 20.
        logdir: where the records go; None: a new temporary directory (see the result's `path`).
        batch_size, fit: further arguments of `fit`.

    The process' policy is set back afterwards. The runs share this process: what the first one warms up
    (files, allocator) is warm for the others, which the steps kept for the comparison leave out.

    Raises `UsageError` for fewer steps or policies than can be compared, and `UnableError` as `compare` does.
    """
    import keras

    if steps < FEWEST_STEPS:
        raise UsageError(f"{steps} steps are too few", next=f"Give at least {FEWEST_STEPS}")
    if len(policies) < 2:
        raise UsageError("one policy cannot be compared", next='Give two: ("float32", "mixed_float16")')
    path = Path(logdir) if logdir is not None else Path(tempfile.mkdtemp(prefix="mpprof-"))
    roots = []
    before = keras.config.dtype_policy()
    try:
        for policy in policies:
            keras.config.set_dtype_policy(policy)
            roots.append(_train(build_model(), data, steps, path / policy, batch_size, fit))
    finally:
        keras.config.set_dtype_policy(before)
    compared = workflows.compare([workflows.load(root) for root in roots])
    return PolicyComparison(compared.runs, compared.rungs, path)


def _train(
    model: Any, data: Any, steps: int, logdir: Path, batch_size: int | None, fit: dict[str, Any]
) -> Path:
    from mpprof.record import MPProfilerCallback
    from mpprof.record.callback import stop_after

    recorded = MPProfilerCallback(logdir, verbose=0, announce=None)
    callbacks = [recorded, stop_after(steps), *fit.get("callbacks", ())]
    arguments = {"epochs": steps, "verbose": 0, **fit, "callbacks": callbacks}
    if batch_size is not None:
        arguments["batch_size"] = batch_size
    inputs = data if isinstance(data, tuple) else (data,)
    model.fit(*inputs, **arguments)
    if recorded.root is None:
        raise UsageError("nothing could be recorded", where=str(logdir), next="Give another logdir")
    return recorded.root
