"""`python -m mpprof`: the command `mpprof`."""

from mpprof.cli.__main__ import run

if __name__ == "__main__":
    run()
