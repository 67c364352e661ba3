"""A large GPU xplane: 700,000 kernels of a training loop, two host events for each, about 64 MB.

Run as a script to write one: `python -m tools.benchmarks.big_trace FILE [KERNELS]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.builders.xspace import Line, Ref, Space, tagged_bytes, tagged_varint

KERNELS_PER_STEP = 1000
KERNEL_NS = 8_000
LAUNCH_NS = 4_000


def write(path: Path, kernels: int = 700_000) -> int:
    """Write the file; returns the number of events in it."""
    space = Space()
    device = space.plane("/device:GPU:0")
    device.stats |= {
        "device_vendor": "Nvidia",
        "clock_rate": 1_530_000,
        "core_count": 80,
        "memory_bandwidth": 898_048_000_000,
        "memory_size": 16_945_512_448,
        "compute_cap_major": 7,
        "compute_cap_minor": 0,
    }
    stream = device.line(13, "Stream #13(Compute)", 1_000_000)
    host = space.plane("/host:CPU")
    thread = host.line(501, "python", 1_000_000)
    bodies = [_kernel(stream, i) for i in range(KERNELS_PER_STEP)]
    ops = [
        host.event_id(f"model/layer_{i}/op_{i % 7}:Op{i % 7}", f"Op{i % 7}") for i in range(KERNELS_PER_STEP)
    ]
    launch = host.event_id("cuLaunchKernel")
    marker = host.event_id("train")
    step_key, launch_key = host.stat_id("step_num"), host.stat_id("correlation_id")
    device_key = device.stat_id("correlation_id")
    starts = thread.events
    for i in range(kernels):
        begin = i * (KERNEL_NS + 1_000)
        if i % KERNELS_PER_STEP == 0:
            length = KERNELS_PER_STEP * (KERNEL_NS + 1_000) - 500
            starts.append(_event(marker, begin - 500, length, _number(step_key, i // KERNELS_PER_STEP)))
        host_begin = begin
        starts.append(_event(ops[i % KERNELS_PER_STEP], host_begin, LAUNCH_NS + 2_000))
        starts.append(_event(launch, host_begin + 1_000, LAUNCH_NS, _number(launch_key, i + 1)))
        stats = bodies[i % KERNELS_PER_STEP]
        stream.events.append(
            _event(stats[0], begin + 6_000, KERNEL_NS, _number(device_key, i + 1) + stats[1])
        )
    path.write_bytes(space.to_bytes())
    return len(stream.events) + len(thread.events)


def _event(metadata: int, start_ns: int, duration_ns: int, stats: bytes = b"") -> bytes:
    body = tagged_varint(1, metadata) + tagged_varint(2, max(start_ns, 0) * 1000)
    return tagged_bytes(4, body + tagged_varint(3, duration_ns * 1000) + stats)


def _number(key: int, value: int) -> bytes:
    return tagged_bytes(4, tagged_varint(1, key) + tagged_varint(3, value))


def _kernel(stream: Line, i: int) -> tuple[int, bytes]:
    """The event metadata and the stats, apart from the correlation id, of the i-th kernel of a step."""
    plane = stream.plane
    name = f"volta_fp16_s884gemm_fp16_{64 << i % 3}x{64 << i % 2}_ldg8_f2f_nn_{i % 50}"
    stats = {
        "tf_op": Ref(f"model/layer_{i}/op_{i % 7}:Op{i % 7}"),
        "tensor_shapes": Ref(f"(half[{i % 20 + 1},1024];half[1024,4096])"),
        "kernel_details": Ref(
            f"regs:{i % 60 + 20} static_shared:0 dynamic_shared:0 grid:{i % 9 + 1},1,1 block:256,1,1"
        ),
    }
    return plane.event_id(name), b"".join(tagged_bytes(4, plane.stat(k, v)) for k, v in stats.items())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    events = write(target, *map(int, sys.argv[2:3]))
    print(f"{target}: {events} events, {target.stat().st_size} bytes")
