"""The trace of `big_trace` in any size, written as a stream: one step's bytes with the numbers that change patched in.

Those numbers are varints padded to a fixed width, which every protobuf parser reads. Run as a script to write one:
`python -m tools.benchmarks.huge_trace FILE BYTES`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tests.builders.xspace import Plane, Space, tagged_varint, varint
from tools.benchmarks.big_trace import KERNEL_NS, KERNELS_PER_STEP, LAUNCH_NS, _kernel

Bytes = NDArray[np.uint8]
OFFSET_BYTES, CORRELATION_BYTES = 9, 5  # varints for 2**63 ps and 2**35 kernels
CYCLE_NS = KERNEL_NS + 1_000


@dataclass
class _Step:
    """The events of one line in one step, and where in them the changing numbers stand."""

    body: bytearray = field(default_factory=bytearray)
    offsets: list[tuple[int, int]] = field(default_factory=list)  # place, nanoseconds from the step's start
    correlations: list[tuple[int, int]] = field(default_factory=list)  # place, number within the step

    def event(
        self,
        metadata: int,
        start_ns: int,
        duration_ns: int,
        key: int = 0,
        number: int = -1,
        stats: bytes = b"",
    ) -> None:
        head = tagged_varint(1, metadata) + b"\x10"
        after = tagged_varint(3, duration_ns * 1000) + stats
        stat = tagged_varint(1, key) + b"\x18"
        counted = b"\x22" + varint(len(stat) + CORRELATION_BYTES) + stat if number >= 0 else b""
        size = len(head) + OFFSET_BYTES + len(after) + (len(counted) + CORRELATION_BYTES if counted else 0)
        self.body += b"\x22" + varint(size) + head
        self.offsets.append((len(self.body), start_ns))
        self.body += bytes(OFFSET_BYTES) + after + counted
        if counted:
            self.correlations.append((len(self.body), number))
            self.body += bytes(CORRELATION_BYTES)

    def write(self, file: BinaryIO, steps: int) -> None:
        template = np.frombuffer(bytes(self.body), np.uint8)
        offset_at, offset = np.array(self.offsets, np.int64).T
        number_at, number = np.array(self.correlations, np.int64).T
        for step in range(steps):
            body = template.copy()
            start = (offset + step * KERNELS_PER_STEP * CYCLE_NS) * 1000
            body[offset_at[:, None] + np.arange(OFFSET_BYTES)] = padded(start, OFFSET_BYTES)
            body[number_at[:, None] + np.arange(CORRELATION_BYTES)] = padded(
                number + step * KERNELS_PER_STEP, CORRELATION_BYTES
            )
            file.write(body.data)


def padded(values: NDArray[np.int64], width: int) -> Bytes:
    """Varints of a fixed width, one a row: all bytes but the last say that more follow."""
    parts = (values[:, None] >> (7 * np.arange(width))) & 0x7F
    parts[:, :-1] |= 0x80
    return parts.astype(np.uint8)


def write(path: Path, size: int) -> int:
    """Write a file of about `size` bytes; returns the number of events in it."""
    space = Space()
    device, host = space.plane("/device:GPU:0"), space.plane("/host:CPU")
    device.stats |= {"device_vendor": "Nvidia", "compute_cap_major": 7, "compute_cap_minor": 0}
    stream = device.line(13, "Stream #13(Compute)", 1_000_000)
    host.line(501, "python", 1_000_000)
    on_device, on_host = _Step(), _Step()
    launch, marker = host.event_id("cuLaunchKernel"), host.event_id("train")
    launch_key, step_key = host.stat_id("correlation_id"), host.stat_id("step_num")
    device_key = device.stat_id("correlation_id")
    whole = KERNELS_PER_STEP * CYCLE_NS
    # A step's number is that of its last kernel: it grows by a constant stride, as where a call holds many steps.
    on_host.event(marker, 0, whole - 500, step_key, KERNELS_PER_STEP)
    for i in range(KERNELS_PER_STEP):
        at = i * CYCLE_NS + 100
        op = host.event_id(f"model/layer_{i}/op_{i % 7}:Op{i % 7}", f"Op{i % 7}")
        on_host.event(op, at, LAUNCH_NS + 2_000)
        on_host.event(launch, at + 1_000, LAUNCH_NS, launch_key, i + 1)
        metadata, stats = _kernel(stream, i)
        on_device.event(metadata, at + 6_000, KERNEL_NS, device_key, i + 1, stats)
    steps = max(2, size // (len(on_device.body) + len(on_host.body)))
    with path.open("wb") as file:
        for plane, step in ((device, on_device), (host, on_host)):
            _plane(file, plane, step, steps)
    return steps * (3 * KERNELS_PER_STEP + 1)


def _plane(file: BinaryIO, plane: Plane, step: _Step, steps: int) -> None:
    line = plane.lines.pop()
    line_head = line.to_bytes()
    rest = plane.to_bytes()  # fields may come in any order: the line goes last
    line_size = len(line_head) + len(step.body) * steps
    head = rest + b"\x1a" + varint(line_size) + line_head
    file.write(b"\x0a" + varint(len(head) + len(step.body) * steps) + head)
    step.write(file, steps)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(f"{target}: {write(target, int(sys.argv[2]))} events, {target.stat().st_size} bytes")
