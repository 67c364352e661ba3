"""Run as `python -m package.train`: a class of `__main__` is pickled, and made again by a worker that is spawned."""

import multiprocessing
import os
import pickle
import sys

from . import __doc__ as about


class Answer:
    def __init__(self, value):
        self.value = value


def answer(value):
    return Answer(value * 2)


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(answer, [1, 2])[1].value, pickle.loads(pickle.dumps(Answer(3))).value)
    print(about, __name__, __package__, __spec__.name, sys.argv, os.path.relpath(sys.path[0]))
    sys.exit(9)
