"""Imported by Python as it starts, before the script: takes itself off the path, and begins.

The script sees the environment and the path that it would have without mpprof. A `sitecustomize` of the
machine's own, whose place this one took, is imported, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _restore() -> str:
    """Restore the path and the environment. Returns what the launcher has left for `beginning.begin`."""
    with contextlib.suppress(ValueError):
        sys.path.remove(_HERE)
    before = os.environ.get("PYTHONPATH", "").partition(os.pathsep)[2]
    if os.environ.pop("MPPROF_HAD_PYTHONPATH", ""):
        os.environ["PYTHONPATH"] = before
    else:
        os.environ.pop("PYTHONPATH", None)
    return os.environ.pop("MPPROF_LAUNCH", "")


def _import_the_machines_own() -> None:
    """Import the `sitecustomize` that Python would have found, in the place of this one."""
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _import_mpprof() -> None:
    """Import this very mpprof, wherever it lies: the path of the script need not lead to it."""
    spec = spec_from_file_location(
        "mpprof", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
    )
    if spec is not None and spec.loader is not None:
        sys.modules["mpprof"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


_given = _restore()
_import_the_machines_own()
if _given:
    _import_mpprof()
    import_module("mpprof.launch.beginning").begin(_given)
