"""The model's output is 16-bit, so the loss sees rounded values.

What it means
    Keras leaves a last `Dense(..., activation="softmax")` in float16 under a mixed policy, without a
    warning. Probabilities below 3e-8, half of the smallest value, become zero, and the loss is computed
    from rounded values.

How we know
    The recorded type of each of the model's outputs is float16 or bfloat16. Records without these types show
    only the last layer, hence the medium confidence. A subclassed model does not state the types of its
    outputs.

What it costs
    No time: accuracy, and at times a loss that is not finite.

When to ignore
    Where the output is logits and the loss (`from_logits=True`) casts to float32 first, as Keras' own losses
    do: then only the logits are rounded.

Sources
    TensorFlow guide "Mixed precision" (outputs in float32). Executed with Keras 3.15.1: Dense(softmax) output
    is float16. qubvel/segmentation_models#536.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import children, in_place, written
from mpprof.diagnosis.shared.numbers import what_is_lost, what_overflows

CODE, SLUG, TITLE = "MP106", "float16-output", "The model's output is 16-bit"
ABOUT = "a 16-bit output"
SPECIFICITY = NAMED
OF_TRAINING = True
ON_RECORDS = True


def judge(signals: Signals) -> Outcome:
    last, model = need(signals.layers_in_16_bits)[-1], need(signals.facts).model
    outputs = {each.layer: each.dtype for each in model.outputs} if model else {}
    if not outputs and last.output_dtype is None:
        return Unable(
            f"the output dtype of {last.name} was not recorded: a subclassed model does not state it; "
            f"{signals.advice(CODE, 'not recorded')}"
        )
    given = outputs or {last.name: last.output_dtype}
    half = [name for name, dtype in given.items() if dtype in HALF_DTYPES]
    unknown = [name for name, dtype in given.items() if dtype is None]
    if not half and unknown:
        return Unable(
            f"the output dtype of {evidence.listed(unknown)} was not recorded: Keras does not state what the "
            f'function of a Lambda returns; let the model end with Activation("linear", dtype="float32")'
        )
    if not half:
        types = sorted({dtype or "not known" for dtype in given.values()})
        return Clear(f"the output of {evidence.listed(list(given))} is {', '.join(types)}")
    dtype = given[half[0]]
    if outputs and len(outputs) > 1:
        what = f"{len(half)} of {len(outputs)} outputs are {dtype} ({evidence.listed(half)})"
    else:
        what = f"the last layer, {half[0]}, gives {dtype}"
    run = signals.case.run
    breaks = [each for each in (what_overflows(run), what_is_lost(run)) if {*each.layers} & {*half, "loss"}]
    return Found(
        summary=f"{what}: the loss is computed from rounded values",
        evidence=(
            evidence.text("last layer" if len(half) == 1 else "last layers", evidence.listed(half)),
            evidence.text("output dtype", str(dtype), "float32"),
            *dict.fromkeys(shown for each in breaks for shown in each.evidence),
        ),
        confidence="high" if outputs else "medium",
        severity="warning",
        cases=_cases(signals, half[0]),
        values=_values(signals, half[0]),
        layers=tuple(half),
    )


def _cases(signals: Signals, name: str) -> tuple[str, ...]:
    """Return "small" for a dense layer of few outputs, whose product takes no longer in float32."""
    layer = signals.layer(name)
    small = layer is not None and layer.kind == "Dense" and (shapes.width(layer) or shapes.VOCABULARY)
    return ("small",) if small and small < shapes.VOCABULARY else ("",)


def _values(signals: Signals, name: str) -> dict[str, object]:
    """Return the layer's activation and its width."""
    layer = signals.layer(name)
    own = layer.config.get("activation") if layer is not None else None
    units = shapes.width(layer) if layer is not None else None
    return {"activation": own if isinstance(own, str) else "linear", "units": units}


def check_model(model: Untrained) -> Iterator[Note]:
    for found, name, layer in model.found_in(CODE):
        if layer is None:
            yield model.note(found, name, remedy=_in_float32(model, layer))
            continue
        last = _last_within(model, layer)
        dtype = last.output_dtype
        reason = f"gives {dtype} to the loss, which is computed from rounded values" if dtype else ""
        yield model.note(found, name, last, reason, _in_float32(model, last))


def _last_within(model: Untrained, layer: LayerFacts) -> LayerFacts:
    """Return the layer that makes the output of a nested model."""
    while layer.kind in ("Functional", "Sequential") and (inside := children(model.layers, layer)):
        layer = inside[-1]
    return layer


def _in_float32(model: Untrained, layer: LayerFacts | None) -> str:
    if layer is None:
        return f"{model.snippet(CODE, 'not recorded')}  # the end of call()"
    if not layer.parameters:
        return f"outputs = {written(layer, dtype='float32')}(x)"

    def write(one: LayerFacts) -> str:
        """Return the layer's code as it is, but for a product in float32 whose wrapper rounds its result."""
        if one.compute_dtype not in HALF_DTYPES:
            return model.in_half(one)
        return in_place(one, model.policy)

    return model.ending_in_float32(layer, write)
