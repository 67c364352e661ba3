"""Live bytes and peaks of every allocator equal those of XProf's memory profile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.memory import blocks
from mpprof.model.trace import Trace
from tests.builders.allocations import Allocator, plane_of
from tests.builders.xspace import Space
from tests.paths import NO_TRACES, SHARED
from tests.record.processes import done
from tests.traces.peer import answer

ONE_CLOCK = (
    "v100-8gpu-bert-fp16/host.xplane.pb", "gtx1080ti-xla/cyclops.xplane.pb",
    "mi300-jax/te_fused_attention_gfx950.xplane.pb",
)  # fmt: skip
SEVERAL_CLOCKS = (
    "mi300-jax/jax08_gemm.xplane.pb", "mi300-jax/jax08_attention.xplane.pb",
    "mi300-jax/jax08_elementwise.xplane.pb", "mi300-jax/jax_conv_minimal_08.xplane.pb",
)  # fmt: skip
KEPT = 1000
"""Snapshots that XProf keeps of an allocator; of more it takes the fullest of equal runs."""


def training(path: Path, events: int) -> Path:
    """Two threads of an executor that allocate and free on the device and on the host, in turns."""
    space, chance = Space(), random.Random(16)
    first, second = plane_of(space.plane("/host:CPU"))
    device, host = Allocator(first), Allocator(second, "gpu_host_bfc", capacity=64 << 30)
    device.live = device.peak = 7_000_064
    device.peak += 1 << 28  # since before the trace
    for at in range(events):
        one = host if at % 50 == 0 else device
        thread, time_ns = (first, second)[at % 2], 1_000 + 37 * at
        if one.blocks and chance.random() < 0.48:
            one.free(time_ns, chance.choice(list(one.blocks)), on=thread)
        else:
            one.allocate(
                time_ns, 1 << 40 | at << 8, chance.randrange(1, 1 << 20), f"d{at % 9}/MatMul", on=thread
            )
    path.write_bytes(space.to_bytes())
    return path


def theirs(profile: Any, name: str) -> tuple[list[tuple[int, int]], dict[str, int]]:
    one = profile["memoryProfilePerAllocator"][name]
    snapshots = one["sampledTimelineSnapshots"]
    summary = one["profileSummary"]
    return (
        [
            (int(s["timeOffsetPs"]) // 1000, int(s["aggregationStats"]["heapAllocatedBytes"]))
            for s in snapshots
        ],
        {
            "peak": int(summary["peakStats"]["peakBytesInUse"]),
            "lifetime": int(summary["peakBytesUsageLifetime"]),
            "capacity": int(summary["memoryCapacity"]),
        },
    )


def ours(trace: Trace, rows: Any) -> list[tuple[int, int]]:
    table = trace.allocations
    return list(zip(table.time_ns[rows].tolist(), table.live_bytes[rows].tolist(), strict=True))


def compare(path: Path, scratch: Path, one_clock: bool = True) -> int:
    """Hold every allocator to XProf's; return how many snapshots were compared. `one_clock`: all lines of the
    file begin at one time. XProf leaves out at what time a line begins, and so puts their events in another
    order where they differ."""
    trace = traces.read(path)
    scratch.mkdir()
    profile = answer(path, "memory_profile", scratch)
    found = blocks.allocators(trace)
    assert {one.name for one, _ in found} == set(profile["memoryProfilePerAllocator"])
    compared = 0
    for one, rows in found:
        snapshots, summary = theirs(profile, one.name)
        mine = ours(trace, rows)
        shift = mine[0][0] - snapshots[0][0] if len(mine) <= KEPT else 0
        assert (one.peak_bytes, one.capacity_bytes) == (summary["peak"], summary["capacity"])
        # Of one allocator of the V100's trace XProf states less for its lifetime than for the window.
        assert one.lifetime_peak_bytes == max(summary["lifetime"], summary["peak"])
        if len(mine) <= KEPT and one_clock:
            assert [(time + shift, live) for time, live in snapshots] == mine
            compared += len(mine)
        elif len(mine) <= KEPT:
            assert sorted(live for _, live in snapshots) == sorted(live for _, live in mine)
            assert breaks(trace, rows, [live for _, live in mine]) == 0
            compared += len(mine)
        else:
            assert len(snapshots) <= KEPT
            assert max(live for _, live in snapshots) == one.peak_bytes
            live = np.array([value for _, value in mine])
            assert {value for _, value in snapshots} <= set(live.tolist())
            compared += len(snapshots)
    return compared


def breaks(trace: Trace, rows: Any, live: list[int]) -> int:
    """How often the allocator's count does not follow from the one before and the event's own bytes."""
    table = trace.allocations
    change = np.where(table.free[rows], -table.bytes[rows], table.bytes[rows])
    return int((np.diff(live) != change[1:]).sum())


@pytest.mark.parametrize("events", [900, 30_000])
def test_live_bytes_and_peaks_are_xprofs(events: int, tmp_path: Path) -> None:
    assert compare(training(tmp_path / "host.xplane.pb", events), tmp_path / "peer") >= 900


@pytest.mark.parametrize("name", [*ONE_CLOCK, *SEVERAL_CLOCKS])
def test_those_of_public_gpu_traces_are_xprofs(name: str, tmp_path: Path) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(NO_TRACES)
    assert compare(path, tmp_path / "peer", name in ONE_CLOCK) > 0


def test_those_of_a_fresh_training_on_a_cpu_are_xprofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There only oneDNN's pool writes events, of large tensors."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # off by default where a CPU has no AVX-512
    done(tmp_path / "said", train, tmp_path / "log")
    (path,) = (tmp_path / "log").rglob("*.xplane.pb")
    assert [one.name for one, _ in blocks.allocators(traces.read(path))] == ["mklcpu"]
    assert compare(path, tmp_path / "peer") > 0


def train(log: Path) -> None:
    """Three steps of a convolution on images of 64 x 64, profiled."""
    import keras
    import tensorflow as tf

    layers = keras.layers
    model = keras.Sequential([
        keras.Input((64, 64, 3)), layers.Conv2D(16, 3), layers.BatchNormalization(), layers.ReLU(),
        layers.Conv2D(16, 3), layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])  # fmt: skip
    model.compile("adam", "mse")
    x, y = np.ones((48, 64, 64, 3), np.float32), np.ones((48, 10), np.float32)
    model.fit(x, y, batch_size=16, verbose=0)
    tf.profiler.experimental.start(str(log))
    model.fit(x, y, batch_size=16, verbose=0)
    tf.profiler.experimental.stop()
