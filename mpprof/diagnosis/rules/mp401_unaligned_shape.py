"""Sizes that are not multiples of 8 keep matrix work off the Tensor Cores, or slow it down there.

What it means
    16-bit matrix instructions read operands in groups of 8 values. With M, N, K or channels that are not
    multiples of 8 the library pads, takes a kernel with narrow loads, or falls back to ordinary
    arithmetic.

How we know
    A 16-bit matrix kernel ran on ordinary arithmetic, has an alignment below 8 in its name (`align1`,
    `align2`, `align4`), or was made by XLA for a large product. In addition, one of its sizes is not a
    multiple of 8, by the recorded shapes, else by the layer's units or filters. If no size is known, `align1`
    or `align2` in the name of a kernel on Tensor Cores is enough, because libraries take such kernels only
    for such sizes. A size alone is not enough: libraries since cuBLAS 11 and cuDNN 7.6.3 often reach Tensor
    Cores anyway.

What it costs
    The kernel's time against that of an aligned one, by kernels of the same kind in this trace, by the
    baseline, or at most by the ratio of peak rates (low confidence); without sizes it is not known.

When to ignore
    When the layer's share is small; a first convolution with 3 channels is MP403, a vocabulary MP402.

Sources
    NVIDIA "Matrix Multiplication Background" and "Convolutional Layers" guides (multiples of 8 in 16 bits).
    NVIDIA/nvtx-plugins#20: a bad shape alone no longer prevents Tensor Cores. allenai/allennlp#4929: padding
    gained nothing on a Titan V, so the kernel itself must show the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mpprof.diagnosis.cells import bad_sizes, missed
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import in_place, innermost, padding, up, widened, written

CODE, SLUG, TITLE = "MP401", "unaligned-shape", "Sizes that are not multiples of 8"
ABOUT = "sizes that are not multiples of 8"
ONCE = "once its sizes are multiples of 8"
SPECIFICITY = NAMED
OF_ACCELERATOR = True

TPU_WIDTH = 128
"""TensorFlow's mixed precision guide: multiples of 128 on TPUs."""
SCALE = OF_A_LAYER
WIDE_SINCE = (8, 0)
WIDE = 64
"""From compute capability 8.0 on, cuBLAS is most efficient with sizes that are multiples of 128 bytes, 64
values of 16 bits; before that 16 bytes, 8 values: NVIDIA, Matrix Multiplication Background User's Guide."""
WORTH_WIDENING = 256
"""Below this, rounding up to 64 adds a tenth of the work or more."""
LITTLE = 0.01
"""Part of the model's multiplications below which the size of a layer is not worth a warning."""
MUCH = 0.5
"""From this part on even a small last layer is most of what the model computes."""
FEWEST_CLASSES = 8
"""A last layer of fewer outputs, one logit or a handful of classes, would cost more if it were padded."""


SINGLY = 2
"""Values that the narrowest loads read at most; libraries have kernels of 4 and 8 beside them."""


def judge(signals: Signals) -> Outcome:
    if known(signals.accelerator) == "tpu":
        return _on_a_tpu(signals)
    need(signals.gpu_activity)
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    matmul = signals.of("matmul")
    if not matmul:
        return NotApplicable("no matrix work in the trace")
    suspects = [row for row in matmul if missed(signals, row)]
    if not suspects and signals.wide:
        return NOT_IN_16_BITS
    if not suspects:
        return Clear("every 16-bit matrix kernel ran on matrix units with full alignment")
    sizes = {row: bad_sizes(signals, row) for row in suspects}
    rows = [row for row in suspects if sizes[row] and not takes_images(signals, row)]
    single = [row for row in suspects if sizes[row] != () and _loads_singly(signals, row)]
    if single and (not rows or isinstance(attainable.matrix(signals, rows), Absent)):
        return _by_names(signals, single, sorted({size for row in single for size in sizes[row] or ()}))
    if not rows:
        if all(sizes[row] is None for row in suspects):
            return Unable(
                "16-bit matrix kernels ran off the Tensor Cores, but neither their shapes nor their "
                f"layers' sizes are in the trace or the records{signals.hint('record model')}"
            )
        return Clear("all sizes of the matrix kernels in question are multiples of 8")
    best = attainable.needed(signals, rows, "sizes that are not multiples of 8 were seen")
    if signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear("the unaligned matrix kernels cost next to nothing")
    names = signals.names_of(rows)
    odd = sorted({size for row in rows for size in sizes[row] or ()})
    return Found(
        summary=(
            f"{evidence.listed(names)}: sizes {evidence.listed([str(s) for s in odd])} are not "
            "multiples of 8, which costs "
            "{cost} {each} ({share})"
        ),
        said=f"{{layers}} {{has}} sizes that are not multiples of 8 ({evidence.listed(list(map(str, odd)))})"
        "[, which costs {time}]",
        evidence=(
            evidence.text("sizes", evidence.listed([str(s) for s in odd], 8), "multiples of 8"),
            evidence.ns("matrix time with such sizes", signals.time(rows)),
            evidence.text("attainable value from", best.source),
        ),
        confidence=best.confidence,
        scale=SCALE,
        claims=best.claims,
        layers=signals.layers_of(rows),
    )


