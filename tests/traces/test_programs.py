"""The buffer assignment of compiled programs in a trace: what is allocated, and what is alive at the peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpprof.traces.xspace.programs import programs
from tests.builders.hlo import PROGRAM, Instruction, metadata_plane
from tests.builders.xspace import tagged_bytes, tagged_varint
from tests.cli.conftest import Mpprof
from tests.cli.conftest import mpprof as command

__all__ = ["command"]  # a fixture
KIB = 1024
ALLOCATE, FREE, SHARE = 0, 1, 2
ARGUMENT, THREAD_LOCAL, LIVE_OUT, CONSTANT = 5, 3, 7, 12  # fields of BufferAllocationProto
LAYERS = (
    Instruction("dot.1", "dot", ("f16", (64, 64)), (), "jit(step)/jvp(model)/first/dot_general"),
    Instruction("dot.2", "dot", ("f32", (64, 64)), (), "jit(step)/transpose(jvp(model))/second/dot_general"),
    Instruction("add.3", "add", ("f16", (64, 64)), (), "jit(step)/jvp(model)/third/add"),
)


def logical(id: int, size: int, name: str) -> bytes:
    place = tagged_bytes(2, name.encode())
    return tagged_bytes(1, tagged_varint(1, id) + tagged_varint(2, size) + tagged_bytes(3, place))


def allocation(index: int, size: int, kind: int = 0) -> bytes:
    body = tagged_varint(1, index) + tagged_varint(2, size)
    return tagged_bytes(3, body + (tagged_varint(kind, 1) if kind else b""))


def heap(index: int, *events: tuple[int, ...]) -> bytes:
    body = b""
    for kind, id, *shared in events:
        own = tagged_varint(1, kind) + tagged_varint(2, id)
        body += tagged_bytes(1, own + (tagged_varint(5, shared[0]) if shared else b""))
    return tagged_bytes(4, body + tagged_varint(3, index))


def trace(tmp_path: Path, assignment: bytes) -> Path:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tagged_bytes(1, metadata_plane("jit_step", LAYERS, assignment=assignment)))
    return path


STEP = (
    logical(1, 8 * KIB, "dot.1") + logical(2, 16 * KIB, "dot.2") + logical(3, 4 * KIB, "add.3")
    + allocation(0, 100 * KIB, ARGUMENT) + allocation(1, 7 * KIB, LIVE_OUT) + allocation(2, 3 * KIB, CONSTANT)
    + allocation(3, 999 * KIB, THREAD_LOCAL) + allocation(4, 26 * KIB)
    + heap(4, (ALLOCATE, 1), (ALLOCATE, 2), (FREE, 1), (ALLOCATE, 3), (FREE, 2), (FREE, 3))
)  # fmt: skip


def test_allocations_are_told_apart_and_the_peak_is_played(tmp_path: Path) -> None:
    (found,) = programs(trace(tmp_path, STEP))
    assert (found.name, found.program_id) == ("jit_step", PROGRAM)
    one = found.assigned
    assert (one.arguments_bytes, one.outputs_bytes, one.constants_bytes) == (100 * KIB, 7 * KIB, 3 * KIB)
    assert (one.temporaries_bytes, one.peak_bytes) == (26 * KIB, 24 * KIB)  # 2 KiB are lost in the packing
    assert [(each.hlo.name if each.hlo else "", each.bytes) for each in one.alive] == [
        ("dot.2", 16 * KIB), ("dot.1", 8 * KIB),
    ]  # fmt: skip


def test_a_buffer_in_anothers_place_takes_nothing_and_keeps_it(tmp_path: Path) -> None:
    events = heap(4, (ALLOCATE, 1), (SHARE, 3, 1), (FREE, 1), (ALLOCATE, 2), (FREE, 3), (FREE, 2))
    (found,) = programs(trace(tmp_path, _without_heap() + events))
    assert found.assigned.peak_bytes == 24 * KIB


def _without_heap() -> bytes:
    return STEP[: -len(heap(4, (ALLOCATE, 1), (ALLOCATE, 2), (FREE, 1), (ALLOCATE, 3), (FREE, 2), (FREE, 3)))]


def test_without_an_order_of_allocations_nothing_is_alive_for_certain(tmp_path: Path) -> None:
    (found,) = programs(trace(tmp_path, _without_heap()))
    assert found.assigned.alive == ()
    assert found.assigned.temporaries_bytes == 26 * KIB


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_cut_off_bytes_are_read_as_far_as_they_go(tmp_path: Path, cut: int) -> None:
    path = trace(tmp_path, STEP[:-cut])
    (found,) = programs(path)
    assert found.assigned.arguments_bytes == 100 * KIB
    path.write_bytes(path.read_bytes()[: -cut * 3])
    assert programs(path) == ()  # without its end nothing tells whose assignment it is


def test_the_command_gives_the_peak_by_layer_phase_and_type(command: Mpprof, tmp_path: Path) -> None:
    path = trace(tmp_path, STEP)
    done = command("memory", path, "--programs")
    assert done.code == 0
    assert "jit_step: arguments 100 KiB, outputs 7.00 KiB, temporaries 26.0 KiB" in done.out
    (program,) = json.loads(command("memory", path, "--programs", "--format", "json").out)["programs"]
    assert program["temporaries_peak_bytes"] == 24 * KIB
    assert {(one["phase"], one["dtype"], one["bytes"]) for one in program["alive_at_peak"]} == {
        ("backward", "f32", 16 * KIB), ("forward", "f16", 8 * KIB),
    }  # fmt: skip


_RECORD = """
import json, sys
import jax, jax.numpy as jnp
def loss(weights, x):
    for w in weights:
        x = jnp.maximum(x @ w, 0)
    return x.sum()
args = [jnp.ones((256, 256)) for _ in range(4)], jnp.ones((128, 256))
step = jax.jit(jax.grad(loss)).lower(*args).compile()
jax.block_until_ready(step(*args))
with jax.profiler.trace(sys.argv[1]):
    jax.block_until_ready(step(*args))
memory = step.memory_analysis()
print(json.dumps([memory.argument_size_in_bytes, memory.temp_size_in_bytes]))
"""


@pytest.mark.framework
def test_a_fresh_trace_of_jax_says_what_jax_says(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", _RECORD, str(tmp_path)], capture_output=True, check=True, text=True,
        env={"JAX_PLATFORMS": "cpu", "PATH": ""},
    )  # fmt: skip
    arguments, temporaries = json.loads(done.stdout.splitlines()[-1])
    (path,) = tmp_path.rglob("*.xplane.pb")
    found = next(one for one in programs(path) if one.name == "jit_loss").assigned
    assert found.arguments_bytes == arguments
    assert found.temporaries_bytes == temporaries
    assert 0 < found.peak_bytes <= temporaries
    assert all(one.hlo is not None for one in found.alive)
