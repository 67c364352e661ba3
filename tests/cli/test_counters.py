"""`counters` and `verify`: from Nsight Compute's CSV to a report that says verified; a stand-in for `ncu`."""

from __future__ import annotations

import json
import os
import shutil
import stat
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import MIXED, SAMPLES, Mpprof

HMMA, PIPE = "sm__inst_executed_pipe_tensor_op_hmma", "sm__inst_executed_pipe_tensor"


def table(*launches: tuple[str, int], metric: str = HMMA, cc: str = "7.0") -> str:
    """A raw page as ncu prints it."""
    rows = [["ID", "Kernel Name", "CC", f"{metric}.sum"], ["", "", "", "inst"]]
    rows += [[str(at), name, cc, f"{count:,}"] for at, (name, count) in enumerate(launches)]
    lines = (",".join(f'"{text}"' for text in row) for row in rows)
    return "==PROF== Connected to process 7\n" + "\n".join(lines) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a sample run that may be written to."""
    copied = tmp_path / "run"
    shutil.copytree(MIXED, copied)
    return copied


def matrix_kernels(mpprof: Mpprof, run: Path) -> list[dict]:  # type: ignore[type-arg]
    rows = json.loads(mpprof("kernels", run, "--format", "json").out)
    return [row for row in rows if row["placement"] in ("tensor_core", "cuda_core")]


def test_counters_make_a_report_say_verified(mpprof: Mpprof, run: Path, tmp_path: Path) -> None:
    first, *others = matrix_kernels(mpprof, run)
    assert first["reason"]["code"] != "counter-tensor"
    before = json.loads(mpprof("report", run, "--format", "json").out)
    assert "verified_ratio" not in before["tensor_core"]
    file = tmp_path / "ncu.csv"
    names = {row["name"] for row in (first, *others)}
    file.write_text(table(*((name, 4096) for name in names)))
    done = mpprof("counters", file, "--run", run)
    assert done.code == 0
    assert f"{len(names)} kernels verified" in done.err
    rows = matrix_kernels(mpprof, run)
    assert {row["placement"] for row in rows} == {"tensor_core"}
    assert {row["strength"] for row in rows} == {"counter"}
    assert all("verified by hardware counters" in row["reason"]["text"] for row in rows)
    document = json.loads(mpprof("report", run, "--format", "json").out)
    assert document["tensor_core"]["ratio"] == 1.0
    assert document["tensor_core"]["verified_ratio"] == pytest.approx(1.0)
    assert "verified by hardware counters" in " ".join(mpprof("report", run, "-v").out.split())


def test_verdicts_of_an_h100_that_its_instructions_do_not_prove_are_not_used(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    """*Synthetic*, as mpprof wrote it before operations by type decided: a product and a sum on Tensor Cores."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "recorded-h100-convnet-mixed-bfloat16", run)
    before = {row["name"]: row for row in json.loads(mpprof("kernels", run, "--format", "json").out)}
    product = next(name for name, row in before.items() if row["placement"] == "tensor_core")
    sum_ = next(name for name, row in before.items() if row["family"] == "elementwise")
    text = f"verified by hardware counters: {HMMA}.sum = 4096 over 5 launches"
    rows = [
        {
            "name": name, "card": "NVIDIA H100 80GB HBM3", "placement": "tensor_core", "precision": "fp16",
            "family": "gemm", "reason": {"code": "counter-tensor", "text": text},
        }
        for name in (product, sum_)
    ]  # fmt: skip
    document = {"schema": "mpprof.counters/1", "kernels": rows}
    (run / "mpprof" / "counters.json").write_text(json.dumps(document))
    after = {row["name"]: row for row in json.loads(mpprof("kernels", run, "--format", "json").out)}
    for name in (product, sum_):
        assert after[name]["placement"] == before[name]["placement"]
        assert after[name]["strength"] != "counter"
        assert "run `mpprof verify` again" in after[name]["reason"]["text"]
    report = json.loads(mpprof("report", run, "--format", "json").out)
    assert any(
        text.startswith("2 of 2 verdicts in counters.json are not used") for text in report["warnings"]
    )
    assert not report["tensor_core"].get("verified_ratio")


