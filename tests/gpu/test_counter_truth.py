"""Counter truth as far as it runs without a GPU: the cases, the call of ncu, its table, the comparison."""

from __future__ import annotations

import csv
import os
import stat
from pathlib import Path

import pytest

from mpprof.analysis.kernels.names import classify, is_generic
from mpprof.errors import MpprofError
from tests.paths import ROOT
from tools.gpu import counter_truth as truth
from tools.gpu.counter_truth_cases import FRAMEWORKS, SIZES, Case, cases, work

HMMA, PIPE = "sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor.sum"


def test_the_cases_are_distinct_and_cover_types_sizes_and_kinds() -> None:
    made = cases()
    assert len({case.name for case in made}) == len(made) > 800
    assert {case.framework for case in made} == set(FRAMEWORKS)
    for framework in ("torch", "jax"):
        mine = [case for case in made if case.framework == framework]
        assert {case.kind for case in mine} >= {"matmul", "conv", "attention", "softmax", "cast"}
        assert {"float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "int8"} <= {
            case.dtype for case in mine
        }
        assert {case.dims[2] for case in mine if case.dims[:2] == (256, 256)} == set(SIZES)
        assert {case.groups for case in mine} == {0, 1, 8}
        assert {case.spatial for case in mine} == {2, 3}


SMALL = [
    Case("jax", "matmul", "float16", (8, 8, 8)),
    Case("jax", "matmul", "tf32", (8, 4, 16), batch=2),
    Case("jax", "conv", "float32", (2, 8, 8, 3, 8), groups=0),
    Case("jax", "conv", "float32", (2, 3, 8, 3, 8), channels_last=False),
    Case("jax", "attention", "float32", (1, 2, 8, 16)),
    *(
        Case("jax", task, "float32", (8, 8))
        for task in ("layer_norm", "cast", "dropout", "embedding", "max_pool")
    ),
]


@pytest.mark.framework
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_jax_computes_a_case(case: Case) -> None:
    pytest.importorskip("jax")
    assert work(case)() is not None


NCU = """\
#!/bin/sh
if [ "$1" = --query-metrics ]; then echo sm__inst_executed_pipe_tensor_op_hmma; exit 0; fi
while [ $# -gt 0 ]; do
  if [ "$1" = --log-file ]; then cat "$FAKE_TABLE" > "$2"; fi
  if [ "$1" = -m ]; then echo "$@" >> "$FAKE_CALLS"; fi
  shift
done
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table as collected through a stand-in for ncu that counts the same launches in every process."""
    header = ["ID", "Kernel Name", "CC", "gpu__time_duration.sum", HMMA]
    launches = [
        ["0", "turing_h1688gemm_64x64_nn", "7.5", "2,000", "512"],
        ["1", "turing_sgemm_128x64_nn", "7.5", "1,000", "0"],
        ["2", "turing_sgemm_32x32_nn", "7.5", "500", "64"],  # planted: the name says ordinary arithmetic
        ["3", "somebodys_gemm", "7.5", "500", "8"],
        ["4", "gemm_fusion_dot_1", "7.5", "500", "8"],  # other work in another program
    ]
    rows = [header, ["", "", "", "nsecond", "inst"], *launches]
    counted = tmp_path / "counted"
    counted.write_text(
        "==PROF== x\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"
    )
    script = tmp_path / "ncu"
    script.write_text(NCU)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_TABLE", str(counted))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    out = tmp_path / "truth.csv"
    assert (
        truth.main(["collect", str(out), "--framework", "torch", "--framework", "cupy", "--gpu", "T4"]) == 0
    )
    return out


def test_each_framework_runs_once_with_and_once_without_tf32(table: Path) -> None:
    calls = (table.parent / "calls").read_text().splitlines()
    assert [line.split("run ")[1].split()[0] for line in calls] == ["torch", "torch", "cupy", "cupy"]
    assert [line.split()[-1] for line in calls] == ["plain", "tf32"] * 2


