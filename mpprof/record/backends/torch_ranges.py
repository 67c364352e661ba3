"""Ranges that torch's profiler does not set by itself: round every layer, and round Keras' optimizer.

They are there while a window is open, and only round code that runs eagerly: what is compiled never sees
them, and must not be compiled again because of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules

from mpprof.record.run_with_timeout import failures_suppressed

LAYER = "nn.Module: "
"""As Kineto's tracer of Python frames names modules; it goes on with a class, ours with a layer's name."""
UPDATE = "Optimizer.step#{}.step"
"""As the optimizers of torch name their step."""


class Ranges:
    """Attached to every module of the process; to an optimizer when its model is first called."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._optimizers = OptimizerRanges()
        self._open = threading.local()  # of each thread: the modules it is in

    def attach(self) -> None:
        self._handles = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._optimizers.detach()

    def _enter(self, module: Any, inputs: Any) -> None:
        if torch.compiler.is_compiling():  # what is compiled while a window is open must not hold our ranges
            return
        stack: list[_Call] = self._stack()
        with failures_suppressed():  # no failure of ours may end the model's call
            call = _Call(module, stack[-1] if stack else None)
            if not stack:
                self._optimizers.attach(getattr(module, "optimizer", None))
            call.open()
            stack.append(call)

    def _leave(self, module: Any, inputs: Any, outputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        stack: list[_Call] = self._stack()
        if not any(call.module is module for call in stack):
            return  # it was entered before we were attached
        while stack:
            left = stack.pop()
            with failures_suppressed():  # as above
                left.close()
            if left.module is module:
                return

    def _stack(self) -> Any:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        return self._open.stack


class _Call:
    """One forward call of a module."""

    def __init__(self, module: Any, around: _Call | None) -> None:
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


def _name(module: Any, path: str, around: _Call | None) -> str:
    """Return the own name of a Keras layer; of a plain torch module its path below the module that it was
    called in."""
    own = getattr(module, "name", None)
    if isinstance(own, str) and hasattr(module, "dtype_policy"):
        return own
    return path.removeprefix(f"{around.path}.") if around is not None else path


class OptimizerRanges:
    """Round `apply` of Keras' optimizers; one that scales the loss and the one within it, side by side."""

    def __init__(self) -> None:
        self._attached: list[Any] = []
        self._open: list[Any] = []  # names, outermost first; the range of the last one is set
        self._range: Any = None

    def attach(self, optimizer: Any) -> None:
        """Attach the ranges to an optimizer; nothing happens if it is not Keras' or attached already."""
        if optimizer is None or optimizer in self._attached or not hasattr(optimizer, "_iterations"):
            return
        inner = getattr(optimizer, "inner_optimizer", None)
        scales = inner is not None
        self._wrap(optimizer, (LAYER + "{}" if scales else UPDATE).format(type(optimizer).__name__))
        if scales:
            self._wrap(inner, UPDATE.format(type(inner).__name__))

    def detach(self) -> None:
        attached, self._attached = self._attached, []
        for optimizer in attached:
            optimizer.__dict__.pop("apply", None)

    def _wrap(self, optimizer: Any, name: str) -> None:
        if "apply" in optimizer.__dict__:  # somebody else's, who would not expect to be called by way of us
            return
        optimizer.__dict__["apply"] = self._ranged(optimizer.apply, name)
        self._attached.append(optimizer)

    def _ranged(self, apply: Callable[..., Any], name: str) -> Callable[..., Any]:
        def ranged(*arguments: Any, **more: Any) -> Any:
            self._switch([*self._open, name])
            try:
                return apply(*arguments, **more)
            finally:
                self._switch(self._open[:-1])

        return ranged

    def _switch(self, names: list[Any]) -> None:
        """End the range that is set, and set that of the last of `names`."""
        self._open = names
        with failures_suppressed():  # as above
            before, self._range = self._range, None
            if before is not None:
                before.__exit__(None, None, None)
            if names:
                self._range = torch.profiler.record_function(names[-1])
                self._range.__enter__()
