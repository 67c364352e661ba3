"""HLO protos are read as jaxlib, which wrote them, understands them."""

from __future__ import annotations

import json
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.analysis.breakdown.roofline import cost
from mpprof.model.trace import HloInstruction, Op
from tests.builders.xspace import Space, tagged_bytes, tagged_varint
from tests.fuzz import heavy
from tests.paths import SHARED
from tests.traces.conftest import needs_shared

_COMPILE = """
import json, sys
from pathlib import Path
import jax, jax.numpy as jnp
from jax import lax
folder = Path(sys.argv[1])
f16, f32, bf16 = jnp.float16, jnp.float32, jnp.bfloat16
def conv(groups):
    def run(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), "VALID", feature_group_count=groups,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return run
cases = {
    "dot": (lambda a, b: a @ b, [((64, 48), f32), ((48, 80), f32)]),
    "high": (lambda a, b: jnp.dot(a, b, precision="high"), [((8, 16), f32), ((16, 4), f32)]),
    "highest": (lambda a, b: jnp.dot(a, b, precision="highest"), [((8, 16), f32), ((16, 4), f32)]),
    "dot_f16": (lambda a, b: a @ b, [((8, 16), f16), ((16, 4), f16)]),
    "batched": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), [((5, 16, 24), bf16), ((5, 32, 24), bf16)]),
    "conv": (conv(1), [((2, 12, 12, 6), f32), ((3, 5, 6, 8), f32)]),
    "grouped": (conv(2), [((2, 12, 12, 6), f32), ((3, 3, 3, 8), f32)]),
}
facts = {}
for name, (function, shapes) in cases.items():
    compiled = jax.jit(function).lower(*[jax.ShapeDtypeStruct(*s) for s in shapes])
    module = compiled.compiler_ir("hlo")
    cost = compiled.cost_analysis()
    (folder / name).write_bytes(module.as_serialized_hlo_module_proto())
    facts[name] = {"flops": cost["flops"], "bytes": cost["bytes accessed"], "text": module.as_hlo_text()}
def layer(x, w, b):
    return jnp.tanh(x @ w + b) * 2.0
shapes = [jax.ShapeDtypeStruct(*s) for s in (((64, 48), f32), ((48, 80), f32), ((80,), f32))]
compiled = jax.jit(layer).lower(*shapes).compile()
module, = compiled.runtime_executable().hlo_modules()
(folder / "compiled").write_bytes(module.as_serialized_hlo_module_proto())
cost = compiled.cost_analysis()
facts["compiled"] = {"flops": cost["flops"], "bytes": cost["bytes accessed"], "text": module.to_string()}
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    """Modules that jaxlib lowered, with its own FLOP count and text of each."""
    folder = tmp_path_factory.mktemp("hlo")
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, str(folder)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def trace_with(module: bytes, instructions: list[str], path: Path) -> list[HloInstruction | None]:
    """A trace that holds this module and one kernel for each of these instructions."""
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7")
    for i, name in enumerate(instructions):
        line.event(f"k{i}", 10 * i, 5, {"hlo_op": name, "hlo_module": "m", "program_id": 9})
    metadata = tagged_varint(1, 9) + tagged_bytes(2, b"m(9)")
    metadata += tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(6, tagged_bytes(1, module)))
    plane = tagged_bytes(2, b"/host:metadata") + tagged_bytes(
        4, tagged_varint(1, 9) + tagged_bytes(2, metadata)
    )
    named = tagged_varint(1, 1) + tagged_bytes(2, b"hlo_proto")
    plane += tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(2, named))
    path.write_bytes(tagged_bytes(1, plane) + space.to_bytes())
    trace = traces.read(path)
    assert not trace.warnings
    return [trace.ops[row].hlo for row in trace.kernels.op.tolist()]


@pytest.mark.framework
@pytest.mark.parametrize("case", ["dot", "dot_f16", "batched", "conv", "grouped"])
def test_flops_dtypes_and_shapes_are_those_of_jaxlib(
    case: str, modules: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    folder, facts = modules
    text = str(facts[case]["text"])
    lines = [line.strip().removeprefix("ROOT ") for line in text.splitlines() if " = " in line]
    names = [line.split(" = ")[0].lstrip("%") for line in lines]
    found = trace_with((folder / case).read_bytes(), names, tmp_path / "h.xplane.pb")
    assert all(found)
    assert sum(hlo.flops or 0 for hlo in found if hlo) == facts[case]["flops"]
    for line, hlo in zip(lines, found, strict=True):
        shape = f"{hlo.dtype}[{','.join(map(str, hlo.shape))}]"
        assert line.split(" = ")[1].startswith(shape), line
        assert f" {hlo.opcode}(" in line, line
    product = next(hlo for hlo in found if hlo and hlo.opcode in ("dot", "convolution"))
    assert len(product.operand_shapes) == len(product.operand_dtypes) == 2
    assert product.op_name.startswith("jit(")


def entry(text: str) -> list[str]:
    """The names of the instructions of the main computation that are no parameter."""
    lines = text[text.index("ENTRY") :].splitlines()[1:]
    lines = [
        line.strip().removeprefix("ROOT ") for line in lines if " = " in line and " parameter(" not in line
    ]
    return [line.split(" = ")[0].lstrip("%") for line in lines]


@pytest.mark.framework
@pytest.mark.parametrize("case", ["dot", "dot_f16", "batched", "conv", "grouped", "compiled"])
def test_bytes_are_those_of_jaxlib(
    case: str, modules: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    """Of a module as it was written, and of a compiled one with its fusions: operands read, result written."""
    folder, facts = modules
    names = entry(str(facts[case]["text"]))
    assert (" fusion(" in str(facts[case]["text"])) == (case == "compiled")
    found = trace_with((folder / case).read_bytes(), names, tmp_path / "h.xplane.pb")
    moved = [cost(Op(hlo.name, hlo.opcode, hlo), family="other").bytes for hlo in found if hlo]
    assert len(moved) == len(names) > 0
    assert sum(one or 0 for one in moved) == facts[case]["bytes"]


@pytest.mark.framework
@pytest.mark.parametrize(("case", "asked"), [("dot", "default"), ("high", "high"), ("highest", "highest")])
def test_the_precision_that_a_product_asks_for(
    case: str, asked: str, modules: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    folder, facts = modules
    names = [
        line.strip().removeprefix("ROOT ").split(" = ")[0].lstrip("%")
        for line in str(facts[case]["text"]).splitlines()
        if " dot(" in line
    ]
    (found,) = trace_with((folder / case).read_bytes(), names, tmp_path / "h.xplane.pb")
    assert found.precision == asked


@needs_shared()
def test_fusions_and_library_calls_of_recorded_traces() -> None:
    trace = traces.read(SHARED / "mi300-jax" / "jax08_gemm.xplane.pb")
    products = [op.hlo for op in trace.ops if op.hlo and op.name == "jit(dot)/dot_general"]
    assert len(products) > 4
    for hlo in products:
        rows, depth = hlo.operand_shapes[0]
        assert hlo.flops == 2.0 * rows * depth * hlo.operand_shapes[1][1]
        assert {hlo.dtype, *hlo.operand_dtypes} <= {"bf16"}
    fusion = next(hlo for hlo in products if hlo.opcode == "fusion")
    assert any(inner.opcode == "dot" for inner in fusion.called)
    attention = traces.read(SHARED / "mi300-jax" / "te_fused_attention_gfx950.xplane.pb")
    calls = {op.hlo.custom_call for op in attention.ops if op.hlo and op.type == "custom-call"}
    assert "te_fused_attn_forward_ffi" in calls
    conv = traces.read(SHARED / "mi300-jax" / "jax_conv_minimal_08.xplane.pb")
    call = next(op.hlo for op in conv.ops if op.hlo and op.hlo.custom_call == "__cudnn$convForward")
    outputs = prod(call.shape)
    taps = prod(call.operand_shapes[1][2:])
    assert call.flops == 2.0 * outputs * taps * call.operand_shapes[1][1]


def test_a_module_that_is_not_in_the_trace_leaves_the_name(tmp_path: Path) -> None:
    assert trace_with(tagged_bytes(1, b"m"), ["fusion.1"], tmp_path / "h.xplane.pb") == [None]


def _metadata(modules: list[tuple[int, bytes]]) -> bytes:
    """A plane that holds these modules, all of the name "m", under their program ids."""
    plane = tagged_bytes(2, b"/host:metadata")
    for program, module in modules:
        entry = tagged_varint(1, program) + tagged_bytes(2, b"m(%d)" % program)
        entry += tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(6, tagged_bytes(1, module)))
        plane += tagged_bytes(4, tagged_varint(1, program) + tagged_bytes(2, entry))
    named = tagged_varint(1, 1) + tagged_bytes(2, b"hlo_proto")
    return tagged_bytes(1, plane + tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(2, named)))


def test_without_a_program_id_a_name_of_two_programs_is_neither(tmp_path: Path) -> None:
    """Which of the two the file lists first says nothing."""
    programs = [(id, _module(size)) for id, size in ((1, 4), (2, 8))]

    def shapes(order: list[tuple[int, bytes]], **stats: int) -> list[tuple[int, ...] | None]:
        space = Space()
        line = space.plane("/device:GPU:0").line(7, "Stream #7")
        line.event("k", 0, 5, {"hlo_op": "add", "hlo_module": "m", **stats})
        path = tmp_path / "h.xplane.pb"
        path.write_bytes(_metadata(order) + space.to_bytes())
        trace = traces.read(path)
        return [hlo.shape if (hlo := trace.ops[row].hlo) else None for row in trace.kernels.op.tolist()]

    assert shapes(programs) == shapes(programs[::-1]) == [None]
    assert shapes(programs, program_id=2) == shapes(programs[::-1], program_id=2) == [(8,)]
    assert shapes([(1, _module(4)), (2, _module(4))]) == [(4,)]  # the same program twice


def _module(size: int) -> bytes:
    """A module whose instruction `add` has so many elements."""
    shape = tagged_varint(2, 11) + tagged_varint(3, size)
    add = tagged_bytes(1, b"add") + tagged_bytes(2, b"add") + tagged_bytes(3, shape) + tagged_varint(35, 1)
    return tagged_bytes(1, b"m") + tagged_bytes(3, tagged_bytes(2, add) + tagged_varint(5, 1))


def test_computations_that_call_each_other_from_many_places(tmp_path: Path) -> None:
    """Four levels of 40 fusions that all call the next one: 2.6 million ways lead through 150 kB."""
    many = 40

    def level(number: int, opcode: str, *calls: int) -> tuple[int, bytes]:
        made = (heavy.instruction("i", opcode, number << 16 | at, calls) for at in range(many))
        return number, b"".join(made)

    filling = b"".join(heavy.instruction("p", "add", 6 << 16 | at) for at in range(many * many))
    fusions = (level(number, "fusion", number + 1) for number in (2, 3, 4))
    levels = ((1, heavy.instruction("f", "fusion", 7, (2,))), *fusions, level(5, "dot"), (6, filling))
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(heavy.program(levels, ["f"]))
    (hlo,) = (op.hlo for op in traces.read(path).ops if op.hlo is not None)
    met, waiting = 0, list(hlo.called)
    while waiting and met < 200_000:
        met += 1
        waiting.extend(waiting.pop().called)
    assert met < 50_000
