"""Training loops of one's own with every optimizer that scales the loss: skips are exact, read by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import read_records
from tests.record.processes import done, done_on_jax

pytestmark = pytest.mark.framework

STEPS, BAD = 40, (3, 34, 35)
LOOPS = {
    "tensorflow": ("keras3_eager", "keras3_function", "keras2_eager", "keras2_function", "keras3_train_step"),
    "jax": ("jax_keras", "jax_plain", "jax_resumed", "jax_late"),
}


def _batches() -> Any:
    from tests.record.training import BATCH, data

    x, y = data(STEPS, BAD)
    return [(x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH)]


def _recorder(out: Path, **more: Any) -> Any:
    from mpprof.record import StepRecorder

    return StepRecorder(out, hardware=False, profile_steps=None, announce=None, verbose=0, **more)


def _gradients_of_keras(keras: Any, function: bool, out: Path) -> dict[str, float]:
    """A GradientTape loop; `loss` and gradients are scaled and un-scaled by the optimizer as its Keras wants."""
    import tensorflow as tf

    of_keras_2 = keras.__name__ == "tf_keras"
    if of_keras_2:
        from tests.record.test_fit_tf_keras import model

        made = model()
    else:
        from tests.record.training import model as of_keras_3

        made = of_keras_3()
    optimizer = made.optimizer
    compute = keras.losses.SparseCategoricalCrossentropy()

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = compute(y, made(x, training=True))
            scaled = optimizer.get_scaled_loss(loss) if of_keras_2 else optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, made.trainable_variables)
        if of_keras_2:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, made.trainable_variables, strict=True))
        return loss

    optimizer.build(made.trainable_variables)
    step = tf.function(train) if function else train
    with _recorder(out, model=made, optimizer=optimizer, batch_size=8) as recorder:
        for x, y in recorder.batches(_batches()):
            with recorder.step():
                loss = step(tf.constant(x), tf.constant(y))
            recorder.update(loss=float(loss))
    return {"scale": float(optimizer.loss_scale if of_keras_2 else optimizer.dynamic_scale.numpy())}


def keras3_eager(out: Path) -> dict[str, float]:
    import keras

    return _gradients_of_keras(keras, False, out)


def keras3_function(out: Path) -> dict[str, float]:
    import keras

    return _gradients_of_keras(keras, True, out)


def keras2_eager(out: Path) -> dict[str, float]:
    import tf_keras

    return _gradients_of_keras(tf_keras, False, out)


def keras2_function(out: Path) -> dict[str, float]:
    import tf_keras

    return _gradients_of_keras(tf_keras, True, out)


def keras3_train_step(out: Path) -> dict[str, float]:
    """`fit` with a train_step of one's own, under the callback."""
    import keras
    import tensorflow as tf

    from tests.record.training import callback, data

    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, given: Any) -> Any:
            x, y = given
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    keras.config.set_dtype_policy("mixed_float16")
    layers = keras.layers
    made = Own([layers.Dense(16), layers.Dense(4), layers.Activation("softmax", dtype="float32")])
    made.compile("adam", "sparse_categorical_crossentropy")
    keras.config.set_dtype_policy("float32")
    x, y = data(STEPS, BAD)
    made.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback(out)])
    return {"scale": float(made.optimizer.dynamic_scale.numpy())}


