"""The compiled walk and the plain one, on the planes of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpprof.traces.common import walk, walk_reference
from mpprof.traces.common.planes import read_space, slots

INTS = ("correlation_id", "group_id", "step_num", "_p", "_c")
TEXTS = ("tf_op", "annotation", "name", "memcpy_details", "kernel_details", "hlo_op")


def _same(ours: tuple, theirs: tuple) -> None:  # type: ignore[type-arg]
    for name, left, right in zip(ours._fields, ours, theirs, strict=True):  # type: ignore[attr-defined]
        left, right = np.asarray(left), np.asarray(right)
        assert (left.shape, left.dtype) == (right.shape, right.dtype), name
        assert np.array_equal(left, right), name


def walked_alike(buffer: np.ndarray) -> int:
    """Walk every plane that can be found in both ways; return the number of events compared."""
    start, end = np.array([0], np.int64), np.array([len(buffer)], np.int64)
    _same(walk.scan(buffer, start, end, 2**64 - 1), walk_reference.scan(buffer, start, end, 2**64 - 1))
    assert walk.fields(buffer, 0, len(buffer)) == walk_reference.fields(buffer, 0, len(buffer))
    compared = 0
    for plane in read_space(buffer).planes:
        keys, rows, columns, ints, texts = slots(plane, INTS, TEXTS)
        arguments = (
            buffer,
            np.array([line.start for line in plane.lines], np.int64),
            np.array([line.end for line in plane.lines], np.int64),
            *plane.metadata_lookup(),
            keys,
            rows,
            columns,
            len(ints),
            len(texts),
            np.ones(len(plane.metadata_ids), np.uint8),
        )
        ours = walk.events(*arguments)
        _same(ours, walk_reference.events(*arguments))
        compared += len(ours.metadata)
    return compared


def agree(path: Path) -> bool:
    """Both walks give the same columns. The bytes lie in memory of their very size, so that a tool that
    watches memory sees a read of one byte too many."""
    data = path.read_bytes()
    buffer = np.empty(len(data), np.uint8)
    buffer[:] = np.frombuffer(data, np.uint8)
    walked_alike(buffer)
    return False
