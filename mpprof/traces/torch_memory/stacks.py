"""What the stack of an allocation tells: the line of code, and what the memory is for.

The frames stand innermost first. The first that belongs to one of PyTorch's own functions named below decides
what the block is for; the line is that of the first frame in code of one's own, or in a
module's `forward`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from mpprof.model.frozen import frozen
from mpprof.model.limits import LONGEST_NAME

_OF_TORCH = re.compile(r"(?:^|[/\\])torch[/\\]")
_OF_OTHERS = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|torchinductor")
"""Installed packages, Python's own library, and code that PyTorch's compiler wrote."""
_NODE = re.compile(r"torch::autograd::generated::(\w+Backward\d*)")
_ENGINE = re.compile(r"torch::autograd::(?:python::Python)?Engine|^_engine_run_backward$")
_MODULE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]\w+\.py$")
_MODULES = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py$")
_OPTIMIZER = re.compile(r"torch[/\\](?:optim[/\\]|(?:cuda[/\\])?amp[/\\]grad_scaler\.py)")
_PARAMETERS = re.compile(r"torch[/\\]nn[/\\](?:init|parameter)\.py$")
_DATA = re.compile(r"torch[/\\]utils[/\\]data[/\\]")
CATEGORIES = {
    "parameter": ("", "persist"), "optimizer_state": ("optimizer", "persist"), "gradient": ("backward", ""),
    "activation": ("forward", ""), "input": ("input", ""),
}  # fmt: skip
"""PyTorch's own categories (torch.profiler's memory profiler), where a snapshot was made of a profile."""

_MOST_FRAMES = 1_000
"""Innermost frames of a stack that are looked at: as deep as Python's stacks are."""


@frozen
class Stack:
    """`line`: "model.py:37 forward", "" where no frame tells. `phase`: what of a step allocates there, as the
    type of its op ("code": code outside of a module, an optimizer and the backward pass). `region` is
    "persist" for parameters and what an optimizer sets up."""

    line: str
    phase: str
    region: str = ""


NOTHING = Stack("", "")


def stack(frames: object, category: object = None) -> Stack:
    """Return what the frames tell, or PyTorch's own category where the file states one; NOTHING without
    frames."""
    some = frames[:_MOST_FRAMES] if isinstance(frames, list) else []
    known = [_frame(one) for one in some if isinstance(one, dict)]
    phase, region = CATEGORIES.get(category, ("", "")) if isinstance(category, str) else _purpose(known)
    line = _line(known)
    if not (phase or region or line):
        return NOTHING
    return Stack(line or (f"{phase or 'torch'} (no line)"), phase or "code", region)


def _frame(one: dict[str, Any]) -> tuple[str, str, int]:
    file, name, line = one.get("filename"), one.get("name"), one.get("line")
    return (
        file[-LONGEST_NAME:] if isinstance(file, str) else "",
        name[:LONGEST_NAME] if isinstance(name, str) else "",
        line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
    )


def _purpose(frames: Iterable[tuple[str, str, int]]) -> tuple[str, str]:
    """Return phase and region by the innermost frame that tells."""
    told = (_purpose_of(file, name) for file, name, _ in frames)
    return next(filter(None, told), ("", ""))


@lru_cache(1 << 16)
def _purpose_of(file: str, name: str) -> tuple[str, str] | None:
    """Return phase and region, None where the frame does not tell. Few frames stand in many stacks."""
    if _OPTIMIZER.search(file):
        return "optimizer", "persist" if name == "_init_group" else ""
    if _PARAMETERS.search(file) or (_MODULE.search(file) and name in ("__init__", "_apply", "convert")):
        return "", "persist"
    if _MODULES.search(file) and name in ("_call_impl", "_wrapped_call_impl"):
        return "forward", ""
    if _ENGINE.search(name) or _NODE.search(name):
        return "backward", ""
    if _DATA.search(file):
        return "input", ""
    return None


def _line(frames: list[tuple[str, str, int]]) -> str:
    """Return the innermost line of Python that is in no installed package or is a module's `forward`, else
    outside of PyTorch, else of it; without any the node of the backward pass."""
    python = [one for one in frames if one[0].endswith(".py") or one[0].startswith("<")]
    outside = [one for one in python if not _OF_TORCH.search(one[0])]
    own = [one for one in outside if one[1] == "forward" or not _OF_OTHERS.search(one[0])]
    for file, name, line in (own or outside or python)[:1]:
        place = re.split(r"[/\\]", file)[-1][:200]
        return f"{place}:{line} {name[:200]}".replace("/", "|").rstrip()
    nodes = (found[1] for _, name, _ in frames if (found := _NODE.search(name)))
    return next(nodes, "")[:200]
