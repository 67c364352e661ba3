"""Copies between host and device, one by one: how large, and between which kinds of memory."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from mpprof.model.frozen import frozen
from mpprof.model.trace import CopyKind, Trace, WorkKind

Memory = Literal["pageable", "pinned"]
_MEMORY = r"(?i)\b(pageable|pinned)\b|kind_(?:src|dst):(pageable|pinned)"
_BETWEEN = (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST)


@frozen
class Largest:
    """One copy: its bytes, how long it took, and the host's kind of memory (None: not stated)."""

    bytes: int
    duration_ns: int
    memory: Memory | None
    down: bool  # from the device to the host


def largest(trace: Trace, plane: str) -> Largest | None:
    """Return the copy between host and device that moves most bytes on the device of that plane; None where
    none states its bytes."""
    kernels = trace.kernels
    device = next((at for at, each in enumerate(trace.devices) if each.plane == plane), -1)
    own = (kernels.device == device) & (kernels.kind == WorkKind.MEMCPY) & np.isin(kernels.copy, _BETWEEN)
    rows = np.flatnonzero(own & (kernels.bytes > 0))
    if not len(rows):
        return None
    row = int(rows[np.argmax(kernels.bytes[rows])])
    down = int(kernels.copy[row]) == CopyKind.DEVICE_TO_HOST
    return Largest(int(kernels.bytes[row]), int(kernels.duration_ns[row]), memory_of(trace, row), down)


def memory_of(trace: Trace, row: int) -> Memory | None:
    """Return the kind of the host's memory that the collector states for a copy: in its name or details."""
    kernels = trace.kernels
    for text in (kernels.name[row], kernels.details[row]):
        found = re.search(_MEMORY, trace.strings[text]) if text >= 0 else None
        if found:
            return "pinned" if (found[1] or found[2]).lower() == "pinned" else "pageable"
    return None


def pinned_ratio(trace: Trace) -> float | None:
    """Return how much of the bytes from host to device came from pinned memory; None where less than all of
    them state it."""
    kernels = trace.kernels
    rows = np.flatnonzero((kernels.copy == CopyKind.HOST_TO_DEVICE) & (kernels.bytes > 0))
    texts = np.stack([kernels.name[rows], kernels.details[rows]])
    _, first, kind = np.unique(texts, axis=1, return_index=True, return_inverse=True)
    memory = [memory_of(trace, int(row)) for row in rows[first]]
    if not memory or None in memory:
        return None
    sums = np.bincount(kind.ravel(), weights=kernels.bytes[rows], minlength=len(memory))
    return float(sum(size for size, of in zip(sums, memory, strict=True) if of == "pinned") / sums.sum())
