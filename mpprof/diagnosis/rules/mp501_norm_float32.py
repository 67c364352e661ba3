"""Norm layers compute in float32, unfused, with casts around them.

What it means
    Keras 3 normalises in float32: it casts its input up, computes moments and scale as separate ops, and
    casts back. Under mixed precision a norm gets no cheaper and gains two casts each way.

How we know
    The layers that the run recorded as norms, or that scopes in the trace show to be norms (`moments`,
    `batchnorm`, their names), and the time of their kernels and casts in the trace.

What it costs
    Their casts, and half of the rest: what it would be with 16-bit tensors in fused kernels.

When to ignore
    When norms are needed for the numbers and the model is small. float32 statistics are right; it is the
    memory traffic that costs.

Sources
    Read in Keras 3.15.1 (`batch_normalization.py`). keras-team/keras-core#225 ("significantly slower ... when
    jit_compile=False"), tf#52668 (XLA gives 3.5x with batch norm, 1.3x without), keras#20003.
"""

from __future__ import annotations

from mpprof.analysis.attainable.work import work_of
from mpprof.diagnosis.cells import norms_by_scope, unattributed
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP501", "norm-float32", "Norm layers compute in float32"
ABOUT = "norms in float32"
SAYS = "norm layers compute in float32 with casts around them[: up to {time}]"
ONCE = "once norms are fused"
SPECIFICITY = NAMED
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.05, warning_ratio=0.60, error_ratio=0.80, normal=True)
"""It is how Keras 3 works: a healthy convnet without XLA shows 10 to 50 %, the more the faster the card. A
note, until it is three fifths of the step."""
_STATISTICS = 0.05
"""Share of the bytes that a kernel moves: up to this much in float32 is means and variances beside 16-bit
tensors."""
UNDER_XLA = Scale(info_ratio=0.05, warning_ratio=0.20, error_ratio=0.40)
"""XLA fuses norms with their casts: a fifth of the step in them is out of the ordinary (our judgement)."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    if signals.half is None:
        return signals.not_narrow
    facts = known(signals.layers)
    recorded = {f.name for f in facts or () if kinds.is_norm(f)}
    names = recorded | norms_by_scope(signals)
    mine = signals.select(lambda cell: cell.layer in names or cell.category == "norm")
    rows = tuple(row for row in mine if not _in_16_bits(signals.cells[row]))
    if mine and not rows:
        return Clear("norms read and write 16 bits")
    if not rows:
        if recorded:
            return unattributed(recorded)
        if facts is None:
            need(signals.layers)  # XLA may have fused a norm into what surrounds it
        return NotApplicable("the model has no norm layer")
    casts = tuple(row for row in rows if signals.cells[row].category == "cast")
    rest = [
        row
        for row in rows
        if signals.cells[row].category != "cast" and signals.cells[row].category != "matmul"
    ]
    claims = attainable.whole(casts) + attainable.halved(signals, rest)
    fit = known(signals.fit)
    if not casts and fit is not None and fit.jit_compile:
        return Clear("XLA fuses the norms' casts")
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear(f"norms could give back {format_ratio(signals.cost_ratio(claims))} of the step")
    around = " with casts around them" if casts else ""
    return Found(
        summary=f"norm layers compute in float32{around}: {{cost}} {{each}} ({{share}}) could be fused away",
        said="" if casts else "norm layers move float32[: up to {time}]",
        evidence=(
            evidence.ns("norm layers", signals.time(rows)),
            evidence.ns("casts of these layers", signals.time(casts)),
            *((evidence.count("norm layers in the model", len(recorded)),) if recorded else ()),
        ),
        confidence="medium",
        scale=UNDER_XLA if fit is not None and fit.jit_compile else SCALE,
        claims=claims,
        layers=tuple(sorted(names)),
    )


def _in_16_bits(cell: Cell) -> bool:
    """Return whether the cell is a kernel of the norm itself that reads and writes 16 bits, as cuDNN's do and
    as XLA's fusions may, whatever they compute in: nothing to halve."""
    if cell.category != "norm":
        return False
    wide = work_of(cell).wide_ratio
    return cell.precision in HALF_PRECISIONS or (wide is not None and wide < _STATISTICS)
