"""The vocabulary is not a multiple of 8, which slows down the largest matrix product.

What it means
    In a language model the product with the vocabulary is the largest one. With an odd vocabulary its
    kernel loads narrowly or misses the Tensor Cores.

How we know
    A layer with 8192 or more outputs, not a multiple of 8. With a trace: its kernels ran on ordinary
    arithmetic, state a narrow alignment, or are large products in kernels that XLA made. Without a trace it
    is reported as a possibility only. A layer left in float32 (MP104) is reported, too, because its size
    matters as soon as it computes in 16 bits.

What it costs
    The layer's matrix time against that of aligned 16-bit kernels; and the time of sums, casts and
    elementwise work over 16-bit rows of that length, against the rate at which the fastest such kernel of
    this trace moves as many bytes to and from memory. Padding can gain more, because the compiler fuses
    aligned work differently.

When to ignore
    When the layer is a small part of the step.

Sources
    tensorflow/models#7407 (33708 -> 33712 saves about 35 ms a step in fp16 on V100), PaddlePaddle/models#5134
    (14 -> 10 ms), NVIDIA/DeepLearningExamples#534. Measured with JAX on an H100: 33,709 -> 33,728 took a step
    of 8.87 ms to 5.68 ms, of which the three products are 1.6 ms (docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from mpprof.diagnosis.cells import missed
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import in_place, up, widened

CODE, SLUG, TITLE = "MP402", "odd-vocabulary", "The vocabulary is not a multiple of 8"
ABOUT = "an odd vocabulary size"
ONCE = "once the vocabulary is padded"
SPECIFICITY = CONFIGURED
ON_RECORDS = True
OF_ACCELERATOR = True

MULTIPLE = 64
"""What a vocabulary is padded to."""
MOVING: tuple[Class, ...] = ("reduce", "elementwise", "cast", "norm")
SCALE = OF_A_LAYER


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers_in_16_bits)
    mixed = any(f.compute_dtype in HALF_DTYPES and f.parameters != 0 for f in facts)
    judged = [f for f in facts if f.compute_dtype in HALF_DTYPES or (mixed and not signals.cells)]
    if not judged:
        return NOT_IN_16_BITS
    sizes = {f.name: shapes.width(f) or 0 for f in judged}
    large = {name: size for name, size in sizes.items() if size >= shapes.VOCABULARY}
    odd = {name: size for name, size in large.items() if size % shapes.ALIGNMENT}
    if not odd:
        return Clear("no layer has a large output that is not a multiple of 8")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    words = evidence.listed([f"{name} ({size})" for name, size in odd.items()])
    shown: tuple[Evidence, ...] = (evidence.text("layers", words, "multiples of 8"),)
    if not signals.cells:
        return Found(
            summary=(
                f"{words}: a vocabulary that is not a multiple of 8 may miss the Tensor Cores; a trace "
                "would show it"
            ),
            evidence=shown,
            confidence="low",
            severity="info",
            layers=tuple(odd),
        )
    products = signals.select(lambda cell: cell.layer in odd and cell.category == "matmul")
    rows = tuple(row for row in products if missed(signals, row))
    if not rows:
        if not signals.select(lambda cell: cell.layer in odd):
            return Unable(f"no kernel in the trace could be attributed to {words}")
        if signals.select(lambda cell: cell.layer in odd and cell.placement == "cuda_core"):
            return Clear(
                "its products are not in 16 bits, so its size is not what keeps them off the Tensor Cores"
            )
        return Clear("its kernels ran on Tensor Cores with full alignment anyway")
    best = attainable.needed(signals, rows, f"{words} ran off the Tensor Cores or with narrow loads")
    moved = attainable.at_best_rates(signals, _moving(signals, odd.values()))
    if signals.cost_ratio((*best.claims, *moved)) < SCALE.info_ratio:
        return Clear("it costs next to nothing")
    if moved:
        slow = tuple(claim.cell for claim in moved)
        shown = (*shown, evidence.ns("sums, casts and elementwise work over its rows", signals.time(slow)))
    return Found(
        summary=f"{words} is not a multiple of 8: " + "{cost} {each} ({share})",
        said=f"the vocabulary, {evidence.listed([*map(format_count, odd.values())])}, is not a multiple of 8"
        + f"[: {{time}} are lost to slow matrix work{' and reductions' if moved else ''}]",
        evidence=(*shown, evidence.text("attainable value from", best.source)),
        confidence="medium" if moved and best.confidence == "high" else best.confidence,
        scale=SCALE,
        claims=(*best.claims, *moved),
        layers=tuple(odd),
    )


def _moving(signals: Signals, sizes: Collection[int]) -> tuple[int, ...]:
    """Return the memory-bound cells that read or write 16-bit rows of one of these lengths. A row of an odd
    number of 16-bit values begins at an odd place: the kernel loads single values instead of 16 bytes."""
    return signals.select(
        lambda cell: cell.category in MOVING and not shapes.half_rows(cell).isdisjoint(sizes)
    )


def check_model(model: Untrained) -> Iterator[Note]:
    for found, name, layer in model.found_in(CODE):
        yield model.note(found, name, layer, remedy=_widened(model, layer))


def _widened(model: Untrained, layer: LayerFacts | None) -> str:
    if layer is None:
        return model.snippet(CODE)
    if layer.compute_dtype not in HALF_DTYPES:  # a float32 head: its product in 16 bits, too (MP104)
        return model.ending_in_float32(layer, lambda one: model.in_half(one, **_padded(one)))
    return model.placed(layer, lambda one: in_place(one, model.policy, **_padded(one)))[1]


def _padded(layer: LayerFacts) -> dict[str, Any]:
    made = shapes.made(layer)
    return {} if made is None else widened(layer, made[0], up(made[1], MULTIPLE))
