"""The line of the user's code that an op, and a finding's work, comes from: where a compiled program states it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from mpprof.report import to_json
from mpprof.report.json import report
from mpprof.report.redact import Redactor
from mpprof.traces.common.hlo import own_line
from tests.builders import xla_workloads as xla
from tests.builders.gpus import A100
from tests.builders.numerics import MIXED_FLOAT16, TF32
from tests.builders.workloads import Work
from tests.paths import SHARED
from tests.planted.generator import remade, run, small_input, written
from tests.traces.conftest import needs_shared

HOME = "/home/alicia/nets"
KERAS = (f"{HOME}/.venv/lib/python3.11/site-packages/keras/src/ops/numpy.py", 4120)
FIT = (f"{HOME}/train.py", 20)


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ([KERAS, (f"{HOME}/model.py", 37), FIT], "model.py:37"),
        ([("C:\\nets\\model.py", 37)], "model.py:37"),
        ([("model.py", 37)], "model.py:37"),
        ([("/usr/lib/python3.11/functools.py", 5), ("<string>", 1), KERAS], ""),
        ([("model.py", 0), ("", 3)], ""),
        ([("/opt/packages/keras/src/layers/layer.py", 9), FIT], "train.py:20"),
        ([("/xxxx/xxxxxx/nn.py", 762)], ""),  # of a bundle: whose it was is gone
        ([], ""),
    ],
)
def test_the_users_line_is_the_innermost_outside_of_installed_packages(frames, line: str) -> None:
    assert own_line(frames) == line


def island(tmp_path: Path, line_of) -> Path:
    """A training with a float32 island, every op of which comes from the line that `line_of` gives for it."""

    def placed(work: Work) -> list[Work]:
        line = line_of(work.op)
        stack = (KERAS, (f"{HOME}/model.py", line), FIT) if line else (KERAS,)
        return [replace(work, hlo=work.hlo and replace(work.hlo, stack=stack))]

    model = small_input(xla.convnet(A100, MIXED_FLOAT16, overrides={"conv2d_1": TF32}))
    return written(run("lines", A100, MIXED_FLOAT16, remade(model, placed)), tmp_path)


def where(found: Diagnosis, code: str) -> list[str]:
    finding = next(each for each in found.findings if each.code == code)
    return [each.value for each in finding.evidence if each.name == "at"]


def test_a_finding_says_which_line_its_work_comes_from(tmp_path: Path) -> None:
    path = island(tmp_path, lambda op: 37 if "/conv2d_1/" in op else 12)
    found = workflows.diagnose(workflows.load(path))
    assert where(found, "MP104") == ["model.py:37"]
    document = to_json.to_json(Redactor(["node-a"], [HOME], ["alicia"]).record(report(found)))
    assert "alicia" not in str(document)
    assert "model.py:37" in str(document)


@pytest.mark.parametrize("line", [12, 0])
def test_one_line_for_all_or_none_says_nothing_of_a_finding(tmp_path: Path, line: int) -> None:
    found = workflows.diagnose(workflows.load(island(tmp_path, lambda op: line)))
    assert where(found, "MP104") == []


def test_lines_are_the_same_in_a_bundle_whose_folders_are_overwritten(tmp_path: Path) -> None:
    path = island(tmp_path, lambda op: 37 if "/conv2d_1/" in op else 12)
    before = workflows.table_rows(workflows.load(path), "ops")
    assert {row["line"] for row in before} == {"model.py:37", "model.py:12", None}  # None: copies
    [file] = path.rglob("*.xplane.pb")
    file.write_bytes(Redactor([], [], ["alicia"]).trace(file.read_bytes()))
    assert b"alicia" not in file.read_bytes()
    after = workflows.table_rows(workflows.load(path), "ops")
    assert [row["line"] for row in after] == [row["line"] for row in before]


@needs_shared()
@pytest.mark.parametrize(
    ("name", "op", "line"),
    [
        # Transformer Engine's own frames lie between the op and the script's line.
        ("te_fused_attention_gfx950", "te_fused_attn_forward_ffi", "12_te_fused_attn.py:77"),
        ("jax08_gemm", "dot_general", "generate_gemm_trace.py"),
    ],
)
def test_recorded_programs_of_jax_state_the_scripts_lines(name: str, op: str, line: str) -> None:
    rows = workflows.table_rows(workflows.load(SHARED / "mi300-jax" / f"{name}.xplane.pb"), "ops")
    assert {str(row["line"]).startswith(line) for row in rows if (row["op"] or "").endswith(op)} == {True}
