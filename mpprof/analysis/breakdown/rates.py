"""Per op: whether its matrix work could use Tensor Cores, and how fast it was against this card's roofline.

Operations and bytes come from shapes (`roofline.cost`), so a rate is achieved work as the direct algorithm
counts it. Where the shapes are not known there is no rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mpprof.analysis.breakdown.roofline import Cost, Roof, cost, roof, several_fit
from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.eligibility import (
    Product,
    judge,
    parse_shapes,
    product_of_hlo,
    product_of_shapes,
)
from mpprof.analysis.kernels.placement import products
from mpprof.model.account import BUSY_RATIO, Account, BusyKernel, Cell
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import (
    ACCELERATED,
    COMPUTE_DTYPES,
    MATMUL_FAMILIES,
    Family,
    Placement,
    Precision,
    Verdict,
)
from mpprof.model.run import LayerFacts, Run
from mpprof.model.trace import Op, Trace

if TYPE_CHECKING:
    from mpprof.model.rows import Eligibility, Rates, Reason

BELIEVABLE = 1.1
"""Of the card's peak: a rate above it shows that the shapes are not those of one kernel. Winograd and FFT
convolutions really do with fewer operations than are counted here and are left out of this."""


@frozen
class Setting:
    """What is known beside the trace. `peaks` per row of `Trace.devices`; None: not known."""

    peaks: tuple[DevicePeaks | None, ...] = ()
    facts: tuple[DeviceFacts, ...] = ()
    tf32_enabled: bool | None = None
    batch: int | None = None  # examples per step on one device
    on_host: bool = False  # a trace without an accelerator

    def of(self, device: int) -> tuple[DevicePeaks | None, DeviceFacts]:
        peaks = self.peaks[device] if device < len(self.peaks) else None
        return peaks, self.facts[device] if device < len(self.facts) else DeviceFacts("gpu")


def setting(trace: Trace, run: Run | None = None) -> Setting:
    """Return what a run recorded of its cards and its fit, and what the table of devices adds."""
    recorded = [facts for facts in (run.devices if run else ()) if facts.kind != "cpu"]
    facts = tuple(_recorded(device.facts, recorded) for device in trace.devices)
    fit = run.last_fit if run else None
    replicas = (run.facts.replicas or 1) if run and run.facts else 1
    return Setting(
        peaks=tuple(device_peaks.peaks(of) for of in facts),
        facts=facts,
        tf32_enabled=run.facts.tf32_enabled if run and run.facts else None,
        batch=fit.batch_size // replicas if fit and fit.batch_size else None,
        on_host=trace.basis == "host",
    )


def _recorded(facts: DeviceFacts, recorded: Sequence[DeviceFacts]) -> DeviceFacts:
    """Return the facts of the card as the run recorded them, where the trace leaves out its name: a trace
    often does, and a run whose cards are all alike knows it."""
    if facts.name or len({device.name for device in recorded}) != 1:
        return facts
    return recorded[0]


# --- eligibility -------------------------------------------------------------------------------------------


def eligibility(
    op: Op | None,
    shapes: str,
    verdict: Verdict,
    layer: LayerFacts | None,
    device: DeviceFacts,
    known: Setting,
) -> Eligibility:
    """Return `{eligible, eligible_reason}` of an op whose main matrix kernel got `verdict`.

    `eligible` is "did", "could", "could_never" or "unknown"; `eligible_reason` {code, text} says why not (or,
    for "did", what costs efficiency) and is None where nothing speaks against it.
    """
    if known.on_host:
        text = "it ran on the host's CPU, which has no Tensor Cores"
        return {"eligible": "could_never", "eligible_reason": {"code": "card", "text": text}}
    judged = judge(
        _product(op, shapes, verdict, layer),
        capability=device.compute_capability if device_peaks.vendor(device) in MAYBE_NVIDIA else None,
        tensor_cores=device_peaks.has_matrix_units(device),
        ran_on_matrix_units=None if verdict.placement == "unknown" else verdict.placement in ACCELERATED,
        tf32_enabled=known.tf32_enabled,
    )
    why = [*judged.reasons]
    reason: Reason | None = None
    if why:
        reason = {"code": why[0][0], "text": "; ".join(text for _, text in why)}
    return {"eligible": judged.answer, "eligible_reason": reason}


def _product(op: Op | None, shapes: str, verdict: Verdict, layer: LayerFacts | None) -> Product:
    """Return the op's product as its HLO or shapes state it; else what its kernel and layer tell of the
    type."""
    found: Product | None = None
    if op is not None and op.hlo is not None:
        inner = products(op.hlo)
        found = product_of_hlo(inner[0] if inner else op.hlo)
    if found is None and shapes:
        found = product_of_shapes(op.type if op else "", parse_shapes(shapes), verdict.family)
    if found is None:
        found = Product(verdict.family, _operands(verdict, layer))
    found = _of_layer(found, layer) if layer is not None else found
    dtype = (layer.compute_dtype or "") if layer else ""
    precision = found.precision if found.precision != "unknown" else _operands(verdict, layer)
    family: Family = "depthwise" if verdict.family == "depthwise" else found.family
    return Product(
        family, precision, found.m, found.n, found.k, found.channels, found.groups, found.spatial_dims,
        found.layout, dtype,
    )  # fmt: skip


def _of_layer(product: Product, layer: LayerFacts) -> Product:
    """Return what the layer's own settings tell of a convolution: channels, groups, layout, dimensions."""
    if not product.family.startswith("conv") or "Conv" not in layer.class_name:
        return product
    dimensions = next((size for size in (1, 2, 3) if f"{size}D" in layer.class_name), product.spatial_dims)
    groups = layer.config.get("groups")
    first = layer.config.get("data_format") == "channels_first"
    return replace(
        product,
        channels=product.channels or _channels(layer, first=first),
        groups=groups if isinstance(groups, int) and groups > 1 else product.groups,
        spatial_dims=product.spatial_dims or dimensions,
        layout=("NCDHW" if dimensions == 3 else "NCHW") if first else product.layout,
    )


