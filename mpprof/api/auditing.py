"""`mpprof.audit(model)`: what will keep a model's work off the Tensor Cores, before it trains.

Composes the walk over the model (`record.facts`) with what judges it (`diagnosis.audit`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, overload

from mpprof.analysis.kernels import device_peaks
from mpprof.errors import MpprofError, NotFoundError, UnableError, UsageError
from mpprof.forecasts import compiling
from mpprof.forecasts.memory import forecasting, training
from mpprof.model.audit import AuditMemory, AuditNote, AuditReport, short
from mpprof.model.device import DeviceFacts
from mpprof.model.run import Run
from mpprof.report import words
from mpprof.runs import loading
from mpprof.runs.loading import Several


@overload
def audit(
    model: Several,
    *,
    batch_size: int | None = None,
    gpu: str | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    batch: Sequence[Any] | None = None,
) -> tuple[AuditReport, ...]: ...
@overload
def audit(
    model: Any,
    *,
    batch_size: int | None = None,
    gpu: str | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    batch: Sequence[Any] | None = None,
) -> AuditReport: ...
def audit(
    model: Any,
    *,
    batch_size: int | None = None,
    gpu: str | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    batch: Sequence[Any] | None = None,
) -> AuditReport | tuple[AuditReport, ...]:
    """Check a Keras model before it trains: layers left in float32, 16-bit outputs, sizes that are not
    multiples of 8, recurrent layers that miss cuDNN, layers that turn XLA off, missing loss scaling
    and more.

    Args:
        model: a Keras model (compiled, if optimizer and XLA are to be judged), the path of a saved one,
            "module:function" that returns one, a run or log directory whose records hold the model, or a list
            of these.
        batch_size: the global batch, in examples; None: it is not judged.
        gpu: the card to train on, by name ("A100") or compute capability ("8.0"); None: the one that the
            framework sees here, else only what holds for every card with Tensor Cores.
        imports: for a saved model: modules to import first, with the classes that it is made of.
        trust: for a saved model: load all of it, also the code that it holds (a SavedModel, a Lambda layer),
            without a bound on what it takes. Only for a file whose maker you trust.
        batch: a sample batch, `(x, y)`. Notes then also name what overflows or rounds to 0 in 16 bits on it
            (see `mpprof.numerics`). This loads a saved model with its weights: give `trust`, too.

    The `call` of a subclassed, built model is run once on symbolic inputs, to learn its layers' shapes.

    Returns an `AuditReport`, or for a list a tuple with one for each; print it to read it. Raises
    `UsageError` where `model` is not a Keras model, `NotFoundError` for an unknown card, `UnreadableError`
    for a file that Keras cannot load or that would run code, and `UnableError` for a run whose records hold
    no model, or a file that takes too much memory or time.
    """
    if isinstance(model, list | tuple):
        return tuple(
            audit(each, batch_size=batch_size, gpu=gpu, imports=imports, trust=trust, batch=batch)
            for each in cast("Sequence[Run]", model)
        )
    from mpprof.record.facts import described, saved_model, untrained

    batch_size = None if batch_size is None else training.checked_batch(batch_size)
    if isinstance(model, str) and compiling.is_function(model):
        model = forecasting.called(model)
    if isinstance(model, str | os.PathLike) and os.path.isdir(model) and _holds_runs(model):
        model = loading.load(model)
    if batch is not None and isinstance(model, Run):
        raise UsageError(
            "a batch was given, and no model that could compute it", next="Give the model itself"
        )
    if batch is not None and isinstance(model, str | os.PathLike):
        if not trust:
            raise UsageError(
                "a batch was given: to compute it, the model is loaded with its weights and the code in it",
                where=str(model), next="Give trust (--trust), if you trust whoever made the file",
            )  # fmt: skip
        with saved_model.loaded(Path(model), imports, trust=True) as whole:
            audited: AuditReport = audit(whole, batch_size=batch_size, gpu=gpu, batch=batch)
            return audited
    if isinstance(model, Run):
        return audit_run(_recorded(model), gpu)
    if isinstance(model, str | os.PathLike):
        run = described.describe(model, imports, batch_size, symbolic=True, trust=trust).run
    else:
        run = untrained.run_of(model, batch_size, symbolic=True)
    report = audit_run(run, gpu)
    at_batch = () if batch is None else _at_batch(model, batch)
    memory, no_memory = _memory(run, report, gpu)
    return replace(report, memory=memory, no_memory=no_memory, notes=(*at_batch, *report.notes))


def _at_batch(model: Any, batch: Sequence[Any]) -> tuple[AuditNote, ...]:
    """Return what breaks in 16 bits at a batch."""
    from mpprof.diagnosis.rules import ALL
    from mpprof.numbers.look import numerics

    found = numerics(model, *batch)
    breaks = {"first_forward": found.first_forward, "first_backward": found.first_backward}
    rules = {rule.CODE: rule for rule in ALL}
    small = (None, "underflow")
    return tuple(
        AuditNote(
            rule.CODE, rule.SLUG, rule.TITLE,
            "warning" if getattr(broken, "kind", None) in small else "error", advice.layer,
            advice.text if broken is None else broken.reason, advice.snippet,
            None if advice.layer else "the batch",
        )
        for advice in found.advice
        for broken in [breaks.get(advice.of)]
        if (rule := rules.get(advice.code)) is not None
    )  # fmt: skip


def _memory(run: Run, report: AuditReport, gpu: str | None) -> tuple[tuple[AuditMemory, ...], str | None]:
    """Return what the model is estimated to take in float32, in 16 bits and under its own policy; none where
    it cannot be estimated, and why."""
    if report.batch_size is None:
        return (), None
    card = _named(gpu) if gpu else _here(run)
    own = [report.policy] if report.policy in training.POLICIES_KNOWN else []
    try:
        found = training.forecast(
            run,
            report.batch_size,
            policies=("float32", report.mixed, *own),
            card_bytes=card.memory_bytes if card else None,
            capability=card.compute_capability if card else None,
        )
    except MpprofError as error:
        return (), error.what
    return tuple(
        AuditMemory(
            one.policy,
            one.peak_bytes,
            one.largest_batch,
            one.slots_bytes is None,
            bool(one.custom_layers),
            one.left_out,
        )
        for one in found.runs
    ), None


def _holds_runs(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory holds records: one without is a model that was saved as a directory."""
    from mpprof import store

    return bool(store.find_runs(Path(path)))


