"""What the audit looks at layer by layer, under the code of the cause that kernels would prove.

Before a training there are no kernels: sizes and kinds of layers are named as what they are, a risk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mpprof.analysis import layer_kinds as kinds
from mpprof.diagnosis import shapes
from mpprof.diagnosis.audit_remedies import in_place, width_of, written
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
from mpprof.diagnosis.signals import HALF_DTYPES
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


@frozen
class Audited:
    """A model and the `fit` it is to have. `wide`: what sizes are best multiples of, on its card."""

    run: RunFacts
    facts: ModelFacts
    fit: FitFacts | None
    wide: int

    @property
    def half(self) -> tuple[LayerFacts, ...]:
        """Layers that compute in 16 bits; of a model without any, those that would under a mixed policy. The
        cell of a recurrent layer is left out: it is the layer over again."""
        layers = tuple(f for f in self.facts.layers if not f.class_name.endswith("Cell"))
        return tuple(f for f in layers if f.compute_dtype in HALF_DTYPES) or layers

    @property
    def policy(self) -> str | None:
        return self.fit.policy.own if self.fit else None

    @property
    def on_tensorflow(self) -> bool:
        return self.run.framework.get("backend") in (None, "tensorflow")


def _note(
    rule: Rule, severity: Severity, layer: str | None, reason: str, remedy: str, title: str = ""
) -> AuditNote:
    return AuditNote(rule.CODE, rule.SLUG, title or rule.TITLE, severity, layer, reason, remedy)


# --- sizes -------------------------------------------------------------------------------------------------


def sizes(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """Units, filters and features in that are no multiple of 8, or of 64 where that is better."""
    first = next((f.name for f in model.facts.layers if kinds.is_convolution(f)), None)
    widths = {shapes.width(layer) for layer in model.half}  # said of the layer that makes them
    end = model.facts.layers[-1].name if model.facts.layers else None
    for layer in model.half:
        if not kinds.is_matrix(layer) or kinds.is_depthwise(layer):
            continue
        if note := _width(model, rule, layer, layer.name == end):
            yield note
        inner = shapes.last_axis(layer.input_shape)
        if inner is not None and inner % shapes.ALIGNMENT and layer.name != first and inner not in widths:
            rank = len(layer.input_shape)
            more = _up(inner, shapes.ALIGNMENT) - inner
            yield _note(
                rule, "info", layer.name, f"reads {inner} features, no multiple of {shapes.ALIGNMENT}",
                f"x = keras.ops.pad(x, {_padding(rank, rank - 1, more)})  # to {inner + more}",
            )  # fmt: skip
    batch = model.fit.batch_size if model.fit else None
    if batch is not None and batch % shapes.ALIGNMENT and model.half:
        yield _note(
            rule, "warning", None, f"the batch size is {batch}, no multiple of {shapes.ALIGNMENT}",
            f"batch_size = {_up(batch, shapes.ALIGNMENT)}",
        )  # fmt: skip


def _width(model: Audited, rule: Rule, layer: LayerFacts, last: bool) -> AuditNote | None:
    key, width = width_of(layer)
    if not width:
        return None
    if width % shapes.ALIGNMENT:
        better = _up(width, model.wide if width >= WORTH_WIDENING else shapes.ALIGNMENT)
        # A small last layer has as many units as there are classes, and costs next to nothing.
        severity: Severity = "info" if last and width < WORTH_WIDENING else "warning"
        reason = f"{key}={width} is no multiple of {shapes.ALIGNMENT}"
    elif model.wide > shapes.ALIGNMENT and width % model.wide and width >= WORTH_WIDENING:
        better, severity = _up(width, model.wide), "info"
        reason = f"{key}={width} is a multiple of {shapes.ALIGNMENT}; this card does best with {model.wide}"
    else:
        return None
    changed: dict[str, Any] = {key: better}
    code = f"{in_place(layer, model.policy, **changed)}  # {width} -> {better}"
    return _note(rule, severity, layer.name, reason, code)


def _padding(rank: int, axis: int, more: int) -> str:
    return str([[0, more if place == axis else 0] for place in range(rank)])


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


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
    yield _note(
        rule, "info", first.name, f"reads {channels} channels; matrix instructions want {better} or more",
        f"images = keras.ops.pad(images, {_padding(rank, axis, better - channels)})",
        "The first convolution has few channels",
    )  # fmt: skip


def depthwise(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    for layer in model.half:
        if kinds.is_depthwise(layer):
            yield _note(
                rule, "info", layer.name, "depthwise convolution has no Tensor Core kernel",
                f"{written(layer, dtype='float32')}  # at times the faster one",
                "Depthwise convolution gains nothing",
            )  # fmt: skip


def grouped(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    for layer in model.half:
        groups, filters = layer.config.get("groups"), layer.config.get("filters")
        if isinstance(groups, int) and groups > 1 and not kinds.is_depthwise(layer):
            each = filters // groups if isinstance(filters, int) else None
            wide = f", {each} filters each" if each else ""
            yield _note(
                rule, "warning" if each is not None and each < shapes.ALIGNMENT else "info", layer.name,
                f"groups={groups}{wide}: often without a Tensor Core kernel",
                f"{in_place(layer, model.policy, drop=['groups'])}  # or fewer groups, or dtype='float32'",
                "A grouped convolution may miss the Tensor Cores",
            )  # fmt: skip


# --- recurrent layers --------------------------------------------------------------------------------------


def recurrent(model: Audited, rule: Rule) -> Iterator[AuditNote]:
    """LSTM and GRU whose arguments rule cuDNN out, and recurrent layers that never had it."""
    if model.run.framework.get("backend") not in mp410_rnn_not_cudnn.BACKENDS:
        return
    for layer in model.facts.layers:
        if wrong := mp410_rnn_not_cudnn.against_cudnn(layer):
            yield _note(
                rule, "warning", layer.name, f"{', '.join(wrong.values())}: cuDNN's kernel is ruled out",
                in_place(layer, model.policy, drop=wrong),
            )  # fmt: skip
        elif layer.class_name == "RNN":
            yield from _cell(model, rule, layer)
        elif causes := mp410_rnn_not_cudnn.against_cudnn_on_torch(layer, model.run):
            yield _note(
                rule, "warning", layer.name, f"{' and '.join(causes)}: Keras on torch then runs a loop",
                _without_on_torch(causes),
            )  # fmt: skip
        if not model.on_tensorflow:
            continue
        if layer.masked and layer.class_name in mp410_rnn_not_cudnn.RECURRENT and not wrong:
            what = "falls back to a loop" if layer.module == "tf_keras" else "stops with an error"
            yield _note(
                rule, "info", layer.name, f"is fed a mask: one that is not right-padded {what} on a GPU",
                'x = keras.utils.pad_sequences(sequences, padding="post")  # its default is "pre"',
                "A masked recurrent layer wants right-padded sequences",
            )  # fmt: skip


def _without_on_torch(causes: list[str]) -> str:
    remedies = {
        "a mask": "keras.layers.Embedding(..., mask_zero=False)  # and no Masking layer: padding then counts",
        "jit_compile=True": "model.compile(..., jit_compile=False)",
    }
    return "\n".join(remedies[cause] for cause in causes)


def _cell(model: Audited, rule: Rule, layer: LayerFacts) -> Iterator[AuditNote]:
    """`RNN(LSTMCell(...))` is `LSTM(...)` without cuDNN."""
    inside = [f for f in model.facts.layers if f.name.startswith(f"{layer.name}/")]
    fused = {"LSTMCell": "LSTM", "GRUCell": "GRU"}
    if len(inside) != 1 or inside[0].class_name not in fused:
        return
    cell = inside[0]
    arguments = {k: v for k, v in cell.arguments.items() if k != "name"}
    arguments |= {k: v for k, v in layer.arguments.items() if k != "cell"}
    kind = fused[cell.class_name]
    text = ", ".join(f"{k}={v}" for k, v in arguments.items()) or "..."
    reason = f"RNN({cell.class_name}(...)) never uses cuDNN's kernel, {kind}(...) does"
    yield _note(rule, "warning", layer.name, reason, f"keras.layers.{kind}({text})")


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
            yield _note(
                rule, "info", layer.name, "on a GPU Keras takes cuDNN for it, and no XLA for the whole model",
                f"{in_place(layer, model.policy, use_cudnn=False)}  # if the rest is most of the step",
                "A recurrent layer turns XLA off",
            )  # fmt: skip
        elif layer.supports_jit is False:
            reason = f"XLA cannot compile {layer.class_name}, so the whole model does without"
            yield _note(rule, "info", layer.name, reason, _moved_out(layer), "A layer turns XLA off")
    if model.run.distribution:
        yield _note(
            rule, "info", None, f"Keras compiles nothing by itself under {model.run.distribution}",
            "model.compile(optimizer=model.optimizer, loss=model.loss, jit_compile=True)",
        )  # fmt: skip
    if model.run.deterministic_ops:
        yield _note(
            rule, "info", None, "with deterministic ops Keras never uses XLA",
            "# leave tf.config.experimental.enable_op_determinism() out",
        )  # fmt: skip


def _moved_out(layer: LayerFacts) -> str:
    if not kinds.is_entry(layer):
        return f"# {layer.class_name}.supports_jit = True, once its call() holds no op that XLA lacks"
    top = layer.name.partition("/")[0]
    return (
        f'outside = model.get_layer("{top}")\n'
        "model = keras.Sequential([one for one in model.layers if one is not outside])\n"
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
