"""Skipped steps against a known truth: gradients made infinite at chosen steps, on both Kerases and on JAX.

One table: dynamic scaling, calls of one and of eight steps with a last one that is not full, inputs of known
and unknown size, gradient accumulation, and two replicas on virtual devices. Any two of these meet in the cases of
each test run; `make full` has all of them."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.store import Records, read_records
from tests.record.processes import done, done_on_jax

pytestmark = pytest.mark.framework

SHARDED, REST = "sharded", "the rest"
STEPS, BAD = 262, (2, 19, 20, 229, 231, 261)
"""Of an epoch. The first skips fall where every step is read, those of 229 and 231 into one interval of the sixteen
steps between two readings, and the last one into the call that is not full."""

CASES = {
    f"{calls}-{size}-{micro}": {"per_call": calls, "known": size == "known", "accumulate": micro}
    for calls in (1, 8)
    for size in ("known", "unknown")
    for micro in (1, 4)
}
REPLICATED = {name: case for name, case in CASES.items() if case["known"] and case["accumulate"] == 1}
PAIRS = {
    name: case
    for name, case in CASES.items()
    if (case["per_call"] == 1) ^ bool(case["known"]) ^ (case["accumulate"] == 4)
}
OTHERS = {name: case for name, case in CASES.items() if name not in PAIRS}
PLATFORMS = {
    "keras 3": PAIRS,
    f"keras 3, {REST}": OTHERS,
    "tf_keras": {  # has no accumulation, and refuses an unknown size with calls of several steps
        name: case
        for name, case in CASES.items()
        if case["accumulate"] == 1 and (case["known"] or case["per_call"] == 1)
    },
    # Without any callback, too, Keras 3.15.1's calls of several steps fail under a MirroredStrategy.
    "keras 3, two replicas": {name: case for name, case in REPLICATED.items() if case["per_call"] == 1},
    "tf_keras, two replicas": REPLICATED,
    "jax": PAIRS,
    f"jax, {REST}": OTHERS,
    "jax, two devices": REPLICATED,
    "jax, sharded": REPLICATED,
}


def framework_of(platform: str) -> str:
    return "jax" if platform.startswith("jax") else "tensorflow"


# --- the trainings, those of one framework in one process with two virtual devices -------------------------


def train(platform: str, out: Path) -> None:
    """Every case of the platform, with the optimizer's own counters at the end as what really happened."""
    from tests.record.training import callback, data, digest

    package, _, spread = platform.partition(", ")
    x, y = data(STEPS, BAD)
    truth = {}
    for name, case in PLATFORMS[platform].items():
        given = _input(package, x, y, bool(case["known"]))
        digests = []
        for callbacks in ([], [callback(out / name)])[0 if spread == SHARDED else 1 :]:
            with _spread(package, spread):
                made = _model(package, case)
            made.fit(**given, epochs=2, verbose=0, callbacks=callbacks)
            digests.append(digest(made) if spread == SHARDED else "")
        truth[name] = {
            **_truth(made.optimizer),
            "identical": len(set(digests)) == 1,
            **_sharding(made, spread),
        }
    (out / "truth.json").write_text(json.dumps(truth))


def _spread(package: str, how: str) -> Any:
    import contextlib

    if how in ("", REST):
        return contextlib.nullcontext()
    if package == "jax":
        import jax
        import keras

        assert jax.device_count() == 2
        made = _sharded() if how == SHARDED else keras.distribution.DataParallel()
        keras.distribution.set_distribution(made)  # comes last in the process
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()


def _sharded() -> Any:
    """One replica, whose dense layers lie on both devices."""
    import keras

    mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), keras.distribution.list_devices())
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*dense.*kernel"] = (None, "model")
    layout[".*dense.*bias"] = ("model",)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def _sharding(made: Any, spread: str) -> dict[str, Any]:
    """How much of the kernel a device holds."""
    kernel = made.weights[0].value
    return {"shard": list(kernel.addressable_shards[0].data.shape)} if spread == SHARDED else {}


def _model(package: str, case: dict[str, Any]) -> Any:
    if package == "tf_keras":
        from tests.record.test_fit_tf_keras import model as of_keras_2

        return of_keras_2("sgd", hidden=False, steps_per_execution=case["per_call"])
    import keras

    from tests.record.training import model

    micro = case["accumulate"] if case["accumulate"] > 1 else None
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=micro)
    return model(optimizer=optimizer, kind="linear", steps_per_execution=case["per_call"])


