"""Casts between float32 and 16 bits take a noticeable part of the step.

What it means
    Master weights are float32 and are cast every step; layers that compute in float32 (norms in Keras 3,
    islands) cast their activations in and out; gradients are cast back. Without fusion each cast is a pass
    over memory of its own.

How we know
    The time of cast kernels in the account (`cast`), without those that another cause explains (MP104,
    MP501).

What it costs
    Their time, less the cast of every weight once a step, which mixed precision needs: 6 bytes per parameter
    at the device's bandwidth, where both are known. Without the model's layers the needed casts cannot be
    distinguished from the others: then their share is stated without a cost.

When to ignore
    Below a few percent of the step: casts are part of mixed precision.

Sources
    Executed with Keras 3.15.1 on TensorFlow: a step of two convolutions, two batch norms and one dense layer
    has 23 casts. hf/transformers#15026 (casting can dominate at small batch), keras#9594,
    keras-team/keras-core#815.
"""

from __future__ import annotations

from mpprof.analysis.comparison import precision_overhead
from mpprof.diagnosis.cells import norms_by_scope
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP503", "casts", "Casts take a noticeable part of the step"
ABOUT = "casts"
SAYS = "casts that could be fused away take[ {time}]"
ONCE = "without these casts"

SCALE = Scale(info_ratio=0.03, warning_ratio=0.15, error_ratio=0.30, normal=True)
"""A healthy Keras 3 convnet with batch norm and without XLA spends 5 to 12 % in casts: worth a mention, not a
warning."""


def judge(signals: Signals) -> Outcome:
    # Only for a step is it known how many casts the weights need.
    account = need(signals.activity if known(signals.layers) is None else signals.account)
    rows = signals.of("cast")
    total = signals.time(rows)
    needs = precision_overhead.needed_casts(signals.cells, signals.case.run, known(signals.peaks))
    claims = tuple(Claim(row, needs[row]) for row in rows)
    needed = sum(needs)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear(f"casts take {format_ratio(total / account.step_ns)} of the step")
    if known(signals.layers) is None and not signals.on_cpu:
        return _without_the_layers(signals, account.step_ns)
    calls = signals.calls(rows)
    return Found(
        summary="casts that could be fused away take {cost} {each} ({share})",
        evidence=(
            evidence.ratio("casts in {whole}", total / account.step_ns, SCALE.info_ratio),
            evidence.count("cast kernels {per}", calls),
            *(
                (evidence.ns("casts of weights, and casts before and after float32 norms", needed),)
                if needed
                else ()
            ),
        ),
        confidence="high" if account.trace_basis == "device" else "medium",
        severity="info" if signals.on_cpu else None,  # there they are part of emulating 16 bits
        scale=SCALE,
        claims=claims,
    )


def _without_the_layers(signals: Signals, step_ns: float) -> Found | Clear:
    """Return the answer for a run whose layers were not recorded: the trace states the time of casts, but
    not how much of it could be avoided. Casts of layers that their scopes show to be norms are MP501's."""
    norms = norms_by_scope(signals) if signals.half is not None else ()
    rows = signals.select(lambda cell: cell.category == "cast" and cell.layer not in norms)
    ratio = signals.time(rows) / step_ns
    if ratio < SCALE.info_ratio:
        return Clear(f"casts outside norms take {format_ratio(ratio)} of the step")
    return Found(
        summary=(
            f"casts take {format_ratio(ratio)} of {{whole}}; how much of that is needed for weights and "
            f"norms is not known: the model's layers were not recorded{signals.hint('record model')}"
        ),
        evidence=(evidence.ratio("casts in {whole}", ratio, SCALE.info_ratio),),
        cases=("without the layers",),
        confidence="low",
        severity="info",
    )
