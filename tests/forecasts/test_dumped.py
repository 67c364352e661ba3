"""What is read of the files that XLA dumps. Live ranges and values are laid out as jax 0.10.2 dumps them; the lists of
kernels are made up."""

from __future__ import annotations

from pathlib import Path

from mpprof.forecasts import dumped

THUNKS = """000: kKernel  [name: "a"] gemm_fusion_dot
001: kCustomKernel  [name: "b"] loop_add_fusion
"""
METADATA = """thunk_metadata { profile_annotation: "gemm_fusion_dot.1" thunk_id: 0 }
thunk_metadata { profile_annotation: "loop_add_fusion.2" thunk_id: 1 }
thunk_metadata { profile_annotation: "cublas.3" thunk_id: 2 }
"""
PTX = """.visible .entry gemm_fusion_dot(
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1};
.visible .entry loop_add_fusion(
  add.f32 %f1, %f2, %f3;
"""


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"module_0007.{dumped.MODULE}.{name}").write_text(text)


def test_matrix_instructions_are_those_of_an_instructions_own_kernel(tmp_path: Path) -> None:
    write(tmp_path, "thunk_sequence.txt", THUNKS)
    write(tmp_path, "thunk_metadata.txt", METADATA)
    write(tmp_path, "sm_8.0.ptx", PTX)
    assert dumped.modules_in(tmp_path) == ["module_0007"]
    assert dumped.kernels(tmp_path, ["module_0007"]) == {
        "gemm_fusion_dot.1": ["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"],
        "loop_add_fusion.2": [],
    }


def test_what_is_live_at_the_peak_is_listed_without_the_arguments(tmp_path: Path) -> None:
    live = """HloLiveRange (max 4):
  BufferLiveRange:
    state_0__0_{}:0-4
  Live ranges at 3 (peak):
    state_0__0_{}: 400 bytes (cumulative: 400 bytes)
    relu.1{}: 300 bytes (cumulative: 700 bytes)
    norm.2{1}: 200 bytes (cumulative: 900 bytes)
  Stack trace breakdown for peak usage: 900 bytes
"""
    values = """ value: <1 relu.1 @0> (size=300,offset=0): f16[150]{0}
 value: <2 norm.2{1} @0> (size=200,offset=300): f32[50]{0}
"""
    write(tmp_path, "live-range.txt", live)
    write(tmp_path, "buffer-assignment.txt", values)
    assert dumped.alive(tmp_path, ["module_0007"]) == [("relu.1", "f16", 300), ("norm.2", "f32", 200)]


def test_an_hlo_proto_holds_no_paths_of_this_machine() -> None:
    name, frames = b"\x0a\x04step", b"\x8a\x01\x05/home"  # field 1, and field 17 with the stack frames
    assert dumped.hlo_proto(name + frames) == b"\x0a\x06" + name
