"""Starting a Python process of our own: how it is called, where it looks for modules, when it ends.

A stranger's files may lie in the current directory, one of them with the name of a library: a process of ours
looks there last, and not at all where it need not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LOOKED_AT_EACH_S = 0.5
_ROOT = str(Path(__file__).resolve().parents[1])


def command(*arguments: str, python: str | None = None) -> list[str]:
    """Return the command of a Python that does not look for modules in the current directory."""
    return [python or sys.executable, "-P", *arguments]


def environment(places: Iterable[str] | None = None, **changes: str) -> dict[str, str]:
    """Return this process' environment with some changes. Modules are looked for in `places` or in what
    PYTHONPATH states, and beside mpprof; an empty place, which is the current directory, is left out."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep) if places is None else places
    path = os.pathsep.join([*filter(None, given), _ROOT])
    return {**os.environ, **changes, "PYTHONPATH": path}


def places() -> list[str]:
    """Return where Python looks for modules here, without the current directory."""
    # Python passes over what is no text, e.g. a Path that somebody has added.
    return [each for each in sys.path if isinstance(each, str) and not is_here(each)]


def is_here(place: str) -> bool:
    """Return whether this place to look for modules is the current directory."""
    return os.path.abspath(place) == os.getcwd()


def end_with_parent(parent: int) -> None:
    """End this process once the one with the ID `parent`, which has started it, has ended without a chance to
    end this one. Linux does so itself; elsewhere a thread looks."""
    told = False
    with contextlib.suppress(OSError, AttributeError, ImportError):
        import ctypes

        told = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    if not told and os.name == "posix":
        threading.Thread(target=_watch, args=(parent,), name="mpprof parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKED_AT_EACH_S)
    os._exit(1)
