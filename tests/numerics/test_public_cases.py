"""Trainings that others reported, rebuilt: the report says which layer breaks, and what it prints cures them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.cli import main
from mpprof.numbers import files
from mpprof.store import read_records
from tests.numerics.on_tensorflow import keras, tf

pytestmark = pytest.mark.framework
ROWS, STEPS = 16, 40


PLAIN = "keras.layers.Dense(...)"
GIVEN = 'kernel_initializer="ones", name='


def layer(name: str, units: int, codes: dict[str, str]) -> Any:
    """Return the dense layer that the code makes which is printed for it, or a plain one."""
    code = codes.get(name, "")
    code = (
        (code if code.startswith("keras.layers") else PLAIN)
        .partition("#")[0]
        .replace("...", f"units={units}, {GIVEN}{name!r}")
    )
    return eval(code, {"keras": keras})


def wide_sum(codes: dict[str, str]) -> tuple[list[Any], Any, Any]:
    """tensorflow#38357: inputs of 50 to 100, 4,096 ones, and their sum in float16."""
    x = np.linspace(50, 100, ROWS * STEPS, dtype=np.float32)[:, None]
    return [layer("wide", 4096, codes), layer("head", 1, codes)], x, np.ones_like(x)


def scale_at_its_floor(codes: dict[str, str]) -> tuple[list[Any], Any, Any]:
    """keras#16100: every update is skipped, and the loss scale falls until it cannot fall any more."""
    x = np.full((ROWS * STEPS, 64), 30.0, np.float32)
    return [layer("wide", 64, codes), layer("head", 1, codes)], x, np.ones((len(x), 1), np.float32)


def trained(made: Any, root: Path, codes: dict[str, str]) -> Any:
    """Train with the layers, and the optimizer, that these codes make; return the last loss."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        stack, x, y = made(codes)
        model = keras.Sequential([keras.Input(x.shape[1:]), *stack])
        names = {"keras": keras, "optimizer": keras.optimizers.Adam(1e-4)}
        for code in codes.values():
            exec(code if code.startswith("optimizer = ") else "", names)
        model.compile(names["optimizer"], "mse")
    finally:
        keras.config.set_dtype_policy(before)
    callback = mpprof.MPProfilerCallback(
        root, numerics=True, profile_steps=None, hardware=False, verbose=0, announce=None
    )
    return model.fit(x, y, batch_size=ROWS, epochs=1, verbose=0, callbacks=[callback]).history["loss"][-1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("made", "why"),
    [(wide_sum, "a sum of values up to 51.2 x 1 overflows"), (scale_at_its_floor, "a sum overflows")],
)
def test_the_answer_names_the_layer_and_the_remedies_that_are_printed_cure_it(
    made: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first lets the sum be finite; the error of it is then so large that its gradient overflows at every
    scale from 1 on, which the second look says: the scale begins below."""
    assert not np.isfinite(trained(made, tmp_path / "0", {}))
    assert main(["report", str(tmp_path / "0")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"all {STEPS} updates since were skipped; the output of head is not finite ({why})." in said
    assert "MP206: head needs bfloat16 or float32" in said
    codes: dict[str, str] = {}
    for number, layer_named in enumerate(("head", "wide"), 1):
        (remedy, *_) = files.looks(tmp_path / str(number - 1))[0][0]["advice"]
        assert remedy["layer"] == layer_named
        codes[layer_named] = remedy["snippet"]
        assert np.isfinite(trained(made, tmp_path / str(number), codes))
    looks, _ = files.looks(tmp_path / "2")
    assert [each["trigger"] for each in looks] == ["start", "end"]
    assert {str(each["first_forward"] or each["first_backward"]) for each in looks} == {"None"}
    steps = read_records(tmp_path / "2").steps
    assert steps.skipped.max() == 0


def small_targets(code: str, root: Path) -> tuple[float, float]:
    """A step of one's own, as people copy it from guides of before Keras 3: nothing scales its loss. Returns the mean
    error before and after, in 1e-4. `code` runs where the loss has been computed."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)

    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, given: Any) -> Any:
            x, y = given
            with tf.GradientTape() as tape:
                names = {"loss": self.compute_loss(x, y, self(x, training=True)), "optimizer": self.optimizer}
                exec(code, names)
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(names["loss"], variables), variables, strict=True)
            )
            return {"loss": names["loss"]}

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        head = keras.layers.Dense(1, name="head")
        model = Own([keras.Input((8,)), head, keras.layers.Rescaling(3e-4, dtype="float32", name="metres")])
        model.compile(keras.optimizers.Adam(0.05), "mse")
    finally:
        keras.config.set_dtype_policy(before)
    x = np.random.default_rng(1).uniform(0, 1, (ROWS * STEPS, 8)).astype(np.float32)
    y = np.full((len(x), 1), 3e-4, np.float32)

    def error() -> float:
        return float(np.mean(np.abs(np.asarray(model(x)) - y))) * 1e4

    callback = mpprof.MPProfilerCallback(
        root, numerics=(x[:ROWS], y[:ROWS]), profile_steps=None, hardware=False, verbose=0, announce=None
    )
    first = error()
    model.fit(x, y, batch_size=ROWS, epochs=1, verbose=0, callbacks=[callback])
    return first, error()


@pytest.mark.full
def test_a_step_of_ones_own_without_scaling_is_said_and_the_code_that_is_printed_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gradients of some 1e-8: float16 rounds most of them to 0, and no weight moves."""
    first, last = small_targets("", tmp_path / "0")
    assert last == pytest.approx(first, rel=1e-3)
    assert main(["report", str(tmp_path / "0"), "-v"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The loss is never scaled in the training step" in said
    assert " of the gradient of head rounds to 0 at a loss scale of 2^0" in said
    assert main(["numerics", str(tmp_path / "0")]) == 0
    assert "Scale the loss. (MP103)\n    loss = optimizer.scale_loss(loss)\n" in capsys.readouterr().out
    (*_, look) = files.looks(tmp_path / "0")[0]
    assert (look["loss_scale"]["now"], look["first_backward"]["kind"]) == (1.0, "underflow")
    first, last = small_targets(look["advice"][0]["snippet"], tmp_path / "1")
    assert last < first / 2
    (*_, look) = files.looks(tmp_path / "1")[0]
    assert look["advice"] == []