def _loads_singly(signals: Signals, row: int) -> bool:
    """Return whether the cell ran on matrix units in a kernel whose name says that it reads one or two values
    at a time."""
    cell = signals.cells[row]
    alignment = shapes.kernel_alignment(cell.kernel or "")
    narrow = alignment is not None and alignment <= SINGLY
    return narrow and cell.placement in ACCELERATED and not takes_images(signals, row)


def _by_names(signals: Signals, rows: list[int], odd: list[int]) -> Outcome:
    """Judge by what kernels say in their names alone, with the sizes that are known: no cost follows."""
    taken_ns = signals.time(rows)
    if taken_ns < SCALE.info_ratio * signals.whole_ns:
        return Clear("the kernels with narrow loads take next to nothing")
    stated = {shapes.kernel_alignment(signals.cells[row].kernel or "") for row in rows}
    loads = " and ".join(f"align{alignment}" for alignment in sorted(filter(None, stated)))
    of_matrix = format_ratio(taken_ns / signals.time(signals.of("matmul")))
    known_sizes = evidence.listed([str(size) for size in odd])
    which = f": {known_sizes}" if odd else "; which sizes these are is not known: the trace has no shapes"
    return Found(
        summary=(
            f"{of_matrix} of the matrix time is in kernels that read operands one or two values at a time "
            f"({loads}), which libraries take for sizes that are not multiples of 8{which}"
        ),
        evidence=(
            evidence.text("kernels", evidence.listed([signals.cells[row].kernel or "" for row in rows])),
            evidence.ns("matrix time in such kernels", taken_ns),
        ),
        confidence="high" if odd else "medium",
        severity="warning" if taken_ns >= SCALE.warning_ratio * signals.whole_ns else "info",
        layers=signals.layers_of(rows),
    )


def takes_images(signals: Signals, row: int) -> bool:
    """Return whether the row is work of the first convolution, with the few channels of its images: a cause
    of its own (MP403)."""
    cell = signals.cells[row]
    first = next((f for f in known(signals.layers) or () if kinds.is_convolution(f)), None)
    if first is None or cell.layer != first.name:
        return False
    sizes = shapes.matrix_dimensions(cell.shapes, cell.family)
    return min(sizes, default=shapes.ALIGNMENT) < shapes.ALIGNMENT


def _on_a_tpu(signals: Signals) -> Outcome:
    """Judge a run on a TPU by the recorded layers: a TPU's matrix unit is 128 wide, and pads sizes that are
    not."""
    widths = {f.name: shapes.width(f) for f in need(signals.layers) if kinds.is_matrix(f)}
    odd = {name: size for name, size in widths.items() if size and size % TPU_WIDTH}
    if not odd:
        return Clear(f"every layer's width is a multiple of {TPU_WIDTH}")
    words = evidence.listed([f"{name} ({size})" for name, size in odd.items()])
    return Found(
        summary=f"{words}: not a multiple of {TPU_WIDTH}, to which a TPU pads every side of a product",
        cases=("tpu",),
        values={"multiple": TPU_WIDTH},
        evidence=(evidence.text("widths", words, f"multiples of {TPU_WIDTH}"),),
        confidence="medium",
        severity="info",
        layers=tuple(odd),
    )


def check_model(model: Untrained) -> Iterator[Note]:
    """Yield a note for units, filters, heads and input features that are not multiples of 8, or of 64 where
    that is better."""
    widths = {shapes.width(layer) for layer in model.half}  # said of the layer that makes them
    by_name = {f.name: f for f in model.layers}
    end = model.feeding_outputs
    for layer in model.half:
        if kinds.is_attention(layer):
            yield from _heads(model, layer)
            continue
        outer = flops.parent(layer, by_name)
        if not kinds.is_matrix(layer) or kinds.is_depthwise(layer) or (outer and kinds.is_attention(outer)):
            continue
        if layer.quantized == "float8" and model.gpu and expected.multiplies_float8(model.gpu):
            continue  # float8 has sizes of its own (MP413)
        if note := _width(model, layer, layer.name in end):
            yield note
        inner = shapes.read(layer, model.input_shape(layer))
        thin = kinds.is_convolution(layer) and (inner or 0) < shapes.ALIGNMENT  # MP403 speaks of it
        if inner is not None and inner % shapes.ALIGNMENT and not thin and inner not in widths:
            yield _features(model, layer, inner, model.input_shape(layer))
    yield from _batch(model)


