"""What a run computes in: one answer for everything that asks.

The recorded policy tells; else the input types of the matrix ops; else the share of matrix kernel time: at
least half in 16 bits or less is a 16-bit run, under 1 % a float32 run, between them it is partly 16-bit.
Without matrix kernels it is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from mpprof.model.account import PRECISION_NOT_KNOWN, Cell, ComputePrecision, TensorCoreShare
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, NARROW, Precision
from mpprof.model.quantities import format_ratio
from mpprof.model.run import LayerFacts, Run

MOST, LEAST = 0.5, 0.01
"""From half of the matrix time on it is a 16-bit run, and under a hundredth a float32 one."""
_DECIDED = 0.5
"""Where the type of less than half of the matrix time is known, it tells nothing of the run."""
_DTYPES: dict[Precision, str] = {precision: dtype for dtype, precision in COMPUTE_DTYPES.items()} | {
    "fp8": "float8", "int8": "int8", "fp4": "float4", "tf32": "float32",
}  # fmt: skip


def compute_precision(run: Run, cells: Sequence[Cell] = ()) -> ComputePrecision:
    """Return what `run` computes in, by its records, else by the matrix work among its account's `cells`."""
    work = [
        cell for cell in cells if cell.category == "matmul" and cell.placement not in (None, "not_matmul")
    ]
    kernels = [cell for cell in work if cell.placement != "cpu"]
    found = (
        _by_policy(run)
        or _by_share(work, lambda cell: cell.inputs, "inputs")
        or _by_share(kernels, lambda cell: cell.precision, "kernels")
        or _by_some_layers(run)
        or _unknown(run, work, cells)
    )
    return replace(found, in_float8=said) if (said := _in_float8(run, kernels)) else found


def _in_float8(run: Run, kernels: Sequence[Cell]) -> str | None:
    """Return how much of a model that Keras quantised to float8 is in it: by its kernels where most of
    them tell, else by its layers; None: no layer is quantised."""
    layers = _with_weights(run)
    narrow = [layer for layer in layers if layer.quantized == "float8"]
    if not narrow:
        return None
    known = [cell for cell in kernels if cell.precision not in (None, "unknown")]
    whole = _ns(known)
    if not whole or whole < _LEAST_DECIDED * _ns(kernels):
        return f"float8 in {len(narrow)} of its {len(layers)} layers with weights"
    ns = _ns([cell for cell in known if cell.precision == "fp8"])
    return f"float8 in {format_ratio(ns / whole)} of the matrix time" if ns else "no product in float8"


# --- records -----------------------------------------------------------------------------------------------


def _by_policy(run: Run) -> ComputePrecision | None:
    """Return the compute precision by the model's own policy, or by those of most of its layers; None where
    they do not tell."""
    policy = run.last_fit.policy if run.last_fit else None
    own = (policy.compute_dtype or (policy.global_name or "").removeprefix("mixed_")) if policy else ""
    if COMPUTE_DTYPES.get(own) in NARROW:
        return ComputePrecision("16-bit", own, "policy", f"its policy computes in {own}")
    layers = _with_weights(run)
    narrow = _narrow(layers)
    if narrow and 2 * len(narrow) >= len(layers):
        dtype = Counter(layer.compute_dtype for layer in narrow).most_common(1)[0][0]
        return ComputePrecision("16-bit", dtype, "policy", _of_layers(narrow, layers))
    if narrow or _rewritten(run):
        return None
    if not own and layers:
        own = Counter(layer.compute_dtype or "" for layer in layers).most_common(1)[0][0]
    wide: Literal["float32", "float64"] = "float64" if own == "float64" else "float32"
    return ComputePrecision(wide, own, "policy", f"its policy computes in {own}") if own == wide else None


def _by_some_layers(run: Run) -> ComputePrecision | None:
    """Return the compute precision by the few layers with a 16-bit policy of their own, where no trace tells
    how much of the work they are."""
    layers = _with_weights(run)
    narrow = _narrow(layers)
    if not narrow:
        return None
    return ComputePrecision("partly 16-bit", narrow[0].compute_dtype, "policy", _of_layers(narrow, layers))


def _with_weights(run: Run) -> list[LayerFacts]:
    model = run.model
    return [layer for layer in model.layers if layer.parameters != 0] if model else []


def _narrow(layers: Sequence[LayerFacts]) -> list[LayerFacts]:
    return [layer for layer in layers if COMPUTE_DTYPES.get(layer.compute_dtype or "") in NARROW]


def _of_layers(narrow: Sequence[LayerFacts], layers: Sequence[LayerFacts]) -> str:
    return f"{len(narrow)} of its {len(layers)} layers with weights compute in {narrow[0].compute_dtype}"


def _rewritten(run: Run) -> bool:
    """Return whether TensorFlow was asked to rewrite the graph to 16 bits, and is not known to have left it
    as it was."""
    if run.facts is None or not run.facts.graph_rewrite:
        return False
    result = run.facts.graph_rewrite_result
    return result.get("variable_known") is not False and result.get("converted_nodes", 1) != 0


# --- matrix time -------------------------------------------------------------------------------------------


