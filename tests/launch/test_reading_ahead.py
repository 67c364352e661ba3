"""Batches that are made ahead of the step: without Keras."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mpprof.launch import trial
from mpprof.launch.settings import set_loss_scale


class DatasetV2:
    def prefetch(self, size: int) -> Any:
        return ("prefetched", size)


class PyDataset:
    workers = 1


class Sequence:
    pass


def fit(model: Any, x: Any = None, callbacks: Any = None) -> None: ...


def fit_of_keras_2(model: Any, x: Any = None, workers: int = 1) -> None: ...


def test_a_tf_data_set_prefetches_by_place_and_by_name() -> None:
    data = DatasetV2()
    assert trial.prefetched(fit, (data, 1), {}, "auto") == ((("prefetched", -1), 1), {}, None)
    assert trial.prefetched(fit, (), {"x": data}, "4") == ((), {"x": ("prefetched", 4)}, None)
    *_, why = trial.prefetched(fit, ([1],), {}, "auto")
    assert why == "a list has no prefetch: that is of a tf.data set"


def test_workers_are_of_the_object_in_keras_3_and_of_fit_in_keras_2() -> None:
    data = PyDataset()
    assert trial.with_workers(fit, (data,), {}, "8") == ((data,), {}, None)
    assert data.workers == 8
    old = Sequence()
    assert trial.with_workers(fit_of_keras_2, (old,), {}, "8") == ((old,), {"workers": 8}, None)
    *_, why = trial.with_workers(fit, (old,), {}, "8")
    assert why == "a Sequence has no workers: those are of a PyDataset"


def test_a_loss_scale_of_which_there_is_none_says_so() -> None:
    assert set_loss_scale(SimpleNamespace(), "loss_scale", 8.0) == "the optimizer has no loss scale"
    fixed = type("LossScaleOptimizerV3", (), {"_loss_scale": 4.0})()
    assert set_loss_scale(fixed, "loss_scale", 8.0) == "the loss scale is fixed"
