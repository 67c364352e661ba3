"""What an interpreter with Keras on JAX does for the tests: a file of answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def _write(folder: Path, **answers: Any) -> None:
    (folder / "answers.json").write_text(json.dumps(answers))


def few(folder: Path) -> None:
    """Write the answers for every change."""
    from tests.numerics import lost_updates, oracle

    _write(
        folder,
        differences=oracle.differences(),
        lost_updates=lost_updates.wrong(),
        epoch=_within_an_epoch(),
        again=_computed_again(),
        fit=_looked_at_by_a_callback(folder),
    )


def one(folder: Path) -> None:
    """Write what is wrong of the planted break, of the remedy, or of the setup, whose name is in the
    environment."""
    from tests.numerics import planted, remedies, setups

    name = os.environ["NAME"]
    if name in setups.SETUPS:
        said = [*setups.changed(name), *setups.changed_by_fit(name, folder / "run")]
    elif name in remedies.CASES:
        said = remedies.uncured(name)
    else:
        said = planted.said_of([name])[name]
    _write(folder, said=said)


def _looked_at_by_a_callback(folder: Path) -> dict[str, Any]:
    """Return digests of a training that the callback looks at and of one that it does not, and its looks."""
    from tests.numerics import setups

    digest, found = setups.trained("dropout", folder / "run", shuffle=False)
    return {"with": digest, "without": setups.trained("dropout", None, shuffle=False)[0], **found}


def _within_an_epoch() -> dict[str, Any]:
    """Return digests of a training that is looked at after each batch and of one that is not, and the loss scales
    that were seen: within an epoch Keras on JAX keeps all values apart from the variables."""
    import keras
    import numpy as np

    import mpprof
    from tests.numerics import setups

    scales: list[float] = []

    def trained(looks: bool) -> str:
        model, x, y = setups.made("dropout")
        model.optimizer.initial_scale = 2.0**20

        class Looking(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if looks and batch:
                    found = mpprof.numerics(model, x, y * 1e3)
                    scales.append(found.loss_scale.now if found.loss_scale else 0.0)

        model.fit(
            np.tile(x, (3, 1)), np.tile(y, (3, 1)) * 1e3, batch_size=len(x), epochs=1, shuffle=False, verbose=0,
            callbacks=[Looking()],
        )  # fmt: skip
        return setups.digest(model)

    return {"with": trained(True), "without": trained(False), "scales": scales}


def _computed_again() -> list[list[str]]:
    """Return what is unable of a model with a layer whose forward pass is computed again (on TensorFlow, Keras 3.15
    cannot run such a layer in a graph)."""
    import keras

    import mpprof
    from tests.numerics.planted import case, dense, filled

    with keras.RematScope(mode="full"):
        again = dense(4, 0.1, "again")
    made = case([again, dense(1, 1, "head")], filled(1.0))
    return [[each.layer, each.reason] for each in mpprof.numerics(made.model, made.x, made.y).unable]
