"""What a launched script is to be run with, as the launcher hands it to the script's process."""

from __future__ import annotations

import json
from typing import NamedTuple


class Options(NamedTuple):
    """`logdir`: absolute. `script`: as a user names it. `steps`: end once so many steady steps are recorded.
    `profile`: the steps to profile, first and last. `policy`: a dtype policy in place of the script's own.
    `jit`: whether `compile` asks for XLA; None: as the script does. `quiet`: print no notes."""

    logdir: str
    script: str
    steps: int | None = None
    profile: tuple[int, int] | None = None
    policy: str | None = None
    jit: bool | None = None
    quiet: bool = False

    def text(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def of_text(cls, text: str) -> Options:
        given = json.loads(text)
        profile = given.pop("profile")
        return cls(**given, profile=None if profile is None else (profile[0], profile[1]))
