"""Start a child for each card and policy, wait no longer than is allowed, and keep what it compiled.

Compiled programs are kept beside the cache of parsed traces, by the content of all that decides them: the
program before optimisation, the card's description, the compiler's version. So nothing out of date is used.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpprof import child
from mpprof.errors import MpprofError, UnableError, UsageError
from mpprof.forecasts import targets
from mpprof.forecasts.judging import Compiled
from mpprof.forecasts.targets import Card
from mpprof.own_folder import own_folder
from mpprof.traces.cache.folder import usable_folder

TIME_LIMIT_S = 900.0
"""ResNet-50 takes half a minute on two cores; what needs longer than this is given it by the option."""

Progress = Callable[[str], None]


def compiled(
    model: str,
    card: Card,
    policy: str,
    batch_size: int,
    *,
    input_shapes: Sequence[Sequence[int]] | None = None,
    imports: Sequence[str] = (),
    time_limit_s: float = TIME_LIMIT_S,
    progress: Progress = lambda phase: None,
    python: str | None = None,
    trust: bool = False,
) -> Compiled:
    """Compile the train step of `model` (a .keras file, or module:function) for one card under one policy.

    `progress` is told each phase. Raises `UsageError` for what the one who asked can mend, `UnableError`
    where the compiler crashed, took too long, or ran out of memory.
    """
    request = {
        "model": model,
        "function": is_function(model),
        "policy": policy,
        "batch_size": batch_size,
        "input_shapes": [list(shape) for shape in input_shapes] if input_shapes else None,
        "imports": list(imports),
        "trust": trust,
        "parent": os.getpid(),
        "compute_capability": list(card.compute_capability),
        "target": targets.description(card),
        "cache": str(kept / "forecast") if (kept := usable_folder()) else None,
    }
    with own_folder("mpprof-forecast-") as folder:
        (folder / "request.json").write_text(json.dumps(request))
        _run(python, folder, time_limit_s, progress, f"{card.name}, {policy}")
        result = json.loads((folder / "result.json").read_text())
        programs = {name: (folder / f"{name}.hlo").read_bytes() for name in ("source", *result["programs"])}
    return Compiled({**result, "batch_size": batch_size}, programs)


def is_function(model: str) -> bool:
    """Return whether MODEL names a function, `package.module:function`, and not a file."""
    module, colon, function = model.partition(":")
    dotted = [part for text in (module, function) for part in text.split(".")]
    return bool(colon) and not Path(model).exists() and all(part.isidentifier() for part in dotted)


def _run(python: str | None, folder: Path, time_limit_s: float, progress: Progress, what: str) -> None:
    command = child.command(
        "-m", "mpprof.forecasts.child", str(folder / "request.json"), str(folder), python=python
    )
    errors = folder / "stderr.txt"
    with errors.open("wb") as stderr:
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, env=_environment(), start_new_session=True
        )
        timer = threading.Timer(time_limit_s, _kill, (started,))
        timer.start()
        try:
            phase = _followed(started, progress)
            code = started.wait()
        finally:
            over = not timer.is_alive()
            timer.cancel()
            if started.poll() is None:
                _kill(started)
                started.wait()
            if started.stdout is not None:
                started.stdout.close()
    if code != 0:
        raise _error(folder, code, phase, what, time_limit_s if over else None)


def _followed(started: subprocess.Popen[bytes], progress: Progress) -> str:
    """Pass on each phase; returns the last."""
    phase = "starting"
    assert started.stdout is not None
    for line in started.stdout:
        try:
            phase = str(json.loads(line)["phase"])
        except (ValueError, KeyError, TypeError):
            continue  # the model's own code may print
        progress(phase)
    return phase


def _kill(started: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _environment() -> dict[str, str]:
    """Return this process' own environment without XLA flags, and with the GPUs of this machine hidden."""
    kept = child.environment(CUDA_VISIBLE_DEVICES="")
    return {name: value for name, value in kept.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS")}


def _error(folder: Path, code: int, phase: str, what: str, over_s: float | None) -> MpprofError:
    stated = folder / "error.json"
    if stated.is_file():
        said: Mapping[str, Any] = json.loads(stated.read_text())
        if said.get("unable"):
            return UnableError(f"{what}: {said['what']}", next=str(said.get("next", "")))
        return UsageError(str(said["what"]), next=str(said.get("next", "")))
    if over_s is not None:
        return UnableError(
            f"{what}: not compiled within {over_s:.0f} s (it was {phase})",
            next="Allow more with --time-limit, or take a smaller batch or model",
        )
    last = _last_line(folder / "stderr.txt")
    if code == -signal.SIGKILL:
        reason = "the system ended the compiler, most often for want of memory"
        return UnableError(f"{what}: {reason} (it was {phase})", next="Free memory, or take a smaller batch")
    if code < 0:
        name = signal.Signals(-code).name
        return UnableError(
            f"{what}: XLA crashed with {name} (it was {phase}){f': {last}' if last else ''}",
            next="Try another card or policy; the model, the card and the versions make a report for XLA",
        )
    return UnableError(f"{what}: the compiler failed (it was {phase}): {last or f'exit code {code}'}")


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
