"""How many samples a `tf.data` pipeline asks for per batch, where the type of its elements does not say so.

Only `batch(n, drop_remainder=True)` puts `n` into the elements' type; without it the last batch may be
smaller, and the type says "unknown". The pipeline itself has kept the `n`. Nothing is iterated, and no
function of the user's is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNCHANGED = "UnaryUnchangedStructureDataset"
"""TensorFlow's own base class of what hands elements on as they are: prefetch, cache, shuffle, repeat, take,
skip, shard, filter, options."""

DEEPEST = 64
"""A pipeline of more operations than this after its `batch` is not followed."""

Sizes = list[int | None]
"""The first dimension of each tensor of an element; None where it is not known."""


def batch_size_of_pipeline(dataset: Any) -> int | None:
    """The `n` of the last `batch(n)`; None where there is none, or where what follows it may give batches of
    another size. The last batch of an epoch may hold fewer, as it may with arrays."""
    try:
        sizes = _sizes(dataset, DEEPEST)
    except Exception:  # noqa: BLE001 - what TensorFlow keeps in a data set is its own: then nothing is known
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
    """What a `map` makes of tensors of these sizes: by TensorFlow's own inference of shapes, over the graph
    that the mapped function was traced to. It loses them where a function runs Python or loops."""
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