def _channels(layer: LayerFacts, *, first: bool) -> tuple[int, int] | None:
    """Return the input and output channels of a convolution as the run recorded its layer; None: not
    recorded."""
    shape, filters = layer.input_shape, layer.config.get("filters")
    if not isinstance(shape, list | tuple) or len(shape) < 3 or not isinstance(filters, int):
        return None
    channels = shape[1] if first else shape[-1]
    return (channels, filters) if isinstance(channels, int) else None


def _operands(verdict: Verdict, layer: LayerFacts | None) -> Precision:
    if verdict.precision not in ("unknown", "mixed"):
        return "fp32" if verdict.precision == "tf32" else verdict.precision
    return COMPUTE_DTYPES.get((layer.compute_dtype or "") if layer else "", "unknown")


# --- rates -------------------------------------------------------------------------------------------------

_WRITES_AS_MUCH: frozenset[Family] = frozenset(("elementwise", "layout", "norm", "softmax"))
"""What writes as much as the largest of its inputs."""
NO_RATE: Rates = {
    "flops_per_call": None, "bytes_per_call": None, "flops_per_s": None, "bytes_per_s": None,
    "roofline_ratio": None, "bound": None,
}  # fmt: skip


@frozen
class Part:
    """Kernels of one op with the same verdict and shapes: how many, how long together, and what one takes."""

    calls: float
    total_ns: float
    work: Cost
    least: Roof | None
    fewer: bool  # `fewer_operations`


def part(
    op: Op | None,
    shapes: str,
    verdict: Verdict,
    *,
    calls: int,
    total_ns: int,
    layer: LayerFacts | None,
    batch: int | None,
    peaks: DevicePeaks | None,
) -> Part:
    """Return what `calls` kernels of an op take, from its HLO, its shapes or its layer's; pure."""
    work = cost(op, shapes, family=verdict.family, layer=layer, batch=batch, precision=verdict.precision)
    work = stated(work, verdict.family, by_hlo=op is not None and op.hlo is not None)
    told = verdict.placement != "unknown"
    least = roof(work, verdict.placement, verdict.precision, peaks) if told else None
    return Part(calls, total_ns, work, least, fewer_operations(verdict.family, verdict.placement))


def stated(work: Cost, family: Family | None, *, by_hlo: bool) -> Cost:
    """Return the cost without bytes that the trace does not state: an event has the shapes of its inputs, but
    a cast, a reduction or a gather reads or writes another number of bytes."""
    known = by_hlo or family in MATMUL_FAMILIES or family in _WRITES_AS_MUCH
    return work if known else Cost(work.flops, None)


def fewer_operations(family: Family | None, placement: Placement | None) -> bool:
    """Return whether a kernel's algorithm may do with fewer operations than are counted."""
    return (family or "").startswith("conv") and placement == "cuda_core"


