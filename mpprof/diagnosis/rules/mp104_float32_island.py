"""A part of a mixed-precision model stays in float32, with casts around it.

What it means
    A custom layer or Lambda that casts to float32, or a layer with `dtype="float32"`, takes its own work off
    the 16-bit matrix units, doubles the bytes that it moves, and costs a cast on the way in and out. On the
    last softmax that is right; on a layer with real work it costs time.

How we know
    The recorded layers: a layer that computes in float32 while the model computes in 16 bits, or one whose
    compute dtype is 16-bit and whose output is float32. Inputs, preprocessing and the end of the model (from
    its last matrix layer on) count only where the trace shows that they cost time, or where the last matrix
    layer is large: 2048 outputs or more and 3 % or more of the model's multiplications, by the recorded
    shapes.

What it costs
    From the trace: the layer's matrix kernels against 16-bit ones, its memory-bound kernels against half
    their bytes, and its casts. In an XLA command buffer equal fusions share a kernel, and a library's kernel
    does not say which call it is: such a kernel counts where every layer that it may belong to is in float32.
    Without a trace, or where other layers share the kernels, the island is named with the reason why its cost
    is not known.

When to ignore
    Where the numbers need it: a loss, a long sum, a layer that overflowed (MP201, MP206).

Sources
    Executed with Keras 3.15.1: a custom layer with `tf.cast(x, "float32")` has policy mixed_float16 and
    output float32. tensorflow/hub#466 (a hub layer fixed to float32). TensorFlow guide "Mixed precision".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from mpprof.analysis.comparison import precision_overhead
from mpprof.diagnosis.cells import activation_casts
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP104", "float32-island", "A layer stays in float32"
ABOUT = "layers left in float32"
SAYS = "{layers} compute{s} in float32[, which costs {time}]"
ONCE = "once {they} follow{s} the policy"
SPECIFICITY = NAMED
ON_RECORDS = True

LARGE_HEAD = 2048
"""Fewer outputs are classes, whose product costs next to nothing (our judgement)."""
SCALE = OF_A_LAYER


def _is_island(layer: LayerFacts) -> bool:
    if kinds.is_entry(layer):
        return False
    if kinds.is_depthwise(layer):
        return False  # in float32 at times the faster one (MP406)
    if layer.compute_dtype == "float32":
        return kinds.is_matrix(layer) or layer.parameters != 0 or layer.class_name == "Lambda"
    return layer.compute_dtype in HALF_DTYPES and layer.output_dtype == "float32"


def large_heads(facts: Sequence[LayerFacts], end: Collection[str]) -> list[LayerFacts]:
    """Return the layers at the model's end that compute in float32 and whose product is a noticeable part of
    the model's work."""
    shares = flops.shares(facts)
    if not shares and any(kinds.is_convolution(layer) for layer in facts):
        return []  # whose work is far more than their weights tell
    return [
        layer
        for layer in facts
        if layer.name in end
        and layer.compute_dtype == "float32"
        and kinds.is_matrix(layer)
        and _is_large(shapes.width(layer) or 0, shares.get(layer.name))
    ]


def _is_large(width: int, share: float | None) -> bool:
    if share is None:
        return width >= shapes.VOCABULARY
    return width >= LARGE_HEAD and share >= SCALE.warning_ratio


def _shown(islands: Sequence[LayerFacts]) -> list[str]:
    """Return each island once: a layer that is float32 by its policy without the layers inside it; for a
    wrapper, a nested model, or a layer that only passes float32 on, the layers inside."""
    inside = {outer.name: [f for f in islands if f.name.startswith(f"{outer.name}/")] for outer in islands}
    passing = {f.name for f in islands if inside[f.name] and not _is_one(f)}
    within = {one.name for f in islands if f.name not in passing for one in inside[f.name]}
    return [f.name for f in islands if f.name not in passing | within]


