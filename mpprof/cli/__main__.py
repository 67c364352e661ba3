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

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 64 << 20  # glibc takes no more than half of it for the second


def run() -> NoReturn:
    """Run the process's own command line and end the process.

    Everything is written by then. Taking down a few hundred modules and the columns of a trace one object at
    a time would take as long as reading a small trace, so the process ends at once; where other threads run,
    the usual way.
    """
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    code = main(before=_prepare)
    if threading.active_count() > 1:
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _prepare() -> None:
    _import_numpy()
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Have glibc keep the memory of a column that is no longer needed for the next one.

    Otherwise it goes back to the system, which clears every page anew: half of the page faults of a large
    report. Other C libraries are left as they are."""
    if sys.platform != "linux":
        return
    import ctypes  # as NumPy does

    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        tune(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)


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
