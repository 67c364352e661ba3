"""Kernels of command buffers get the instruction that their name proves, else one that is equal to it. The traces with buffers are *synthetic*,
laid out as openxla/xprof#2544 and #3070 describe them; how XLA names kernels is checked on recorded ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.model.trace import Trace, WorkKind
from mpprof.traces.common.hlo import Modules
from mpprof.traces.common.planes import read_space
from tests.builders.hlo import PROGRAM, Instruction, metadata_plane
from tests.builders.xspace import Space, tagged_bytes
from tests.paths import NO_TRACES, SHARED
from tests.traces.conftest import needs_shared

RECORDED = ("jax08_elementwise", "jax08_attention", "jax_conv_minimal_08", "te_fused_attention_gfx950")
MODULE = "jit_train_step"
FUSIONS = ("loop_add_fusion.3", "gemm_fusion_dot", "gemm_fusion_dot.1", "input_reduce_fusion", "a.b", "a_b")
Kernel = tuple[str, str | None, int]
"""Its name, its `hlo_op` and its correlation id."""


def trace_of(
    kernels: list[Kernel], folder: Path, *, stated: bool = True, inside: tuple[Instruction, ...] = ()
) -> Trace:
    shape = ("f16", (8, 8))
    instructions = [
        Instruction(name, "fusion", shape, (shape,), f"jit(train_step)/jvp(layer_{at})/add", inside=inside)
        for at, name in enumerate(FUSIONS)
    ]
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    for at, (name, hlo_op, correlation) in enumerate(kernels):
        stats: dict[str, object] = {"correlation_id": correlation}
        if hlo_op is not None:
            stats["hlo_op"] = hlo_op
        if stated:
            stats |= {"hlo_module": MODULE, "program_id": PROGRAM}
        else:
            stats["cuda_graph_id"] = 5
        line.event(name, 100 * at, 50, stats)
    path = folder / "host.xplane.pb"
    path.write_bytes(tagged_bytes(1, metadata_plane(MODULE, instructions)) + space.to_bytes())
    return traces.read(path, strict=True)


def instructions(trace: Trace) -> list[str | None]:
    found = [trace.ops[row].hlo if row >= 0 else None for row in trace.kernels.op.tolist()]
    return [hlo.name if hlo else None for hlo in found]


@pytest.mark.parametrize("stated", [True, False], ids=["module stated", "graph alone"])
def test_a_name_that_comes_once_in_each_launch_is_its_instructions(stated: bool, tmp_path: Path) -> None:
    buffer = "command_buffer_1" if stated else None
    names = ("loop_add_fusion_3", "gemm_fusion_dot", "input_reduce_fusion", "gemm_fusion_dot", "a_b", "other")
    launches = [(name, buffer, launch) for launch in (1, 2, 3) for name in names]
    found = trace_of(launches, tmp_path, stated=stated)
    # Two equal fusions share a kernel, which proves types and no instruction; two names that become one prove nothing.
    equal = "like gemm_fusion_dot"
    once = ["loop_add_fusion.3", equal, "input_reduce_fusion", equal, None, None]
    assert instructions(found) == once * 3
    assert found.ops[found.kernels.op[0]].name == "jit(train_step)/jvp(layer_0)/add"


def test_a_kernel_that_other_instructions_use_proves_nothing(tmp_path: Path) -> None:
    launches = [
        (name, "command_buffer_1", launch)
        for launch in (1, 2)
        for name in ("gemm_fusion_dot", "loop_add_fusion_3")
    ]
    found = trace_of([*launches, ("gemm_fusion_dot", "gemm_fusion_dot.1", 9)], tmp_path)
    assert instructions(found) == ["like gemm_fusion_dot", "loop_add_fusion.3"] * 2 + ["gemm_fusion_dot.1"]
    shared = found.ops[found.kernels.op[0]]
    assert (shared.hlo.dtype, shared.hlo.operand_dtypes, shared.hlo.shape) == ("f16", ("f16",), (8, 8))
    assert (shared.name, shared.hlo.op_name, shared.hlo.operands) == ("like gemm_fusion_dot", "", ())


def test_without_a_correlation_per_launch_nothing_is_proved(tmp_path: Path) -> None:
    kernels: list[Kernel] = [("loop_add_fusion_3", "command_buffer_1", at) for at in range(4)]
    assert instructions(trace_of(kernels, tmp_path)) == ["like loop_add_fusion.3"] * 4


@needs_shared()
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_are_named_after_their_fusions(name: str) -> None:
    path = SHARED / "mi300-jax" / f"{name}.xplane.pb"
    trace = traces.read(path)
    planes = read_space(np.frombuffer(path.read_bytes(), np.uint8)).planes
    modules = Modules(planes)
    stated = [full for plane in planes if plane.name == "/host:metadata" for full in plane.metadata_names]
    programs = Counter(full.rpartition("(")[0] for full in stated)
    users: dict[tuple[str, str], set[str]] = {}
    for row in np.flatnonzero((trace.kernels.kind == WorkKind.KERNEL) & (trace.kernels.op >= 0)).tolist():
        hlo = trace.ops[trace.kernels.op[row]].hlo
        if hlo is not None and hlo.opcode == "fusion" and programs[hlo.module] == 1:
            users.setdefault((hlo.module, trace.strings[trace.kernels.name[row]]), set()).add(hlo.name)
    alone = {key: next(iter(used)) for key, used in users.items() if len(used) == 1}
    assert len(alone) >= 3
    for (module, kernel), instruction in alone.items():
        assert modules.of_kernel(module, -1, kernel) == (module, -1, instruction)


V100_TORCH = SHARED / "a100-v100-torch" / "test_v100.json.gz"


@pytest.mark.skipif(not V100_TORCH.exists(), reason=NO_TRACES)
def test_what_a_recorded_graph_launch_enqueued_ran_in_a_graph() -> None:
    """torch 1.12 replays CUDA graphs there, and states no graph id; counted by the standard library's JSON."""
    events = json.loads(gzip.decompress(V100_TORCH.read_bytes()))["traceEvents"]
    launches = {e["args"]["correlation"] for e in events if e.get("name") == "cudaGraphLaunch"}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    expected = [e for e in work if e["args"]["correlation"] in launches]
    assert (len(launches), len(expected)) == (12, 5046)
    assert not any("graph id" in e["args"] for e in work)
    trace = traces.read(V100_TORCH)
    kernels = trace.kernels
    inside = kernels.graph >= 0
    assert np.count_nonzero(inside) == 5046
    assert int(kernels.duration_ns[inside].sum()) == 1000 * sum(e["dur"] for e in expected)
    assert {trace.strings[row] for row in trace.host.name[kernels.launch[inside]]} == {"cudaGraphLaunch"}
    # Replayed within an op of a compiled function, each belongs to that.
    ops = {trace.ops[row].name for row in kernels.op[inside].tolist()}
    assert ops == {"CompiledFunction", "CompiledFunctionBackward"}
    assert "MP912" in workflows.diagnose(workflows.load(V100_TORCH)).clear


