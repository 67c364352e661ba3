"""Layers are fed tensors of another type, and cast them each step.

What it means
    Ops outside layers (`a + b`, raw TensorFlow ops, a custom step) do not follow the policy. What they give
    out in float32 is cast down by the next layer, each step, forward and backward; where nothing casts, types
    clash.

How we know
    Cast kernels in the scope of a 16-bit layer, over another number of values than any of its weights has.
    The first layer is left out (it casts the data), and so are layers behind a float32 layer (MP104).

What it costs
    Those casts.

What to do
    Put the op into a layer, or cast once where the tensor is made:

        x = keras.layers.Add()([a, b])
        y = keras.ops.cast(y, layer.compute_dtype)

When to ignore
    When it is a small part of the step.

Sources
    tf#41614 (Embedding gave float32 in old tf.keras). Executed with Keras 3.15.1: Embedding gives float16
    from a float32 table.
"""

from __future__ import annotations

from math import prod

from mpprof.analysis import layer_kinds as layers
from mpprof.diagnosis import evidence, reach, shapes
from mpprof.diagnosis.outcomes import NAMED, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import HALF_DTYPES, Signals
from mpprof.model.account import Cell
from mpprof.model.run import LayerFacts

CODE, SLUG, TITLE = "MP107", "autocast-inputs", "Layers are fed tensors of another type"
SPECIFICITY = NAMED

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.25)
"""As for input: a twentieth of the step is worth a line of code."""


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers)
    if signals.on_cpu:
        return Unable("the run used no GPU")
    need(signals.gpu_account)
    behind = {layer.name for layer, before in zip(facts[1:], facts, strict=False) if gives_float32(before)}
    rows = tuple(row for row in activation_casts(signals) if signals.cells[row].layer not in behind)
    claims = reach.whole(rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("no layer casts what it is fed, or it costs next to nothing")
    names = sorted({name for row in rows if (name := signals.cells[row].layer)})
    return Found(
        summary=f"{evidence.listed(names)}: what they are fed is cast each step, " + "{cost} ({share})",
        remedy="use layers for ops between layers (Add, Multiply), or cast once where the tensor is made",
        evidence=(
            evidence.text("layers", evidence.listed(names)),
            evidence.count("casts per step", sum(signals.cells[row].calls_per_step for row in rows)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
        layers=tuple(names),
    )


def gives_float32(layer: LayerFacts) -> bool:
    """A layer with float32 output that is no entry to the model."""
    return layer.output_dtype == "float32" and not layers.is_entry(layer)


def activation_casts(signals: Signals) -> tuple[int, ...]:
    """Rows of casts in 16-bit layers that are casts of no weight: what the layer is fed, and its gradient.
    The first layer, which takes the data in, norms, and the model's end are left out."""
    facts = known(signals.layers) or ()
    first = next((layer.name for layer in facts if not layers.is_entry(layer)), None)
    by_right = {first, *layers.head(facts), *(layer.name for layer in facts if layers.is_norm(layer))}
    sizes = {
        layer.name: _weights(layer)
        for layer in facts
        if layer.compute_dtype in HALF_DTYPES and layer.name not in by_right
    }
    found = signals.select(
        lambda cell: (
            cell.role == "cast"
            and cell.layer in sizes
            and bool(values := _values(cell.shapes))
            and values not in sizes[cell.layer]
        )
    )
    inside = {signals.cells[row].layer for row in found if _goes_up(signals.cells[row])}
    return tuple(row for row in found if signals.cells[row].layer not in inside)


def _goes_up(cell: Cell) -> bool:
    """A cast to float32 on the way forward: what follows computes in it, within the layer or behind it. A
    layer that is fed float32 casts it down, and up again only its gradient."""
    kind = next((dtype for dtype, _ in shapes.tensors(cell.shapes or "")), "")
    return cell.phase == "forward" and kind in ("half", "bfloat16", "f16", "bf16")


def _weights(layer: LayerFacts) -> frozenset[int]:
    """How many values its kernel and its bias may have, each by itself or together."""
    parameters, bias = layer.parameters or 0, shapes.width(layer) or 0
    return frozenset((parameters, parameters - bias, bias))


def _values(text: str | None) -> int:
    return max((prod(dims) for _, dims in shapes.tensors(text or "")), default=0)