def _features(model: Untrained, layer: LayerFacts, inner: int, shape: object) -> Note:
    rank = len(shape) if isinstance(shape, list | tuple) else 0
    axis = 1 if layer.config.get("data_format") == "channels_first" else rank - 1
    more = up(inner, shapes.ALIGNMENT) - inner
    code = f"x = {model.signals.words['pad']}(x, {padding(rank, axis, more)})  # to {inner + more}"
    if layer.kind == "EinsumDense":
        code = f"# give it {inner + more} features: its equation is {layer.config.get('equation')!r}"
    name, _ = model.placed(layer, written)
    return Note("info", name, f"reads {inner} features, not a multiple of {shapes.ALIGNMENT}", code)


def _heads(model: Untrained, layer: LayerFacts) -> Iterator[Note]:
    """Yield a note where the size of an attention head is not a multiple of 8. Attention multiplies head by
    head: its products sum over the size of one head."""
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
    reason = f"{told} is not a multiple of {shapes.ALIGNMENT}: every head's products"
    yield Note("warning", name, reason, f"{code}  # {told.split('=')[-1]} -> {max(better.values())}")


def _batch(model: Untrained) -> Iterator[Note]:
    """Yield a note where the batch size is not a multiple of 8. A product has as many rows as the batch times
    the positions of a sequence or an image."""
    batch = model.fit.batch_size if model.fit else None
    if batch is None or batch % shapes.ALIGNMENT == 0 or not model.half:
        return
    narrow = False
    by_name = {f.name: f for f in model.layers}
    for layer in model.half:
        if kinds.is_matrix(layer) and not kinds.is_depthwise(layer) and _matters(model, layer):
            positions = flops.rows(layer, by_name)
            narrow |= (batch * (positions or 1)) % shapes.ALIGNMENT != 0
    why = "" if narrow else ": with the positions in each example its products have rows that are"
    yield Note(
        "warning" if narrow else "info",
        None,
        f"the batch size is {batch}, not a multiple of {shapes.ALIGNMENT}{why}",
        f"batch_size = {up(batch, shapes.ALIGNMENT)}",
        about=f"batch size {batch}",
    )


def _width(model: Untrained, layer: LayerFacts, last: bool) -> Note | None:
    key, width = shapes.made(layer) or ("", 0)
    few = width < FEWEST_CLASSES
    if not width or (few and last and not (kinds.is_convolution(layer) and _matters(model, layer))):
        return None
    wide = _best_multiple(model)
    said = f"{key}={width}" if key != "output_shape" else f"output_shape with {width} features"
    if width % shapes.ALIGNMENT:
        better = up(width, wide if width >= WORTH_WIDENING else shapes.ALIGNMENT)
        # A small last layer has as many units as there are classes, and costs next to nothing.
        classes = last and width < WORTH_WIDENING and model.shares.get(layer.name, 0.0) < MUCH
        small = classes or (few and last) or not _matters(model, layer)
        severity: Severity = "info" if small else "warning"
        reason = f"{said} is not a multiple of {shapes.ALIGNMENT}"
    elif wide > shapes.ALIGNMENT and width % wide and width >= WORTH_WIDENING:
        better, severity = up(width, wide), "info"
        reason = f"{said} is a multiple of {shapes.ALIGNMENT}; this card does best with {wide}"
    else:
        return None
    name, code = model.changed(layer, **widened(layer, key, better))
    if few or (last and not _labels_are_numbers(model)):
        return Note(severity, name, reason, _cut(model, layer, key, width, better))
    added = ", outputs that no label names" if last else ""
    return Note(severity, name, reason, f"{code}  # {width} -> {better}{added}")


def _labels_are_numbers(model: Untrained) -> bool:
    """Return whether the loss takes the number of a class, so that classes without labels can be added;
    assumed if the loss is not known."""
    loss = model.fit.loss if model.fit else None
    return loss is None or "sparse" in loss.lower()


def _cut(model: Untrained, layer: LayerFacts, key: str, width: int, better: int) -> str:
    """Return code that computes more outputs and keeps the original ones, because their number has a meaning
    (classes, or a mask)."""
    inner = innermost(model.layers, layer)
    wide, after = widened(inner, key, better), inner.arguments.get("activation", "...")
    if after in ("...", "None", "'linear'"):
        code, activate = model.changed(layer, **wide)[1], ""
    else:  # a softmax would divide by what is cut off
        kept = replace(inner, arguments={k: v for k, v in inner.arguments.items() if k != "activation"})
        code = in_place(kept, model.policy, **wide)
        activate = f'\nx = {model.keras}.layers.Activation({after}, dtype="float32")(x)'
    first = layer.config.get("data_format") == "channels_first"
    return f"x = {code}(x)[{':, ' if first else '..., '}:{width}]  # of {better}{activate}"


def _matters(model: Untrained, layer: LayerFacts) -> bool:
    """Return whether the layer's products are a noticeable part of the model's, as far as is known."""
    return model.shares.get(layer.name, 1.0) >= LITTLE


def _best_multiple(model: Untrained) -> int:
    capability = model.gpu.compute_capability if model.gpu else None
    return WIDE if capability and capability >= WIDE_SINCE else shapes.ALIGNMENT
