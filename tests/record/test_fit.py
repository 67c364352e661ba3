"""Real training with Keras (CPU): the records are right and the training is untouched, whatever the backend.

On TensorFlow in `make unit`, on torch by `make test-torch`; what is the backend's own stands in test_fit_tensorflow and
tests/torch. JAX (test_fit_jax) needs a process of its own.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.store import find_runs
from tests.record.fits import counter, fit, keras, records, total_skipped
from tests.record.training import assert_did_all, by_default, callback, data, digest, model

pytestmark = pytest.mark.framework
BACKEND = keras.backend.backend()
if BACKEND == "jax":
    pytest.skip("on JAX trainings have a process of their own", allow_module_level=True)


@pytest.fixture
def deterministic() -> Iterator[None]:
    if BACKEND == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(False)
        return
    import tensorflow as tf
    from tensorflow.python.framework import config

    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()


KINDS = ("dense", "convolution", "recurrent")
TRAINED: list[tuple[str, str, dict[str, Any]]] = [("mixed_float16", kind, {}) for kind in KINDS] + (
    [("mixed_bfloat16", kind, {}) for kind in KINDS]
    if BACKEND == "torch"
    else [("mixed_float16", "dense", {"steps_per_execution": 4})]
)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(
    ("policy", "kind", "compiling"),
    [pytest.param(*each, marks=[pytest.mark.full] * (each[1] != "dense")) for each in TRAINED],
)
def test_weights_are_the_same_bit_by_bit(
    tmp_path: Path, policy: str, kind: str, compiling: dict[str, Any]
) -> None:
    x, y = data(40, bad_steps=(3, 14, 20) if policy == "mixed_float16" else ())
    digests = []
    recorded = callback(tmp_path, profile_steps=(12, 16), hardware=True)
    for callbacks in ([], [recorded]):
        made = model(policy, kind=kind, **compiling)
        fit(made, x, y, *callbacks, epochs=2, shuffle=True, validation_data=(x[:16], y[:16]))
        digests.append(digest(made))
    assert digests[0] == digests[1]
    facts = records(tmp_path).facts
    assert facts.deterministic_ops is True
    assert facts.profile_windows[0].status == "done"


@pytest.mark.usefixtures("deterministic")
def test_as_nobody_has_set_it_it_does_all_that_it_can_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(70, bad_steps=(3, 40))
    digests = []
    for callbacks in ([], by_default(tmp_path)):
        made = model(kind="convolution")
        fit(made, x, y, *callbacks, epochs=2, shuffle=True, validation_data=(x[:16], y[:16]))
        digests.append(digest(made))
    assert digests[0] == digests[1]
    assert_did_all(tmp_path / "default", capsys.readouterr().out)


def test_skips_are_found_at_the_steps_where_gradients_were_infinite(tmp_path: Path) -> None:
    x, y = data(70, bad_steps=(3, 40, 41))
    made = model()
    fit(made, x, y, callback(tmp_path))
    read = records(tmp_path)
    steps = read.steps
    assert steps.step.tolist() == list(range(1, 71))
    assert steps.step[steps.skipped > 0].tolist() == [3, 48]  # exact at first, then to the interval
    assert total_skipped(read) == 3 == 70 - counter(made)
    assert steps.loss_scale[1:4].tolist() == [2.0**15, 2.0**14, 2.0**14]
    assert steps.loss_scale[-1] == 2.0**12
    if BACKEND == "tensorflow":
        assert steps.skipped[48:79].min() == 0  # after a change each step is read again
        assert np.isnan(steps.loss[2:]).all()
        assert steps.loss_known.all()


def test_every_step_is_read_where_that_is_wanted(tmp_path: Path) -> None:
    x, y = data(50, bad_steps=(40, 45))
    fit(model(), x, y, callback(tmp_path, read_every=1))
    steps = records(tmp_path).steps
    assert steps.step[steps.skipped > 0].tolist() == [40, 45]
    assert steps.loss_scale_known.all()


def test_a_micro_step_of_an_accumulation_is_no_skip(tmp_path: Path) -> None:
    x, y = data(24, bad_steps=(7,))
    made = model(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=4))
    fit(made, x, y, callback(tmp_path))
    read = records(tmp_path)
    assert total_skipped(read) == 1 == 24 - counter(made)
    assert read.facts.fits[0].gradient_accumulation_steps == 4


def test_a_fixed_scale_never_skips_and_its_weights_are_no_longer_finite(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = data(20, bad_steps=(5,))
    made = model("float32", keras.optimizers.Adam(loss_scale_factor=1024.0, clipnorm=1.0))
    fit(made, x, y, callback(tmp_path))
    read = records(tmp_path)
    assert total_skipped(read) == 0
    assert (read.steps.skipped >= 0).any()
    assert not read.steps.loss_scale_known.any()
    optimizer = read.facts.fits[0].optimizer
    assert (optimizer.dynamic, optimizer.fixed_scale, optimizer.clipping) == (
        False,
        1024.0,
        {"clipnorm": 1.0},
    )
    assert "fixed at 1024.0" in read.facts.absent["loss_scale"]
    broken = [one for one in made.weights if not np.isfinite(keras.ops.convert_to_numpy(one)).all()]
    assert len(read.facts.fits[0].non_finite_weights or ()) == len(broken) > 0
    if BACKEND == "torch":  # on TensorFlow, relu makes 0 of NaN, and the loss stays finite
        assert len(broken) == len(made.weights) == 4
        assert "MP206" in caplog.text


def test_copies_start_runs_of_their_own(tmp_path: Path) -> None:
    x, y = data(3)
    trained, original = model(), callback(tmp_path)
    fit(trained, x, y, original)
    for copied in (copy.deepcopy(original), pickle.loads(pickle.dumps(original)), copy.copy(original)):
        fit(trained, x, y, copied)
        assert copied.root not in (None, original.root)
    assert len(find_runs(tmp_path)) == 4
