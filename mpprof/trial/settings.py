"""What a setting is, and which there are to try."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpprof.model.frozen import frozen

FLOAT32 = "float32"
_OWN = "the script's own policy"
_FIRST_WITH_BFLOAT16 = (8, 0)
"""The first compute capability whose Tensor Cores compute in bfloat16."""


@frozen
class Setting:
    """How a training differs from the script's own. None: as the script does. `batch`: times the script's own
    batch. `sets`: names and values of `--set`."""

    policy: str | None = None
    jit: bool | None = None
    batch: float = 1.0
    sets: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """As it is shown: "mixed_bfloat16 with XLA and batch x2"."""
        more = [
            *([] if self.jit is None else ["XLA" if self.jit else "no XLA"]),
            *([] if self.batch == 1 else [f"batch x{self.batch:g}"]),
            *(f"{name}={value}" for name, value in self.sets),
        ]
        policy = self.policy or _OWN
        return f"{policy} with {' and '.join(more)}" if more else policy

    @property
    def folder(self) -> str:
        """The name of its directory."""
        words = self.name.replace(_OWN, "own").replace(" with ", "+").replace(" and ", "+")
        return "".join(sign if sign.isalnum() or sign in "_+=.-" else "-" for sign in words)


@frozen
class Choices:
    """What the command line chooses from: of each kind the values to try, the first setting's own first.
    Empty: the script's own."""

    policies: tuple[str, ...] = ()
    jit: tuple[bool | None, ...] = ()
    batches: tuple[float, ...] = ()
    sets: tuple[tuple[str, str], ...] = ()


def first(choices: Choices) -> Setting:
    """Return the setting that all others are measured against."""
    return Setting(
        policy=choices.policies[0] if choices.policies else None,
        jit=choices.jit[0] if choices.jit else None,
        batch=choices.batches[0] if choices.batches else 1.0,
    )


Change = tuple[str, Any]
"""A field of `Setting` and its new value; of `sets` what is added."""


def changes(choices: Choices) -> tuple[Change, ...]:
    """Return the changes to try after the first setting, one for each rung."""
    return (
        *(("policy", value) for value in choices.policies[1:]),
        *(("jit", value) for value in choices.jit[1:]),
        *(("batch", value) for value in choices.batches[1:]),
        *(("sets", value) for value in choices.sets),
    )


def changed(setting: Setting, change: Change) -> Setting:
    """Return the setting with one change."""
    kind, value = change
    given: dict[str, Any] = {kind: (*setting.sets, value) if kind == "sets" else value}
    return replace(setting, **given)


def product(choices: Choices) -> tuple[Setting, ...]:
    """Return the settings of all combinations, the first setting first."""
    start = first(choices)
    sets = itertools.product(*(((), (each,)) for each in choices.sets))
    given = (choices.policies or (start.policy,), choices.jit or (None,), choices.batches or (1.0,))
    return tuple(
        Setting(policy, jit, batch, tuple(itertools.chain(*taken)))
        for taken, (policy, jit, batch) in itertools.product(sets, itertools.product(*given))
    )


def without_own(choices: Choices, jit: bool | None) -> Choices:
    """Return the choices without a change that changes nothing: XLA as the script has it. `jit`: whether the
    script trains with it; None: not known yet."""
    if choices.jit[:1] != (None,) or jit is None:
        return choices
    return replace(choices, jit=tuple(each for each in choices.jit if each is not jit))


def usual(asked: Sequence[str], capability: tuple[int, int] | None, *, is_cpu: bool) -> Choices:
    """Return the ladder that is climbed where nothing was chosen: float32; 16 bits, by the policy that the
    script asks for, else by the card; XLA; twice the batch."""
    own = [name for name in asked if "16" in name]
    early = capability is not None and capability < _FIRST_WITH_BFLOAT16
    policy = own[-1] if own else "mixed_float16" if early and not is_cpu else "mixed_bfloat16"
    return Choices((FLOAT32, policy), (None, True), (1.0, 2.0))


def differences(one: Setting, other: Setting) -> list[str]:
    """Return in words what the second setting changes."""
    said = []
    if one.policy != other.policy:
        said.append(f"policy {other.policy}")
    if one.jit != other.jit:
        said.append("with XLA" if other.jit else "without XLA")
    if one.batch != other.batch:
        said.append(f"batch x{other.batch:g}")
    return [*said, *(f"{name}={value}" for name, value in other.sets if (name, value) not in one.sets)]
