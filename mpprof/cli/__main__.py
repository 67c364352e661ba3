"""`python -m mpprof.cli`, and the command `mpprof`: the same."""

import os
import sys
import threading
from typing import NoReturn

from mpprof.cli import main


def run() -> NoReturn:
    """Run the process's own command line and end the process.

    Everything is written by then. Taking down a few hundred modules and the columns of a trace one object at
    a time would take as long as reading a small trace, so the process ends at once; where other threads run,
    the usual way.
    """
    code = main()
    if threading.active_count() > 1:
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
