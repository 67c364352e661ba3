"""`mpprof.audit(model)`: what will keep a model's work off the Tensor Cores, before it trains.

Composes the wing that touches the world (the walk over the model) with the one that judges.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.memory import training
from mpprof.errors import MpprofError, NotFoundError
from mpprof.model.audit import AuditMemory, AuditReport, short
from mpprof.model.device import DeviceFacts
from mpprof.model.run import Run


def audit(
    model: Any, *, batch_size: int | None = None, gpu: str | None = None, imports: Sequence[str] = ()
) -> AuditReport:
    """Look a Keras model over: layers left in float32, 16-bit outputs, sizes that are not multiples of 8,
    recurrent layers that miss cuDNN, layers that turn XLA off, missing loss scaling, and more.

    Args:
        model: a Keras model, compiled if optimizer and XLA shall be judged, or the path of a saved one.
        batch_size: global; None: not judged.
        gpu: the card it will train on, by name ("A100") or compute capability ("8.0"); None: the one that
            the framework sees here, or what holds for any.
        imports: for a saved model: modules to import first, which define classes that it is made of.

    Returns an `AuditReport`; print it. Raises `UsageError` where `model` is not a Keras model,
    `NotFoundError` for an unknown card and `UnreadableError` for a file that Keras cannot load.
    """
    from mpprof.record.facts import saved_model, untrained

    if isinstance(model, str | os.PathLike):
        model = saved_model.load_model(model, imports)
    run = untrained.run_of(model, batch_size)
    report = audit_run(run, gpu)
    return replace(report, memory=_memory(run, report, gpu))


def _memory(run: Run, report: AuditReport, gpu: str | None) -> tuple[AuditMemory, ...]:
    """What the model is estimated to take in float32 and in 16 bits; empty where that cannot be told."""
    if report.batch_size is None:
        return ()
    card = _named(gpu) if gpu else _here(run)
    try:
        found = training.forecast(
            run,
            report.batch_size,
            policies=("float32", report.mixed),
            card_bytes=card.memory_bytes if card else None,
            capability=card.compute_capability if card else None,
        )
    except MpprofError:
        return ()
    return tuple(AuditMemory(one.policy, one.peak_bytes, one.largest_batch) for one in found.runs)


def audit_run(run: Run, gpu: str | None = None) -> AuditReport:
    """The same of a run's facts."""
    from mpprof.diagnosis import audit as judging

    card = _named(gpu) if gpu else _here(run)
    return judging.audit(_without_cpu(run), card)


def announce(model: Any, batch_size: int | None) -> list[str]:
    """A few lines for the start of a training; none where there is nothing to say, or the model is float32
    on purpose."""
    from mpprof.record.facts import untrained

    report = audit_run(untrained.run_of(model, batch_size))
    return short(report) if report.policy and report.policy != "float32" else []


def _named(gpu: str) -> DeviceFacts:
    card = device_peaks.find(gpu)
    if card is None:
        raise NotFoundError(
            f"no card called {gpu!r} is known", next='Give a name ("A100") or a capability ("8.0")'
        )
    return card


def _here(run: Run) -> DeviceFacts | None:
    return next((d for d in (run.facts.devices if run.facts else ()) if d.kind == "gpu"), None)


def _without_cpu(run: Run) -> Run:
    """A model is audited for a GPU, also on a machine without one."""
    if run.facts is None:
        return run
    return replace(run, facts=replace(run.facts, devices=()))
