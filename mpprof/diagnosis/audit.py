"""The judgement before the training: what the model's layers, policies and optimizer state by themselves.

Rules that need no trace are the catalogue's own (`RECORDED`). The rest of MP4 wants kernels as evidence;
here, before any ran, the sizes and kinds of layers that those rules look for are named as what they are: a
risk, with the code that removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mpprof.analysis import layer_kinds as kinds
from mpprof.diagnosis import shapes
from mpprof.diagnosis.core import judge
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp309_xla_off,
    mp401_unaligned_shape,
    mp402_odd_vocabulary,
    mp403_first_convolution,
    mp406_depthwise_convolution,
    mp407_grouped_convolution,
    mp410_rnn_not_cudnn,
    mp506_gradient_clipping,
)
from mpprof.diagnosis.signals import HALF_DTYPES, Case
from mpprof.model.audit import AuditNote, AuditReport
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Finding, Severity, Unable
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts, Run

RECORDED: tuple[Rule, ...] = (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp309_xla_off,
    mp402_odd_vocabulary,
    mp410_rnn_not_cudnn,
)
"""Rules of the catalogue that judge on records alone."""

WIDE_SINCE = (8, 0)
WIDE = 64
"""From compute capability 8.0 on, cuBLAS is most efficient with sizes that are multiples of 128 bytes, 64
values of 16 bits; before that 16 bytes, 8 values: NVIDIA, Matrix Multiplication Background User's Guide."""
WORTH_WIDENING = 256
"""Below this, rounding up to 64 adds a tenth of the work or more."""

_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class _Model:
    facts: ModelFacts
    fit: FitFacts | None
    wide: int  # what sizes are best multiples of, on this card

    @property
    def half(self) -> tuple[LayerFacts, ...]:
        """Layers that compute in 16 bits; of a model without any, those that would under a mixed policy. The
        cell of a recurrent layer is left out: it is the layer over again."""
        layers = tuple(f for f in self.facts.layers if not f.class_name.endswith("Cell"))
        return tuple(f for f in layers if f.compute_dtype in HALF_DTYPES) or layers


def audit(run: Run, gpu: DeviceFacts | None = None) -> AuditReport:
    """Judge a run of which only the facts are known: the walk over its model, and its `fit` if there was one.

    `gpu`: the card it shall train on; None: any NVIDIA card with Tensor Cores."""
    facts = run.facts
    model = facts.model if facts else None
    fit = run.last_fit
    capability = gpu.compute_capability if gpu else None
    judged = judge(Case(run), RECORDED)
    layers = {layer.name: layer for layer in model.layers} if model else {}
    notes = [note for found in judged.findings for note in _notes(found, fit, layers)]
    clear = list(judged.clear)
    if model is not None:
        mine = _Model(model, fit, WIDE if capability and capability >= WIDE_SINCE else shapes.ALIGNMENT)
        taken = {note.layer for note in notes if note.code == mp402_odd_vocabulary.CODE}
        for rule, check in CHECKS:
            found = [note for note in check(mine, rule) if note.layer is None or note.layer not in taken]
            notes += found
            if not found and rule not in RECORDED:
                clear.append(rule.CODE)
    order = {rule.CODE: place for place, rule in enumerate((*RECORDED, *(rule for rule, _ in CHECKS)))}
    worst = {
        code: min(_RANK[n.severity] for n in notes if n.code == code) for code in {n.code for n in notes}
    }
    return AuditReport(
        model=model.name if model else None,
        policy=fit.policy.global_name if fit and not _own(fit) else _own(fit),
        gpu=gpu.name or None if gpu else None,
        batch_size=fit.batch_size if fit else None,
        layers=len(model.layers) if model else 0,
        notes=tuple(sorted(notes, key=lambda n: (worst[n.code], order[n.code], _RANK[n.severity]))),
        unable=tuple(Unable(unable.code, unable.reason) for unable in judged.unable),
        clear=tuple(code for code in dict.fromkeys(clear) if code not in worst),
    )


def _own(fit: FitFacts | None) -> str | None:
    """The policy that the model was built with, by its dtypes; the process' may have changed since."""
    if fit is None or fit.policy.compute_dtype is None:
        return None
    compute, variable = fit.policy.compute_dtype, fit.policy.variable_dtype
    return compute if compute == variable or variable is None else f"mixed_{compute}"


