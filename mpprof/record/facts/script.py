"""Which script trains here."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from types import ModuleType


def script_of(main: ModuleType | None = None) -> str | None:
    """Return the script of this process as a command names it: "src/train.py", "-m package.train"; of one
    that is not below the working directory its name alone. None where there is none of the user's: in a
    notebook, an interactive session, or a program that was installed.

    `main`: the module that Python runs; None: this process' own."""
    main = sys.modules.get("__main__") if main is None else main
    path: str | None = getattr(main, "__file__", None)
    spec: ModuleSpec | None = getattr(main, "__spec__", None)
    if not path or not path.endswith(".py") or _is_installed(path):
        return None
    if spec is not None and spec.name != "__main__":
        return f"-m {spec.name.removesuffix('.__main__')}"
    if spec is not None:  # a directory, of which Python runs `__main__.py`
        path = os.path.dirname(path)
    try:
        below = os.path.relpath(path)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        below = os.pardir
    return os.path.basename(path.rstrip(os.sep)) if below.startswith((os.pardir, "-")) else below


def _is_installed(path: str) -> bool:
    path = os.path.realpath(path)
    folders = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    return any(path.startswith(os.path.realpath(each) + os.sep) for each in folders)
