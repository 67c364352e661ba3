"""A training that ran out of memory: what its error states, what would have fitted, what to try first."""

from __future__ import annotations

from mpprof.analysis.memory import out_of_memory, training
from mpprof.errors import MpprofError
from mpprof.model.memory import Advice, OutOfMemory
from mpprof.model.run import Run


def failure(run: Run) -> tuple[OutOfMemory, tuple[Advice, ...]] | None:
    """Return what the run's out-of-memory error states, and what to try, the likeliest first; None where the
    run did not end by one, or its text is none that is known."""
    ended = run.facts.ended if run.facts else None
    if ended is None or ended.reason != "out_of_memory" or not ended.error:
        return None
    found = out_of_memory.read(ended.error)
    if found is None:
        return None
    fit = run.last_fit
    batch = fit.batch_size if fit else None
    policy = fit.policy.own if fit else None
    return found, (*out_of_memory.advise(found, batch, policy), *_what_fits(run, found, batch))


def _what_fits(run: Run, found: OutOfMemory, batch: int | None) -> tuple[Advice, ...]:
    """The largest batch by the recorded model, in its own policy and in 16 bits, in the memory it had."""
    facts, fit = run.facts, run.last_fit
    gpu = next((one for one in facts.devices if one.kind == "gpu"), None) if facts else None
    room = found.limit_bytes or (gpu.memory_bytes if gpu else None)
    if room is None or not batch or (facts and (facts.replicas or 1) > 1):
        return ()
    own = (fit.policy.own if fit else None) or "float32"
    policies = [own] if "16" in own else [own, "mixed_float16"]
    try:
        made = training.forecast(
            run, batch, policies=policies, card_bytes=room, capability=gpu.compute_capability if gpu else None
        )
    except MpprofError:
        return ()
    fits = [f"{one.largest_batch:,} in {one.policy}" for one in made.runs if one.largest_batch]
    if not fits:
        return ()
    return (Advice("estimate", f"examples that would fit, estimated from the model: {', '.join(fits)}"),)
