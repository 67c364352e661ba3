"""The first remedy's code of a cause cures it with Keras on torch, and in a loop of torch's own (`tests.record.curing`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record import curing
from tests.torch.training import torch

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning"),
]
NAMES = (curing.TORCH, curing.LOOP)


@pytest.fixture(scope="module", params=NAMES)
def became(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("cures")
    try:
        curing.all_of(request.param, folder)
    finally:
        torch.autograd.set_detect_anomaly(False)
    return request.param, json.loads((folder / "cured.json").read_text())


def test_it_cures(became: Any) -> None:
    name, results = became
    for key in curing.tried(name):
        curing.assert_cured(results, key)


def test_what_finds_the_first_value_that_is_not_finite_stops_there(became: Any) -> None:
    name, results = became
    curing.assert_located(results, name)
