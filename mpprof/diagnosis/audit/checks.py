"""What the audit looks at layer by layer, under the code of the cause that kernels would prove.

Before a training there are no kernels: sizes and kinds of layers are named as what they are, a risk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.layers import einsum, flops, kinds
from mpprof.diagnosis import shapes
from mpprof.diagnosis.audit.remedies import (
    Write,
    children,
    in_place,
    placed,
    up,
    widened,
    wrapper_of,
    written,
)
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import (
    mp309_xla_off,
    mp401_unaligned_shape,
    mp403_first_convolution,
    mp406_depthwise_convolution,
    mp407_grouped_convolution,
    mp410_rnn_not_cudnn,
    mp506_gradient_clipping,
)
from mpprof.diagnosis.signals import HALF_DTYPES, Signals
from mpprof.model.audit import AuditNote
from mpprof.model.finding import Severity
from mpprof.model.frozen import frozen
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts, RunFacts

WIDE_SINCE = (8, 0)
WIDE = 64
"""From compute capability 8.0 on, cuBLAS is most efficient with sizes that are multiples of 128 bytes, 64
values of 16 bits; before that 16 bytes, 8 values: NVIDIA, Matrix Multiplication Background User's Guide."""
WORTH_WIDENING = 256
"""Below this, rounding up to 64 adds a tenth of the work or more."""


LITTLE = 0.01
"""Part of the model's multiplications below which the size of a layer is not worth a warning."""
MUCH = 0.5
"""From here on even a small last layer is what the model computes."""
FEWEST_CLASSES = 8
"""A last layer of fewer outputs, one logit or a handful of classes, would cost more if it were padded."""


@frozen
class Audited:
    """A model and the `fit` it is to have. `wide`: what sizes are best multiples of, on its card. `shares`:
    layers' parts of the model's multiplications, 0 to 1; empty where not known."""

    signals: Signals
    run: RunFacts
    facts: ModelFacts
    fit: FitFacts | None
    wide: int
    shares: dict[str, float]

    @property
    def half(self) -> tuple[LayerFacts, ...]:
        """Layers that compute in 16 bits; of a model without any, those that would under a mixed policy. The
        cell that a recurrent layer made is left out: it is the layer over again."""
        by_name = {f.name: f for f in self.facts.layers}
        layers = tuple(f for f in self.facts.layers if not flops.repeats(f, by_name))
        return tuple(f for f in layers if f.compute_dtype in HALF_DTYPES) or layers

    @property
    def keras(self) -> str:
        """The name that the model's Keras is imported by."""
        return str(self.signals.words["keras"])

    @property
    def policy(self) -> str | None:
        return self.fit.policy.own if self.fit else None

    @property
    def on_tensorflow(self) -> bool:
        return self.run.framework.get("backend") in (None, "tensorflow")

    def matters(self, layer: LayerFacts) -> bool:
        """Whether its products are a noticeable part of the model's, as far as is known."""
        return self.shares.get(layer.name, 1.0) >= LITTLE

    def placed(self, layer: LayerFacts, write: Write) -> tuple[str, str]:
        return placed(self.facts.layers, layer, write)

    def changed(self, layer: LayerFacts, **changes: Any) -> tuple[str, str]:
        """(name, code) of the layer with these arguments, in its place."""
        return self.placed(layer, lambda one: in_place(one, self.policy, **changes))

    def input_shape(self, layer: LayerFacts, by_name: flops.Layers) -> object:
        """Its own, or that of the wrapper that hands its input on."""
        at: LayerFacts | None = layer
        while at is not None and at.input_shape is None and at.kind != "StackedRNNCells":
            outer = flops.parent(at, by_name)
            at = outer if outer is not None and kinds.is_wrapper(outer) else None
        return at.input_shape if at is not None else None


def _note(
    rule: Rule,
    severity: Severity,
    layer: str | None,
    reason: str,
    remedy: str,
    title: str = "",
    about: str | None = None,
) -> AuditNote:
    return AuditNote(rule.CODE, rule.SLUG, title or rule.TITLE, severity, layer, reason, remedy, about)


# --- sizes -------------------------------------------------------------------------------------------------


