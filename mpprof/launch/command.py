"""How the interpreter of a launched script is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mpprof.launch.options import Options

SITE = Path(__file__).absolute().parent / "site"
_NOT_HANDED_ON = frozenset({"-I", "-E", "-s", "-P", "-S"})
"""Options of our own interpreter that are not the script's: they would keep `site/` from it."""


def arguments(words: Sequence[str]) -> list[str]:
    """Return the command line of Python for `words`: a script, or `-m` and a module, with its arguments.
    Options of this interpreter, such as `-O` and `-W`, are handed on."""
    own: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    unbuffered = ["-u"] if getattr(sys.stdout, "write_through", False) else []
    return [sys.executable, *(flag for flag in own if flag not in _NOT_HANDED_ON), *unbuffered, *words]


def environment(options: Options) -> dict[str, str]:
    """Return this process' environment, with what `site/sitecustomize.py` needs and takes out again."""
    given = {**os.environ, "MPPROF_LAUNCH": options.text()}
    before = os.environ.get("PYTHONPATH")
    given["PYTHONPATH"] = str(SITE) if before is None else f"{SITE}{os.pathsep}{before}"
    return given if before is None else {**given, "MPPROF_HAD_PYTHONPATH": "1"}


def become(words: Sequence[str], options: Options) -> NoReturn:
    """Run the script in the place of this process: signals, the terminal and the exit code are its own."""
    command, given = arguments(words), environment(options)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(command[0], command, given)
    sys.exit(subprocess.call(command, env=given))
