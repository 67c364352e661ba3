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
from tests.paths import NO_TRACES, SHARED

__all__ = ["command"]  # a fixture
KIB = 1024
MI300 = SHARED / "mi300-jax"
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


def allocation(index: int, size: int, kind: int = 0, *assigned: tuple[int, int, int]) -> bytes:
    """`assigned`: the buffers in it, as id, offset and size."""
    body = tagged_varint(1, index) + tagged_varint(2, size)
    for id, offset, part in assigned:
        body += tagged_bytes(9, tagged_varint(1, id) + tagged_varint(2, offset) + tagged_varint(3, part))
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


def contents(path: Path) -> list[tuple[int, bool, list[str]]]:
    (found,) = programs(path)
    return [
        (one.bytes // KIB, one.result, [each.hlo.name if each.hlo else "" for each in one.alive])
        for one in found.assigned.taken
    ]


def test_what_is_in_each_allocation_that_a_run_makes(tmp_path: Path) -> None:
    """As in JAX: a heap states the index that its allocation had before XLA sorted them."""
    buffers = STEP[: STEP.index(allocation(0, 100 * KIB, ARGUMENT))]
    path = trace(
        tmp_path,
        buffers
        + allocation(0, 100 * KIB, ARGUMENT, (9, 0, 100 * KIB))
        + allocation(1, 16 * KIB, LIVE_OUT, (2, 0, 16 * KIB), (1, 0, 8 * KIB))
        + allocation(2, 3 * KIB, CONSTANT)
        + allocation(3, 13 * KIB, 0, (1, 0, 8 * KIB), (3, 8 * KIB, 4 * KIB))
        + allocation(4, 8 * KIB, 0, (1, 0, 8 * KIB), (3, 0, 4 * KIB)),
    )
    assert contents(path) == [(16, True, ["dot.2"]), (13, False, ["dot.1", "add.3"]), (8, False, [])]
    heaped = (
        buffers + allocation(6, 26 * KIB, 0, (1, 0, 8 * KIB), (2, 8 * KIB, 16 * KIB), (3, 0, 4 * KIB))
        + allocation(7, 5 * KIB, THREAD_LOCAL, (5, 0, 5 * KIB))
        + heap(7, (ALLOCATE, 1), (ALLOCATE, 2), (FREE, 1), (ALLOCATE, 3))
    )  # fmt: skip
    path = trace(tmp_path, heaped)
    assert contents(path) == [(26, False, ["dot.2", "dot.1"])]
    (found,) = programs(path)
    assert found.assigned.peak_bytes == 24 * KIB


@pytest.mark.parametrize(
    ("reads", "body", "recasts"),
    [
        ((), ("convert",), True),
        ((), ("convert", "multiply"), False),
        (("dot",), ("convert",), False),
    ],
)
def test_what_only_gives_an_argument_in_another_type_is_told_from_other_buffers(
    tmp_path: Path, reads: tuple[str, ...], body: tuple[str, ...], recasts: bool
) -> None:
    wide, narrow = ("f32", (64, 64)), ("f16", (64, 64))
    inner = tuple(Instruction(f"{opcode}.9", opcode, narrow, (wide,)) for opcode in body)
    made = (
        Instruction("dot", "dot", wide, (wide, wide)),
        Instruction("cast", "fusion", narrow, (wide,), inside=inner, reads=reads),
    )
    stated = logical(1, 8 * KIB, "cast") + allocation(4, 8 * KIB) + heap(4, (ALLOCATE, 1))
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tagged_bytes(1, metadata_plane("jit_step", made, assignment=stated)))
    (found,) = programs(path)
    assert [each.recasts for each in found.assigned.alive] == [recasts]


def test_a_library_calls_scratch_has_its_own_type(tmp_path: Path) -> None:
    """Of cuBLAS's custom call in a trace of JAX, the second part of the result."""
    path = MI300 / "jax08_gemm.xplane.pb"
    if not path.exists():
        pytest.skip(NO_TRACES)
    found = programs(path)[0].assigned
    assert [(each.bytes, each.hlo.dtype if each.hlo else "", each.scratch) for each in found.alive] == [
        (79_691_776, "s8", True)
    ]


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
