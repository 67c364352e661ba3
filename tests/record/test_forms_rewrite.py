"""Grappler's auto_mixed_precision: what it converted, by the files that TensorFlow itself writes, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.store.records import read_rewrite_log
from tests.paths import ROOT

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.framework

TRAINING = """
import os, pathlib, sys
import tensorflow as tf
from tests.record.training import callback, data, model
out = pathlib.Path(sys.argv[1])
x, y = data(4)
def train(name, **compiling):
    print(f"--- {name}", file=sys.stderr, flush=True)
    made = model("float32", **compiling)
    made.compile("adam", "sparse_categorical_crossentropy", **compiling)  # not built: its step is traced twice
    made.fit(x, y, batch_size=8, verbose=0, callbacks=[callback(out / name)])
os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
train("variable")
del os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"]
tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
train("no-gpu")
# The same rewrite to bfloat16 is the one that a CPU has.
tf.config.optimizer.set_experimental_options(
    {"auto_mixed_precision": False, "auto_mixed_precision_onednn_bfloat16": True})
train("options")
train("xla", jit_compile=True)
del os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH"]
train("log-only")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rewrite")
    (out / "graphs").mkdir()
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_ENABLE_ONEDNN_OPTS": "1",  # off by default where a CPU has no AVX-512: the rewrite is not tried there
        "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH": str(out / "graphs"),
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", TRAINING, str(out)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    (out / "stderr").write_text(ended.stderr)
    return out


def said_in(folder: Path, name: str) -> str:
    """What TensorFlow logged during one training."""
    return (folder / "stderr").read_text().partition(f"--- {name}\n")[2].partition("\n--- ")[0]


def recorded(folder: Path, name: str) -> Any:
    return json.loads((folder / name / "mpprof" / "run.json").read_text())


def mp105(folder: Path, name: str) -> str:
    diagnosis = mpprof.diagnose(mpprof.load(folder / name))
    found = [f"{f.severity}: {f.summary}" for f in diagnosis.findings if f.code == "MP105"]
    found += [f"unable: {u.reason}" for u in diagnosis.unable if u.code == "MP105"]
    return found[0] if found else "clear"


def test_a_variable_that_this_tensorflow_does_not_know(folder: Path) -> None:
    run = recorded(folder, "variable")
    assert run["graph_rewrite"] == "TF_ENABLE_AUTO_MIXED_PRECISION"
    assert run["graph_rewrite_result"] == {"variable_known": False}
    assert "converted" not in said_in(folder, "variable").lower()
    assert mp105(folder, "variable") == (
        "error: TF_ENABLE_AUTO_MIXED_PRECISION is set, and this TensorFlow does not know it: "
        "nothing was rewritten"
    )


def test_without_a_gpu_nothing_is_looked_at(folder: Path) -> None:
    run = recorded(folder, "no-gpu")
    assert run["graph_rewrite"] == "auto_mixed_precision"
    assert "graph_rewrite_result" not in run
    assert "saved no graph" in run["absent"]["graph_rewrite_result"]
    assert mp105(folder, "no-gpu").startswith("unable")


def test_what_it_converted_as_tensorflow_counts_it_itself(folder: Path) -> None:
    said = read_rewrite_log(said_in(folder, "options"))
    if not said["converted_graphs"]:
        pytest.skip("oneDNN converts nothing on this CPU: it has no AVX-512")
    run = recorded(folder, "options")
    result = run["graph_rewrite_result"]
    assert run["graph_rewrite"] == "auto_mixed_precision_onednn_bfloat16"
    assert (result["source"], result["dtype"]) == ("graphs", "bfloat16")
    # TensorFlow calls nodes what are types: an IdentityN of four tensors counts four times.
    assert (result["converted_graphs"], result["converted_types"]) == (1, said["converted_nodes"])
    assert 0 < result["converted_matrix_nodes"] < result["converted_nodes"] <= result["converted_types"]
    assert result["casts"] >= said["casts"]  # TensorFlow leaves those of constants and variables out
    assert result["nodes"] > said["nodes"]  # of all graphs, not of the one that was converted
    assert result["converted"] == {"MatMul": result["converted_matrix_nodes"]}
    assert result["kept"] == {}
    assert "graph_rewrite_result" not in run["absent"]
    assert mp105(folder, "options") == "clear"


def test_it_sees_nothing_of_what_xla_compiles(folder: Path) -> None:
    result = recorded(folder, "xla")["graph_rewrite_result"]
    assert (result["matrix_nodes"], result["converted_nodes"]) == (0, 0)
    assert result["graphs"] > 0
    assert mp105(folder, "xla").endswith("it does not see XLA's graphs")
    assert mp105(folder, "xla").startswith("error")


def test_a_log_that_is_handed_to_us(folder: Path) -> None:
    run = recorded(folder, "log-only")
    assert "graph_rewrite_result" not in run
    assert "mpprof/graph_rewrite.log" in run["absent"]["graph_rewrite_result"]
    assert mp105(folder, "log-only").startswith("unable")
    log = folder / "log-only" / "mpprof" / "graph_rewrite.log"
    log.write_text(said_in(folder, "log-only"))
    told = read_rewrite_log(log.read_text())
    assert mp105(folder, "log-only") == ("clear" if told["converted_graphs"] else mp105(folder, "log-only"))
    log.write_text("x.cc:1511] No allowlist ops found, nothing to do\n" * 3)
    assert mp105(folder, "log-only") == (
        "error: the graph rewrite looked at 3 graphs and converted no matrix operation"
    )


def test_the_lines_of_a_log() -> None:
    assert read_rewrite_log("of something else\n") is None
    line = "I0000 auto_mixed_precision.cc:2259] Converted {} nodes to float16 precision using {} cast(s) to float16\n"
    text = line.format("9/854", 3) + "No whitelist ops found, nothing to do\n" + line.format("73/384", 5)
    assert read_rewrite_log(text) == {
        "source": "log", "graphs": 3, "converted_graphs": 2, "converted_nodes": 82, "nodes": 1238,
        "casts": 8, "dtype": "float16",
    }  # fmt: skip
