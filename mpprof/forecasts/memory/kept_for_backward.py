"""What the backward pass needs of each recorded layer, as a graph of operations.

The rules are those of the frameworks' gradients, by name: TensorFlow's `python/ops/nn_grad.py` and
`math_grad.py`, PyTorch's `tools/autograd/derivatives.yaml`, JAX's `_src/nn/functions.py` and `_src/lax`. They
agree but for what `ReLU` keeps. Only shapes and types are looked at; nothing runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.layers import flops, kinds
from mpprof.errors import UnableError
from mpprof.forecasts.memory import functions
from mpprof.model.frozen import frozen
from mpprof.model.run import FunctionFacts, LayerFacts, ModelFacts
from mpprof.tensors import HALF, WIDTHS


@frozen
class Held:
    """Something of one operation that only its own gradient needs: `elements` for each example."""

    what: str
    dtype: str
    elements: int

    @property
    def bytes(self) -> int:
        return self.elements * WIDTHS[self.dtype]


@frozen
class Operation:
    """One operation of the forward pass, on one example. `inputs` are places in the list of operations.

    `keeps` are the inputs that its gradient needs, by their place among all operations, `keeps_output`
    whether it needs what it gave. `cheap`: it works element by element, so that a compiler computes it again
    rather than keep it, unless it is `costly`. `in_memory`: it reads its inputs from memory and does not take
    them from a fusion. `renamed`: it gives its input in another shape, without a copy. `held` is kept for its
    gradient alone, `passing` is there while its gradient is computed. `in_place`: it writes the gradient of
    what it takes in its place.
    """

    layer: str
    what: str
    elements: int
    dtype: str
    inputs: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    keeps_output: bool = False
    cheap: bool = False
    costly: bool = False
    in_memory: bool = False
    renamed: bool = False
    trains: bool = False
    in_place: bool = False
    held: tuple[Held, ...] = ()
    passing: tuple[Held, ...] = ()

    @property
    def bytes(self) -> int:
        return self.elements * WIDTHS[self.dtype]


@frozen
class Machine:
    """What decides which rule holds: the backend, whether XLA compiles the step, and the card."""

    backend: str = "tensorflow"
    compiled: bool = True
    capability: tuple[int, int] | None = None
    loss: str | None = None

    @property
    def reuses(self) -> bool:
        """Whether an operation that works element by element writes to the memory of what it takes, where
        nothing else needs that: TensorFlow's kernels op by op (`forward_input_or_allocate_output`)."""
        return self.backend == "tensorflow" and not self.compiled

    @property
    def is_cross_entropy(self) -> bool | None:
        """Whether the loss is the cross-entropy of classes; None: not known."""
        if self.loss is None:
            return None
        return "categoricalcrossentropy" in self.loss.lower().replace("_", "")

    @property
    def widens_bfloat16(self) -> bool:
        """Whether convolutions in bfloat16 take and give float32: cards before compute capability 8.0 have
        none in bfloat16, and XLA's float normalisation (xla/service/gpu) runs them in float32."""
        return self.compiled and self.capability is not None and self.capability < (8, 0)


@frozen
class Graph:
    """The operations in forward order. `unknown` says of which layers an assumption was made; `custom` names
    the layers and functions of no known kind, counted as keeping their input and nothing else."""

    operations: tuple[Operation, ...]
    unknown: tuple[str, ...]
    custom: tuple[str, ...] = ()


def graph(model: ModelFacts, machine: Machine) -> Graph:
    """Return the operations of a recorded model. Raises `UnableError` where it does not state the shapes of
    its layers, as a subclassed model does not."""
    return _Builder(model, machine).built()