def summed(parts: Sequence[Part]) -> Rates:
    """Return `{flops_per_call, bytes_per_call, flops_per_s, bytes_per_s, roofline_ratio, bound}` of all
    parts; None for what the shapes of some part, or the card's peaks, do not tell.

    `roofline_ratio` is the least time that this card needs over the time taken; `bound` says which of the two
    limits, "compute" or "memory", sets it for most of that time.
    """
    calls, total_ns = sum(part.calls for part in parts), sum(part.total_ns for part in parts)
    if not calls or not total_ns:
        return NO_RATE.copy()
    flops = _total([(part.work.flops, part.calls) for part in parts])
    moved = _total([(part.work.bytes, part.calls) for part in parts])
    least = _total([(part.least.least_ns if part.least else None, part.calls) for part in parts])
    ratio = least / total_ns if least else None
    if ratio is not None and ratio > BELIEVABLE and not any(part.fewer for part in parts):
        return NO_RATE.copy()
    main = max(parts, key=lambda part: part.total_ns)
    return {
        "flops_per_call": flops / calls if flops else None,
        "bytes_per_call": moved / calls if moved else None,
        "flops_per_s": flops / total_ns * 1e9 if flops else None,
        "bytes_per_s": moved / total_ns * 1e9 if moved else None,
        "roofline_ratio": ratio,
        "bound": main.least.bound if ratio is not None and main.least else None,
    }


def _total(of_parts: Sequence[tuple[float | None, float]]) -> float | None:
    """Return the sum over all calls; None where one part is not known."""
    found = [value * calls for value, calls in of_parts if value is not None]
    return sum(found) if len(found) == len(of_parts) else None


# --- The kernels that take most of a device's time, and what each reaches of the device's peaks.

_UNKNOWN = Cost(None, None)
SEVERAL_FIT = "the sizes of its operands fit several products, and the trace does not say which it was"
"""Why a kernel has no rate."""


def busiest(account: Account, peaks: DevicePeaks | None) -> tuple[BusyKernel, ...]:
    """Return the main device's kernels, by name, whose durations are more than `BUSY_RATIO` of the durations
    of all its work, the longest first; empty for ops that ran on the host."""
    if account.trace_basis == "host":
        return ()
    cells = account.main.cells
    whole_ns = sum(cell.busy_ns_per_step for cell in cells)
    by_name: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.kernel is not None and cell.category != "copy" and cell.busy_ns_per_step:
            by_name[cell.kernel].append(cell)
    multiplied = {cell.op for cell in cells if _multiplies(cell)} - {None}
    found = []
    for name, own in by_name.items():
        ns = sum(cell.busy_ns_per_step for cell in own)
        if ns <= BUSY_RATIO * whole_ns:
            continue
        # A product's operations and bytes are those of its matrix kernel, not of the helpers beside it.
        rates = summed([_part(cell, peaks, helps=cell.op in multiplied) for cell in own])
        ratio = rates["roofline_ratio"]
        found.append(
            BusyKernel(
                name,
                ns,
                ns / whole_ns,
                sum(cell.calls_per_step for cell in own),
                rates["flops_per_s"],
                rates["bytes_per_s"],
                ratio if ratio is not None and ratio <= 1 else None,
                rates["bound"] or ("compute" if any(map(_multiplies, own)) else "memory"),
                SEVERAL_FIT if any(map(_undecided, own)) else None,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.ns_per_step))


def _multiplies(cell: Cell) -> bool:
    return cell.family in MATMUL_FAMILIES and cell.placement != "not_matmul"


def _undecided(cell: Cell) -> bool:
    """Return whether a product's shapes are stated, and do not tell which product it is."""
    return (
        cell.flops_per_step is None
        and cell.hlo is None
        and several_fit(cell.op_type or "", parse_shapes(cell.shapes or ""), cell.family)
    )


def _part(cell: Cell, peaks: DevicePeaks | None, *, helps: bool) -> Part:
    calls, placement, precision = cell.done_per_step, cell.placement, cell.precision
    work, least = _UNKNOWN, None
    if calls and (_multiplies(cell) or not helps):
        per_call = (each / calls if each else None for each in (cell.flops_per_step, cell.bytes_per_step))
        work = stated(Cost(*per_call), cell.family, by_hlo=cell.hlo is not None)
    if placement is not None and precision is not None and placement != "unknown":
        least = roof(work, placement, precision, peaks)
    fewer = fewer_operations(cell.family, placement)
    return Part(calls, cell.busy_ns_per_step, work, least, fewer)
