"""The records of scripted trainings with Keras on torch are as they were frozen.

`KERAS_BACKEND=torch .venv-torch/bin/python -m tests.torch.test_frozen` keeps what is there now.
"""

from __future__ import annotations

import pytest

from tests.frozen.fits import recorded
from tests.frozen.keeping import differences, keep, kept
from tests.torch.training import torch  # skips on another backend

pytestmark = pytest.mark.framework
GROUP = "records-torch"


def test_what_torch_records_is_as_it_was() -> None:
    assert torch.get_num_threads() == 1
    assert not list(differences(kept(GROUP), dict(recorded())))


if __name__ == "__main__":
    keep(GROUP, dict(recorded()))
