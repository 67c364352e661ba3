"""What a `tf.data` pipeline says of its batches without being iterated: its own `batch`, and what comes after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpprof.record.facts.dataset import batch_size_of_pipeline, describe_input

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.framework

CALLED: list[str] = []


def samples() -> Any:
    """Ten of them: nothing here divides into full batches, so that no type states a size."""
    return tf.data.Dataset.from_tensor_slices((np.zeros((10, 4, 4, 3), "float32"), np.arange(10)))


def noted(x: Any, y: Any) -> Any:
    CALLED.append("traced")
    return tf.image.random_flip_left_right(x) / 255.0, tf.one_hot(y, 10)


def python(x: Any, y: Any) -> Any:
    return tf.numpy_function(lambda a: a, [x], tf.float32), y


def never(*_: Any) -> Any:
    raise AssertionError("the data was iterated")


PIPELINES: dict[str, tuple[Callable[[], Any], int | None]] = {
    "batch": (lambda: samples().batch(3), 3),
    "and what hands batches on": (
        lambda: samples().shuffle(4).batch(3).cache().repeat(2).shuffle(2).skip(1).take(9).prefetch(2),
        3,
    ),
    "in parallel": (lambda: samples().batch(3, num_parallel_calls=2).with_options(tf.data.Options()), 3),
    "padded": (lambda: samples().padded_batch(3), 3),
    "mapped before": (lambda: samples().map(noted).batch(3), 3),
    "mapped after": (lambda: samples().batch(3).map(noted, num_parallel_calls=2).prefetch(2), 3),
    "of which the map keeps some": (
        lambda: samples().batch(3).map(lambda x, y: (tf.boolean_mask(x, y > 1), y)),
        None,
    ),
    "which the map doubles": (lambda: samples().batch(3).map(lambda x, y: (tf.concat([x, x], 0), y)), 6),
    "into rows": (lambda: samples().batch(3).map(lambda x, y: (tf.reshape(x, [-1, 12]), y)), 12),
    "a map in Python": (lambda: samples().batch(3).map(python), None),
    "as dictionaries": (lambda: samples().batch(3).map(lambda x, y: ({"a": x, "b": -x}, y)), 3),
    "zipped": (lambda: tf.data.Dataset.zip((samples().batch(3), samples().batch(3))), 3),
    "the last of two": (lambda: samples().batch(5).unbatch().batch(3), 3),
    "batches of batches": (lambda: samples().batch(5).batch(2), 2),
    "taken apart": (lambda: samples().batch(3).unbatch(), None),
    "made anew": (lambda: samples().batch(3).flat_map(lambda *xy: tf.data.Dataset.from_tensors(xy)), None),
    "not batched": (samples, None),
    "of a generator": (
        lambda: tf.data.Dataset.from_generator(never, output_signature=tf.TensorSpec((None, 3))),
        None,
    ),
    "over data that must not be read": (
        lambda: tf.data.Dataset.from_generator(never, output_signature=tf.TensorSpec((3,))).batch(3),
        3,
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_batch_size_of_a_pipeline(name: str) -> None:
    make, size = PIPELINES[name]
    pipeline = make()
    del CALLED[:]
    assert batch_size_of_pipeline(pipeline) == size
    assert not CALLED  # no function of the user's is traced once more
    if size and "must not" not in name:
        first = tf.nest.flatten(next(iter(pipeline)))[0]
        assert first.shape[0] == size


@pytest.mark.parametrize("other", [None, 3, object(), [np.zeros(3)]])
def test_what_is_no_pipeline_states_none(other: Any) -> None:
    assert batch_size_of_pipeline(other) is None


def test_a_pipeline_states_its_operations_from_its_end() -> None:
    pipeline = samples().cache().map(noted, num_parallel_calls=2).batch(3).prefetch(2)
    assert describe_input(pipeline) == {
        "kind": "tf.data",
        "operations": ["Prefetch", "Batch", "ParallelMap", "Cache", "TensorSlice"],
    }
    zipped = tf.data.Dataset.zip((samples(), samples())).map(lambda a, b: a)
    assert describe_input(zipped)["operations"] == ["Map", "Zip", "TensorSlice"]


def test_a_data_set_in_python_states_its_workers() -> None:
    keras = pytest.importorskip("keras")

    class Batches(keras.utils.PyDataset):  # type: ignore[misc, name-defined]
        pass

    made = Batches(workers=3, use_multiprocessing=True)
    assert describe_input(made) == {
        "kind": "PyDataset", "workers": 3, "use_multiprocessing": True, "max_queue_size": 10,
    }  # fmt: skip
    assert describe_input(np.zeros(3)) == {}
    assert describe_input(None) == {}
