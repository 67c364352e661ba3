"""What feeds a training, as its object states it, and how many samples a batch holds.

Of a `tf.data` pipeline only `batch(n, drop_remainder=True)` puts `n` into the elements' type; without it the
last batch may be smaller, and the type says "unknown". The pipeline object itself keeps `n`. Keras has looked
at the first two batches of a generator, and kept them. A PyDataset may have a `batch_size` of its own.
Nothing is iterated, and no function of the user's is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from mpprof.record.backends.base import Absent
from mpprof.record.run_with_timeout import raise_if_signalled

UNCHANGED = "UnaryUnchangedStructureDataset"
"""TensorFlow's own base class of what hands elements on as they are: prefetch, cache, shuffle, repeat, take,
skip, shard, filter, options."""

DEEPEST = 64
"""A pipeline of more operations than this after its `batch` is not followed."""

Sizes = list[int | None]
"""The first dimension of each tensor of an element; None where it is not known."""


def batch_size_of_adapter(adapter: Any) -> int | Absent:
    """Return what Keras' adapter of the input states, else what the input itself shows."""
    size = getattr(adapter, "batch_size", None)
    if callable(size):  # Keras 2
        size = size() or getattr(adapter, "_first_batch_size", None)
    if _is_size(size):
        return size
    if (first := getattr(adapter, "_first_batches", None)) is not None:
        return _of_first_batches(first)
    if hasattr(adapter, "py_dataset"):
        own = getattr(adapter.py_dataset, "batch_size", None)
        return own if _is_size(own) else Absent("a PyDataset states it only by an attribute batch_size")
    found = batch_size_of_pipeline(getattr(adapter, "_dataset", None))
    return Absent("the input does not state it") if found is None else found


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _of_first_batches(batches: Sequence[Any]) -> int | Absent:
    sizes = [_rows(batch) for batch in batches]
    if len(set(sizes)) == 1 and sizes[0]:
        return sizes[0]
    if None in sizes:
        return Absent("the generator's batches are not arrays")
    return Absent(f"the generator's first batches hold {' and '.join(map(str, sizes))} samples")


def _rows(batch: Any) -> int | None:
    """Return the first dimension of the first array of a batch."""
    while isinstance(batch, tuple | list | dict) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return shape[0] if shape is not None and len(shape) and _is_size(shape[0]) else None


def describe_input(data: Any) -> dict[str, Any]:
    """Return what makes the batches and how it is set; empty where it is of an unknown kind."""
    kinds = {kind.__name__ for kind in type(data).__mro__}
    if "DatasetV2" in kinds:
        return {"kind": "tf.data", "operations": _operations(data)}
    if "DataLoader" in kinds:
        return _settings(
            "DataLoader", data, "num_workers", "pin_memory", "persistent_workers", "prefetch_factor"
        )
    if kinds & {"PyDataset", "Sequence"}:
        return _settings("PyDataset", data, "workers", "use_multiprocessing", "max_queue_size")
    return {}


def _settings(kind: str, data: Any, *names: str) -> dict[str, Any]:
    stated = {name: getattr(data, name, None) for name in names}
    return {"kind": kind} | {name: value for name, value in stated.items() if isinstance(value, int | bool)}


def _operations(dataset: Any) -> list[str]:
    """Return the pipeline's operations from its end to its source: "Prefetch", "ParallelMap",
    "TensorSlice"."""
    found: list[str] = []
    while dataset is not None and len(found) < DEEPEST:
        found.append(type(dataset).__name__.lstrip("_").removesuffix("V2").removesuffix("Dataset"))
        inputs = dataset._inputs()
        dataset = inputs[0] if inputs else None
    return found


def batch_size_of_pipeline(dataset: Any) -> int | None:
    """Return the `n` of the last `batch(n)`; None where there is none, or where what follows it may give
    batches of another size. The last batch of an epoch may hold fewer, as it may with arrays."""
    try:
        sizes = _sizes(dataset, DEEPEST)
    except Exception as error:  # noqa: BLE001 - what TensorFlow keeps in a data set is its own
        raise_if_signalled(error)
        return None
    return sizes[0] if sizes else None


def _sizes(dataset: Any, deepest: int) -> Sizes:
    kinds = {kind.__name__.lstrip("_") for kind in type(dataset).__mro__}
    if not deepest or "DatasetV2" not in kinds:
        return []
    if UNCHANGED in kinds:
        return _sizes(dataset._input_dataset, deepest - 1)
    if type(dataset).__name__.endswith("BatchDataset"):
        return _batched(dataset)
    if kinds & {"MapDataset", "ParallelMapDataset"}:
        sizes = _sizes(dataset._input_dataset, deepest - 1)
        return _mapped(dataset._map_func.function.graph, sizes) if any(sizes) else []
    if "ZipDataset" in kinds:
        return [size for one in dataset._inputs() for size in _sizes(one, deepest - 1) or [None]]
    return []


def _batched(dataset: Any) -> Sizes:
    import tensorflow as tf

    number = getattr(dataset, "_batch_size", None)
    size = None if number is None else tf.get_static_value(number)
    known = int(size) if size is not None and size > 0 else None
    return [known] * len(tf.nest.flatten(dataset.element_spec, expand_composites=True))


def _mapped(graph: Any, sizes: Sequence[int | None]) -> Sizes:
    """Return the sizes that a `map` makes of tensors of these sizes: by TensorFlow's own inference of shapes,
    over the graph that the mapped function was traced to. The inference loses them where a function runs
    Python or loops."""
    import tensorflow as tf

    inputs = graph.inputs[: len(graph.inputs) - len(graph.internal_captures)]  # what it captured comes last
    if len(inputs) != len(sizes):
        return []
    with tf.Graph().as_default():
        given = {
            tensor.name: tf.compat.v1.placeholder(
                tensor.dtype, [size, *tensor.shape[1:]] if size and tensor.shape.rank else tensor.shape
            )
            for tensor, size in zip(inputs, sizes, strict=True)
        }
        made = tf.graph_util.import_graph_def(
            graph.as_graph_def(), given, [tensor.name for tensor in graph.outputs]
        )
        return [tensor.shape[0] if tensor.shape.rank else None for tensor in made]
