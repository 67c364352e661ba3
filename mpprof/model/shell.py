"""Commands that are printed to be copied into a shell: how mpprof is called there, and paths."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "mpprof"


def program() -> str:
    """Return how a shell calls the mpprof of this process: `mpprof` where the shell finds this one by that
    name, else as it was called; `mpprof` in any other process."""
    called = Path(sys.argv[0] or NAME)
    if called.stem == NAME:
        found = shutil.which(NAME)
        return NAME if found and os.path.realpath(found) == os.path.realpath(called) else quoted(called)
    if called.name != "__main__.py" or NAME not in called.parts[-3:]:
        return NAME
    python = Path(sys.executable)
    found = shutil.which(python.name)
    return f"{python.name if found == sys.executable else quoted(python)} -m {NAME}"


def quoted(path: str | os.PathLike[str]) -> str:
    """Return a path or another word as a shell reads it, in one line: what cannot be printed by its bytes, as
    bash, zsh and ksh take it."""
    text = os.fspath(path)
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))
