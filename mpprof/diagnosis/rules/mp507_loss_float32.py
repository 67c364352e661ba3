"""The loss works through a large vocabulary in float32.

What it means
    Cross-entropy over batch x length x vocabulary logits is computed in float32 under any policy, as it
    should be: it reads and writes the largest tensor of the model in four bytes a value. A loss that is given
    probabilities also normalises and clips them and takes their logarithm, and the gradient goes back through
    all of it and the softmax: many more passes than from the logits.

How we know
    Kernels of the loss that are not matrix work, and the shapes of the logits that they work on. Clipping in
    their names or bodies shows that the loss is given probabilities; then the kernels of the model's last
    softmax count, too.

What it costs
    What those kernels take beyond what is still needed: for logits one pass that reads and writes them in 16
    bits, as a fused loss does; for probabilities what a loss from logits needs, three passes that read and
    one that writes, in 16 bits. If shapes or the memory's bandwidth are not known, half of what they take.

When to ignore
    When it is a small part of the step. float32 is right for the loss itself.

Sources
    Executed with Keras 3.15.1: the loss is float32 though the prediction is float16; on JAX and PyTorch it
    divides probabilities by their sum and clips them (`keras.ops.sparse_categorical_crossentropy`). On an
    H100, a vocabulary of 33,709: 3.2 of 8.8 ms (`sample_traces/recorded-h100-transformer-mixed-float16`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from mpprof.analysis.attainable.work import streaming_ns
from mpprof.analysis.layers.scopes import parse
from mpprof.diagnosis.cells import is_loss
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP507", "loss-float32", "The loss takes a noticeable part of the step in float32"
ABOUT = "the loss in float32"
SAYS = "the loss in float32 takes[ {time}] longer than it could"
ONCE = "once the loss takes no longer than needed"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

BYTES_PER_LOGIT = 4
"""A fused loss reads each logit once and writes its gradient once, both in 16 bits."""
BYTES_FROM_LOGITS = 8
"""Without a custom kernel: read for the maximum, for the sum of exponentials and for the gradient,
which is written once, all in 16 bits."""
_CLIPS = r"(?:^|[/(])clip(?:_by_value)?(?:[)/]|$)"
_CROSS_ENTROPIES = {
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
}
SCALE = Scale(info_ratio=0.05, warning_ratio=0.25, error_ratio=0.50, normal=True)
"""Every language model has some of it; a quarter of the step is worth a custom loss."""
OF_PROBABILITIES = Scale(info_ratio=0.05, warning_ratio=0.10, error_ratio=0.50)
"""A choice of the code's, which an argument undoes (our judgement)."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    if signals.half is None:
        return signals.not_narrow
    rows = signals.select(is_loss)
    kind = _of_probabilities(signals, rows)
    if kind:
        softmax = _softmax(signals)
        rows = tuple(sorted({*rows, *signals.select(lambda cell: _within(cell, softmax))}))
    total, least = (
        signals.time(rows),
        _least_ns(signals, rows, BYTES_FROM_LOGITS if kind else BYTES_PER_LOGIT),
    )
    if least is None:
        claims, than = attainable.halved(signals, rows), "with half the bytes"
    else:
        claims = attainable.scaled(signals, rows, max(1.0, total / least))
        than = "it would from logits" if kind else "one pass over the logits in 16 bits"
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return Clear(f"the loss could give back {format_ratio(ratio)} of the step")
    subject = "the loss on softmax probabilities" if kind else "the loss in float32"
    return Found(
        summary=f"{subject} takes {{cost}} {{each}} longer than {than} ({{share}} of {{whole}})",
        said="the loss works on softmax probabilities in float32[, which costs {time}]" if kind else "",
        evidence=(
            evidence.ns("kernels of the loss and the softmax" if kind else "kernels of the loss", total),
            *((evidence.ns("the same from logits" if kind else than, least),) if least is not None else ()),
            evidence.count("kernels {per}", signals.calls(rows)),
        ),
        confidence="medium",
        cases=("probabilities",) if kind else ("",),
        values={"cross_entropy": kind},
        scale=OF_PROBABILITIES if kind else SCALE,
        claims=claims,
    )


def _of_probabilities(signals: Signals, rows: Sequence[int]) -> str:
    """Return which of Keras' cross-entropies is given probabilities, which it clips; "" where none is seen
    to be."""
    for row in rows:
        cell = signals.cells[row]
        clips = re.search(_CLIPS, cell.op or "") or (cell.hlo is not None and cell.hlo.holds("clamp"))
        for scope in parse(cell.op or "").path if clips else ():
            if scope in _CROSS_ENTROPIES:
                return _CROSS_ENTROPIES[scope]
    return ""


def _softmax(signals: Signals) -> frozenset[str]:
    """Return the layer at the model's end that makes the probabilities, where it does nothing else; empty
    where it was not recorded."""
    facts = known(signals.layers) or ()
    return frozenset(
        layer.name
        for layer in facts[-1:]
        if not kinds.is_matrix(layer)
        and (layer.config.get("activation") == "softmax" or layer.kind == "Softmax")
    )


def _within(cell: Cell, softmax: Collection[str]) -> bool:
    """Return whether the cell is the softmax's own, forward or backward, or a fusion named after it."""
    if cell.category not in ("elementwise", "reduce", "cast"):
        return False
    return cell.layer in softmax or not set(parse(cell.op or "").path).isdisjoint(softmax)


def _least_ns(signals: Signals, rows: Sequence[int], bytes_per_logit: int) -> float | None:
    """Return what the loss takes per step at this many bytes a logit; None where logits or bandwidth are not
    known."""
    peaks = known(signals.peaks)
    logits = max((_values(signals.cells[row]) for row in rows), default=0.0)
    if not logits or peaks is None or not peaks.bandwidth_bytes_per_s:
        return None
    return streaming_ns(logits * bytes_per_logit, peaks.bandwidth_bytes_per_s)


def _values(cell: Cell) -> float:
    """Return how many values the largest tensor of all calls has."""
    of_hlo = max((math.prod(shape) for _, shape in cell.hlo.tensors), default=0) if cell.hlo else 0
    return max(shapes.largest(cell.shapes), of_hlo) * cell.calls_per_step
