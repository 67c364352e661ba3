"""The graph rewrite for mixed precision was asked for and converted nothing.

What it means
    `TF_ENABLE_AUTO_MIXED_PRECISION` or the optimizer option `auto_mixed_precision` lets TensorFlow rewrite
    the graph, op by op, from lists. It is not the Keras policy, finds little in graphs that XLA compiles, and
    says so only in the log.

How we know
    The run recorded the rewrite as on, no layer computes in 16 bits by its policy, and no matrix kernel in
    the trace has a 16-bit type.

What it costs
    The whole gain: matrix work against 16-bit matrix kernels.

What to do
    Use the Keras policy, before the model is built:

        keras.config.set_dtype_policy("mixed_float16")

When to ignore
    When the model is float32 on purpose and the variable is left over from elsewhere.

Sources
    NVIDIA/tensorflow#39 ("has no effect", TF 2.6), tf#33672 ("Converted 9/854 nodes"), tf#33435. TensorFlow
    2.21's auto_mixed_precision_lists.h.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence, reach
from mpprof.diagnosis.outcomes import OVERALL, Clear, Found, Outcome, Unable, need
from mpprof.diagnosis.signals import HALF_DTYPES, HALF_PRECISIONS, RECORD_RUN, Signals

CODE, SLUG, TITLE = "MP105", "graph-rewrite-noop", "The graph rewrite converted nothing"
SPECIFICITY = OVERALL


def judge(signals: Signals) -> Outcome:
    asked = need(signals.facts).graph_rewrite
    if asked is None:
        return Unable(f"whether the graph rewrite is on was not recorded; {RECORD_RUN}")
    if not asked:
        return Clear("the graph rewrite was not asked for")
    if any(layer.compute_dtype in HALF_DTYPES for layer in need(signals.layers)):
        return Clear("layers compute in 16 bits by their policy")
    need(signals.gpu_account)
    if signals.select(lambda cell: cell.role == "matmul" and cell.precision in HALF_PRECISIONS):
        return Clear("matrix kernels in 16 bits ran")
    matrix = reach.matrix(signals, signals.fallbacks)
    return Found(
        summary="the graph rewrite for mixed precision is on, and no matrix kernel ran in 16 bits",
        remedy='keras.config.set_dtype_policy("mixed_float16") before the model is built',
        evidence=(
            evidence.text("graph rewrite", str(asked)),
            evidence.ns("matrix work in float32", signals.time(signals.fallbacks)),
        ),
        confidence="medium",
        severity="error",
        claims=matrix.claims if isinstance(matrix, reach.Reach) else (),
    )
