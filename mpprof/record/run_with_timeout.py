"""Work that may hang or take long: training waits for it a limited time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
"""Longer than a slow network file system takes to make a file, shorter than what one would call a hang."""

FAILURES = (Exception, SystemExit)
"""What counts as a failure of ours. An interrupt is not: it is meant for the training."""

_CHILD = """
import importlib, json, pathlib, sys
module, _, name = sys.argv[1].partition(":")
found = getattr(importlib.import_module(module), name)(pathlib.Path(sys.argv[2]))
print(json.dumps(found))
"""


def aside(work: Callable[..., T], *arguments: Any, deadline_s: float | None = None) -> T:
    """Return the result of `work(*arguments)`, run in a thread of our own, or raise its error.

    Raises `TimeoutError` after the deadline; the thread is then left behind, and its result is dropped."""
    limit = DEADLINE_SECONDS if deadline_s is None else deadline_s
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            errors.append(error)

    thread = threading.Thread(target=run, name="mpprof aside", daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {limit:g} s")
    return results[0]


def in_own_process(name: str, path: Path, *, deadline_s: float) -> Any:
    """Return what the function `name` ("module:function") makes of a path, in a process of its own that is
    killed at the deadline: so nothing of it goes on beside the training. Only what JSON knows comes back.

    Raises `SubprocessError` where it fails or takes longer, `OSError` where it cannot be started."""
    if getattr(sys, "frozen", False):
        raise OSError("the program is packed: sys.executable is not a Python interpreter")
    done = subprocess.run(
        [sys.executable, "-P", "-X", "utf8", "-c", _CHILD, name, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=deadline_s,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
