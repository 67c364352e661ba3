"""What one training has shown: its run, read back, with what its process has left in a file."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.analysis.comparison import learning
from mpprof.analysis.steps import statistics, validity
from mpprof.api import workflows
from mpprof.errors import MpprofError
from mpprof.model.run import Run
from mpprof.record.facts.ended import ended as how_ended
from mpprof.record.facts.ended import in_a_line
from mpprof.runs.loading import load_at
from mpprof.trial import remedies
from mpprof.trial.ladder import Turn
from mpprof.trial.rounds import Trained
from mpprof.trial.training import Ended

NO_TERMINAL = "EOFError: EOF when reading a line"
"""What `input()` raises; other readers raise EOFError, too."""
NO_FIT, BEFORE_A_FIT = "no fit of Keras was called", "before any fit"
_LAST_BYTES = 4000
_NOT_IN_TIME = "steady steps were not reached in time"


def trained(turn: Turn, ended: Ended, answer: Path, output: Path, steps: int) -> Trained:
    """Return a training that has ended; if nothing was measured, with the reason."""
    told = _told(answer)
    run = _run(told)
    facts = Trained(
        setting=turn.setting, rung=turn.rung, cycle=turn.cycle, round=turn.round,
        seconds=ended.seconds, root=told.get("root"), output=str(output),
        keras=told.get("keras") or "keras", asked=tuple(told.get("asked") or ()),
        overridden=tuple(told.get("overridden") or ()), left_out=tuple(told.get("left_out") or ()),
    )  # fmt: skip
    error, of_script = _error(ended, told, run, output, steps)
    if error is not None or run is None:
        return _with(facts, error=error or "its records cannot be read", script_failed=of_script)
    return of_run(facts, run, told)


def of_run(facts: Trained, run: Run, told: dict[str, Any]) -> Trained:
    """Return the training with what its run holds. `told`: what is not in the records."""
    summary = statistics.summarise(run.steps, run.facts, spans=run.spans, finished=run.finished)
    if summary is None or summary.mean_ns is None:
        return _with(facts, error="no steady step was recorded")
    fit, took = run.last_fit, told.get("took")
    devices = run.devices
    cards = [each for each in devices if each.kind == "gpu"]
    batch = told.get("batch") or (fit.batch_size if fit is not None else None)
    return _with(
        facts,
        step_ns=summary.mean_ns,
        batch=batch,
        examples_per_s=batch / summary.mean_ns * 1e9 if batch else None,
        peak_memory_bytes=summary.peak_memory_bytes,
        joules_per_example=_joules(told, batch),
        energy_absent=_why_no_joules(told, batch),
        skipped=summary.skipped,
        curve=tuple((each.updates, each.loss) for each in learning.curve_of(run)),
        finite=is_finite(run),
        took=None if took is None else (took[0], took[1]),
        is_cpu=bool(devices) and not cards,
        busy=bool(validity.of_the_machine(run)),
        capability=cards[0].compute_capability if cards else None,
        jit=told.get("jit", None if fit is None else fit.jit_compile is True),
    )


def advised(one: Trained) -> Trained:
    """Return a training with what its diagnosis advises; none, where it cannot be diagnosed."""
    if one.root is None or not one.counts:
        return one
    try:
        diagnosis = workflows.judge(workflows.analyse(load_at(Path(one.root))))
    except MpprofError:
        return one
    return _with(one, advice=remedies.advice(diagnosis))


def too_few(steady: int, steps: int, *, finite: bool | None) -> str:
    """Return what to say of a training that ended of itself, before its steps. `finite`: its last loss."""
    of_steps = f"after {steady} of {steps} steady steps"
    if finite is False:
        return f"its loss is not finite: it stopped {of_steps}"
    return f"it ended {of_steps}"


def lacked_time(one: Trained) -> bool:
    """Return whether a training was ended because the time was over: it says nothing of its setting."""
    return one.error is not None and one.error.endswith(_NOT_IN_TIME)


def in_short(error: BaseException) -> str:
    """Return why a training failed, in a line."""
    found = how_ended(error)
    return "out of memory" if found["reason"] == "out_of_memory" else in_a_line(error)


def _with(facts: Trained, **more: Any) -> Trained:
    from dataclasses import replace

    return replace(facts, **more)


def _told(answer: Path) -> dict[str, Any]:
    try:
        told = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _run(told: dict[str, Any]) -> Run | None:
    try:
        return load_at(Path(told["root"])) if told.get("root") else None
    except (MpprofError, OSError):
        return None


def _error(
    ended: Ended, told: dict[str, Any], run: Run | None, output: Path, steps: int
) -> tuple[str | None, bool]:
    """Return why nothing was measured, and whether that is of the script, under whatever setting."""
    reason, error = told.get("reason"), told.get("error")
    if ended.code is None and not told:
        return f"{steps} {_NOT_IN_TIME}", False
    # A loop of train_on_batch may have had its steps in less time than they are to last.
    if reason == "steps" or (reason == "script" and not told.get("fits") and told.get("steady", 0) >= steps):
        return None, False
    if reason == "unchanged":
        return told.get("unchanged"), False
    if ended.code is not None and ended.code < 0:
        return f"ended by {_signal(-ended.code)}", False
    if reason == "refused":
        return told.get("refused"), True
    stated = run.facts.ended if run is not None and run.facts is not None else None
    if stated is not None and stated.reason == "out_of_memory":
        return "out of memory", False
    if error is not None and error.startswith(NO_TERMINAL):
        return "it asks for input, and there is no terminal here", True
    trained = bool(told.get("fits") or told.get("root"))
    if error is not None:
        return error, not trained
    if ended.code and not trained:
        return (
            f"it ended with exit code {ended.code} {BEFORE_A_FIT}; its last line: {_last_line(output)}",
            True,
        )
    if not trained:
        return NO_FIT, True
    with_code = f", with exit code {ended.code}" if ended.code else ""
    return too_few(told.get("steady", 0), steps, finite=told.get("finite")) + with_code, True


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(output: Path) -> str:
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return "no output"
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no output")


def is_finite(run: Run) -> bool | None:
    """Return whether the last loss that is known is a number; None where none is."""
    if run.steps is None or not run.steps.loss_known.any():
        return None
    return bool(np.isfinite(run.steps.loss[run.steps.loss_known][-1]))


def _joules(told: dict[str, Any], batch: int | None) -> float | None:
    """Return the energy of the GPU for an example; None where it is not known."""
    if _why_no_joules(told, batch) is not None or batch is None:
        return None
    joules, steps = (float(told["energy"][key]) for key in ("joules", "steps"))
    return joules / (steps * batch)


def _why_no_joules(told: dict[str, Any], batch: int | None) -> str | None:
    energy = told.get("energy") or {}
    if "joules" in energy:
        return None if batch else "the batch is not known"
    return str(energy.get("absent", "it was not read"))
