"""A piece of a step, the limits of the hardware, and each constant of the engine with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from mpprof.analysis.kernels import shapes
from mpprof.model.account import Cell, Class
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, Family, Placement, Precision
from mpprof.tensors import WIDE

LAUNCH_LIMITED_RATIO = 0.15
"""Of a step: XProf calls so much launch time high. The host then sets the pace."""
LAUNCH_BOUND_NS = 5_000.0
"""Kernels below this are bound by launching, ramping up and draining, not by arithmetic or bytes: they do not
get faster in 16 bits (our judgement; NVIDIA's "Getting Started with CUDA Graphs" has kernels of 2.9 µs on
V100)."""
FLOOR_NS = 2_000.0
"""What a kernel takes to start and drain, whatever it computes: none is expected to become shorter."""
STREAMING = 0.8
"""Share of the peak bandwidth that streaming kernels reach (our judgement: 75 to 92 % in STREAM)."""
MOST_STREAMING = 0.92
"""No streaming kernel moves its bytes at more of the memory's rate than this (75 to 92 % in STREAM)."""
WAITING = 0.6
"""A kernel that waits for memory moves its bytes at more of the memory's rate than this (our judgement)."""
SIMILAR = 4.0
"""Kernels within this factor of each other in FLOPs per call reach comparable rates: tile shapes and wave
counts change slowly with size (our judgement)."""
HALF_BYTES = 2.0
"""Tensors of 16 bits have half the bytes of float32, so work that moves them takes half the time."""
USUAL_RATIO = 2.0
"""Products that leave ordinary arithmetic for matrix units usually become at least twice as fast."""
FED_RATIO = 0.75
"""Matrix units are harder to feed than ordinary arithmetic: the share that kernels reach of their peak is so
much of the one that they reach of float32's. Our judgement, between 0.87 for products and 0.26 to 0.41 for
convolutions by the rows of the calibration table, which are measured on other cards."""
LARGE_SHARE = 0.68
"""The share of the peak that large aligned products in 16 bits reach: the lower of two cuBLAS kernels of 141
GFLOP on an H100 (0.68 and 0.81; `sample_traces/recorded-h100-transformer-padded-mixed-float16`)."""
FEWER_OPERATIONS = 4.0
"""What Winograd's F(4x4, 3x3) saves of a convolution's products: Lavin & Gray 2015, arXiv:1509.09308."""

BY_ATOMICS_RATIO = 42.0
"""So many times as long as in float32 the sum of a bias' gradient took in 16 bits, at most, on an H200
(TensorFlow 2.20 without XLA; 33 times in the step of `sample_traces/recorded-h200-transformer-*`)."""

SIXTEEN_BITS: frozenset[Precision] = frozenset(("fp16", "bf16"))
NARROW: frozenset[Precision] = SIXTEEN_BITS | {"fp8", "fp4"}
"""Types of products that a float32 run computes in float32; of eight bits there is no other arithmetic."""
MEMORY_BOUND: frozenset[Class] = frozenset(("norm", "elementwise", "reduce", "gather_scatter", "layout"))
BoundBy = Literal["compute", "memory"]
_FLOAT32 = WIDE | {"f32"}  # as HLO has it


@frozen
class Work:
    """A cell of the account, or all cells of one role. `ns` is its own time per step, `busy_ns` with what
    other work hides; operations and bytes are per step, None where shapes do not state them."""

    category: Class
    ns: float
    busy_ns: float = 0.0
    calls: float = 0.0
    family: Family | None = None
    placement: Placement | None = None
    precision: Precision | None = None
    flops: float | None = None
    bytes: float | None = None
    kernel: str | None = None
    op: str | None = None
    wide_ratio: float | None = None  # of its bytes, what is float32; None: not stated

    @property
    def bound_by_launching(self) -> bool:
        """Whether its kernels are too short to become faster."""
        return self.calls > 0 and (self.busy_ns or self.ns) / self.calls < LAUNCH_BOUND_NS

    @property
    def size(self) -> float | None:
        """Operations per call."""
        return self.flops / self.calls if self.flops and self.calls else None

    @property
    def accelerated(self) -> bool:
        return self.placement in ACCELERATED

    @property
    def in_16_bits(self) -> bool:
        """Whether it runs in 16 bits on matrix units."""
        return self.accelerated and self.precision in SIXTEEN_BITS

    @property
    def bytes_in_16_bits(self) -> float | None:
        """Bytes of its tensors in 16 bits."""
        return self.bytes / HALF_BYTES if self.bytes and self.precision in ("fp32", "tf32") else self.bytes

    @property
    def kind(self) -> str:
        """What kernels reach comparable rates: a convolution and its two gradients are of one kind."""
        family = self.family or ""
        return "convolution" if family.startswith("conv_") else family

    def floored(self, ns: float) -> float:
        """Return the time, but no less than FLOOR_NS a call and no more than the work takes now."""
        return min(self.ns, max(ns, self.calls * FLOOR_NS))


def work_of(cell: Cell) -> Work:
    return Work(
        cell.category, cell.ns_per_step, cell.busy_ns_per_step, cell.calls_per_step, cell.family,
        cell.placement, cell.precision, cell.flops_per_step, cell.bytes_per_step, cell.kernel, cell.op,
        _wide_ratio(cell.hlo.tensors if cell.hlo else shapes.tensors(cell.shapes or ""))
        if cell.precision == "mixed" else None,
    )  # fmt: skip


def by_atomics(cell: Cell) -> bool:
    """Return whether this is TensorFlow's own sum of a bias' gradient, which adds by atomics in 16 bits."""
    return cell.op_type == "BiasAddGrad" and cell.hlo is None and cell.ns_per_step > 0


def _wide_ratio(tensors: Iterable[shapes.Tensor]) -> float | None:
    """Return the share of the bytes that work moves which are float32, of those in float32 and in 16 bits;
    None where it moves neither. A fused norm reads and writes 16 bits whatever it computes in."""
    wide = narrow = 0
    for kind, shape in tensors:
        wide += 4 * math.prod(shape) * (kind in _FLOAT32)
        narrow += 2 * math.prod(shape) * (kind in shapes.HALF_TYPES)
    return wide / (wide + narrow) if wide or narrow else None


def roofline(
    flops: float | None, bytes: float | None, rate: float | None, bandwidth_bytes_per_s: float | None
) -> tuple[float, BoundBy] | None:
    """Return the time of these operations and bytes at the peaks, in ns, and which of the two bounds it; what
    is not known counts as nothing. None where neither is known."""
    compute = flops / rate * 1e9 if flops and rate else 0.0
    memory = bytes / bandwidth_bytes_per_s * 1e9 if bytes and bandwidth_bytes_per_s else 0.0
    if not compute and not memory:
        return None
    return (compute, "compute") if compute >= memory else (memory, "memory")


def streaming_ns(moved_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Return the time in which a streaming kernel moves this many bytes."""
    return moved_bytes / (bandwidth_bytes_per_s * STREAMING) * 1e9
