"""Where people look: a notebook's cells, without a port; policies compared on JAX; several JAX processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.record.processes import done_on_jax
from tests.record.training import callback, data, model

pytestmark = pytest.mark.framework

TRAINING = """
import pathlib, sys, threading
import psutil
from tests.record.training import callback, data, model

def listening():
    return {c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"}

recorded = callback(pathlib.Path(FOLDER), announce="mpprof.api.workflows:announce", verbose=1, audit=True)
before, threads = listening(), threading.active_count()
x, y = data(24)
model().fit(x, y, batch_size=8, verbose=0, callbacks=[recorded])
"""
SHOWN = "recorded.result()"
AFTER = "print(listening() == before, flush=True)"


def listening() -> set[int]:
    import psutil  # type: ignore[import-untyped]

    return {c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"}


@pytest.mark.usefixtures("keras")
def test_a_result_is_shown_without_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = listening()
    recorded = callback(tmp_path / "run", announce="mpprof.api.workflows:announce", verbose=1, audit=True)
    x, y = data(24)
    model().fit(x, y, batch_size=8, verbose=0, callbacks=[recorded])
    assert recorded.result()._repr_html_().startswith("<iframe")
    assert listening() == before
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("mpprof: 24 steps, 0 skipped. ")  # the answer: what leads so short a run is chance
    assert said.endswith("More: mpprof report run")  # from where it was trained


@pytest.mark.full
def test_the_cells_of_a_real_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Jupyter's own kernel, where that is installed: Colab's and Kaggle's cells show `text/html`, too."""
    nbclient = pytest.importorskip("nbclient", reason="no Jupyter here: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.joinpath("kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "here", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.v4.new_notebook()
    sources = (TRAINING.replace("FOLDER", repr(str(tmp_path / "run"))), SHOWN, AFTER)
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="here").execute()
    outputs: list[Any] = [out for cell in notebook.cells for out in cell.outputs]
    said = "".join(out.get("text", "") for out in outputs if out.get("name") == "stdout")
    assert "mpprof: 24 steps, 0 skipped." in said
    assert said.endswith("True\n")
    (shown,) = [out["data"]["text/html"] for out in outputs if "text/html" in out.get("data", {})]
    assert shown.startswith("<iframe sandbox ")


def tried(folder: Path) -> None:
    import keras

    import mpprof

    def build() -> Any:
        layers = keras.layers
        ends = layers.Dense(4), layers.Activation("softmax", dtype="float32")
        made = keras.Sequential([keras.Input((8,)), layers.Dense(16), *ends])
        made.compile("adam", "sparse_categorical_crossentropy")
        return made

    told = mpprof.try_settings(
        build, data(10), policies=("float32", "mixed_float16"), steps=40, seconds=0.0, most_rounds=4,
        logdir=folder / "runs", batch_size=8, say=lambda line: None,
    )  # fmt: skip
    assert keras.config.dtype_policy().name == "float32"
    (folder / "answers.json").write_text(json.dumps(told.to_dict()))


@pytest.mark.full
def test_settings_take_turns_on_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    done_on_jax(tried, tmp_path)
    told = json.loads((tmp_path / "answers.json").read_text())
    assert [each["name"] for each in told["settings"]] == ["float32", "mixed_float16"]
    assert all(len(each["rounds"]) >= 4 for each in told["settings"])
    assert told["settings"][1]["speedup_interval"] is not None
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["float32", "mixed_float16"]


def test_several_jax_processes_say_that_each_records_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("keras")
    from mpprof.record.backends.base import Absent
    from mpprof.record.backends.jax import JaxProbe

    probe = JaxProbe()
    assert "workers" not in probe.distribution(None)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    told = probe.distribution(None)["workers"]
    assert isinstance(told, Absent)
    assert "each of them records a run of its own" in told.reason