# --- causes of the catalogue, layer by layer ---------------------------------------------------------------


def _notes(found: Finding, fit: FitFacts | None, layers: dict[str, LayerFacts]) -> Iterator[AuditNote]:
    named: tuple[str | None, ...] = tuple(dict.fromkeys(found.layers))
    for layer in (None,) if found.code in _OF_THE_MODEL else named or (None,):
        yield AuditNote(
            found.code,
            found.slug,
            found.title,
            found.severity,
            layer,
            _island(layers.get(layer or "")) if found.code == mp104_float32_island.CODE else found.summary,
            REMEDIES[found.code](layer or "", fit) if found.code in REMEDIES else found.remedy,
        )


_OF_THE_MODEL = frozenset({"MP101", "MP102", "MP309"})


def _island(layer: LayerFacts | None) -> str:
    if layer is None or layer.compute_dtype == "float32":
        return "computes in float32 by its own policy"
    return f"computes in {layer.compute_dtype} and gives float32: it casts within"


def _policy(layer: str, fit: FitFacts | None) -> str:
    name = (fit.policy.global_name if fit else None) or "mixed_float16"
    return f'keras.config.set_dtype_policy("{name}")  # first\nmodel = build_model()  # then'


def _scaling(layer: str, fit: FitFacts | None) -> str:
    inner = (fit.optimizer.class_name if fit else None) or "Adam"
    return (
        f"optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.{inner}(...))\n"
        "model.compile(optimizer=optimizer, loss=...)"
    )


REMEDIES: dict[str, Callable[[str, FitFacts | None], str]] = {
    "MP101": _policy,
    "MP102": _scaling,
    "MP104": lambda layer, fit: (
        f'# in "{layer}": no dtype="float32", and in its call()\nx = keras.ops.cast(x, self.compute_dtype)'
    ),
    "MP106": lambda layer, fit: 'outputs = keras.layers.Activation("softmax", dtype="float32")(logits)',
    "MP309": lambda layer, fit: "model.compile(..., jit_compile=True)  # names what stands in its way",
    "MP402": lambda layer, fit: "vocabulary = -(-vocabulary // 64) * 64",
    "MP410": lambda layer, fit: (
        f'keras.layers.LSTM(..., use_cudnn=True, name="{layer}")  # or GRU: defaults only'
    ),
}


# --- what only kernels could prove, named as a risk --------------------------------------------------------


def _note(
    rule: Rule, severity: Severity, layer: str | None, reason: str, remedy: str, title: str = ""
) -> AuditNote:
    return AuditNote(rule.CODE, rule.SLUG, title or rule.TITLE, severity, layer, reason, remedy)


