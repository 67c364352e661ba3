"""What no line carries has a reason in run.json, and what some line carries has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record.on_tensorflow import keras
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework


def fit(made: Any, recorded: Any, **more: Any) -> None:
    x, y = data(6)
    made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded], **more)


def told(root: Path) -> tuple[dict[str, str], set[str]]:
    """The reasons, and what the lines of steps carry."""
    lines = map(json.loads, (root / "mpprof" / "steps.jsonl").read_text().splitlines()[1:])
    keys = {key for line in lines if line["kind"] == "step" for key in line}
    facts = json.loads((root / "mpprof" / "run.json").read_text())
    reasons = {name: facts["absent"].get(name) for name in ("skipped", "loss_scale")}
    return {name: reason for name, reason in reasons.items() if reason}, keys


def test_a_fit_without_a_step(tmp_path: Path) -> None:
    made, recorded = model(), callback(tmp_path)
    fit(made, recorded, epochs=0)
    assert told(tmp_path)[0] == {"skipped": "no step has run", "loss_scale": "no step has run"}
    fit(made, recorded)
    reasons, keys = told(tmp_path)
    assert reasons == {}
    assert {"skipped", "loss_scale"} <= keys


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_an_optimizer_that_is_never_used(tmp_path: Path) -> None:
    made = model()
    made.trainable = False
    made.compile("adam", "sparse_categorical_crossentropy", auto_scale_loss=True)
    fit(made, callback(tmp_path))
    reasons, keys = told(tmp_path)
    assert "loss_scale" not in keys
    assert reasons["loss_scale"] == "no step has used the optimizer: it has made no loss scale"
    assert "steps cannot be told from skips" in reasons["skipped"]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {policy: model(policy) for policy in ("mixed_float16", "float32")}


@pytest.mark.parametrize("policies", [("mixed_float16", "float32"), ("float32", "mixed_float16")])
def test_a_loss_scale_that_one_of_two_fits_has(
    models: dict[str, Any], tmp_path: Path, policies: tuple[str, str]
) -> None:
    recorded = callback(tmp_path)
    for policy in policies:
        fit(models[policy], recorded)
    reasons, keys = told(tmp_path)
    assert "loss_scale" in keys
    assert reasons == {}
    fit(models["float32"], alone := callback(tmp_path / "alone"))
    assert told(alone.root)[0] == {"loss_scale": "the optimizer scales no loss"}


def batches(*sizes: int) -> Any:
    x, y = data(sum(sizes) // BATCH + 1)
    at = 0
    for size in sizes:
        yield x[at : at + size], y[at : at + size]
        at += size


class Ordered(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self, **own: Any) -> None:
        super().__init__()
        self.__dict__.update(own)
        self.x, self.y = data(4)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(
    ("made", "size", "reason"),
    [
        (lambda: batches(8, 8, 8, 8), 8, None),
        (lambda: batches(8, 8, 8, 5), 8, None),
        (lambda: batches(8, 5, 8, 8), None, "the generator's first batches hold 8 and 5 samples"),
        (lambda: Ordered(batch_size=BATCH), BATCH, None),
        (Ordered, None, "a PyDataset states it only by an attribute batch_size"),
    ],
)
def test_the_batch_size_that_an_input_shows(
    trained: Any, tmp_path: Path, made: Any, size: int | None, reason: str | None
) -> None:
    trained.fit(made(), steps_per_epoch=4, verbose=0, callbacks=[callback(tmp_path)])
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert facts["fits"][0].get("batch_size") == size
    assert facts["absent"].get("batch_size") == reason


def test_a_later_fit_whose_input_shows_its_batch_size(trained: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path)
    trained.fit(Ordered(), verbose=0, callbacks=[recorded])
    fit(trained, recorded)
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert [each.get("batch_size") for each in facts["fits"]] == [None, BATCH]
    assert "batch_size" not in facts["absent"]
