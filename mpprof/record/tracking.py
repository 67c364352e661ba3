"""Sinks for Weights & Biases and MLflow: series while it trains, at its end a summary and the HTML report.

    MPProfilerCallback(logdir, sinks=[WandbSink()])
    MPProfilerCallback(logdir, sinks=[MlflowSink()])

Both write to the run that is active where they are made, and begin one of their own where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpprof.errors import optional_package

STEP = "mpprof/step"
ARTIFACT = "mpprof-report"


class WandbSink:
    """Write the series and the summary to a Weights & Biases run, and the report as its artifact.

    Series are named `mpprof/...`, over the axis `mpprof/step`; the artifact's type is "mpprof-report".

    Args:
        run: None: the active run; where there is none, `wandb.init(**options)` begins one, which ends with
            the process or by `wandb.finish()`.
        options: arguments of `wandb.init`; not used where a run is given or active.

    Raises `MpprofError` where wandb is not installed.
    """

    def __init__(self, run: Any = None, **options: Any) -> None:
        self._wandb = optional_package("wandb")
        self._run = run or self._wandb.run or self._wandb.init(**options)
        # Steps of the user's own series go on by themselves: ours have an axis of their own.
        self._run.define_metric(STEP)
        self._run.define_metric("mpprof/*", step_metric=STEP)

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        """Log one point of each series."""
        self._run.log({STEP: step, **values})

    def close(self) -> None:
        """Do nothing: points are passed on as they come."""

    def finish(self, summary: Mapping[str, float | str], report: Path | None) -> None:
        """Write the summary and the report to the run."""
        self._run.summary.update(dict(summary))
        if report is not None:
            artifact = self._wandb.Artifact(f"{ARTIFACT}-{self._run.id}", type=ARTIFACT)
            artifact.add_file(str(report), name="report.html")
            self._run.log_artifact(artifact)


class MlflowSink:
    """Write the series and the summary to an MLflow run, and the report as `mpprof/report.html`.

    Metrics and tags are named `mpprof/...`.

    Args:
        run_id: None: the active run; where there is none, the sink makes one and ends it with the training.
        experiment: the experiment of a run that the sink makes; it is created where it does not exist.
        tracking_uri: None: the one that MLflow is set to.

    Attributes:
        run_id: the id of the run that is written to.

    Raises `MpprofError` where MLflow is not installed.
    """

    def __init__(
        self, run_id: str | None = None, *, experiment: str = "Default", tracking_uri: str | None = None
    ) -> None:
        self._mlflow = optional_package("mlflow")
        self._client = self._mlflow.MlflowClient(tracking_uri)
        active = self._mlflow.active_run() if run_id is None else None
        self._own = run_id is None and active is None
        self.run_id: str = run_id or (active.info.run_id if active else self._begun(experiment))

    def _begun(self, experiment: str) -> str:
        found = self._client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self._client.create_experiment(experiment)
        return str(self._client.create_run(where, run_name="mpprof").info.run_id)

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        """Log one point of each series."""
        made = self._mlflow.entities.Metric
        self._client.log_batch(
            self.run_id,
            metrics=[made(name, value, round(unix_s * 1000), step) for name, value in values.items()],
        )

    def close(self) -> None:
        """Do nothing: points are passed on as they come."""

    def finish(self, summary: Mapping[str, float | str], report: Path | None) -> None:
        """Write the summary (numbers as metrics, words as tags) and the report to the run, and end the run if
        the sink made it; another `fit` continues it."""
        for name, value in summary.items():
            if isinstance(value, str):
                self._client.set_tag(self.run_id, name, value)
            else:
                self._client.log_metric(self.run_id, name, value)
        if report is not None:
            self._client.log_artifact(self.run_id, str(report), "mpprof")
        if self._own:
            self._client.set_terminated(self.run_id)
