"""What a launched script is to be run with, as the launcher hands it to the script's process."""

from __future__ import annotations

import json
from typing import NamedTuple


class Trial(NamedTuple):
    """What `mpprof try` asks of a training beside `Options`.

    `parent`: the process that waits for it; it ends when that process ends. 0: it does not. `answer`: the
    file to leave what is to be known in. `seconds`: how long the steady steps last at least. `batch`: times
    the script's own batch. `sets`: names and values. `fit`: the number of the fit to measure, from 1; None:
    the first that has
    enough steps. `profiles`: whether a few of its steps are profiled. `policies`: all that are to be tried:
    where Keras has not one of them, nothing is trained."""

    parent: int
    answer: str
    seconds: float = 5.0
    batch: float = 1.0
    sets: tuple[tuple[str, str], ...] = ()
    keep_callbacks: bool = False
    fit: int | None = None
    profiles: bool = True
    policies: tuple[str, ...] = ()


class Options(NamedTuple):
    """`logdir`: absolute. `script`: as a user names it. `steps`: end once this many steady steps are
    recorded.
    `profile`: the steps to profile, first and last. `policy`: a dtype policy in place of the script's own.
    `jit`: whether `compile` asks for XLA; None: as the script does. `quiet`: print no notes. `trial`: it is
    one of several trainings of `mpprof try`. `numerics`: look at the numbers by layer."""

    logdir: str
    script: str
    steps: int | None = None
    profile: tuple[int, int] | None = None
    policy: str | None = None
    jit: bool | None = None
    quiet: bool = False
    trial: Trial | None = None
    numerics: bool = False

    def text(self) -> str:
        trial = None if self.trial is None else self.trial._asdict()
        return json.dumps({**self._asdict(), "trial": trial})

    @classmethod
    def of_text(cls, text: str) -> Options:
        given = json.loads(text)
        profile, trial = given.pop("profile"), given.pop("trial", None)
        if trial is not None:
            sets = tuple((name, value) for name, value in trial["sets"])
            trial = Trial(**{**trial, "sets": sets, "policies": tuple(trial["policies"])})
        return cls(**given, profile=None if profile is None else (profile[0], profile[1]), trial=trial)
