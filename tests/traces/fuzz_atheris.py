"""Coverage-guided fuzzing of the parts that are pure Python (atheris, which is not among our dependencies):

    python -m tests.traces.fuzz_atheris -max_total_time=60 [CORPUS]

What may come out of hostile bytes: columns, or UnreadableError. The two walks must agree.
"""

from __future__ import annotations

import sys

import atheris
import numpy as np

with atheris.instrument_imports():
    from mpprof.analysis import kernel_names, scopes
    from mpprof.traces import hlo, names, planes, walk, walk_reference

LONGEST = 1 << 14


def one_input(data: bytes) -> None:
    data = data[:LONGEST]
    buffer = np.frombuffer(data, np.uint8)
    start, end = np.zeros(1, np.int64), np.array([len(data)], np.int64)
    plain = walk_reference.scan(buffer, start, end, 0xFF)
    for one, other in zip(plain[:5], walk.scan(buffer, start, end, 0xFF)[:5], strict=True):
        assert np.array_equal(one, other)
    space = planes.read_space(buffer)
    hlo.Modules([plane for plane in space.planes if plane.name])
    for plane in space.planes:
        _ = plane.stats
    text = data.decode("utf-8", "replace")
    names.host_kind(text)
    names.copy_kind(text)
    names.bytes_of(text)
    scopes.parse(text)
    kernel_names.classify(text)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
