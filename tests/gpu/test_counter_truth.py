"""Counter truth as far as it runs without a GPU: the cases, the call of ncu, its table, the comparison."""

from __future__ import annotations

import csv
import os
import stat
from pathlib import Path

import pytest

from mpprof.errors import MpprofError
from tests.gpu import counter_truth as truth
from tests.gpu.counter_truth_cases import FRAMEWORKS, SIZES, Case, cases, work

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


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text(",".join(truth.COLUMNS) + "\n")
    with pytest.raises(MpprofError, match="no kernels"):
        truth.agree(tmp_path / "empty.csv")
