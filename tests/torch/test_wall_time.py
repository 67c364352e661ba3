"""Where the wall time of a `fit` on torch goes: callbacks in any order, and the wait for each batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mpprof
from tests.record.wall_time import trainings
from tests.record.wall_time.asserting import (
    NEARLY,
    assert_ends_of_data_are_between_epochs,
    assert_hooks_are_timed,
    assert_input_is_timed,
)
from tests.torch.training import digest, keras, torch

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def made() -> Any:
    return trainings.model()


def test_each_callbacks_time_is_known_wherever_it_stands_in_the_list(tmp_path: Path, made: Any) -> None:
    assert_hooks_are_timed(trainings.slow_hooks(tmp_path, made))


def test_the_wait_for_each_batch_is_known(tmp_path: Path, made: Any) -> None:
    assert_input_is_timed(trainings.slow_inputs(tmp_path, made))


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_what_data_do_at_an_epochs_end_is_in_no_step(tmp_path: Path, made: Any) -> None:
    assert_ends_of_data_are_between_epochs(trainings.slow_ends(tmp_path, made))


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, passes: Any) -> None:
        self.passes, (self.x, self.y) = passes, trainings.data()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        if index % trainings.BATCH == 0:
            self.passes(trainings.AT_ONCE)
        return self.x[index], self.y[index]


def test_a_loader_is_waited_for_and_its_batches_are_the_same(tmp_path: Path) -> None:
    digests = []
    for ours in (False, True):
        keras.utils.set_random_seed(3)
        made, clock = trainings.model(), trainings.Clock()
        loader = torch.utils.data.DataLoader(Rows(clock.passes), batch_size=trainings.BATCH)
        held = [trainings.recorded(tmp_path, clock)] if ours else []
        made.fit(loader, epochs=2, shuffle=False, verbose=0, callbacks=held)
        digests.append(digest(made))
    assert digests[0] == digests[1]
    spent = trainings.told(tmp_path)["spent"]
    first, others = spent["input/DataLoader/first"], spent["input/DataLoader/batch"]
    assert abs(first - 2 * trainings.AT_ONCE) <= trainings.AT_ONCE + NEARLY  # Keras may have looked at one
    assert abs(others - 2 * (trainings.STEPS - 1) * trainings.AT_ONCE) <= NEARLY


class FillsFirst(torch.utils.data.DataLoader):  # type: ignore[misc]
    """Takes time before the first batch of each epoch."""

    passes: Any

    def __iter__(self) -> Any:
        batches = super().__iter__()
        self.passes(100 * trainings.AT_ONCE)
        return batches


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epochs_first_fetch_is_in_no_step_however_many_workers_there_are(
    tmp_path: Path, made: Any, workers: int
) -> None:
    clock = trainings.Clock()
    loader = FillsFirst(Rows(lambda ns: None), batch_size=trainings.BATCH, num_workers=workers)
    loader.passes = clock.passes
    made.fit(loader, epochs=3, shuffle=False, verbose=0, callbacks=[trainings.recorded(tmp_path, clock)])
    run = mpprof.load(tmp_path)
    steps = mpprof.diagnose(run).steps
    assert run.facts.fits[0].input.get("num_workers", 0) == workers
    assert steps.mean_ns is not None
    assert steps.mean_ns <= NEARLY


@pytest.mark.full
@pytest.mark.parametrize(
    "kind",
    ["arrays", "1 worker", "8 workers", "varying lengths", "validation and window"],
)  # Keras on torch runs one step a call
def test_the_mean_is_that_of_an_outer_clock(tmp_path: Path, kind: str) -> None:
    from tests.record import outer_clock

    outer_clock.trained(tmp_path / kind)
    means = json.loads((tmp_path / kind / "means.json").read_text())
    assert means["steps"] >= 200
    assert means["ours_ms"] == pytest.approx(means["outer_ms"], rel=0.03)