def test_a_graph_launch_tells_where_the_kernel_does_not(tmp_path: Path) -> None:
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    host = space.plane("/host:CPU").line(1, "python")
    for number, call in enumerate(
        ("cuGraphLaunch", "cuLaunchKernel", "hipGraphLaunch", "cudaGraphLaunch_ptsz")
    ):
        host.event(call, 100 * number, 10, {"correlation_id": number})
        line.event("kernel", 100 * number + 50, 10, {"correlation_id": number})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    assert traces.read(path).kernels.graph.tolist() == [0, -1, 0, 0]


def candidates(trace: Trace, row: int) -> list[str]:
    return sorted(trace.ops[at].name for at in trace.ops[trace.kernels.op[row]].candidates)


def test_a_shared_kernel_states_all_fusions_that_are_equal_to_its_own(tmp_path: Path) -> None:
    """All six are; of the library's calls, those of the program's."""
    names = ("gemm_fusion_dot", "gemm_fusion_dot", "loop_add_fusion_3", "nvjet_sm90_hsh_128x128")
    kernels: list[Kernel] = [(name, "command_buffer_1", launch) for launch in (1, 2) for name in names]
    dot = Instruction("dot", "dot", ("f16", (8, 8)))
    found = trace_of(kernels, tmp_path, inside=(dot,))
    assert candidates(found, 0) == [f"jit(train_step)/jvp(layer_{n})/add" for n in range(6)]
    assert candidates(trace_of(kernels, tmp_path), 0) == []  # of products only
    assert candidates(found, 2) == []  # its name alone proves it
    assert candidates(found, 3) == []  # the program calls no library
    assert found.ops[found.kernels.op[3]].name == "command_buffer_1"