class _Builder:
    def __init__(self, model: ModelFacts, machine: Machine) -> None:
        self.model, self.machine = model, machine
        self.layers = {layer.name: layer for layer in model.layers}
        self.operations: list[Operation] = []
        self.unknown: list[str] = []
        self.custom: list[str] = []
        self.functions = {
            each.name: each for each in model.functions or ()
        }  # those that nothing has asked for
        self.results: dict[str, int] = {}  # by layer or function, the operation that gives what it returns
        self.rows: dict[int, int] = {}  # by operation, the rows that one example has of it, where not one
        self.times = 1  # the rows of one example in what the layer at hand takes
        self.needs: list[bool] = []  # by operation, whether a gradient flows through it
        self.within: str | None = None

    def built(self) -> Graph:
        last = None
        for layer in self.model.layers:
            if self._inside_another(layer):
                continue
            if _is_model(layer) and any(name.startswith(f"{layer.name}/") for name in self.layers):
                continue  # its layers are listed after it
            inputs = self._inputs(layer, last)
            last = self._expanded(layer, inputs)
            self.results[layer.name] = last
        if last is None:
            raise UnableError("the model has no layers whose shapes are stated")
        for end in self._ends(last):
            self._loss(end)
        return Graph(tuple(self.operations), tuple(self.unknown), tuple(self.custom))

    # --- the graph of layers ---

    def _inside_another(self, layer: LayerFacts) -> bool:
        """Return whether the layer is part of a layer that is taken as a whole."""
        outer = flops.parent(layer, self.layers)
        while outer is not None:
            if not _is_model(outer):
                return True
            outer = flops.parent(outer, self.layers)
        return False

    def _inputs(self, layer: LayerFacts, last: int | None) -> tuple[int, ...]:
        prefix = layer.name.rpartition("/")[0]
        names = layer.inbound if layer.takes is None else layer.takes
        found = [self._result(f"{prefix}/{name}" if prefix else name) for name in names or ()]
        known = tuple(at for at in found if at is not None)
        if known or layer.inbound == () or last is None:
            return known
        if layer.kind == "InputLayer":
            outer = self.layers.get(prefix)
            return self._inputs(outer, last) if outer is not None else ()
        return (last,)  # nothing states the graph: one after the other

    def _result(self, name: str) -> int | None:
        inside = f"{name}/"
        if name in self.functions:
            self._make(name)
        if name in self.results:
            return self.results[name]
        for key in [key for key in self.functions if key.startswith(inside)]:
            self._make(key)
        within = [at for key, at in self.results.items() if key.startswith(inside)]
        return within[-1] if within else None

    def _make(self, name: str) -> None:
        """Add the operations of a function, and before it those of the functions that it takes."""
        waiting, begun = [name], set[str]()
        while waiting:
            name = waiting[-1]
            function = self.functions.get(name)
            prefix = f"{name.rpartition('/')[0]}/" if "/" in name else ""
            taken = [f"{prefix}{one}" for one in function.takes] if function else []
            missing = [one for one in taken if one in self.functions and one not in begun]
            begun.add(name)
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if function is not None and name in self.functions:
                del self.functions[name]
                found = [self._result(one) for one in taken]
                inputs = [at for at in found if at is not None]
                self.results[name] = self._function(function, inputs)

    def _ends(self, last: int) -> Sequence[int]:
        named = [self._result(each.layer) for each in self.model.outputs]
        return [at for at in dict.fromkeys(named) if at is not None] or [last]

    # --- operations ---

    def _add(
        self, layer: LayerFacts | None, what: str, elements: int, dtype: str, *inputs: int, **more: Any
    ) -> int:
        name = self.within or (layer.name if layer else "loss")
        keeps = more.pop("keeps", False)
        keeps = tuple(inputs) if keeps else ()
        self.operations.append(Operation(name, what, elements, dtype, tuple(inputs), keeps, **more))
        at = len(self.operations) - 1
        self.needs.append(bool(more.get("trains")) or any(self.needs[one] for one in inputs))
        if (rows := self._rows_of(inputs)) > 1:
            self.rows[at] = rows
        return at

    def _rows_of(self, inputs: Sequence[int]) -> int:
        return max((self.rows.get(at, 1) for at in inputs), default=1)

    def _cast(self, layer: LayerFacts, at: int, dtype: str) -> int:
        """Return the input in the layer's type: Keras casts an input of another floating type (autocast)."""
        given = self.operations[at]
        if given.dtype == dtype or not given.dtype.startswith(("float", "bfloat")):
            return at
        return self._add(layer, "input", given.elements, dtype, at, cheap=True)

    def _activation(self, layer: LayerFacts, at: int, name: object) -> int:
        """Return the result of an activation by its name, with what its gradient needs."""
        text = str(name or "linear").lower()
        if text in ("linear", "none"):
            return at
        given = self.operations[at]
        rule = _ACTIVATIONS.get(text)
        if rule is None:
            self.unknown.append(f"{layer.name}: the activation {name} is assumed to keep its input")
            rule = ("input", 0)
        needs, between = rule
        if text in ("relu", "relu6"):
            needs = "input" if self.machine.backend == "jax" else "output"
        held = (Held("activation", given.dtype, given.elements * between),) if between else ()
        return self._add(
            layer, text, given.elements, given.dtype, at,
            keeps=needs == "input", keeps_output=needs == "output", cheap=True, held=held,
            costly=text in _COSTLY,
        )  # fmt: skip

    def _loss(self, at: int) -> None:
        """Add the loss, which needs what the model gives (`_SoftmaxCrossEntropyWithLogitsGrad`,
        `mse_loss_backward`). On TensorFlow, Keras takes the logits of a softmax for the cross-entropy
        (`_get_logits` of its backend); op by op one kernel writes the logits' gradient in their place
        (`SparseXentWithLogits`)."""
        if self.machine.reuses and self.operations[at].what == "softmax" and (
            self.machine.is_cross_entropy is not False
        ):  # fmt: skip
            softmax = self.operations[at]
            self.operations[at] = replace(softmax, what="logits", keeps_output=False, renamed=True)
            self._add(None, "loss", 1, "float32", at, keeps=True, cheap=True, in_place=True)
            return
        fused = self.machine.reuses and bool(self.machine.is_cross_entropy)
        self._add(None, "loss", 1, "float32", at, keeps=True, cheap=True, in_place=fused)

    def _expanded(self, layer: LayerFacts, inputs: tuple[int, ...]) -> int:
        """Add a layer's operations; returns the one that gives its result."""
        kind, self.times = layer.kind, self._rows_of(inputs)
        if kind in ("TimeDistributed", "Bidirectional", "SpectralNormalization", "Wrapper"):
            return self._wrapped(layer, inputs)
        if kinds.is_entry(layer) or not inputs:
            return self._entry(layer, inputs)
        dtype = layer.compute_dtype or "float32"
        if kind == "Embedding":
            return self._add(layer, "output", self._size(layer), dtype, *inputs, trains=True, in_memory=True)
        given = tuple(self._cast(layer, at, dtype) for at in inputs)
        if kinds.is_attention(layer):
            return self._attention(layer, given, dtype)
        if kinds.is_recurrent(layer):
            return self._recurrent(layer, given, dtype, layer)
        if kinds.is_matrix(layer) and (kinds.is_convolution(layer) or kind in ("Dense", "EinsumDense")):
            return self._product(layer, given, dtype)
        return self._plain(layer, given, dtype)

    def _function(self, function: FunctionFacts, inputs: Sequence[int]) -> int:
        """Return the result of a function between layers, which counts as the layer that does the same. It
        may join the batch with another axis, so that one example has several rows."""
        given = tuple(dict.fromkeys(inputs))
        dtype = functions.dtype_of(function, [self.operations[at].dtype for at in given])
        shape = functions.shape_of(function)
        layer = LayerFacts(function.name, function.class_name, dtype, None, dtype, output_shape=shape)
        alike = functions.as_layer(function, dtype, len(inputs))
        self.times = self._rows_of(given)
        elements = self._size(layer)
        if alike is not None and alike.kind == "Reshape" and given:
            whole = self.operations[given[0]].elements
            at = self._add(layer, "output", whole, dtype, given[0], cheap=True, renamed=True)
            self.rows[at] = max(1, whole * self.times // max(1, elements))
            return at
        if alike is not None and given:
            return self._plain(alike, given, dtype)
        kind = function.class_name if function.module == "keras" else ""
        if kind == kinds.ATTENTION and len(given) > 2:
            return self._between_heads(layer, given, elements)
        if kind not in kinds.PRODUCTS and any(self.needs[at] for at in given):
            self.custom.append(function.name)
        return self._add(layer, "output", elements, dtype, *given, keeps=True, in_memory=True)

    def _entry(self, layer: LayerFacts, inputs: tuple[int, ...]) -> int:
        dtype = layer.output_dtype or layer.compute_dtype or "float32"
        dtype = dtype if dtype in WIDTHS else "int64"
        if inputs:
            return self._add(layer, "input", self._size(layer), dtype, *inputs, cheap=True)
        return self._add(layer, "input", self._size(layer), dtype)

    def _product(self, layer: LayerFacts, given: tuple[int, ...], dtype: str) -> int:
        """Return the result of a product, which needs its input for the weights' gradient: `_Conv2DGrad`,
        `_MatMulGrad`; `convolution_backward`, `addmm`; `lax.conv_general_dilated`, `lax.dot_general`."""
        elements, trains = self._size(layer), layer.trainable is not False
        wide = kinds.is_convolution(layer) and dtype == "bfloat16" and self.machine.widens_bfloat16
        of = "float32" if wide else dtype
        at = self._cast(layer, given[0], of)
        if kinds.is_separable(layer):
            times = int(layer.config.get("depth_multiplier") or 1)
            channels = _dims(layer.input_shape)[-1] * times
            spread = elements // max(1, _dims(layer.output_shape)[-1]) * channels
            at = self._add(layer, "depthwise", spread, of, at, keeps=True, in_memory=True, trains=trains)
        passing = (Held("padded gradient", of, _padded(layer)),) if wide and _strided(layer) else ()
        at = self._add(
            layer, "output", elements, of, at, keeps=True, in_memory=True, trains=trains, passing=passing
        )  # fmt: skip
        at = self._cast(layer, at, dtype)
        return self._activation(layer, at, layer.config.get("activation"))

    def _attention(self, layer: LayerFacts, given: tuple[int, ...], dtype: str) -> int:
        """Return the result of attention. Its projections are products; the attention itself needs query,
        key, value and its probabilities (`_SoftmaxGrad`, `softmax`: the output). Products of query and key
        are summed in float32 (Keras' `dot_product_attention`), whatever the policy. A fused kernel keeps its
        output and a sum for each row (`_scaled_dot_product_flash_attention`; cuDNN's `fmha` in
        `jax/_src/cudnn`)."""
        config = layer.config
        query, value = given[0], given[1 if len(given) > 1 else 0]
        key = given[2] if len(given) > 2 else value
        heads = int(config.get("num_heads") or config.get("num_query_heads") or 1)
        pairs = int(config.get("num_key_value_heads") or heads)
        width = int(config.get("key_dim") or config.get("head_dim") or 1)
        depth = int(config.get("value_dim") or width)
        rows = _rows(self.operations[query].elements, layer.input_shape, 0)
        columns = _rows(self.operations[value].elements, layer.input_shape, 1)
        heavy = {"keeps": True, "in_memory": True, "trains": layer.trainable is not False}
        q = self._add(layer, "query", rows * heads * width, dtype, query, **heavy)
        k = self._add(layer, "key", columns * pairs * width, dtype, key, **heavy)
        v = self._add(layer, "value", columns * pairs * depth, dtype, value, **heavy)
        scores, dropout = rows * columns * heads, float(config.get("dropout") or 0.0)
        if dropout:
            held = [Held("probabilities", dtype, 2 * scores), Held("mask", "bool", scores)]
        elif self._fused(width, dtype):
            held = [Held("row sums", "float32", rows * heads)]
        else:
            held = [Held("scores", "float32", scores), Held("probabilities", dtype, scores)]
        at = self._add(
            layer,
            "attention",
            rows * heads * depth,
            dtype,
            q,
            k,
            v,
            keeps=True,
            in_memory=True,
            held=tuple(held),
        )
        return self._add(layer, "output", self._size(layer), dtype, at, **heavy)

    def _between_heads(self, layer: LayerFacts, given: tuple[int, ...], elements: int) -> int:
        """Return the result of `keras.ops.dot_product_attention`: of (batch, positions, heads, features)."""
        dtype, (heads, width) = layer.compute_dtype or "float32", (1, *_dims(layer.output_shape))[-2:]
        rows = elements // max(1, width)
        scores = rows * (self.operations[given[1]].elements // max(1, heads * width))
        held = [Held("scores", "float32", scores), Held("probabilities", dtype, scores)]
        if self._fused(width, dtype):
            held = [Held("row sums", "float32", rows)]
        heavy = {"keeps": True, "in_memory": True, "held": tuple(held)}
        return self._add(layer, "attention", elements, dtype, *given, **heavy)

    def _fused(self, width: int, dtype: str) -> bool:
        """Return whether Keras takes a fused kernel: on JAX cuDNN's, in 16 bits from compute capability 8.0
        on, for heads of at most 128 and a multiple of 8 (`check_is_flash_attention`); PyTorch's always."""
        capability = self.machine.capability
        if self.machine.backend == "torch":
            return True
        return (
            self.machine.backend == "jax" and dtype in HALF and width <= 128 and width % 8 == 0
            and capability is not None and capability >= (8, 0)
        )  # fmt: skip

    def _recurrent(self, layer: LayerFacts, given: tuple[int, ...], dtype: str, states: LayerFacts) -> int:
        """Return the result of a recurrent layer. A loop keeps for each step what the gradient of each of its
        operations needs; cuDNN's kernels keep at least the gates, the state and the output
        (`cudnnGetRNNTempSpaceSizes`, reserve space, does not state more)."""
        gates, of_loop = _CELLS.get(layer.kind, (1, 3))
        whole = bool(layer.config.get("return_sequences"))
        steps = _dims(states.input_shape)[0]
        units = int(layer.config.get("units") or 0) or self._size(states) // (steps if whole else 1)
        each = steps * units
        loops = layer.config.get("use_cudnn") is False or bool(layer.config.get("unroll"))
        loops = loops or layer.kind not in ("LSTM", "GRU") or bool(layer.config.get("recurrent_dropout"))
        held = [Held("gates and states", dtype, each * (of_loop if loops else gates + 1))]
        held += [] if whole else [Held("outputs", dtype, each)]
        return self._add(
            layer, "output", each if whole else units, dtype, given[0], keeps=True, keeps_output=whole,
            in_memory=True, trains=layer.trainable is not False, held=tuple(held),
        )  # fmt: skip

    def _wrapped(self, layer: LayerFacts, inputs: tuple[int, ...]) -> int:
        """Return the result of a wrapper: what it holds is taken on the wrapper's shapes."""
        inner = [one for one in self.model.layers if flops.parent(one, self.layers) is layer]
        inner = [one for one in inner if not flops.repeats(one, self.layers)]
        if not inner or not inputs:
            return self._plain(layer, inputs, layer.compute_dtype or "float32")
        ends = []
        for one in inner:
            dtype = one.compute_dtype or "float32"
            given = tuple(self._cast(one, at, dtype) for at in inputs)
            self.within = one.name
            if kinds.is_recurrent(one):
                ends.append(self._recurrent(one, given, dtype, layer))
            else:
                shaped = _with_shapes(one, layer)
                ends.append(self._expanded(shaped, given))
            self.within = None
        if len(ends) == 1:
            return ends[0]
        merged = str(layer.config.get("merge_mode") or "concat")
        keeps = merged == "mul"
        return self._add(layer, "output", self._size(layer), self.operations[ends[0]].dtype, *ends,
                         keeps=keeps, cheap=True)  # fmt: skip

    def _plain(self, layer: LayerFacts, given: tuple[int, ...], dtype: str) -> int:
        """Return the result of a layer without products: what its gradient needs stands in `_RULES`."""
        kind, config = layer.kind, layer.config
        elements = self._size(layer)
        if kind == "Activation":
            return self._activation(layer, given[0], config.get("activation"))
        if kind in _ACTIVATION_LAYERS:
            return self._activation(layer, given[0], _ACTIVATION_LAYERS[kind])
        if "Dropout" in kind or kind in ("GaussianNoise", "ActivityRegularization"):
            rate = float(config.get("rate") or 0.0) if "Dropout" in kind else 0.0
            held = (Held("mask", "bool", elements),) if rate and "Spatial" not in kind else ()
            return self._add(layer, "output", elements, dtype, *given, cheap=True, held=held)
        if kinds.is_norm(layer):
            rows = elements // max(1, _dims(layer.output_shape)[-1]) if kind != "BatchNormalization" else 0
            held = (Held("mean and deviation", "float32", 2 * rows),) if rows else ()
            return self._add(layer, "output", elements, dtype, *given, keeps=True, cheap=True, held=held,
                             trains=bool(layer.parameters) and layer.trainable is not False)  # fmt: skip
        if "MaxPooling" in kind:
            return self._max_pooling(layer, given, elements, dtype)
        if kind in _RENAMED:
            return self._add(layer, "output", elements, dtype, *given, cheap=True, renamed=True)
        rule = _RULES.get(kind)
        if rule is None:
            if layer.module not in ("keras", "tf_keras") or kind in ("Lambda", "TFOpLambda"):
                self.custom.append(layer.name)
            rule = "keeps"
        return self._add(
            layer, "output", elements, dtype, *given, keeps=rule == "keeps", cheap=rule != "reduces",
            trains=bool(layer.parameters) and layer.trainable is not False,
        )  # fmt: skip

    def _max_pooling(self, layer: LayerFacts, given: tuple[int, ...], elements: int, dtype: str) -> int:
        """Return the result of max pooling: `_MaxPoolGrad` takes input and output; PyTorch keeps indices; XLA
        computes an int32 index for each axis when the gradient is due (`SelectAndScatterExpander`), and needs
        the input for that."""
        if "Global" in layer.kind:
            return self._add(layer, "output", elements, dtype, *given, keeps=True, keeps_output=True)
        axes = len(_dims(layer.output_shape)) + 1
        passing = (Held("indices", "int32", axes * elements),) if self.machine.compiled else ()
        return self._add(layer, "output", elements, dtype, *given, keeps=True, in_memory=True,
                         keeps_output=not self.machine.compiled, passing=passing)  # fmt: skip

    def _size(self, layer: LayerFacts) -> int:
        """Return the elements that a layer gives for each example. Raises `UnableError` where an axis is not
        stated."""
        shapes = layer.output_shape
        if not isinstance(shapes, list | tuple) or not shapes:
            raise UnableError(
                f"the layer {layer.name} does not state the shape of its output",
                next="mpprof forecast compiles the train step, which needs no stated shapes",
            )
        several = shapes if isinstance(shapes[0], list | tuple) else [shapes]
        total = 0
        for shape in several:
            sizes = shape[1:]
            if any(not isinstance(size, int) for size in sizes):
                raise UnableError(
                    f"an axis of the layer {layer.name} has no fixed size: {tuple(shape)}",
                    next="Build the model with a fixed input shape",
                )
            total += math.prod(sizes)
        return total * self.times


def _dims(shape: Any) -> list[int]:
    """Return the dimensions without the batch; of several tensors those of the first."""
    while isinstance(shape, list | tuple) and shape and isinstance(shape[0], list | tuple):
        shape = shape[0]
    if not isinstance(shape, list | tuple):
        return [1]
    return [size if isinstance(size, int) else 1 for size in shape[1:]] or [1]


def _strided(layer: LayerFacts) -> bool:
    strides = layer.config.get("strides")
    return any(one != 1 for one in strides) if isinstance(strides, list | tuple) else strides not in (None, 1)


def _padded(layer: LayerFacts) -> int:
    """Return the elements of a strided convolution's gradient with zeros between and around them, over
    which its input's gradient is a plain convolution: what XLA makes of it where the library has none for
    the type."""
    dims = _dims(layer.output_shape)
    first = layer.config.get("data_format") == "channels_first"
    channels, space = (dims[0], dims[1:]) if first else (dims[-1], dims[:-1])
    strides, taps = ([*_each(layer.config.get(name), len(space))] for name in ("strides", "kernel_size"))
    sizes = (
        (out - 1) * step + 1 + 2 * (tap - 1) for out, step, tap in zip(space, strides, taps, strict=True)
    )
    return channels * math.prod(sizes)


def _each(value: Any, axes: int) -> list[int]:
    found = list(value) if isinstance(value, list | tuple) else [value] * axes
    return [one if isinstance(one, int) else 1 for one in found[:axes]]


def _rows(elements: int, shapes: Any, which: int) -> int:
    """Return the positions of the query (0) or the value (1) that an attention layer is given."""
    several = (
        shapes
        if isinstance(shapes, list | tuple) and shapes and isinstance(shapes[0], list | tuple)
        else [shapes]
    )
    width = _dims(several[min(which, len(several) - 1)])[-1]
    return elements // max(1, width)


def _is_model(layer: LayerFacts) -> bool:
    return layer.kind in ("Functional", "Sequential", "Model")


def _with_shapes(inner: LayerFacts, outer: LayerFacts) -> LayerFacts:
    return replace(
        inner,
        input_shape=inner.input_shape or outer.input_shape,
        output_shape=outer.output_shape,
    )


_ACTIVATIONS: Mapping[str, tuple[str, int]] = {
    "relu": ("output", 0), "relu6": ("output", 0), "sigmoid": ("output", 0), "tanh": ("output", 0),
    "softmax": ("output", 0), "log_softmax": ("output", 0), "exponential": ("output", 0),
    "elu": ("output", 0), "selu": ("output", 0), "gelu": ("input", 1),
    "silu": ("input", 1), "swish": ("input", 1),
    "leaky_relu": ("input", 0), "softplus": ("input", 0), "softsign": ("input", 0), "mish": ("input", 1),
    "hard_sigmoid": ("input", 0), "hard_silu": ("input", 0), "hard_swish": ("input", 0),
}  # fmt: skip
"""What an activation's gradient needs, and how many values between input and output beside that.

`_ReluGrad`, `_TanhGrad`, `_SigmoidGrad`, `_SoftmaxGrad`, `_EluGrad`, `_SeluGrad` take the output,
`_LeakyReluGrad`, `_SoftplusGrad`, `_SoftsignGrad` the input; PyTorch's `threshold_backward`, `tanh_backward`
and `sigmoid_backward` the output. JAX's `relu` asks for the sign of its input (the `custom_jvp` of
`jax.nn.relu`): see `_Builder._activation`. GELU and SiLU are products of the input with a function of it,
which is kept, too."""
_COSTLY = frozenset(("sigmoid", "tanh", "exponential", "elu", "selu"))
"""What XLA does not compute twice: `InstructionFusion::IsExpensive` (xla/service/instruction_fusion.cc) names
exponentials, the logistic function and the hyperbolic tangent. A softmax is none of these rows: the recorded
transformers (docs/memory.md) fit only if its result is computed again."""
_ACTIVATION_LAYERS = {
    "ReLU": "relu", "LeakyReLU": "leaky_relu", "ELU": "elu", "PReLU": "leaky_relu", "Softmax": "softmax",
    "ThresholdedReLU": "relu",
}  # fmt: skip
_RENAMED = frozenset(("Flatten", "Reshape", "Identity", "Masking"))
_RULES: Mapping[str, str] = {
    "Add": "passes", "Subtract": "passes", "Average": "passes", "Concatenate": "passes", "Permute": "passes",
    "RepeatVector": "passes", "ZeroPadding1D": "passes", "ZeroPadding2D": "passes", "ZeroPadding3D": "passes",
    "Cropping1D": "passes", "Cropping2D": "passes", "Cropping3D": "passes", "UpSampling1D": "passes",
    "UpSampling2D": "passes", "UpSampling3D": "passes", "Rescaling": "passes",
    "AveragePooling1D": "reduces", "AveragePooling2D": "reduces", "AveragePooling3D": "reduces",
    "GlobalAveragePooling1D": "reduces", "GlobalAveragePooling2D": "reduces",
    "GlobalAveragePooling3D": "reduces", "Multiply": "keeps", "Maximum": "keeps", "Minimum": "keeps",
    "Dot": "keeps",
}  # fmt: skip
"""Whether a layer's gradient needs its inputs (`keeps`), or not: `passes` works element by element, `reduces`
sums over some. Sums and copies are linear: their gradient needs none of their values."""
_CELLS = {"LSTM": (4, 12), "GRU": (3, 9), "SimpleRNN": (1, 2), "ConvLSTM1D": (4, 12), "ConvLSTM2D": (4, 12),
          "ConvLSTM3D": (4, 12)}  # fmt: skip
"""Gates, and values of the size of the state that a loop keeps in each step beside its output. LSTM: the
slopes of its three sigmoids and two hyperbolic tangents, the factors of its three products, and the state
before, which the recurrent product takes. GRU: three slopes, the factors of its three products."""
