"""The profile window on torch: its own profiler (Kineto), and the scopes that it does not record by itself.

Kineto writes every op with its shapes and types, every CUDA call and every kernel, but not which layer an op
belongs to: it knows modules only from a tracer of Python frames, which makes a step several times longer. So
ranges are set round each forward call (`torch_ranges`); an op of the backward pass belongs where the op does
that it is the gradient of. Compiled code runs without them: its layers stay unknown.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from mpprof.record.backends.torch_ranges import Ranges
from mpprof.record.run_with_timeout import with_timeout

OWN_STEP = "ProfilerStep#"
"""What torch's tools take for a step. In another tool's trace its own steps may have this name."""
FOREIGN_STEP = "mpprof_step#"
WRITING_SECONDS = 60.0


class TorchTrace:
    """One profiler session after the other."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._folder = Path()
        self._ranges = Ranges()

    def start(self, folder: Path) -> None:
        """Start the profiler. Raises RuntimeError where a profiler runs already: torch would end that one
        without a message."""
        if profiler_runs():
            raise RuntimeError("torch's profiler runs already: only step markers are set, in that trace")
        profiler = torch.profiler.profile(
            activities=_activities(),
            record_shapes=True,
            profile_memory=torch.cuda.is_available(),  # of the host's memory nothing is judged
        )
        self._folder = folder
        profiler.start()
        self._profiler = profiler
        self._ranges.attach()

    def stop(self) -> None:
        """Stop, and write `<folder>/plugins/profile/<time>/<host>.pt.trace.json.gz`."""
        self._ranges.detach()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            raise RuntimeError("mpprof's profiler is not running")
        profiler.stop()
        with_timeout(_write, profiler, self._folder, deadline_s=WRITING_SECONDS)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        if not profiler_runs():
            return contextlib.nullcontext()
        name = FOREIGN_STEP if self._profiler is None else OWN_STEP
        marker: contextlib.AbstractContextManager[Any] = torch.profiler.record_function(f"{name}{step}")
        return marker


def profiler_runs() -> bool:
    """Return whether any profiler of torch is on, whoever started it, in any thread."""
    from torch.autograd import profiler

    return bool(torch.autograd._profiler_enabled() or getattr(profiler, "_is_profiler_enabled", False))


def _activities() -> list[Any]:
    activity = torch.profiler.ProfilerActivity
    return [activity.CPU, *([activity.CUDA] if torch.cuda.is_available() else [])]


def _write(profiler: Any, folder: Path) -> None:
    session = folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    session.mkdir(parents=True)
    trace = session / f"{_file_name(platform.node())}.pt.trace.json"
    # torch would compress by way of the system's temporary directory, which may be smaller than this one.
    profiler.export_chrome_trace(str(trace))
    with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", compresslevel=3) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    trace.unlink()


def _file_name(host: str) -> str:
    return host.replace(os.sep, "_") or "host"