def jax_keras(out: Path, resumed: bool = False, late: bool = False) -> dict[str, float]:
    """A stateless loop: the optimizer's variables are the loop's own."""
    import jax
    import keras

    from tests.record.training import model

    made = model()
    optimizer = made.optimizer
    optimizer.build(made.trainable_variables)
    compute = keras.losses.SparseCategoricalCrossentropy()

    def loss_of(trainable: Any, fixed: Any, state: Any, x: Any, y: Any) -> Any:
        outputs, fixed = made.stateless_call(trainable, fixed, x, training=True)
        with keras.StatelessScope(state_mapping=list(zip(optimizer.variables, state, strict=True))):
            return optimizer.scale_loss(compute(y, outputs)), fixed

    @jax.jit
    def train(trainable: Any, fixed: Any, state: Any, x: Any, y: Any) -> Any:
        (loss, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, fixed, state, x, y)
        trainable, state = optimizer.stateless_apply(state, gradients, trainable)
        return loss, trainable, fixed, state

    trainable = [v.value for v in made.trainable_variables]
    fixed = [v.value for v in made.non_trainable_variables]
    state = [v.value for v in optimizer.variables]
    if resumed:
        x, y = _batches()[0]
        for _ in range(5):
            _, trainable, fixed, state = train(trainable, fixed, state, x, y)
    with _recorder(out, model=made, optimizer=optimizer, batch_size=8) as recorder:
        if resumed:
            recorder.update(optimizer_variables=state)
        for x, y in recorder.batches(_batches()):
            with recorder.step():
                _, trainable, fixed, state = train(trainable, fixed, state, x, y)
            if late:
                recorder.epoch()
            recorder.update(optimizer_variables=state)
    for variable, value in zip(optimizer.variables, state, strict=True):
        variable.assign(value)
    return {"scale": float(optimizer.dynamic_scale.value)}


def jax_resumed(out: Path) -> dict[str, float]:
    """The same with an optimizer that has taken steps already."""
    return jax_keras(out, resumed=True)


def jax_late(out: Path) -> dict[str, float]:
    """The same where the variables are handed over when the step's line is written already."""
    return jax_keras(out, late=True)


def jax_plain(out: Path) -> dict[str, float]:
    """Without Keras: a loss scale of the loop's own, given by hand."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train(weights: Any, scale: Any, x: Any) -> Any:
        gradient = jax.grad(lambda w: scale * jnp.mean((x.astype("float16") @ w.astype("float16")) ** 2))(
            weights
        )
        finite = jnp.isfinite(gradient).all()
        weights = jnp.where(finite, weights - 1e-3 * gradient / scale, weights)
        return weights, jnp.where(finite, scale, scale / 2), ~finite

    weights, scale = jnp.ones((8, 4)), jnp.asarray(64.0)
    with _recorder(out, backend="jax", wait=lambda: weights.block_until_ready()) as recorder:
        for x, _ in _batches():
            with recorder.step():
                weights, scale, skipped = train(weights, scale, x)
            recorder.update(loss_scale=scale, skipped=skipped)
    return {"scale": float(scale)}


def on_tensorflow(folder: Path) -> None:
    _all_of("tensorflow", folder)


def on_jax(folder: Path) -> None:
    _all_of("jax", folder)


def _all_of(backend: str, folder: Path) -> None:
    loops: dict[str, Callable[[Path], dict[str, float]]] = {name: globals()[name] for name in LOOPS[backend]}
    truth = {name: loop(folder / name) for name, loop in loops.items()}
    (folder / "truth.json").write_text(json.dumps(truth))


# --- what was recorded -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LOOPS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    backend = str(request.param)
    pytest.importorskip(backend)
    pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    out = tmp_path_factory.mktemp(backend)
    if backend == "jax":
        done_on_jax(on_jax, out)
    else:
        done(out / "said", on_tensorflow, out)
    return backend, out


def test_steps_skips_and_scales_are_exact(folder: Any) -> None:
    backend, out = folder
    truth = json.loads((out / "truth.json").read_text())
    table = {}
    for name in LOOPS[backend]:
        read = read_records(out / name)
        assert read.warnings == ()
        steps, facts = read.steps, read.facts
        assert not {"skipped", "loss_scale"} & set(facts.absent)
        at = steps.step[steps.skipped > 0].tolist()
        skipped = int(steps.skipped[steps.skipped > 0].sum())
        scale = float(steps.loss_scale[steps.loss_scale_known][-1])
        table[name] = (len(steps), skipped, at[0], scale)
    assert table == {name: (STEPS, len(BAD), BAD[0], truth[name]["scale"]) for name in LOOPS[backend]}
