"""`python -m mpprof.cli`, and the command `mpprof`: the same."""

import gc
import os
import sys
import threading
from importlib import import_module
from typing import NoReturn

from mpprof.cli import main

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_COLLECT_AFTER = 100_000
"""Objects made until Python looks for cycles among them. Importing makes its usual 700 a hundred times."""


def run() -> NoReturn:
    """Run the process's own command line and end the process.

    Everything is written by then. Taking down a few hundred modules and the columns of a trace one object at
    a time would take as long as reading a small trace, so the process ends at once; where other threads run,
    the usual way.
    """
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    code = main(before=_import_numpy)
    if threading.active_count() > 1:
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _import_numpy() -> None:
    """Import NumPy without the threads that its linear algebra would start, which nothing here uses. Programs
    that a command starts inherit nothing of it."""
    if _BLAS_THREADS in os.environ:
        return
    os.environ[_BLAS_THREADS] = "1"
    import_module("numpy")

    del os.environ[_BLAS_THREADS]


if __name__ == "__main__":
    run()
