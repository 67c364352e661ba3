"""What an op's name says by itself: the scopes that it lies in, and the phase of the step that it belongs to.

TensorFlow writes paths (`StatefulPartitionedCall/gradient_tape/model_1/dense_1/MatMul/MatMul_1`), JAX writes
transformations round them (`jit(train_step)/transpose(jvp(encoder))/dense/dot_general`). Both become the same
thing: a tuple of scopes without the plumbing, and what the plumbing says of the phase.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mpprof.model.account import Phase
from mpprof.model.frozen import frozen

_CALL = r"(?s)(\w+)\((.*)\)"
_NUMBERED = re.compile(r"_\d+$")
_PLUMBING = frozenset(("StatefulPartitionedCall", "PartitionedCall"))
# `jit(f)` names a function that was compiled; the other transformations wrap the scope they were applied in.
_FUNCTION_CALLS = frozenset(("jit", "pjit", "xla_call", "core_call", "closed_call", "custom_jvp_call"))
_GRADIENT_SCOPES = frozenset(("gradient_tape", "gradients"))
LOSS_SCOPES = frozenset(("compile_loss",))
# Keras' optimizers by their default scope, compared without underscores and case: `Adam`, `schedule_free...`.
_OPTIMIZER_NAMES = """
    sgd adam adamw adamax nadam rmsprop adagrad adadelta adafactor ftrl lion lamb muon schedulefreeadamw
"""
_OPTIMIZERS = frozenset(_OPTIMIZER_NAMES.split())
_FINITE_CHECKS = frozenset(("isfinite", "is-finite", "all", "reduceand"))
_INPUT_TYPES = re.compile(r"Iterator|Optional|MakeIterator|\w*Dataset(V\d+)?$")
_EINSUM = re.compile(r"([A-Za-z.,]*)->([A-Za-z.]*)")
_STATED: dict[str, Phase] = {
    "input": "input", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
}  # fmt: skip
"""Types of ops by which a reader states the phase: a stack of calls shows it, and names no scope."""
_DEEPEST = 32  # transformations within one another; names in a file may be hostile
_TORCH_BACKWARD = re.compile(r"Backward\d*\b|autograd::")


@frozen
class Scope:
    """`path`: the scopes that the op lies in, outermost first, the op itself left out. `leaf`: the op.

    `phase` is what the name alone says; "other": nothing. `conditional`: the op lies under a condition.
    `wrapped`: the name has JAX's transformations, so its scopes carry no numbers of their own.
    """

    path: tuple[str, ...]
    leaf: str
    phase: Phase
    conditional: bool
    wrapped: bool


@lru_cache(maxsize=65536)
def parse(name: str, type: str = "") -> Scope:
    """Return the scopes of an op named `name`, of TensorFlow op type or HLO opcode `type` ("" unknown)."""
    parts: list[str] = []
    wrappers: set[str] = set()
    for part in _split(name):
        _unwrap(part, parts, wrappers)
    leaf = parts.pop() if parts else ""
    path, conditional, gradient, phase = _around(tuple(parts))
    if type in _STATED:
        phase = _STATED[type]
    elif gradient or "transpose" in wrappers or _TORCH_BACKWARD.search(name):
        phase = "backward"
    elif type.startswith(("ResourceApply", "ResourceSparseApply")) or name.startswith("Optimizer.step"):
        phase = "optimizer"
    elif name.startswith("LossScaleOptimizer "):  # a torch op in that frame, not in the inner optimizer's
        phase = "loss_scale"
    elif phase == "other":
        phase = "forward" if "jvp" in wrappers else _phase_of_op(type, leaf, alone=not path)
    conditional = conditional or leaf == "cond"
    return Scope(path, leaf, phase, conditional, bool(wrappers) or "jit(" in name)


@lru_cache(maxsize=65536)
def _around(parts: tuple[str, ...]) -> tuple[tuple[str, ...], bool, bool, Phase]:
    """Return the scopes around an op, which it shares with others: without the plumbing; whether a condition
    and whether a gradient is among them; the phase that they state."""
    path = tuple(part for part in parts if part not in _PLUMBING and not _is_einsum(part))
    bare = {_bare(part) for part in path}
    plain = {_plain(part) for part in bare}
    phase: Phase = "other"
    if any(scope.startswith("lossscale") for scope in plain):
        phase = "loss_scale"
    elif plain & _OPTIMIZERS:
        phase = "optimizer"
    elif not LOSS_SCOPES.isdisjoint(path):
        phase = "forward"
    inner = tuple(part for part in path if _bare(part) not in _GRADIENT_SCOPES)
    return inner, "cond" in bare, len(inner) < len(path), phase


def _is_einsum(scope: str) -> bool:
    """Return whether the scope is an equation, as `jnp.einsum` puts around its op: its result has its
    operands' labels."""
    found = _EINSUM.fullmatch(scope) if "->" in scope else None
    return found is not None and set(found[2]) <= set(found[1])


def _phase_of_op(type: str, leaf: str, *, alone: bool) -> Phase:
    if alone and (_plain(leaf) in _FINITE_CHECKS or type.lower() in _FINITE_CHECKS):
        return "loss_scale"
    if _INPUT_TYPES.match(type) or _INPUT_TYPES.match(leaf):
        return "input"
    return "other"


def _split(name: str) -> list[str]:
    """Return the parts of `name` between its slashes; slashes within parentheses do not divide it."""
    if "(" not in name:
        return [part for part in name.split("/") if part]
    parts, depth, start = [], 0, 0
    for at, char in enumerate(name):
        if char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        elif char == "/" and depth == 0:
            parts.append(name[start:at])
            start = at + 1
    parts.append(name[start:])
    return [part for part in parts if part]


def _unwrap(part: str, parts: list[str], wrappers: set[str], depth: int = 0) -> None:
    """Append the scopes within `transpose(jvp(a))`, and note the transformations."""
    if "(" not in part and "/" not in part:
        parts.append(part)
        return
    while depth < _DEEPEST and (match := re.fullmatch(_CALL, part)):
        wrapper, part = match[1], match[2]
        if wrapper in _FUNCTION_CALLS:
            return
        wrappers.add(wrapper)
        depth += 1
    if "/" in part and "(" in part and depth < _DEEPEST:
        for inner in _split(part):
            _unwrap(inner, parts, wrappers, depth + 1)
    else:
        parts.extend(piece for piece in part.split("/") if piece)


def _bare(scope: str) -> str:
    return _NUMBERED.sub("", scope) if scope[-1:].isdigit() else scope


def _plain(scope: str) -> str:
    return _bare(scope).replace("_", "").lower()
