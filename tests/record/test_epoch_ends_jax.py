"""On JAX the host waits for the device at an epoch's end: the steps before it then have a time.

Expected times are taken by a callback of the test's own, by the wall and `block_until_ready`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.record.epoch_ends import EPOCHS, PAUSE_S, STEPS, train
from tests.record.processes import done_on_jax, our_lines

pytest.importorskip("jax")
pytestmark = pytest.mark.framework

CLOSE = 0.1
"""The recorder reads its clock before the test's callback is told, and Keras works meanwhile."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("epochs")
    assert our_lines(done_on_jax(train, out)) == []
    return out


def timed(folder: Path, name: str) -> list[dict[str, int]]:
    """The lines that have an interval, as the file has them."""
    lines = map(json.loads, (folder / name / "mpprof" / "steps.jsonl").read_text().splitlines())
    return [line for line in lines if "interval_ns" in line]


def own_ms(folder: Path, name: str) -> list[float]:
    found: list[float] = json.loads((folder / "own.json").read_text())[name]
    assert len(found) == EPOCHS
    return found


@pytest.mark.parametrize("name", ["plain", "validated"])
def test_the_steps_up_to_each_end_but_the_first_have_the_time_of_the_wall(folder: Path, name: str) -> None:
    """What follows the end, a validation or another callback's pause, is longer than the steps are. The first one
    compiles, and so the steps before its last are timed as that begins."""
    (first, *lines), own = timed(folder, name), own_ms(folder, name)
    assert (first["step"], first["interval_calls"]) == (STEPS - 1, STEPS - 1)
    assert [line["step"] for line in lines] == [2 * STEPS, 3 * STEPS, 4 * STEPS]
    assert [line["interval_calls"] for line in lines] == [STEPS] * 3
    for line, wall in zip(lines, own[1:], strict=True):
        assert (1 - CLOSE) * wall <= line["interval_ns"] / 1e6 <= wall
        assert wall < PAUSE_S * 1e3


def test_what_another_callback_does_before_is_in_no_steps_time(folder: Path) -> None:
    lines, own = timed(folder, "late"), own_ms(folder, "late")
    assert [line["step"] for line in lines] == [STEPS, 2 * STEPS, 3 * STEPS, 4 * STEPS]
    for line, wall in zip(lines, own, strict=True):  # the test's own clock has the pause, too
        assert (1 - CLOSE) * wall <= line["interval_ns"] / 1e6 + PAUSE_S * 1e3 / STEPS <= wall


def test_the_first_validation_is_prepared_in_an_end_of_its_own(folder: Path) -> None:
    """With a validation every second epoch, the second epoch is the first to be followed by one."""
    assert [line["step"] for line in timed(folder, "rare")] == [STEPS, 2 * STEPS - 1, 3 * STEPS, 4 * STEPS]


def test_a_first_end_that_compiles_nothing_has_its_time(folder: Path) -> None:
    """Many a training is a loop of short fits of an epoch each, and what these compile is compiled already."""
    lines = timed(folder, "fits")
    assert [(line["fit"], line["step"]) for line in lines] == [(1, STEPS), (2, 2 * STEPS), (3, 3 * STEPS)]
    own: list[float] = json.loads((folder / "own.json").read_text())["fits"]
    for line, wall in zip(lines, own, strict=True):
        assert (1 - CLOSE) * wall <= line["interval_ns"] / 1e6 <= wall


def test_between_a_wait_and_the_end_lie_eight_calls_or_more(folder: Path) -> None:
    """28 steps an epoch, read every 16: twelve and eight calls lie between steps 16 and 48 and the ends of their
    epochs, four between step 80 and that of its own: three of these are timed as the last call begins."""
    lines, own = timed(folder, "read"), own_ms(folder, "read")
    assert [line["step"] for line in lines] == [16, 28, 32, 48, 56, 64, 80, 83, 96, 112]
    assert [line["interval_calls"] for line in lines] == [16, 12, 4, 16, 8, 8, 16, 3, 12, 16]
    last = [line for line in lines if line["epoch"] == 3]
    total_ms = sum(line["interval_ns"] * line["interval_calls"] for line in last) / 1e6
    assert (1 - CLOSE) * 28 * own[3] <= total_ms <= 28 * own[3]


def test_of_a_wait_that_the_epochs_end_overtakes_the_end_is_the_time(folder: Path) -> None:
    """The reading after step 16 is awaited one call later. That call is the first epoch's last, and the device
    has run 17 steps when it is asked."""
    (line,) = timed(folder, "overtaken")
    assert (line["step"], line["interval_calls"]) == (17, 17)