def test_kept_verdicts_that_prove_nothing_go_when_others_are_kept(
    mpprof: Mpprof, run: Path, tmp_path: Path
) -> None:
    """Else the warning that asks for counters would never end: kernels of which the new ones prove nothing have
    no verdict."""
    card = "Tesla V100-SXM2-16GB"
    rows = [
        {
            "name": name, "card": card, "placement": "cuda_core", "precision": precision, "family": "gemm",
            "reason": {"code": "counter-none", "text": f"verified by hardware counters: {HMMA}.sum = 0 over 1 launch"},
        }
        for name, precision in (("my_kernel", "int8"), ("volta_sgemm_a", "fp32"))
    ]  # fmt: skip
    kept = run / "mpprof" / "counters.json"
    kept.write_text(json.dumps({"schema": "mpprof.counters/1", "kernels": rows}))

    def warned() -> bool:
        document = json.loads(mpprof("report", run, "--format", "json").out)
        return any("verdicts in counters.json are not used" in text for text in document["warnings"])

    assert warned()
    (tmp_path / "ncu.csv").write_text(table(("my_kernel", 0), ("volta_h884gemm_b", 2)))
    assert mpprof("counters", tmp_path / "ncu.csv", "--run", run).code == 0
    names = [row["name"] for row in json.loads(kept.read_text())["kernels"]]
    assert names == ["volta_h884gemm_b", "volta_sgemm_a"]
    assert not warned()


def test_what_counters_contradict_is_said(mpprof: Mpprof, run: Path, tmp_path: Path) -> None:
    name = next(r["name"] for r in matrix_kernels(mpprof, run) if r["placement"] == "tensor_core")
    (tmp_path / "ncu.csv").write_text(table((name, 0)))
    mpprof("counters", tmp_path / "ncu.csv", "--run", run)
    row = next(row for row in matrix_kernels(mpprof, run) if row["name"] == name)
    assert row["placement"] == "cuda_core"
    assert "contradiction" in row["reason"]["text"]


def test_counters_of_two_files_are_kept_together(mpprof: Mpprof, run: Path, tmp_path: Path) -> None:
    for name, count in (("volta_h884gemm_a", 1), ("volta_h884gemm_b", 2), ("volta_h884gemm_a", 3)):
        (tmp_path / "ncu.csv").write_text(table((name, count)))
        assert mpprof("counters", tmp_path / "ncu.csv", "--run", run, "--quiet").code == 0
    kept = json.loads((run / "mpprof" / "counters.json").read_text())
    assert kept["schema"] == "mpprof.counters/1"
    assert [row["name"] for row in kept["kernels"]] == ["volta_h884gemm_a", "volta_h884gemm_b"]
    assert "= 3 over" in kept["kernels"][0]["reason"]["text"]
    assert {row["card"] for row in kept["kernels"]} == {"Tesla V100-SXM2-16GB"}