def sizes(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """Units, filters, heads and features in that are no multiple of 8, or of 64 where that is better."""
    first = next((f.name for f in model.facts.layers if kinds.is_convolution(f)), None)
    widths = {shapes.width(layer) for layer in model.half}  # said of the layer that makes them
    by_name = {f.name: f for f in model.facts.layers}
    end = kinds.head(model.facts.layers)
    for layer in model.half:
        if kinds.is_attention(layer):
            yield from _heads(model, rule, layer)
            continue
        outer = flops.parent(layer, by_name)
        if not kinds.is_matrix(layer) or kinds.is_depthwise(layer) or (outer and kinds.is_attention(outer)):
            continue
        if note := _width(model, rule, layer, layer.name in end):
            yield note
        inner = _read(layer, model.input_shape(layer, by_name))
        if inner is not None and inner % shapes.ALIGNMENT and layer.name != first and inner not in widths:
            yield _features(model, rule, layer, inner, model.input_shape(layer, by_name))
    yield from _batch(model, rule)


def _read(layer: LayerFacts, shape: object) -> int | None:
    if layer.kind == "EinsumDense":
        return einsum.read(layer.config, shape)
    if layer.config.get("data_format") == "channels_first":
        return shape[1] if isinstance(shape, list | tuple) and isinstance(shape[1], int) else None
    return shapes.last_axis(shape)


def _features(model: Audited, rule: Rule, layer: LayerFacts, inner: int, shape: object) -> AuditNote:
    rank = len(shape) if isinstance(shape, list | tuple) else 0
    axis = 1 if layer.config.get("data_format") == "channels_first" else rank - 1
    more = up(inner, shapes.ALIGNMENT) - inner
    code = f"x = {model.signals.words['pad']}(x, {_padding(rank, axis, more)})  # to {inner + more}"
    if layer.kind == "EinsumDense":
        code = f"# give it {inner + more} features: its equation is {layer.config.get('equation')!r}"
    name, _ = model.placed(layer, written)
    return _note(rule, "info", name, f"reads {inner} features, no multiple of {shapes.ALIGNMENT}", code)


def _heads(model: Audited, rule: Rule, layer: LayerFacts) -> Iterator[AuditNote]:
    """Attention multiplies head by head: the size of one is what its products sum over."""
    odd = {
        key: size
        for key in ("key_dim", "value_dim", "head_dim")
        if isinstance(size := layer.config.get(key), int) and size % shapes.ALIGNMENT
    }
    if not odd:
        return
    if odd.get("value_dim") == odd.get("key_dim") and "value_dim" in odd:
        told = f"key_dim={odd['key_dim']}"  # Keras makes the one of the other
    else:
        told = ", ".join(f"{key}={size}" for key, size in odd.items())
    better = {key: up(size, shapes.ALIGNMENT) for key, size in odd.items()}
    name, code = model.changed(layer, **better)
    reason = f"{told} is no multiple of {shapes.ALIGNMENT}: every head's products"
    yield _note(rule, "warning", name, reason, f"{code}  # {told.split('=')[-1]} -> {max(better.values())}")


def _batch(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """The rows of a product are the batch times the positions of a sequence or an image."""
    batch = model.fit.batch_size if model.fit else None
    if batch is None or batch % shapes.ALIGNMENT == 0 or not model.half:
        return
    narrow = False
    by_name = {f.name: f for f in model.facts.layers}
    for layer in model.half:
        if kinds.is_matrix(layer) and not kinds.is_depthwise(layer) and model.matters(layer):
            positions = flops.rows(layer, by_name)
            narrow |= (batch * (positions or 1)) % shapes.ALIGNMENT != 0
    why = "" if narrow else ": with the positions in each example its products have rows that are"
    yield _note(
        rule, "warning" if narrow else "info", None,
        f"the batch size is {batch}, no multiple of {shapes.ALIGNMENT}{why}",
        f"batch_size = {up(batch, shapes.ALIGNMENT)}", about=f"batch size {batch}",
    )  # fmt: skip


def _width(model: Audited, rule: Rule, layer: LayerFacts, last: bool) -> AuditNote | None:
    key, width = shapes.made(layer) or ("", 0)
    if not width or (last and width < FEWEST_CLASSES):
        return None
    said = f"{key}={width}" if key != "output_shape" else f"output_shape with {width} features"
    if width % shapes.ALIGNMENT:
        better = up(width, model.wide if width >= WORTH_WIDENING else shapes.ALIGNMENT)
        # A small last layer has as many units as there are classes, and costs next to nothing.
        classes = last and width < WORTH_WIDENING and model.shares.get(layer.name, 0.0) < MUCH
        small = classes or not model.matters(layer)
        severity: Severity = "info" if small else "warning"
        reason = f"{said} is no multiple of {shapes.ALIGNMENT}"
    elif model.wide > shapes.ALIGNMENT and width % model.wide and width >= WORTH_WIDENING:
        better, severity = up(width, model.wide), "info"
        reason = f"{said} is a multiple of {shapes.ALIGNMENT}; this card does best with {model.wide}"
    else:
        return None
    name, code = model.changed(layer, **widened(layer, key, better))
    added = ", outputs that no label names" if last else ""
    return _note(rule, severity, name, reason, f"{code}  # {width} -> {better}{added}")


def _padding(rank: int, axis: int, more: int) -> str:
    return str([[0, more if place == axis else 0] for place in range(rank)])


# --- convolutions ------------------------------------------------------------------------------------------


def first_convolution(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    first = next((f for f in model.facts.layers if kinds.is_convolution(f)), None)
    if first is None or first not in model.half:
        return
    shape = first.input_shape
    rank = len(shape) if isinstance(shape, tuple) else 0
    axis = 1 if first.config.get("data_format") == "channels_first" else rank - 1
    channels = shape[axis] if rank > 2 else None
    if not isinstance(channels, int) or channels >= shapes.ALIGNMENT:
        return
    better = 4 if channels <= 4 and first.config.get("strides") not in (1, [1], [1, 1]) else shapes.ALIGNMENT
    if better == channels:
        return
    read = f"{channels} channel{'s' * (channels > 1)}"
    yield _note(
        rule, "info", first.name, f"reads {read}; matrix instructions want {better} or more",
        f"images = {model.signals.words['pad']}(images, {_padding(rank, axis, better - channels)})",
        "The first convolution has few channels",
    )  # fmt: skip


def depthwise(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    title = "Depthwise convolution gains nothing"
    for layer in model.half:
        if kinds.is_depthwise(layer):
            name, code = model.placed(layer, lambda one: written(one, dtype="float32"))
            reason = "depthwise convolution has no Tensor Core kernel"
        elif kinds.is_separable(layer):
            name, code = model.placed(layer, lambda one: _separated(model, one))
            reason = "its depthwise part has no Tensor Core kernel, its pointwise part has"
        else:
            continue
        yield _note(rule, "info", name, reason, f"{code}  # at times the faster one", title)


def _separated(model: Audited, layer: LayerFacts) -> str:
    """A separable convolution as the two that it is made of, the first in float32."""
    after = ("filters", "use_bias", "activation", "activity_regularizer")
    first, second = {}, {}
    for key, text in layer.arguments.items():
        if key == "name":
            continue
        if key in after or key.startswith(("bias_", "pointwise_")):
            second[key.replace("pointwise_", "kernel_")] = text
        else:
            first[key] = text
            if key == "data_format":
                second[key] = text
    dimension = layer.kind[-2:]
    deep, wide = (
        replace(layer, class_name=kind, module=model.keras, arguments=taken)
        for kind, taken in ((f"DepthwiseConv{dimension}", first), (f"Conv{dimension}", second))
    )
    name = f", name={layer.arguments['name']}" if "name" in layer.arguments else ""
    parts = f"{written(deep, use_bias=False, dtype='float32')}, {in_place(wide, model.policy, kernel_size=1)}"
    return f"{model.keras}.Sequential([{parts}]{name})"


def grouped(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    for layer in model.half:
        groups, filters = layer.config.get("groups"), layer.config.get("filters")
        if not kinds.is_convolution(layer) or kinds.is_depthwise(layer):
            continue
        if isinstance(groups, int) and groups > 1:
            each = filters // groups if isinstance(filters, int) else None
            wide = f", {each} filters each" if each else ""
            name, code = model.changed(layer, drop=["groups"])
            yield _note(
                rule, "warning" if each is not None and each < shapes.ALIGNMENT else "info", name,
                f"groups={groups}{wide}: often without a Tensor Core kernel",
                f"{code}  # or fewer groups, or dtype='float32'",
                "A grouped convolution may miss the Tensor Cores",
            )  # fmt: skip


# --- recurrent layers --------------------------------------------------------------------------------------


def recurrent(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """LSTM and GRU whose arguments rule cuDNN out, and recurrent layers that never had it."""
    if model.run.framework.get("backend") not in mp410_rnn_not_cudnn.BACKENDS:
        return
    for layer in model.facts.layers:
        wrong = mp410_rnn_not_cudnn.against_cudnn(layer)
        if wrong:
            name, code = model.placed(layer, lambda one: _for_cudnn(one, model.policy))
            reason = f"{', '.join(wrong.values())}: cuDNN's kernel is ruled out"
            yield _note(rule, "warning", name, reason, code)
        elif layer.kind == "RNN":
            yield from _cell(model, rule, layer)
        elif layer.kind == "SimpleRNN":
            yield _simple(model, rule, layer)
        elif causes := mp410_rnn_not_cudnn.against_cudnn_on_torch(layer, model.run):
            yield _note(
                rule, "warning", model.placed(layer, written)[0],
                f"{' and '.join(causes)}: Keras on torch then runs a loop", _without_on_torch(causes),
            )  # fmt: skip
        if not model.on_tensorflow:
            continue
        if _is_masked(model, layer) and layer.kind in mp410_rnn_not_cudnn.RECURRENT and not wrong:
            what = "falls back to a loop" if layer.module == "tf_keras" else "stops with an error"
            yield _note(
                rule, "info", model.placed(layer, written)[0],
                f"is fed a mask: one that is not right-padded {what} on a GPU",
                f'x = {model.keras}.utils.pad_sequences(sequences, padding="post")  # its default is "pre"',
                "A masked recurrent layer wants right-padded sequences",
            )  # fmt: skip


def _is_masked(model: Audited, layer: LayerFacts) -> bool:
    outer = wrapper_of(model.facts.layers, layer)
    return bool(layer.masked or (outer is not None and outer.masked))


def _for_cudnn(layer: LayerFacts, own_policy: str | None) -> str:
    return in_place(layer, own_policy, drop=mp410_rnn_not_cudnn.against_cudnn(layer))


def _without_on_torch(causes: list[str]) -> str:
    remedies = {
        "a mask": "keras.layers.Embedding(..., mask_zero=False)  # and no Masking layer: padding then counts",
        "jit_compile=True": "model.compile(..., jit_compile=False)",
    }
    return "\n".join(remedies[cause] for cause in causes)


_FUSED = {"LSTMCell": "LSTM", "GRUCell": "GRU"}
_LOOP = "A recurrent layer that cuDNN does not know runs as a loop"


def _simple(model: Audited, rule: Rule, layer: LayerFacts) -> AuditNote:
    name, code = model.placed(
        layer,
        lambda one: _for_cudnn(replace(one, class_name="GRU", base=None, module=model.keras), model.policy),
    )
    reason = "Keras has no cuDNN kernel for SimpleRNN, for GRU it has"
    return _note(rule, "info", name, reason, f"{code}  # another model, with three times the weights", _LOOP)


def _cell(model: Audited, rule: Rule, layer: LayerFacts) -> Iterator[AuditNote]:
    """`RNN(LSTMCell(...))` is `LSTM(...)` without cuDNN, and several cells are several layers."""
    layers = model.facts.layers
    inside = children(layers, layer)
    stacked = inside[0].kind == "StackedRNNCells" if len(inside) == 1 else False
    cells = children(layers, inside[0]) if stacked else inside
    if not cells:
        return
    kinds_of = [cell.kind for cell in cells]
    if any(kind not in _FUSED for kind in kinds_of) or (stacked and "return_state" in layer.arguments):
        yield _note(
            rule, "info", model.placed(layer, written)[0],
            f"RNN({', '.join(cell.class_name for cell in cells)}(...)) never uses cuDNN's kernel",
            _compiled(model),
            _LOOP,
        )  # fmt: skip
        return

    def write(one: LayerFacts) -> str:
        inside = children(layers, one)
        if stacked:
            return _stack(model, one, children(layers, inside[0]))
        return _fused(model, one, inside[0], one.arguments)

    each = ", ".join(f"{kind}(...)" for kind in kinds_of)
    fused = " and ".join(dict.fromkeys(f"{_FUSED[kind]}(...)" for kind in kinds_of))
    name, code = model.placed(layer, write)
    reason = f"RNN({f'[{each}]' if stacked else each}) never uses cuDNN's kernel, "
    reason += f"layers of {fused} do" if stacked else f"{fused} does"
    yield _note(rule, "warning", name, reason, code)


def _fused(model: Audited, layer: LayerFacts, cell: LayerFacts, given: dict[str, str]) -> str:
    """LSTM or GRU with the arguments of the cell, but for those that rule cuDNN out, and of its RNN."""
    kind = _FUSED[cell.kind]
    ruled_out = mp410_rnn_not_cudnn.against_cudnn(replace(cell, class_name=kind, base=None))
    arguments = {k: v for k, v in cell.arguments.items() if k != "name" and k not in ruled_out}
    arguments |= {k: v for k, v in given.items() if k not in ("cell", "unroll")}
    return written(replace(layer, class_name=kind, module=model.keras, arguments=arguments))


def _stack(model: Audited, layer: LayerFacts, cells: Sequence[LayerFacts]) -> str:
    """One layer for each of several cells; all but the last give their sequences on."""
    outer = {k: v for k, v in layer.arguments.items() if k not in ("cell", "name", "go_backwards")}
    parts = []
    for place, cell in enumerate(cells):
        given = outer | ({"return_sequences": "True"} if place < len(cells) - 1 else {})
        if place == 0 and "go_backwards" in layer.arguments:
            given["go_backwards"] = layer.arguments["go_backwards"]
        parts.append(_fused(model, layer, cell, given))
    name = f", name={layer.arguments['name']}" if "name" in layer.arguments else ""
    return f"{model.keras}.Sequential([{', '.join(parts)}]{name})"


# --- XLA ---------------------------------------------------------------------------------------------------


def xla(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """What turns `jit_compile="auto"` off, each by itself."""
    if not model.on_tensorflow or (model.fit is not None and model.fit.jit_compile is True):
        return
    keras_2 = model.run.framework.get("keras_package") == "tf_keras"  # which never compiles unless asked
    for layer in model.facts.layers:
        if keras_2:
            break
        if layer.config.get("use_cudnn") in ("auto", True) and not mp410_rnn_not_cudnn.against_cudnn(layer):
            # On a machine without a GPU Keras has not yet decided against XLA for cuDNN's sake.
            name, code = model.changed(layer, use_cudnn=False)
            yield _note(
                rule, "info", name, "on a GPU Keras takes cuDNN for it, and no XLA for the whole model",
                f"{code}  # if the rest is most of the step",
                "A recurrent layer turns XLA off",
            )  # fmt: skip
        elif layer.supports_jit is False:
            reason = f"XLA cannot compile {layer.class_name}, so the whole model does without"
            yield _note(rule, "info", layer.name, reason, _moved_out(model, layer), "A layer turns XLA off")
    if model.run.distribution:
        yield _note(
            rule, "info", None, f"Keras compiles nothing by itself under {model.run.distribution}",
            _compiled(model),
        )  # fmt: skip
    if model.run.deterministic_ops:
        yield _note(
            rule, "info", None, "with deterministic ops Keras never uses XLA",
            f"# {model.signals.advice('MP307')}",
        )  # fmt: skip


def _compiled(model: Audited) -> str:
    return model.signals.remedies("MP309", ("obstacles",))[0].snippet


def _moved_out(model: Audited, layer: LayerFacts) -> str:
    if not kinds.is_entry(layer):
        return f"# {layer.class_name}.supports_jit = True, once its call() holds no op that XLA lacks"
    top = layer.name.partition("/")[0]
    return (
        f'outside = model.get_layer("{top}")\n'
        f"model = {model.keras}.Sequential([one for one in model.layers if one is not outside])\n"
        "# and: data = data.map(lambda x, y: (outside(x, training=True), y))"
    )


# --- clipping ----------------------------------------------------------------------------------------------


def clipping(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """Clipping that sees scaled gradients clips what is not there."""
    if model.fit is None or model.facts.train_step != "clips":
        return
    optimizer = model.fit.optimizer
    if optimizer.inner is not None:
        yield _note(
            rule, "warning", None,
            "train_step clips gradients while the optimizer scales the loss: what it clips is scaled",
            "model.optimizer.inner_optimizer.global_clipnorm = 1.0  # or as its argument\n"
            "del type(model).train_step  # or leave the clipping out of it",
            "Gradients are clipped before they are un-scaled",
        )  # fmt: skip


CHECKS: tuple[tuple[Rule, Callable[[Audited, Rule], Iterator[AuditNote]]], ...] = (
    (mp410_rnn_not_cudnn, recurrent),
    (mp309_xla_off, xla),
    (mp401_unaligned_shape, sizes),
    (mp403_first_convolution, first_convolution),
    (mp406_depthwise_convolution, depthwise),
    (mp407_grouped_convolution, grouped),
    (mp506_gradient_clipping, clipping),
)