def _recorded(run: Run) -> Run:
    if run.facts is None or run.facts.model is None:
        why = (
            run.facts.absent.get("model", "not recorded") if run.facts else "no records lie beside the trace"
        )
        raise UnableError(f"its model is not known: {why}", where=run.name, next="Give the model itself")
    return run


def audit_run(run: Run, gpu: str | None = None) -> AuditReport:
    """Return the audit of a run's facts."""
    from mpprof.diagnosis import audit as judging

    card = _named(gpu) if gpu else _here(run)
    return judging.audit(run, card)


def announce(model: Any, batch_size: int | None) -> list[str]:
    """Return a few lines for the start of a training; none where there is nothing to say, or the model is
    float32 on purpose."""
    from mpprof.diagnosis.audit import ONLY_BEFORE
    from mpprof.record.facts import untrained

    report = audit_run(untrained.run_of(model, batch_size))
    asked = report.policy and (report.narrow or report.policy != "float32")
    lines = short(report, ONLY_BEFORE) if asked else []
    return [words.plain(line) for line in lines]


def _named(gpu: str) -> DeviceFacts:
    card = device_peaks.find(gpu)
    if card is None:
        raise NotFoundError(
            f"no card called {gpu!r} is known", next='Give one name ("A100") or one capability ("8.0")'
        )
    return card


def _here(run: Run) -> DeviceFacts | None:
    return next((d for d in run.devices if d.kind == "gpu"), None)
