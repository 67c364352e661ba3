"""Sinks for Weights & Biases and MLflow, against the real packages; and what any sink gets at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.api import inline
from mpprof.errors import MpprofError
from tests.cli.conftest import MIXED
from tests.paths import SAMPLES

POINTS = [(16, 100.0, {"mpprof/step_time_ms": 2.5, "mpprof/loss": 0.5}), (32, 101.0, {"mpprof/loss": 0.25})]


def fed(sink: Any, folder: Path) -> None:
    """Give a sink two points and the end of a sample run."""
    for point in POINTS:
        sink.scalars(*point)
    sink.close()
    summary, page = inline.ending(MIXED)
    report = folder / "report.html"
    report.write_text(page, encoding="utf-8")
    sink.finish(summary, report)


def test_the_summary_holds_what_is_known_and_nothing_else() -> None:
    summary, page = inline.ending(MIXED)
    document = mpprof.diagnose(MIXED).document()
    assert summary["mpprof/verdict"] == document["verdict"]
    assert summary["mpprof/step_time_ms"] == pytest.approx(document["facts"]["step_ns"] / 1e6)  # type: ignore[operator]
    assert summary["mpprof/do"].startswith("mpprof try train.py measures it")
    assert summary["mpprof/tensor_core_ratio"] == 1.0
    assert page.lower().startswith("<!doctype html>")
    on_a_cpu, _ = inline.ending(SAMPLES / "recorded-cpu-float32")
    assert "mpprof/tensor_core_ratio" not in on_a_cpu
    assert "mpprof/gpu_hours_per_epoch" not in on_a_cpu


def test_weights_and_biases_gets_series_summary_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = wandb.init(project="test", dir=str(tmp_path))
    try:
        run.log({"own": 1.0})
        fed(mpprof.WandbSink(), tmp_path)
        assert run.summary["mpprof/first_cause"] == "MP501 norm-float32"
        assert run.summary["mpprof/loss"] == 0.25
        assert run.summary["mpprof/step"] == 32
    finally:
        run.finish()
        wandb.teardown()  # its service writes the file out when it ends
    (written,) = tmp_path.rglob("run-*.wandb")
    content = written.read_bytes()
    for part in (b"mpprof/step_time_ms", b"mpprof-report", b"report.html"):
        assert part in content


def test_mlflow_gets_series_summary_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    sink = mpprof.MlflowSink(tracking_uri=uri, experiment="precision")
    fed(sink, tmp_path)
    client = mlflow.MlflowClient(uri)
    losses = client.get_metric_history(sink.run_id, "mpprof/loss")
    assert [(each.step, each.value, each.timestamp) for each in losses] == [
        (16, 0.5, 100_000),
        (32, 0.25, 101_000),
    ]
    run = client.get_run(sink.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["mpprof/first_cause"] == "MP501 norm-float32"
    assert run.data.metrics["mpprof/tensor_core_ratio"] == 1.0
    assert client.get_experiment(run.info.experiment_id).name == "precision"
    assert [each.path for each in client.list_artifacts(sink.run_id, "mpprof")] == ["mpprof/report.html"]


def test_mlflow_takes_the_run_that_is_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run() as active:
        sink = mpprof.MlflowSink()
        assert sink.run_id == active.info.run_id
        fed(sink, tmp_path)
        assert mlflow.get_run(sink.run_id).info.status == "RUNNING"


@pytest.mark.parametrize(("module", "make"), [("wandb", "WandbSink"), ("mlflow", "MlflowSink")])
def test_without_the_package_the_error_says_what_to_install(
    module: str, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MpprofError, match=f"{module} is not installed. pip install {module}"):
        getattr(mpprof, make)()


class Told:
    """A sink that keeps what it is given."""

    def __init__(self, *, broken: bool = False) -> None:
        self.points = 0
        self.summary: Mapping[str, float | str] = {}
        self.page = ""
        self._broken = broken

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        self.points += 1

    def close(self) -> None:
        """Nothing is held back."""

    def finish(self, summary: Mapping[str, float | str], report: Path | None) -> None:
        if self._broken:
            raise OSError("the server is away")
        self.summary = summary
        self.page = report.read_text(encoding="utf-8")


@pytest.mark.framework
def test_a_sink_gets_summary_and_report_when_the_training_ends(trained: Any, tmp_path: Path) -> None:
    from tests.record.training import BATCH, callback, data

    told, broken = Told(), Told(broken=True)
    recorded = callback(tmp_path, sinks=[broken, told])
    x, y = data(20)
    trained.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    assert told.points
    assert told.summary["mpprof/verdict"] in str(recorded.result().verdict)
    assert told.page.lower().startswith("<!doctype html>")
    assert recorded.root is not None
    absent = json.loads((recorded.root / "mpprof" / "run.json").read_text())["absent"]
    assert "the server is away" in absent["sink.Told"]