def _is_one(layer: LayerFacts) -> bool:
    """Return whether the layer's policy is that of all layers that it is made of."""
    return layer.compute_dtype == "float32" and (kinds.is_recurrent(layer) or kinds.is_attention(layer))


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers_in_16_bits)
    half = [f for f in facts if f.compute_dtype in HALF_DTYPES and f.parameters != 0]
    if not half:
        return NotApplicable("no layer computes in 16 bits, so no layer is a float32 island")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    model = need(signals.facts).model
    end = kinds.head(facts) | {each.layer for each in (model.outputs if model else ())}
    islands = [f for f in facts if _is_island(f)]
    large = {layer.name for layer in large_heads(facts, end)}
    inner = _shown([f for f in islands if f.name not in end or f.name in large])
    if not islands:
        return Clear("every layer with work to do computes in 16 bits")
    names = frozenset(f.name for f in islands)
    claims, confidence, source = _claims(signals, names)
    costed = bool(claims) and signals.cost_ratio(claims) >= SCALE.info_ratio
    if not inner and not costed:
        return Clear("only the end of the model is float32, as it should be")
    if any(_of(cell, names) for cell in signals.cells) and not costed and not _shared_ns(signals, names):
        return Clear("the float32 layers cost next to nothing")
    shown = inner or _shown(islands)
    own = all(f.compute_dtype == "float32" for f in islands if f.name in shown)
    return Found(
        summary=(
            f"{evidence.listed(shown)} {'stays' if len(shown) == 1 else 'stay'} in float32 in a model "
            "that computes "
            f"in {half[0].compute_dtype}"
            + (": {cost} {each} ({share})" if costed else f"; {_why_no_cost(signals, names)}")
        ),
        evidence=(
            evidence.text("float32 layers", evidence.listed(shown)),
            evidence.text("compute dtype elsewhere", half[0].compute_dtype),
            *((evidence.text("attainable value from", source),) if costed and source else ()),
        ),
        confidence=confidence if costed else "medium",
        scale=SCALE if costed else None,
        severity=None if costed else "warning",
        claims=claims if costed else (),
        layers=tuple(shown),
        cases=("policy" if own and not end.intersection(shown) else "",),
        values={"islands": evidence.listed(shown)},
    )


def _of(cell: Cell, names: frozenset[str]) -> bool:
    """Return whether a cell is work of these layers, although it may not be known of which."""
    return cell.layer in names or (bool(cell.candidates) and names.issuperset(cell.candidates))


def _shared_ns(signals: Signals, names: frozenset[str]) -> float:
    """Return the time of kernels that may be these layers' or others', in ns per step."""
    return signals.time(signals.select(lambda c: not _of(c, names) and not names.isdisjoint(c.candidates)))


def _why_no_cost(signals: Signals, names: frozenset[str]) -> str:
    if not signals.cells:
        return "its cost needs a trace"
    shared = _shared_ns(signals, names)
    if shared > 0:
        return f"cost not known: its kernels ({format_ns(shared)} {{each}}) may belong to other layers, too"
    return "cost not known: no kernel in the trace names its layer"


def _claims(signals: Signals, names: frozenset[str]) -> tuple[tuple[Claim, ...], Confidence, str]:
    mine = signals.select(lambda cell: _of(cell, names))
    fallbacks = frozenset(signals.not_in_16_bits)
    matrix = attainable.matrix(signals, [row for row in mine if row in fallbacks])
    casts, later_ns = _casts(signals, mine, names)
    casts += attainable.whole(_casts_behind(signals, names))
    bytes_bound = attainable.halved(signals, [row for row in mine if _is_wide(signals.cells[row])])
    if isinstance(matrix, attainable.Attainable):
        claims = attainable.lessened(signals, matrix.claims, later_ns)
        return claims + casts + bytes_bound, matrix.confidence, matrix.source
    return casts + bytes_bound, "medium", ""


def _is_wide(cell: Cell) -> bool:
    """Return whether the cell is work bound by memory on tensors that 16 bits would halve."""
    moving = cell.category in ("elementwise", "reduce", "layout", "other")
    return moving and cell.precision not in HALF_PRECISIONS


