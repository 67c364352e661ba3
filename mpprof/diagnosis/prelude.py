"""What every rule is written with: questions, outcomes, evidence, an untrained model, words for numbers.

Rules import all of it, and besides only what they alone need."""

from __future__ import annotations

from mpprof.analysis.kernels import device_peaks, eligibility, expected, shapes
from mpprof.analysis.layers import flops, kinds
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.outcomes import (
    CONFIGURED,
    ERROR,
    INACTIVE,
    INVALID,
    LEARNING,
    NAMED,
    NO_GPU,
    NO_MATRIX_UNITS,
    NOT_IN_16_BITS,
    NOT_NVIDIA,
    OF_A_LAYER,
    OUT_OF_MEMORY,
    OVERALL,
    REMAINDER,
    Absent,
    Claim,
    Clear,
    Found,
    NotApplicable,
    Outcome,
    Scale,
    Unable,
    known,
    need,
)
from mpprof.diagnosis.signals import HALF_DTYPES, HALF_PRECISIONS, LARGE_MEMORY, NOTABLE_MEMORY, Signals
from mpprof.diagnosis.untrained import Note, Untrained
from mpprof.model.account import Account, Cell, Class, ComputePrecision, KernelCalls
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, short_name
from mpprof.model.finding import Confidence, Evidence, Severity
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, Precision
from mpprof.model.quantities import (
    format_bytes,
    format_bytes_per_s,
    format_count,
    format_ns,
    format_ratio,
    format_speedup,
)
from mpprof.model.run import Ended, LayerFacts, Run, RunFacts

__all__ = [
    "ACCELERATED",
    "COMPUTE_DTYPES",
    "CONFIGURED",
    "ERROR",
    "HALF_DTYPES",
    "HALF_PRECISIONS",
    "INACTIVE",
    "INVALID",
    "LARGE_MEMORY",
    "LEARNING",
    "MAYBE_NVIDIA",
    "NAMED",
    "NOTABLE_MEMORY",
    "NOT_IN_16_BITS",
    "NOT_NVIDIA",
    "NO_GPU",
    "NO_MATRIX_UNITS",
    "OF_A_LAYER",
    "OUT_OF_MEMORY",
    "OVERALL",
    "REMAINDER",
    "Absent",
    "Account",
    "Cell",
    "Claim",
    "Class",
    "Clear",
    "ComputePrecision",
    "Confidence",
    "DeviceFacts",
    "Ended",
    "Evidence",
    "Found",
    "KernelCalls",
    "LayerFacts",
    "NotApplicable",
    "Note",
    "Outcome",
    "Precision",
    "Run",
    "RunFacts",
    "Scale",
    "Severity",
    "Signals",
    "Unable",
    "Untrained",
    "attainable",
    "device_peaks",
    "eligibility",
    "evidence",
    "expected",
    "flops",
    "format_bytes",
    "format_bytes_per_s",
    "format_count",
    "format_ns",
    "format_ratio",
    "format_speedup",
    "kinds",
    "known",
    "need",
    "shapes",
    "short_name",
]
