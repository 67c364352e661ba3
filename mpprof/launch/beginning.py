"""What a script's process does first."""

from __future__ import annotations

from mpprof.launch.options import Options
from mpprof.launch.script import Script
from mpprof.launch.trial import TriedScript


def begin(text: str) -> None:
    """Begin, in the script's process, with what the launcher has left."""
    options = Options.of_text(text)
    (Script if options.trial is None else TriedScript)(options).begin()