def test_the_table_has_counters_time_and_verdict_of_each_kernel(table: Path) -> None:
    with table.open(newline="") as file:
        rows = {row["kernel_name"]: row for row in csv.DictReader(file)}
    gemm = rows["turing_h1688gemm_64x64_nn"]
    assert (gemm["placement"], gemm["launches"], gemm["time_ns"]) == ("tensor_core", "4", "8000")
    assert (gemm["gpu"], gemm["compute_capability"], gemm["frameworks"]) == ("T4", "7.5", "torch cupy")
    assert "= 2048 over" in gemm["counters"]
    assert rows["turing_sgemm_128x64_nn"]["placement"] == "cuda_core"


def test_the_comparison_finds_what_was_planted(table: Path) -> None:
    found = truth.agree(table)
    assert (found.names, found.unknown, found.wrong) == (4, 1, ("turing_sgemm_32x32_nn",))
    assert found.by_name == pytest.approx(2 / 3)
    assert found.by_time == pytest.approx(3000 / 3500)
    assert found.unknown_time == pytest.approx(500 / 4000)
    assert "wrong: turing_sgemm_32x32_nn" in truth.report(found)


H100 = ROOT / "tools" / "gpu" / "counter_truth_h100.csv"


def test_on_h100_no_name_is_judged_wrongly() -> None:
    found = truth.agree(H100)
    assert found.wrong == ()
    assert (found.names, found.unknown, found.by_name, found.by_time) == (133, 0, 1.0, 1.0)
    assert found.open == 51


def test_on_h100_one_name_that_counters_leave_open_is_of_a_product_of_halves() -> None:
    with H100.open(newline="") as file:
        open_ = [row["kernel_name"] for row in csv.DictReader(file) if row["placement"] == "unknown"]
    verdicts = {name: classify(name, (9, 0), "nvidia") for name in open_}
    used = {name: said.precision for name, said in verdicts.items() if said.placement == "tensor_core"}
    half = (
        "void cutlass::Kernel2<cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_nn_align1>(T1::Params)"
    )
    assert used == {half: "fp16"}


def test_on_h100_names_and_counters_agree_on_what_was_multiplied() -> None:
    with H100.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["placement"] == "tensor_core"]
    judged = {row["kernel_name"]: classify(row["kernel_name"], (9, 0), "nvidia").precision for row in rows}
    assert {row["precision"] for row in rows} == {"bf16", "tf32", "int8"}
    assert judged == {row["kernel_name"]: row["precision"] for row in rows}


def test_on_h100_each_verdict_follows_from_its_counter() -> None:
    with H100.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert not is_generic(row["kernel_name"])
        metric, count = row["counters"].split(" = ")
        if "ops_path" in metric:
            assert (row["placement"], float(count) > 0) == ("tensor_core", True)
            assert f"src_{row['precision']}" in metric
        elif float(count) == 0:
            assert metric.startswith(PIPE.removesuffix(".sum"))
            assert row["placement"] in ("cuda_core", "not_matmul")
        else:
            assert "op_hmma" in metric  # which proves nothing on this card
            assert row["placement"] == "unknown"
            assert set(row["zero"].split()) <= {"bf16", "tf32", "int8"}


def test_a_type_that_was_not_multiplied_is_wrong_even_where_others_stay_open(tmp_path: Path) -> None:
    name = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas"
    for zero, wrong in (("tf32 int8", (name,)), ("bf16", ())):
        table = tmp_path / "table.csv"
        table.write_text(
            f"kernel_name,compute_capability,placement,time_ns,zero\n{name},9.0,unknown,1,{zero}\n"
        )
        assert truth.agree(table).wrong == wrong


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text(",".join(truth.COLUMNS) + "\n")
    with pytest.raises(MpprofError, match="no kernels"):
        truth.agree(tmp_path / "empty.csv")
