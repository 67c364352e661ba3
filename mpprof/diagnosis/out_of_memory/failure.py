"""A training that ran out of memory: what its error states, what would have fitted, what to try first."""

from __future__ import annotations

from dataclasses import replace

from mpprof.analysis.memory import out_of_memory
from mpprof.diagnosis.out_of_memory.advice import advise
from mpprof.diagnosis.signals import Case, Signals
from mpprof.errors import MpprofError
from mpprof.forecasts.memory import training
from mpprof.model.device import DeviceFacts
from mpprof.model.memory import MemoryForecast, OutOfMemory
from mpprof.model.run import Run


def failure(run: Run) -> OutOfMemory | None:
    """Return what the run's out-of-memory error states, and what to try; None where the run did not end by
    one, or its text is not known."""
    facts = run.facts
    if facts is None or facts.ended is None or facts.ended.reason != "out_of_memory" or not facts.ended.error:
        return None
    found = out_of_memory.read(facts.ended.error)
    if found is None:
        return None
    fit = run.last_fit
    batch, policy = (fit.batch_size, fit.policy.own) if fit else (None, None)
    gpu = next((one for one in facts.devices if one.kind == "gpu"), None)
    room = found.limit_bytes or (gpu.memory_bytes if gpu else None)
    forecast = _forecast(run, room, gpu, batch, policy)
    halved = Signals(Case(run)).remedies("mixed precision")
    advice = advise(found, batch, policy, memory_bytes=room, forecast=forecast, halved=halved)
    return replace(found, card_bytes=gpu.memory_bytes if gpu else None, advice=advice)


def _forecast(
    run: Run, room: int | None, gpu: DeviceFacts | None, batch: int | None, policy: str | None
) -> MemoryForecast | None:
    """Return what the recorded model takes in the memory that it had, in its own policy and in 16 bits; None
    where that is not known."""
    if room is None or not batch or (run.facts and (run.facts.replicas or 1) > 1):
        return None
    own = policy or "float32"
    try:
        return training.forecast(
            run, batch, policies=[own] if "16" in own else [own, "mixed_float16"], card_bytes=room,
            capability=gpu.compute_capability if gpu else None,
        )  # fmt: skip
    except MpprofError:
        return None