def _by_share(
    cells: Sequence[Cell], of: Callable[[Cell], Precision | None], by: Literal["inputs", "kernels"]
) -> ComputePrecision | None:
    """Return the compute precision by the share of the matrix time in 16 bits or less; None where too little
    of that time states its type."""
    times: dict[Precision, list[float]] = {}
    for cell in cells:
        times.setdefault(of(cell) or "unknown", []).append(cell.ns_per_step)
    ns = {precision: math.fsum(parts) for precision, parts in times.items()}
    whole = math.fsum(ns.values())
    decided = whole - ns.pop("unknown", 0.0)
    if decided <= 0.0 or decided < _DECIDED * whole:
        return None
    ratio = math.fsum(time for precision, time in ns.items() if precision in NARROW) / decided
    what = "is in ops with inputs" if by == "inputs" else "is in kernels"
    of_known = "" if decided == whole else f" whose type is known ({format_ratio(decided / whole)} of it)"
    reason = f"{format_ratio(ratio)} of the matrix time{of_known} {what} of 16 bits or less"
    if ratio < LEAST:
        kind: Literal["float32", "float64"] = (
            "float64" if ns.get("fp64", 0.0) >= MOST * decided else "float32"
        )
        return ComputePrecision(kind, kind, by, reason, ratio)
    # Types that policies know before those that libraries bring along: FP8 products in a bfloat16 model.
    narrow = [precision for precision in ns if precision in NARROW]
    main = max(narrow, key=lambda precision: (precision in ("fp16", "bf16"), ns[precision]))
    return ComputePrecision(
        "16-bit" if ratio >= MOST else "partly 16-bit", _DTYPES.get(main), by, reason, ratio
    )


def _unknown(run: Run, work: Sequence[Cell], cells: Sequence[Cell]) -> ComputePrecision:
    """Return the compute precision of a run whose matrix work tells nothing: what the run is known to do in
    16 bits beside it."""
    beside = None if work or _rewritten(run) else _most_of(cells)
    return ComputePrecision("unknown", None, "nothing", _why_not(run, work, beside), beside=beside)


def _most_of(cells: Sequence[Cell]) -> str | None:
    """Return the 16-bit type of half or more of the work that computes without products; None: there is
    none."""
    work = [cell for cell in cells if cell.category in ("norm", "elementwise", "reduce")]
    whole = math.fsum(cell.ns_per_step for cell in work)
    for precision in ("fp16", "bf16"):
        ns = math.fsum(cell.ns_per_step for cell in work if cell.precision == precision)
        if whole > 0 and ns >= MOST * whole:
            return _DTYPES[precision]
    return None


def _why_not(run: Run, work: Sequence[Cell], beside: str | None) -> str:
    if beside:
        why = f"no matrix work was seen (the other work is in {beside})"
    elif _rewritten(run):
        why = "a graph rewrite to 16 bits was asked for, and nothing shows what it did"
    elif work:
        why = "the dtype was not recorded, and the trace does not state that of the matrix work"
    else:
        why = "the dtype was not recorded, and there are no matrix kernels to derive it from"
    return f"{PRECISION_NOT_KNOWN}: {why}"


# --- How much of the matrix time ran on matrix units, by the cells of an account.

_LEAST_DECIDED = 0.5
"""A Tensor Core share of less than half of the matrix time would be a guess about the rest."""


def tensor_core_share(
    all_cells: Sequence[Cell], *, on_host: bool = False, matrix_units: bool | None = None
) -> TensorCoreShare:
    """Return how much of the matrix time of these cells ran on matrix units, and in what precision.

    `ratio` is of the matrix time whose placement is known, helpers (split-K reductions, transforms) apart;
    it is None where there is no such time, where it is less than half of the matrix time, and `on_host`,
    where the cells are ops of a CPU. `matrix_units`: whether the device has any (None: not known); without
    them nothing falls back.
    """
    cells = [cell for cell in all_cells if cell.placement is not None]
    matmul = [cell for cell in cells if cell.category == "matmul"]
    units = [cell for cell in matmul if cell.placement in ACCELERATED]
    by_precision: dict[Precision, float] = {}
    for cell in units:
        precision = cell.precision or "unknown"
        by_precision[precision] = by_precision.get(precision, 0.0) + cell.ns_per_step
    on_units = _ns(units)
    ordinary = _ns([cell for cell in matmul if cell.placement == "cuda_core"])
    unknown = _ns([cell for cell in matmul if cell.placement == "unknown"])
    kernels = [cell for cell in cells if cell.category != "copy"]
    busy = math.fsum(cell.busy_ns_per_step for cell in kernels)
    not_known = math.fsum(cell.busy_ns_per_step for cell in kernels if cell.placement == "unknown")
    reason = _no_share(on_host, on_units + ordinary, unknown)
    return TensorCoreShare(
        matmul_ns_per_step=_ns(matmul),
        ratio=on_units / (on_units + ordinary) if reason is None else None,
        reason=reason,
        by_precision=by_precision,
        fallback_ns_per_step=0.0 if matrix_units is False else ordinary,
        unknown_ratio=not_known / busy if busy else 0.0,
        unit="matrix_core" if any(cell.placement == "matrix_core" for cell in units) else "tensor_core",
    )


def _no_share(on_host: bool, decided_ns: float, unknown_ns: float) -> str | None:
    if on_host:
        return "the trace holds no accelerator: ops ran on the host's CPU"
    if decided_ns + unknown_ns <= 0.0:
        return "no matrix work was seen in the window"
    if decided_ns < _LEAST_DECIDED * (decided_ns + unknown_ns):
        share = format_ratio(unknown_ns / (decided_ns + unknown_ns))
        return f"it is not known where {share} of the matrix time ran"
    return None


def _ns(cells: Sequence[Cell]) -> float:
    return math.fsum(cell.ns_per_step for cell in cells)