def _input(package: str, x: Any, y: Any, known: bool) -> dict[str, Any]:
    """What `fit` is given."""
    from tests.record.training import BATCH, batches_of_unknown_number

    if not known:
        return {"x": batches_of_unknown_number(x, y)}
    if package == "jax":
        return {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    import tensorflow as tf

    # The type of its elements does not state the size: the last batch might be smaller.
    return {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}


def _truth(optimizer: Any) -> dict[str, float]:
    """How often the inner optimizer ran, and the loss scale. Keras 2 counts skipped steps, too: there the
    halvings of its scale tell."""
    scale = optimizer.dynamic_scale if hasattr(optimizer, "dynamic_scale") else optimizer.loss_scale
    counter = getattr(optimizer.inner_optimizer, "_iterations", None)
    return {"ran": int(_number(counter)), "scale": _number(scale)}


def _number(variable: Any) -> float:
    """Of a Keras variable, which holds the framework's, at times mirrored, or of a plain one."""
    held = getattr(variable, "value", variable)
    held = variable if callable(held) else held
    return float(held.numpy() if hasattr(held, "numpy") else held)


def rest_on_tensorflow(folder: Path) -> None:
    train(f"keras 3, {REST}", folder / f"keras 3, {REST}")


def rest_on_jax(folder: Path) -> None:
    train(f"jax, {REST}", folder / f"jax, {REST}")


def on_tensorflow(folder: Path) -> None:
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    _all_of("tensorflow", folder)


def on_jax(folder: Path) -> None:
    _all_of("jax", folder)


def _all_of(framework: str, folder: Path) -> None:
    for platform in PLATFORMS:
        if platform.endswith(REST):
            continue
        package = platform.partition(", ")[0].replace("keras 3", "keras")
        if framework_of(platform) == framework and importlib.util.find_spec(package):
            train(platform, folder / platform)


# --- what was recorded -------------------------------------------------------------------------------------


@functools.cache
def trained(framework: str, out: Path, *, rest: bool) -> None:
    """All platforms of it, below `out`; or, in a process of its own, the cases that not every test run has."""
    if framework == "jax":
        flags = "--xla_force_host_platform_device_count=2"
        done_on_jax(rest_on_jax if rest else on_jax, out, XLA_FLAGS=flags)
    else:
        work = rest_on_tensorflow if rest else on_tensorflow
        done(out / f"said by {work.__name__}", work, out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skips")


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.full] * name.endswith(REST)) for name in PLATFORMS]
)
def platform(request: pytest.FixtureRequest, folder: Path) -> Any:
    name = str(request.param)
    pytest.importorskip(framework_of(name))
    pytest.importorskip(name.partition(", ")[0].replace("keras 3", "keras"))
    trained(framework_of(name), folder, rest=name.endswith(REST))
    out = folder / name
    return name, out, json.loads((out / "truth.json").read_text())


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.warnings == ()
    assert read.finished
    return read


def test_steps_and_skips_are_exact(platform: Any) -> None:
    name, out, truth = platform
    table = {}
    for case in PLATFORMS[name]:
        steps = records(out / case).steps
        skipped = int(steps.skipped[steps.skipped > 0].sum())
        table[case] = (int(steps.step[-1]), int(steps.covers.sum()), skipped, float(steps.loss_scale[-1]))
    wanted = {case: (2 * STEPS, 2 * STEPS, 2 * len(BAD), truth[case]["scale"]) for case in table}
    assert table == wanted
    assert {case["scale"] for case in truth.values()} == {2.0 ** (15 - 2 * len(BAD))}
    if not name.startswith("tf_keras"):
        assert {case["ran"] for case in truth.values()} == {2 * (STEPS - len(BAD))}


def test_each_reading_has_the_skips_since_the_one_before(platform: Any) -> None:
    name, out, _ = platform
    bad = np.array([step + epoch * STEPS for epoch in range(2) for step in BAD])
    for case, given in PLATFORMS[name].items():
        steps = records(out / case).steps
        read = steps.step[steps.skipped >= 0]
        since = np.concatenate([[0], read[:-1]])
        wanted = [int(((bad > before) & (bad <= at)).sum()) for before, at in zip(since, read, strict=True)]
        assert steps.skipped[steps.skipped >= 0].tolist() == wanted, case
        if given["per_call"] == 1:
            assert len(read) < len(steps) / 2, case
        elif given["known"]:
            assert len(read) < 0.75 * len(steps), case
        # Else any call may be the one that is not full, and is read.
        assert (read - since).max() == (16 if given["known"] or given["per_call"] == 1 else 8), case
        assert {STEPS, 2 * STEPS} <= set(read.tolist()), case


@pytest.mark.parametrize("platform", ["jax, sharded"], indirect=True)
def test_a_sharded_model_trains_bit_by_bit_as_without_the_callback(platform: Any) -> None:
    _, _, truth = platform
    assert {tuple(case["shard"]) for case in truth.values()} == {(8, 2)}  # half of the kernel
    assert all(case["identical"] for case in truth.values())


def test_how_it_was_spread_is_recorded(platform: Any) -> None:
    name, out, _ = platform
    _, _, spread = name.partition(", ")
    kind = {
        "": None,
        REST: None,
        "two devices": "DataParallel",
        SHARDED: "ModelParallel",
        "two replicas": "MirroredStrategy",
    }[spread]
    for case, given in PLATFORMS[name].items():
        facts = records(out / case).facts
        assert (facts.distribution, facts.replicas) == (kind, 1 if spread in ("", REST, SHARDED) else 2)
        (fit,) = facts.fits
        assert fit.batch_size == (8 if given["known"] else None)
        assert (fit.steps_per_execution, fit.gradient_accumulation_steps) == (
            given["per_call"],
            given["accumulate"],
        )
        assert fit.non_finite_weights == ()
