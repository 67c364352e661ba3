"""Trainings whose step times are known, for ladders without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpprof.trial import trying
from mpprof.trial.ladder import Turn
from mpprof.trial.result import Tried
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Choices, Setting

FLOAT32 = Setting("float32")
BFLOAT16 = Setting("mixed_bfloat16")
FLOAT16 = Setting("mixed_float16")
TWO = Choices(("float32", "mixed_bfloat16"))

SECONDS = 10.0

StepMs = Callable[[Setting, int], float]
"""The step of a setting in a training, which are counted from 0."""


class Known:
    """Trains by a table. `facts`: what else a setting's trainings show."""

    def __init__(
        self, step_ms: StepMs, facts: Callable[[Setting], dict[str, Any]] = lambda setting: {}
    ) -> None:
        self.turns: list[Turn] = []
        self.now_s = 0.0
        self._step_ms, self._facts = step_ms, facts

    def __call__(self, turn: Turn, within_s: float) -> Trained:
        step_ns = self._step_ms(turn.setting, len(self.turns)) * 1e6
        self.turns.append(turn)
        self.now_s += SECONDS
        batch = round(32 * turn.setting.batch)
        one = Trained(
            turn.setting, turn.rung, turn.cycle, turn.round, seconds=SECONDS, root=f"/runs/{len(self.turns)}",
            step_ns=step_ns, batch=batch, examples_per_s=batch / step_ns * 1e9, capability=(9, 0), jit=False,
            curve=((30.0, 1.0), (60.0, 0.5)), skipped=0,
        )  # fmt: skip
        return replace(one, **self._facts(turn.setting))

    @property
    def names(self) -> list[str]:
        return [turn.setting.name for turn in self.turns]


def climbed(train: Known, choices: Choices | None = TWO, done: Sequence[Trained] = (), **more: Any) -> Tried:
    """The ladder of these trainings, each of which takes `SECONDS`."""
    asked = trying.Asked(("train.py",), "train.py", Path("/logs"), choices, **more)
    return trying.climb(asked, train, lambda text: None, done, clock=lambda: train.now_s)
