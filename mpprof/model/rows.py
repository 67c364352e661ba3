"""Rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from mpprof.model.account import Difference, Phase
from mpprof.model.kernels import Family, Placement, Precision, Strength

Row = Mapping[str, Any]
"""A row of any table, for what goes by the names of its columns (`report.tables.KEYS`)."""


class Reason(TypedDict):
    code: str
    text: str


class KernelRow(TypedDict):
    """A row of `mpprof kernels`: a kernel name of one op, with one verdict on where it ran."""

    device: str
    name: str
    op: str | None
    layer: str | None
    placement: Placement
    precision: Precision
    family: Family | None
    reason: Reason
    calls: int
    total_ns: int
    ratio: float
    strength: Strength
    flops_per_s: float | None
    stream: NotRequired[str]


class Eligibility(TypedDict):
    """Whether the matrix work of an op could use Tensor Cores, and why not; None for an op without any."""

    eligible: Literal["did", "could", "could_never", "unknown"] | None
    eligible_reason: Reason | None


class Rates(TypedDict):
    """How fast an op was; None for what shapes or the card's peaks do not tell."""

    flops_per_call: float | None
    bytes_per_call: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    roofline_ratio: float | None
    bound: Literal["compute", "memory"] | None


class OpRow(Eligibility, Rates):
    """A row of `mpprof ops`."""

    device: str
    op: str | None
    type: str | None
    layer: str | None
    phase: Phase
    calls: int
    total_ns: int
    ratio: float
    matmul_ns: int
    tensor_core_ratio: float | None
    placement: Placement
    precision: Precision
    placement_ns: dict[Placement, int]
    precision_ns: dict[Precision, int]
    spans: NotRequired[list[Span]]
    stream: NotRequired[str]


class Span(TypedDict):
    layer: str | None
    ratio: float


_LayerClass = TypedDict("_LayerClass", {"class": str | None})


class LayerRow(_LayerClass):
    """A row of `mpprof layers`."""

    device: str
    layer: str | None
    compute_dtype: str | None
    calls: int
    total_ns: int
    ratio: float
    forward_ns: int
    backward_ns: int
    other_ns: int
    matmul_ns: int
    tensor_core_ratio: float | None
    fused_ns: int
    shared_ns: NotRequired[int]
    layers: NotRequired[list[str]]
    stream: NotRequired[str]


class SurveyRow(TypedDict):
    """One run. Null: not known, or there is none. `problem` says what could not be read: the run's trace, or,
    where there is no `id`, all of it."""

    run: str
    path: str
    id: str | None
    baseline: str | None
    policy: str | None
    card: str | None
    gpus: int | None
    batch_size: int | None
    step_ns: float | None
    examples_per_s: float | None
    speedup: float | None
    attainable_low: float | None
    attainable_high: float | None
    estimated: bool
    tensor_core_ratio: float | None
    unknown_ratio: float | None
    skipped_ratio: float | None
    peak_memory_bytes: int | None
    cause: str | None
    cause_slug: str | None
    cause_gain_ns: float | None
    lost_ratio: float | None
    lost_by: str | None
    lost_gpu_hours_per_day: float | None
    one_step: bool
    warnings: int
    problem: str | None
    difference: NotRequired[
        Annotated[Difference | None, "What the timings tell of this run and its baseline, as in a report."]
    ]
    figure: NotRequired[Annotated[str | None, "The report's answer: its figure,"]]
    label: NotRequired[Annotated[str | None, "what the figure is of,"]]
    sentence: NotRequired[Annotated[str | None, "its sentence,"]]
    do: NotRequired[Annotated[str | None, "and what to do first."]]