def _sizes(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    """Units, filters and features in that are no multiple of 8, or of 64 where that is better."""
    first = next((f.name for f in model.facts.layers if kinds.is_convolution(f)), None)
    widths = {shapes.width(layer) for layer in model.half}  # said of the layer that makes them
    end = model.facts.layers[-1].name if model.facts.layers else None
    for layer in model.half:
        if not kinds.is_matrix(layer) or _depthwise(layer):
            continue
        key = next((k for k in ("units", "filters", "output_dim") if k in layer.config), "units")
        width = shapes.width(layer)
        if width is not None and (note := _width(model, rule, layer, key, width, layer.name == end)):
            yield note
        inner = shapes.last_axis(layer.input_shape)
        if inner is not None and inner % shapes.ALIGNMENT and layer.name != first and inner not in widths:
            padded = _up(inner, shapes.ALIGNMENT)
            yield _note(
                rule, "info", layer.name, f"reads {inner} features, no multiple of {shapes.ALIGNMENT}",
                f"x = keras.ops.pad(x, [[0, 0]] * (x.ndim - 1) + [[0, {padded - inner}]])  # to {padded}",
            )  # fmt: skip
    batch = model.fit.batch_size if model.fit else None
    if batch is not None and batch % shapes.ALIGNMENT and model.half:
        yield _note(
            rule, "warning", None, f"the batch size is {batch}, no multiple of {shapes.ALIGNMENT}",
            f"batch_size={_up(batch, shapes.ALIGNMENT)}",
        )  # fmt: skip


def _width(
    model: _Model, rule: Rule, layer: LayerFacts, key: str, width: int, last: bool
) -> AuditNote | None:
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
    written = f'keras.layers.{layer.class_name}({key}={better}, ...)  # "{layer.name}": {width} -> {better}'
    return _note(rule, severity, layer.name, reason, written)


def _first_convolution(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    first = next((f for f in model.facts.layers if kinds.is_convolution(f)), None)
    if first is None or first not in model.half:
        return
    axis = 1 if first.config.get("data_format") == "channels_first" else -1
    shape = first.input_shape
    channels = shape[axis] if isinstance(shape, tuple) and len(shape) > 2 else None
    if not isinstance(channels, int) or channels >= shapes.ALIGNMENT:
        return
    better = 4 if channels <= 4 and first.config.get("strides") not in (1, [1, 1]) else shapes.ALIGNMENT
    if better == channels:
        return
    yield _note(
        rule, "info", first.name, f"reads {channels} channels; matrix instructions want {shapes.ALIGNMENT}",
        f"images = keras.ops.pad(images, [[0, 0], [0, 0], [0, 0], [0, {better - channels}]])",
        "The first convolution has few channels",
    )  # fmt: skip


def _depthwise_layers(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    for layer in model.half:
        if _depthwise(layer):
            yield _note(
                rule, "info", layer.name, "depthwise convolution has no Tensor Core kernel",
                f'keras.layers.{layer.class_name}(..., dtype="float32")  # at times the faster one',
                "Depthwise convolution gains nothing",
            )  # fmt: skip


def _depthwise(layer: LayerFacts) -> bool:
    groups, inner = layer.config.get("groups"), shapes.last_axis(layer.input_shape)
    return layer.class_name.startswith("Depthwise") or (
        groups is not None and groups == inner and groups != 1
    )


def _grouped(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    for layer in model.half:
        groups, filters = layer.config.get("groups"), layer.config.get("filters")
        if isinstance(groups, int) and groups > 1 and not _depthwise(layer):
            each = filters // groups if isinstance(filters, int) else None
            wide = f", {each} filters each" if each else ""
            fewer = max(1, filters // 64) if isinstance(filters, int) else 1
            yield _note(
                rule, "warning" if each is not None and each < shapes.ALIGNMENT else "info", layer.name,
                f"groups={groups}{wide}: often without a Tensor Core kernel",
                f"keras.layers.{layer.class_name}({filters}, ..., groups={min(fewer, groups - 1)})",
                "A grouped convolution may miss the Tensor Cores",
            )  # fmt: skip


def _xla_on_a_gpu(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    """On a machine without a GPU Keras has not yet decided against XLA for cuDNN's sake."""
    if model.fit is not None and model.fit.jit_compile is True:
        return
    for layer in model.facts.layers:
        if layer.config.get("use_cudnn") in ("auto", True) and layer.supports_jit:
            yield _note(
                rule, "info", layer.name, "on a GPU Keras takes cuDNN for it, and no XLA for the whole model",
                f"keras.layers.{layer.class_name}(..., use_cudnn=False)  # if the rest is most of the step",
                "A recurrent layer turns XLA off",
            )  # fmt: skip


def _clipping(model: _Model, rule: Rule) -> Iterator[AuditNote]:
    """Clipping that sees scaled gradients clips what is not there."""
    scaled = model.fit is not None and model.fit.optimizer.inner is not None
    if scaled and model.facts.train_step == "clips":
        yield _note(
            rule, "warning", None,
            "train_step clips gradients while the optimizer scales the loss: what it clips is scaled",
            "keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(..., global_clipnorm=1.0))",
            "Gradients are clipped before they are un-scaled",
        )  # fmt: skip


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


CHECKS: tuple[tuple[Rule, Callable[[_Model, Rule], Iterator[AuditNote]]], ...] = (
    (mp401_unaligned_shape, _sizes),
    (mp403_first_convolution, _first_convolution),
    (mp406_depthwise_convolution, _depthwise_layers),
    (mp407_grouped_convolution, _grouped),
    (mp309_xla_off, _xla_on_a_gpu),
    (mp506_gradient_clipping, _clipping),
)
"""Looked at layer by layer, under the code of the cause that kernels would prove."""
