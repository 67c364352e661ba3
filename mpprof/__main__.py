"""`python -m mpprof`, and the command `mpprof`: the same."""

import os
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the process's own command line. Ctrl-C ends it with one line, also while it is still imported."""
    try:
        from mpprof.cli.__main__ import run as run_command

        run_command()
    except KeyboardInterrupt:
        os.write(2, b"mpprof: interrupted\n")
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
