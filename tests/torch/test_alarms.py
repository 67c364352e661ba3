"""Alarms that stop a fit on torch, and the loss of the lines that were read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record.test_alarms_in_fits import TROUBLES, check_losses, check_stopped, losses, scaled, train
from tests.torch.training import keras, model

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("kind", TROUBLES)
def test_an_alarm_stops_the_training(tmp_path: Path, kind: str) -> None:
    trouble = TROUBLES[kind]
    train(model(optimizer=scaled(keras, trouble.initial_scale)), tmp_path, trouble, kind)
    check_stopped(tmp_path, trouble, kind, later=1)


def test_lines_that_were_read_carry_the_running_mean(tmp_path: Path) -> None:
    losses(tmp_path)
    check_losses(tmp_path)
