"""Each planted break is named, layer, tensor and kind, and its healthy twin is silent; on TensorFlow, and on JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.numerics import work
from tests.numerics.on_tensorflow import keras, oracle, planted, remedies, setups
from tests.record.processes import done_on_jax

pytestmark = pytest.mark.framework
FEW = ("sum_of_a_wide_dense", "epsilon_of_a_loss", "loss_scale_of_a_gradient_that_flows_back")
"""A layer, a loss and a gradient; the rest runs in `make full`."""
CURED = ("layer_that_casts_by_itself", "updates_of_weights_of_16_bits")


def test_keras_runs_on_tensorflow() -> None:
    assert keras.backend.backend() == "tensorflow"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.full) for name in planted.PLANTED]
)
def test_a_planted_break_is_named_and_its_twin_is_silent(name: str) -> None:
    assert planted.said_of([name]) == {name: []}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in CURED else pytest.mark.full) for name in remedies.CASES],
)
def test_the_code_that_is_printed_cures_what_breaks(name: str) -> None:
    assert remedies.uncured(name) == []


def test_what_is_counted_is_what_numpy_counts() -> None:
    """Of every value of float16 and of bfloat16, and of float32 about each limit."""
    assert oracle.differences() == []


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _answers(tmp_path_factory.mktemp("jax"), work.few)


def _answers(folder: Path, of: Any, **environment: str) -> dict[str, Any]:
    pytest.importorskip("jax")
    done_on_jax(of, folder, **environment)
    found: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return found


def test_on_jax_what_is_counted_is_what_numpy_counts(on_jax: dict[str, Any]) -> None:
    assert on_jax["differences"] == []


def test_on_jax_what_an_update_loses_is_what_numpy_loses(on_jax: dict[str, Any]) -> None:
    assert on_jax["lost_updates"] == []


def test_on_jax_a_look_within_an_epoch_sees_the_state_of_now_and_changes_nothing(
    on_jax: dict[str, Any],
) -> None:
    found = on_jax["epoch"]
    assert found["with"] == found["without"]
    assert found["scales"] == [2.0**19, 2.0**18]  # a step is skipped at each


def test_on_jax_the_callback_finds_the_batch_that_was_skipped_and_changes_nothing(
    on_jax: dict[str, Any],
) -> None:
    """Within an epoch, where the model's variables hold nothing; the first batch is drawn after the first begin."""
    found = on_jax["fit"]
    assert found["with"] == found["without"]
    told = [(each["trigger"], each["step"], each["batch"]) for each in found["looks"]]
    assert told[0] == ("start", 1, "that of step 1")
    assert told[1] in (
        ("skipped", 3, "that of step 2"),
        ("skipped", 4, "that of step 2"),
    )  # once its reading is there
    assert told[-1] == ("end", 8, "that of step 8")
    assert found["looks"][1]["first_forward"]["layer"] == "loss"
    assert found["looks"][1]["loss_scale"]["now"] == 2.0**10


def test_on_jax_what_is_computed_again_in_the_backward_pass_is_unable_by_name(on_jax: dict[str, Any]) -> None:
    assert on_jax["again"] == [["again", "its forward pass is computed again in the backward pass"]]


@pytest.mark.full
@pytest.mark.parametrize("name", [*planted.PLANTED, *setups.SETUPS, *remedies.CASES])
def test_on_jax_every_planted_break_is_named_and_no_look_changes_anything(tmp_path: Path, name: str) -> None:
    """Each in a process of its own: no limit of time holds for all of them together."""
    assert _answers(tmp_path, work.one, NAME=name)["said"] == []
