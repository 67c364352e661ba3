"""Where the wall time of a `fit` on JAX goes. Keras' backend is fixed for a process, so this one has its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.record.processes import done_on_jax, our_lines
from tests.record.wall_time.asserting import (
    assert_ends_of_data_are_between_epochs,
    assert_hooks_are_timed,
    assert_input_is_timed,
)
from tests.record.wall_time.on_jax import train

pytest.importorskip("jax")
pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("jax")
    assert our_lines(done_on_jax(train, out)) == []
    return json.loads((out / "answers.json").read_text())


def test_each_callbacks_time_is_known_wherever_it_stands_in_the_list(answers: Any) -> None:
    assert_hooks_are_timed(answers["hooks"])


def test_the_wait_for_each_batch_is_known(answers: Any) -> None:
    assert_input_is_timed(answers["inputs"])


def test_what_data_do_at_an_epochs_end_is_in_no_step(answers: Any) -> None:
    assert_ends_of_data_are_between_epochs(answers["ends"])


def test_weights_batches_and_errors_are_the_same_with_and_without(answers: Any) -> None:
    for name, (without, with_ours) in answers["same"].items():
        assert without == with_ours, name


def test_keras_still_trains_asynchronously(answers: Any) -> None:
    assert answers["asynchronous"] == [True, True]


def test_compiles_are_timed_by_the_step_and_by_nobody_elses(answers: Any) -> None:
    first, again, listeners = answers["compiles"]
    assert first["batch"] > 0
    assert first["validation"] > 0
    assert again == {}  # a second fit compiles nothing, and what a callback compiles is its own
    assert listeners[0] == listeners[1]


def test_a_loop_with_a_list_of_its_own_has_its_compiles_timed(answers: Any) -> None:
    """By the step, and not what a callback of that list compiles. What else JAX compiles within a step, in a few
    milliseconds, is a long compile on a busy machine."""
    told = answers["own loop"]
    assert {at for at, _, _ in told} == {"batch"}
    assert {1, 3} <= {first for _, first, _ in told}
    assert all(first == last for _, first, last in told)


def test_the_epoch_iterator_is_freed_with_its_fit(answers: Any) -> None:
    assert answers["freed"]
