"""The profile window on torch: its own profiler (Kineto), and the scopes that it does not record by itself.

Kineto writes every op with its shapes and types, every CUDA call and every kernel, but not which layer an op
belongs to: it knows modules only from a tracer of Python frames, which makes a step several times longer. So
while a window is open, hooks on all modules put a range round each forward call; an op of the backward pass
belongs where the op does that it is the gradient of. Compiled code runs without the hooks: its layers stay
unknown.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import platform
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as modules

from mpprof.record.aside import aside

OWN_STEP = "ProfilerStep#"
"""What torch's tools take for a step. In somebody else's trace their own steps may be called so."""
FOREIGN_STEP = "mpprof_step#"
LAYER = "nn.Module: "
"""As Kineto's tracer of Python frames names modules; it goes on with a class, ours with a layer's name."""
WRITING_SECONDS = 60.0


class TorchTrace:
    """One profiler session after the other."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._folder = Path()
        self._layers = LayerRanges()

    def start(self, folder: Path) -> None:
        """Raises RuntimeError where a profiler runs already: torch would end that one without a word."""
        if profiler_runs():
            raise RuntimeError("torch's profiler runs already: only step markers are set, in that trace")
        profiler = torch.profiler.profile(activities=_activities(), record_shapes=True)
        self._folder = folder
        profiler.start()
        self._profiler = profiler
        self._layers.attach()

    def stop(self) -> None:
        """Stop, and write `<folder>/plugins/profile/<time>/<host>.pt.trace.json.gz`."""
        self._layers.detach()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            raise RuntimeError("no profiler of ours runs")
        profiler.stop()
        aside(_write, profiler, self._folder, deadline_s=WRITING_SECONDS)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        if not profiler_runs():
            return contextlib.nullcontext()
        name = FOREIGN_STEP if self._profiler is None else OWN_STEP
        marker: contextlib.AbstractContextManager[Any] = torch.profiler.record_function(f"{name}{step}")
        return marker


def profiler_runs() -> bool:
    """Whether any profiler of torch's is on, anybody's, in any thread."""
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


class LayerRanges:
    """Puts a range named after its layer round the forward call of every module, while it is attached."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._open = threading.local()  # of each thread: the modules it is in, and their ranges

    def attach(self) -> None:
        self._handles = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _enter(self, module: Any, inputs: Any) -> None:
        if torch.compiler.is_compiling():  # what is compiled while a window is open must not hold our ranges
            return
        stack: list[_Range] = self._stack()
        with contextlib.suppress(Exception):  # no failure of ours may end the model's call
            entered = _Range(module, stack[-1] if stack else None)
            entered.open()
            stack.append(entered)

    def _leave(self, module: Any, inputs: Any, outputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        stack: list[_Range] = self._stack()
        if not any(entered.module is module for entered in stack):
            return  # it was entered before we were attached
        while stack:
            left = stack.pop()
            with contextlib.suppress(Exception):  # as above
                left.close()
            if left.module is module:
                return

    def _stack(self) -> Any:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        return self._open.stack


class _Range:
    """One module's forward call."""

    def __init__(self, module: Any, around: _Range | None) -> None:
        self.module = module
        # The outermost module knows the names of all those within it.
        self.names: dict[int, str] = dict(_names(module)) if around is None else around.names
        self.path = self.names.get(id(module), type(module).__name__)
        self._range = torch.profiler.record_function(LAYER + _name(module, self.path, around))

    def open(self) -> None:
        self._range.__enter__()

    def close(self) -> None:
        self._range.__exit__(None, None, None)


def _names(root: Any) -> Iterator[tuple[int, str]]:
    return ((id(module), path or type(root).__name__) for path, module in root.named_modules())


def _name(module: Any, path: str, around: _Range | None) -> str:
    """A Keras layer's own name; of a plain torch module its path below the module that it was called in."""
    own = getattr(module, "name", None)
    if isinstance(own, str) and hasattr(module, "dtype_policy"):
        return own
    return path.removeprefix(f"{around.path}.") if around is not None else path
