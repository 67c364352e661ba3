"""The policy is mixed, but the model computes in float32.

What it means
    A Keras layer takes its dtype policy when it is created. A model that was built before
    `set_dtype_policy`, or loaded with its float32 policies saved in it, goes on computing in float32 without
    a warning: nothing is gained, and the optimizer gets no loss scaling either. So do layers that the script
    makes with `dtype="float32"`; where all are, the finding names that.

How we know
    The process' policy was recorded as mixed_float16 or mixed_bfloat16, and every layer that multiplies
    matrices has the compute dtype float32. Single float32 layers are MP104.

What it costs
    The whole gain: matrix work at the rate of 16-bit matrix kernels, memory-bound work at half its bytes. In
    the account these are matrix kernels that ran in float32 or TF32, elementwise and reduction kernels.

When to ignore
    When this training is the float32 baseline and the policy was set for something else in the process.

Sources
    Executed with Keras 3.15.1: a model built before `set_dtype_policy` keeps float32 layers and a plain Adam,
    with no warning. Keras API: keras.config.set_dtype_policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mpprof.analysis.attainable.work import streaming_ns
from mpprof.analysis.comparison import precision_overhead
from mpprof.analysis.comparison.ratios import compiled
from mpprof.diagnosis.cells import is_loss
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP101", "built-before-policy", "The model was built before the policy was set"
ABOUT = "a model built before its policy"
SAYS = "mixed precision is off: the model was built before the policy was set"
_GIVEN = 'mixed precision is off: every layer with matrix work was given dtype="float32"'
SPECIFICITY = OVERALL
ON_RECORDS = True
LEADS = INACTIVE

_CASTS_OF_A_NORM = 4  # up and down, forward and backward


def judge(signals: Signals) -> Outcome:
    asked = signals.global_policy
    if isinstance(asked, Absent) and not asked.moot and signals.computes.kind == "16-bit":
        return Clear("matrix work ran in 16 bits")
    policy = need(asked)
    if not policy.startswith("mixed_"):
        return NotApplicable(f"mixed precision was not asked for: the policy is {policy}")
    facts = need(signals.layers)
    heavy = [layer for layer in facts if kinds.is_matrix(layer)] or [f for f in facts if f.parameters]
    float32 = [layer.name for layer in heavy if layer.compute_dtype == "float32"]
    if (
        not heavy
        or len(float32) < len(heavy)
        or any(f.compute_dtype in HALF_DTYPES for f in facts if f.parameters)
    ):
        return Clear("layers compute in 16 bits")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    matrix = attainable.matrix(signals, signals.not_in_16_bits)
    norms = (
        {layer.name for layer in facts if kinds.is_norm(layer)} if not compiled(signals.case.run) else set()
    )
    memory_bound = signals.select(
        lambda cell: (
            cell.category in ("elementwise", "layout") and cell.layer not in norms and not is_loss(cell)
        )
    )
    claims = (
        matrix.claims + attainable.halved(signals, memory_bound)
        if isinstance(matrix, attainable.Attainable)
        else ()
    )
    claims = attainable.lessened(signals, claims, _new_casts(signals, facts))
    given = _all_given(heavy, facts)
    those = _those(len(heavy))
    return Found(
        summary=f"the policy is {policy}, but {those}"
        + (' was given dtype="float32"' if given else " computes in float32"),
        evidence=(
            evidence.text("global policy", policy),
            evidence.count("layers with matrix work in float32", len(float32), 0),
            evidence.count("layers with matrix work", len(heavy)),
        ),
        values={"policy": policy},
        proof=f"{those} computes in float32",
        cases=("given" if given else "",),
        said=_GIVEN if given else "",
        title="The layers were given float32" if given else "",
        severity="error",
        claims=claims,
        layers=tuple(float32),
    )


def _those(count: int) -> str:
    return "the only layer with matrix work" if count == 1 else f"each of {count} layers with matrix work"


def _all_given(heavy: Sequence[LayerFacts], facts: Sequence[LayerFacts]) -> bool:
    """Return whether the script has named the type of each of these layers, or of one that it lies in."""
    given = [f.name for f in facts if f.dtype_given]
    return all(any(f"{f.name}/".startswith(f"{name}/") for name in given) for f in heavy)


def _new_casts(signals: Signals, facts: Sequence[LayerFacts]) -> float:
    """Return the time of casts once the layers compute in 16 bits, in ns per step: casts of their weights,
    and, where nothing fuses them, casts into float32 and back round every norm."""
    peaks, fit = known(signals.peaks), known(signals.fit)
    bandwidth = peaks.bandwidth_bytes_per_s if peaks else None
    if not bandwidth:
        return 0.0
    heavy = [layer for layer in facts if kinds.is_matrix(layer)]
    weights = sum(
        precision_overhead.of_layer(f, bandwidth, passes=1 if compiled(signals.case.run) else 2)
        for f in heavy
    )
    if compiled(signals.case.run) or fit is None or not fit.batch_size:
        return weights
    values = sum(_values(layer) for layer in facts if kinds.is_norm(layer)) * fit.batch_size
    moved = _CASTS_OF_A_NORM * precision_overhead.CAST_BYTES * values
    return weights + streaming_ns(moved, bandwidth)


def _values(layer: LayerFacts) -> int:
    """Return how many values a layer gives out per example; 0 where its shape is not known."""
    shape = layer.output_shape
    inner = shape[1:] if isinstance(shape, list | tuple) else ()
    return math.prod(inner) if inner and all(isinstance(size, int) for size in inner) else 0


def check_model(model: Untrained) -> Iterator[Note]:
    if CODE in model.found:
        yield model.note(model.found[CODE])
