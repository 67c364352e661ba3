"""The graph rewrite for mixed precision was asked for and converted nothing.

What it means
    The optimizer option `auto_mixed_precision` (in NVIDIA's builds also `TF_ENABLE_AUTO_MIXED_PRECISION`)
    lets TensorFlow rewrite the graph, op by op, from lists. It is not the Keras policy, sees nothing of what
    XLA compiles, and says so only in the log.

How we know
    The run recorded the rewrite as on, and no layer's policy asks for 16 bits. In addition one of
    these: the graphs that TensorFlow saves before and after the rewrite (where
    `TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH` names a directory), in which no matrix operation was
    converted; the training's log, put into the run as `mpprof/graph_rewrite.log`; that it was asked for by an
    environment variable that only NVIDIA's builds know; or a trace without any 16-bit matrix kernel.

What it costs
    The whole gain: matrix work against 16-bit matrix kernels.

When to ignore
    When the model is float32 on purpose and the variable is left over from elsewhere.

Sources
    NVIDIA/tensorflow#39 ("has no effect", TF 2.6), tf#33672 ("Converted 9/854 nodes"), tf#33435. TensorFlow
    2.21's auto_mixed_precision_lists.h. Executed with TensorFlow 2.21: its libraries do not hold the name
    TF_ENABLE_AUTO_MIXED_PRECISION; with jit_compile=True the saved graphs hold no matrix operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.frameworks import ON_TENSORFLOW

CODE, SLUG, TITLE = "MP105", "graph-rewrite-noop", "The graph rewrite converted nothing"
ABOUT = "the graph rewrite"
SPECIFICITY = OVERALL
LEADS = INACTIVE


def judge(signals: Signals) -> Outcome:
    if signals.case.run.facts is None:
        if signals.framework not in (*ON_TENSORFLOW, "unknown"):
            return NotApplicable("the trace is not TensorFlow's")
        if signals.computes.kind == "16-bit":
            return Clear("matrix work ran in 16 bits")
    facts = need(signals.facts)
    asked, result = facts.graph_rewrite, facts.graph_rewrite_result
    if asked is None:
        return Unable(f"whether the graph rewrite is on was not recorded{signals.hint('record run')}")
    if not asked:
        return NotApplicable("the graph rewrite was not asked for")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    if any(layer.compute_dtype in HALF_DTYPES for layer in need(signals.layers)):
        return Clear("layers compute in 16 bits by their policy")
    told = _told(str(asked), result)
    if told is None:
        need(signals.gpu_account)
        if signals.select(lambda cell: cell.category == "matmul" and cell.precision in HALF_PRECISIONS):
            return Clear("matrix kernels in 16 bits ran")
        told = "the graph rewrite for mixed precision is on, and no matrix kernel ran in 16 bits"
    if isinstance(told, Clear):
        return told
    matrix = attainable.matrix(signals, signals.not_in_16_bits) if known(signals.gpu_account) else None
    return Found(
        summary=told,
        said="mixed precision is off: the graph rewrite converted nothing",
        proof=told,
        evidence=(evidence.text("graph rewrite", str(asked)), *_evidence(signals, result)),
        confidence="medium",
        severity="error",
        claims=matrix.claims if isinstance(matrix, attainable.Attainable) else (),
    )


def _told(asked: str, result: dict[str, Any]) -> str | Clear | None:
    """Return what the rewrite's own files or log say; None where there are none."""
    if "graphs" in result:
        graphs = _number(result, "graphs")
        changed, of = _number(result, "converted_nodes"), _number(result, "nodes")
        matrix, left = _number(result, "converted_matrix_nodes"), _number(result, "matrix_nodes")
        if matrix or (changed and "matrix_nodes" not in result):
            of_matrix = f", {matrix} of {left} matrix operations among them" if left else ""
            return Clear(f"the rewrite converted {changed} of {of} nodes to {result.get('dtype')}{of_matrix}")
        if "matrix_nodes" in result and not left:
            return (
                f"the graph rewrite found no matrix operation in {graphs} graphs: it does not see "
                "XLA's graphs"
            )
        return f"the graph rewrite looked at {graphs} graphs and converted no matrix operation"
    if result.get("variable_known") is False:
        return f"{asked} is set, and this TensorFlow does not know it: nothing was rewritten"
    return None


def _number(result: dict[str, Any], key: str) -> int:
    value = result.get(key)
    return value if isinstance(value, int) else 0


def _evidence(signals: Signals, result: dict[str, Any]) -> Iterator[Evidence]:
    if "matrix_nodes" in result:
        yield evidence.count("matrix operations in its graphs", _number(result, "matrix_nodes"))
        yield evidence.count("of them converted", _number(result, "converted_matrix_nodes"), 0)
    if known(signals.gpu_account):
        yield evidence.ns("matrix work in float32", signals.time(signals.not_in_16_bits))
