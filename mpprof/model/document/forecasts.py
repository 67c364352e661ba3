"""Forecasts and compiled programs: `mpprof.forecast/1`, `mpprof.memory_forecast/1`, `mpprof.programs/1`.

As in the other documents null is a value that is not known, or was not asked for.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from mpprof.model.account import Phase
from mpprof.model.forecast import Evidence as PlacementEvidence
from mpprof.model.kernels import Family, Placement, Precision


class Band(TypedDict):
    """Both ends, which are equal where nothing leaves the value open."""

    low: float
    high: float


class BytesBand(TypedDict):
    low: int
    high: int


# --- mpprof.forecast/1 -------------------------------------------------------------------------------------


class Forecast(TypedDict):
    """What a train step allows on cards that are not here; shares are null without matrix work."""

    schema: Literal["mpprof.forecast/1"]
    model: str
    versions: dict[str, str]
    runs: list[CardForecast]
    not_compiled: list[NotCompiled]


class NotCompiled(TypedDict):
    card: str
    policy: str
    reason: str


class CardForecast(TypedDict):
    card: str
    policy: str
    batch: int
    memory: ForecastMemory
    step_ns: StepForecast
    speedup: SpeedupForecast | None
    decided_ratio: float | None
    matrix_units: MatrixUnits
    flops: float
    executed_flops: float
    kernels: list[ForecastKernel]
    obstacles: list[Obstacle]
    largest_batch: LargestBatch | None
    unknown: list[str]
    compile_ns: int


class ForecastMemory(TypedDict):
    arguments_bytes: int
    outputs_bytes: int
    temporaries_bytes: Band
    peak_bytes: Band
    card_bytes: int
    not_included: list[str]
    alive: list[AliveBytes]


class AliveBytes(TypedDict):
    layer: str | None
    phase: Phase
    dtype: str | None
    bytes: int


class StepForecast(TypedDict):
    at_least: float
    typical: Band | None


class SpeedupForecast(TypedDict):
    over: str
    at_most: float
    assumed_ratio: float
    typical: Band | None


class MatrixUnits(TypedDict):
    """Shares of the model's matrix operations; they sum to 1."""

    can: float | None
    cannot: float | None
    open: float | None


class ForecastKernel(TypedDict):
    name: str
    op: str
    layers: list[str]
    phase: Phase
    family: Family
    placement: Placement
    precision: Precision
    evidence: PlacementEvidence
    reason: str
    instruction: str | None
    count: int | None
    flops: float | None
    executed_flops: float | None
    bytes: float
    at_least_ns: float


class Obstacle(TypedDict):
    code: str
    reason: str
    remedy: str | None
    layers: list[str]
    flops_ratio: float


class LargestBatch(TypedDict):
    fits: int | None
    too_large: int | None
    recomputes: bool | None
    fixed_bytes: Band | None
    example_bytes: Band | None
    compiled: list[BatchBytes]
    reason: str | None


class BatchBytes(TypedDict):
    batch: int
    peak_bytes: Band
    recomputes: bool


# --- mpprof.memory_forecast/1 ------------------------------------------------------------------------------


class MemoryForecast(TypedDict):
    """What a training will take in memory. Of several cards each run has its own `card` and `card_bytes`."""

    schema: Literal["mpprof.memory_forecast/1"]
    model: str
    batch: int
    card: str | None
    card_bytes: int | None
    runs: list[PolicyMemory]
    assumed: list[str]
    unknown: list[str]


class PolicyMemory(TypedDict):
    """`estimated` names the keys that are estimates; the others follow exactly from the model. `at_least` and
    `at_most` name the sums that the optimizer's slots are missing from."""

    card: str | None
    card_bytes: int | None
    policy: str
    parameters_bytes: int
    gradients_bytes: int
    slots_bytes: int | None
    weight_copies_bytes: int
    input_bytes: int
    kept_bytes: int
    kept: list[KeptBytes]
    activations_bytes: int
    activation_gradients_bytes: int
    fullest_layer: str
    fixed_bytes: int
    bytes_per_example: int
    peak_bytes: int
    saving_bytes: int | None
    largest_batch: int | None
    xla_temporaries_bytes: BytesBand | None
    xla_peak_bytes: BytesBand | None
    estimated: list[str]
    at_least: list[str]
    at_most: list[str]


class KeptBytes(TypedDict):
    layer: str
    what: str
    dtype: str
    bytes: int


# --- mpprof.programs/1 -------------------------------------------------------------------------------------


class Programs(TypedDict):
    """What XLA assigned to a trace's compiled programs, most bytes first."""

    schema: Literal["mpprof.programs/1"]
    not_included: list[str]
    programs: list[Program]


class Program(TypedDict):
    """`alive_at_peak` is empty where the program states no order of allocations."""

    name: str
    program_id: int
    arguments_bytes: int
    outputs_bytes: int
    constants_bytes: int
    temporaries_bytes: int
    temporaries_peak_bytes: int | None
    alive_at_peak: list[AliveOf]


class AliveOf(TypedDict):
    layer: str
    phase: str
    dtype: str
    bytes: int