def test_without_a_run_they_are_only_shown(mpprof: Mpprof, tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(table(("my_kernel", 7)))
    rows = json.loads(mpprof("counters", tmp_path / "ncu.csv", "--format", "json", "--gpu", "T4").out)
    assert [(row["name"], row["card"], row["placement"]) for row in rows] == [
        ("my_kernel", "T4", "tensor_core")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ncu.csv"]


def test_names_that_a_compiler_made_are_kept_with_their_run_only(
    mpprof: Mpprof, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "ncu.csv").write_text(table(("gemm_fusion_dot", 7), ("volta_h884gemm_a", 7)))
    shown = mpprof("counters", tmp_path / "ncu.csv", "--format", "json")
    assert [row["name"] for row in json.loads(shown.out)] == ["volta_h884gemm_a"]
    assert "1 kernel left out: a compiler made the names" in shown.err
    kept = mpprof("counters", tmp_path / "ncu.csv", "--run", run)
    assert "left out" not in kept.err
    assert "gemm_fusion_dot" in (run / "mpprof" / "counters.json").read_text()


def test_a_damaged_counters_file_is_a_warning_and_strictly_an_error(mpprof: Mpprof, run: Path) -> None:
    (run / "mpprof" / "counters.json").write_text('{"schema": "mpprof.counters/1", "ker')
    done = mpprof("report", run, "--format", "json")
    assert done.code == 0
    assert any("counters are left out" in warning for warning in json.loads(done.out)["warnings"])
    assert mpprof("--strict", "report", run).code == 2


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", table(("k", 1), metric="launch__grid_size")])
def test_a_file_that_proves_nothing_is_refused(mpprof: Mpprof, tmp_path: Path, content: str) -> None:
    (tmp_path / "ncu.csv").write_text(content)
    done = mpprof("counters", tmp_path / "ncu.csv")
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / "ncu.csv") in done.err


def test_counters_need_a_run_with_records(mpprof: Mpprof, tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(table(("k", 1)))
    assert mpprof("counters", tmp_path / "ncu.csv", "--run", tmp_path / "nowhere").code == 2
    assert mpprof("counters", tmp_path / "missing.csv").code == 2


# verify ------------------------------------------------------------------------------------------------------

NCU = """\
#!/bin/sh
# Stands in for Nsight Compute: notes how it was called, runs the command, writes the table it was given.
if [ "$1" = --query-metrics ]; then printf '%s\\n' "$FAKE_METRICS"; exit 0; fi
printf '%s\\n' "$@" > "$FAKE_CALL"
while [ $# -gt 0 ]; do
  if [ "$1" = --log-file ]; then cat "$FAKE_TABLE" > "$2"; shift 2; break; fi
  shift
done
"$@"
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake `ncu` first on the PATH; returns the file whose content it writes as its log."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "ncu"
    script.write_text(textwrap.dedent(NCU))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_METRICS", f"{HMMA} Counter inst\n{PIPE} Counter inst")
    monkeypatch.setenv("FAKE_CALL", str(tmp_path / "call"))
    monkeypatch.setenv("FAKE_TABLE", str(tmp_path / "table"))
    return tmp_path / "table"


def test_what_verify_keeps_replaces_a_file_only_where_that_is_asked_for(
    mpprof: Mpprof, run: Path, ncu: Path, tmp_path: Path
) -> None:
    ncu.write_text(table(("volta_h884gemm_64x64_nn", 9)))
    kept, command = tmp_path / "kept.csv", ("--", "touch", tmp_path / "ran")
    kept.write_text("mine")
    done = mpprof("verify", "--run", run, "--keep", kept, *command)
    assert done.code == 2
    assert "--force to replace it" in done.err
    assert not (tmp_path / "ran").exists()
    assert kept.read_text() == "mine"
    assert mpprof("verify", "--run", run, "--keep", kept, "--force", *command).code == 0
    assert "h884gemm" in kept.read_text()


def test_verify_counts_and_keeps(mpprof: Mpprof, run: Path, ncu: Path, tmp_path: Path) -> None:
    ncu.write_text(table(("volta_h884gemm_64x64_nn", 9)))
    done = mpprof(
        "verify",
        "--run",
        run,
        "--launch-count",
        "50",
        "--keep",
        tmp_path / "kept.csv",
        "--",
        "touch",
        tmp_path / "ran",
    )
    assert done.code == 0
    assert (tmp_path / "ran").exists()
    assert "volta_h884gemm_64x64_nn" in done.out
    assert "h884gemm" in (run / "mpprof" / "counters.json").read_text()
    assert "h884gemm" in (tmp_path / "kept.csv").read_text()
    call = (tmp_path / "call").read_text().split("\n")
    assert call[call.index("--metrics") + 1] == f"{PIPE}.sum,{HMMA}.sum"
    assert call[call.index("--clock-control") + 1] == "none"
    assert call[call.index("--launch-count") + 1] == "50"


def test_verify_without_ncu_says_where_to_get_it(
    mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = mpprof("verify", "--", "true")
    assert (done.code, done.out) == (2, "")
    assert "Nsight Compute" in done.err


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", "CAP_SYS_ADMIN"),
        ("==ERROR== Failed to find metric nothing\n", "Failed to find metric"),
        ("==WARNING== No kernels were profiled.\n", "ncu saw no kernel"),
        ("", "ncu saw no kernel"),
    ],
)  # fmt: skip
def test_verify_says_why_nothing_was_counted(mpprof: Mpprof, ncu: Path, log: str, said: str) -> None:
    ncu.write_text(log)
    done = mpprof("verify", "--", "true")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_verify_says_that_the_command_failed(mpprof: Mpprof, ncu: Path) -> None:
    ncu.write_text("==PROF== Connected to process 1\n")
    assert "exit code 1" in mpprof("verify", "--", "false").err


def test_verify_says_that_the_command_failed_after_some_kernels(mpprof: Mpprof, ncu: Path) -> None:
    ncu.write_text(table(("volta_h884gemm_64x64_nn", 9)))
    done = mpprof("verify", "--", "false")
    assert (done.code, "h884gemm" in done.out) == (0, True)
    assert "false ended with exit code 1" in done.err


def test_verify_needs_a_command(mpprof: Mpprof, ncu: Path) -> None:
    assert mpprof("verify").code == 2
    assert mpprof("verify", "--").code == 2


def test_a_run_that_is_not_there_is_noticed_before_the_command_runs(
    mpprof: Mpprof, ncu: Path, tmp_path: Path
) -> None:
    assert mpprof("verify", "--run", tmp_path / "none", "--", "touch", tmp_path / "ran").code == 2
    assert not (tmp_path / "ran").exists()


def test_verify_counts_at_least_one_launch(mpprof: Mpprof) -> None:
    done = mpprof("verify", "--launch-count", "0", "--", "true")
    assert done.code == 2
    assert "1 or more" in done.err