def _casts(signals: Signals, mine: tuple[int, ...], names: frozenset[str]) -> tuple[tuple[Claim, ...], float]:
    """Return the casts around the islands, less the casts of the weights that come in their place; and by how
    much the latter exceed the islands' own casts, in ns per step: XLA fuses those round a layer."""
    rows = [row for row in mine if signals.cells[row].category == "cast"]
    peaks, fit = known(signals.peaks), known(signals.fit)
    passes = 1 if fit is not None and fit.jit_compile else 2  # XLA fuses the gradients' into the update
    claims: list[Claim] = []
    beyond = 0.0
    seen = {name for row in mine for name in (signals.cells[row].layer, *signals.cells[row].candidates)}
    for name in sorted(names & seen):
        own = [row for row in rows if signals.cells[row].layer == name]
        layer, time = signals.layer(name), signals.time(own)
        bandwidth = peaks.bandwidth_bytes_per_s if peaks else None
        later = precision_overhead.of_layer(layer, bandwidth, passes=passes) if layer else 0.0
        keep = min(1.0, later / time) if time > 0 else 0.0
        beyond += max(0.0, later - time)
        claims += [Claim(row, signals.cells[row].ns_per_step * keep) for row in own]
    return tuple(claims), beyond


def _casts_behind(signals: Signals, names: frozenset[str]) -> tuple[int, ...]:
    """Return the rows of the casts with which the layers that follow an island take in its float32 output."""
    facts = known(signals.layers) or ()
    behind = {after.name for before, after in pairwise(facts) if before.name in names} - names
    return tuple(row for row in activation_casts(signals) if signals.cells[row].layer in behind)


def check_model(model: Untrained) -> Iterator[Note]:
    for found, name, layer in model.found_in(CODE):
        yield model.note(found, name, layer, _why(model, layer), _in_16_bits(model, layer))


def _why(model: Untrained, layer: LayerFacts | None) -> str:
    """Return what holds for this one layer; the finding's own sentence lists all of them."""
    if layer is not None and layer.compute_dtype != "float32":
        return f"computes in {layer.compute_dtype} and returns float32: it casts inside"
    own = "computes in float32 by its own policy"
    return f"{own}: {_of_a_head(model, layer)}" if layer is not None and layer.name in model.ends else own


def _of_a_head(model: Untrained, layer: LayerFacts) -> str:
    """Return the cost of a large last layer that is float32 as a whole, and not its activation alone."""
    share = model.shares.get(layer.name)
    part = f", {format_ratio(share)} of the model's multiplications," if share is not None else ""
    said = f"its product with {shapes.width(layer) or 0:,} outputs{part}"
    if model.gpu is None:
        return f"{said} then has at most half the 16-bit rate (TF32)"
    peaks = device_peaks.peaks(model.gpu)
    rates = peaks.flops_per_s if peaks is not None else {}
    unit, precision, why = expected.where(layer, model.gpu, tf32=model.run.tf32_enabled)
    if precision == "bf16":
        return f"{said} keeps float32 tensors, though {why}"
    wide = rates.get(precision if unit in ACCELERATED else "fp32_cuda")
    narrow = rates.get("fp16")
    if not wide or not narrow:
        return f"{said} is then float32 as well"
    times = narrow / wide
    longer = f": {format_ratio(share * (times - 1))} more matrix time" if share is not None else ""
    kind = "TF32" if precision == "tf32" else "float32"
    return f"{said} then runs {times:.2g} times slower at peak rates ({kind}){longer}"


def _in_16_bits(model: Untrained, layer: LayerFacts | None) -> str:
    if layer is None or layer.compute_dtype in HALF_DTYPES:
        name = layer.class_name if layer else "the layer"
        return f"{model.snippet(CODE)}  # in {name}.call(), in place of float32"
    if layer.name in model.ends:
        return model.ending_in_float32(layer, model.in_half)
    return model.placed(layer, model.in_half)[1]
