"""What a card that is not here would do with a train step: `mpprof.forecast/1` in types."""

from __future__ import annotations

from typing import Literal

from mpprof.model.account import Phase
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Family, Placement, Precision
from mpprof.model.quantities import format_ns

Evidence = Literal["ptx", "library", "hlo", "decided on the card"]
"""What a placement rests on: the kernel's machine instructions; a library's documented rule for operands of
these types and sizes; the compiled program's types; or nothing before the card itself has chosen."""


@frozen
class Band:
    """Between what the two programs need; equal ends where they agree."""

    low: float
    high: float


@frozen
class ForecastKernel:
    """One instruction that runs in a step, with all its executions.

    `flops` are the model's own matrix operations that it does, `executed_flops` those with padding; None: it
    multiplies no matrices. `at_least_ns` is a bound, not an estimate. `placement` is where it can run:
    `tensor_core` where nothing but the library's own choice of a kernel is open. `reason` says why.
    """

    name: str
    op: str
    layers: tuple[str, ...]
    phase: Phase
    family: Family
    placement: Placement
    precision: Precision
    evidence: Evidence
    reason: str
    obstacle: str  # code of what keeps it off the matrix units, "" for nothing
    instruction: str | None
    count: int | None  # executions in a step; None: a loop whose turns the program does not state
    flops: float | None
    executed_flops: float | None
    bytes: float
    at_least_ns: float


@frozen
class AliveBytes:
    """Temporaries of one layer, phase and type that are alive at the peak; layer "": of no layer, or too
    small to be listed. Types as HLO names them ("f16"); "workspace" for what a library's call works in."""

    layer: str
    phase: Phase
    dtype: str
    bytes: int


@frozen
class ForecastMemory:
    """Device memory of the step, by XLA's own buffer assignment. `not_included` names what it leaves out.
    `alive`: at the peak, largest first, in the program with XLA's own products; arguments are not among them.
    Empty: not known."""

    arguments_bytes: int
    outputs_bytes: int
    temporaries_bytes: Band
    peak_bytes: Band
    not_included: tuple[str, ...]
    alive: tuple[AliveBytes, ...] = ()


@frozen
class BatchBytes:
    """What the compiled step needs at one batch: `bytes` as a band over the programs. `recomputed`: there XLA
    computes some activations a second time, to need less, which takes time."""

    batch_size: int
    bytes: Band
    recomputed: bool


@frozen
class LargestBatch:
    """The largest batch lies between two that were compiled.

    `fits`: at that one the program that needs more takes at most 0.9 of the card's memory; None: no batch
    was found that does. `too_large`: there even the program that needs less takes more than the card has;
    None: none was found. `recomputes`: whether XLA computes activations a second time at `fits`. `reason`
    says why the search ended early; "" where it did not. `compiled` are all that were compiled, smallest
    first. `fixed_bytes` and `example_bytes`: the line through the two smallest at which nothing is computed
    twice; None: there are no two.
    """

    fits: int | None
    too_large: int | None
    recomputes: bool | None
    compiled: tuple[BatchBytes, ...]
    fixed_bytes: Band | None
    example_bytes: Band | None
    reason: str = ""


@frozen
class Obstacle:
    """What keeps matrix work off the matrix units: `flops_ratio` of the model's matrix operations."""

    code: str
    reason: str
    remedy: str
    layers: tuple[str, ...]
    flops_ratio: float


@frozen
class ForecastSpeedup:
    """Over the same model in float32 on the same card. `at_most` is a bound if the float32 step takes no more
    than `assumed_ratio` times its roofline time."""

    over: str
    at_most: float
    assumed_ratio: float
    typical: Band | None


@frozen
class CardForecast:
    """One card and policy.

    `at_least_ns`: no step can be shorter. `typical_ns` None: no published measurement covers this kind of
    model on this card. `can_ratio`, `cannot_ratio` and `open_ratio` share the model's matrix operations:
    those that can use the matrix units, those that cannot, and those that nothing here decides.
    They sum to 1.
    `decided_ratio`: the share for which only a library's own choice of a kernel is open. All four are None
    for a model that multiplies no matrices.
    """

    card: str
    policy: str
    batch_size: int
    memory: ForecastMemory
    card_memory_bytes: int
    at_least_ns: float
    typical_ns: Band | None
    speedup: ForecastSpeedup | None
    can_ratio: float | None
    cannot_ratio: float | None
    open_ratio: float | None
    decided_ratio: float | None
    model_flops: float
    executed_flops: float
    kernels: tuple[ForecastKernel, ...]
    obstacles: tuple[Obstacle, ...]
    unknown: tuple[str, ...]
    compile_ns: int
    largest_batch: LargestBatch | None = None  # None: not asked for, or recurrent


@frozen
class NotCompiled:
    """A card and policy for which XLA gave no program, and why: it refuses the program, crashed, took too
    long or ran out of memory."""

    card: str
    policy: str
    reason: str


@frozen
class Forecast:
    """What `mpprof forecast` says: one `CardForecast` for each card and policy, in the order asked for, less
    those that are `not_compiled`."""

    model: str
    runs: tuple[CardForecast, ...]
    versions: dict[str, str]
    not_compiled: tuple[NotCompiled, ...] = ()

    def __repr__(self) -> str:
        runs = [
            f"{one.policy} on {one.card} at least {format_ns(one.at_least_ns)} a step" for one in self.runs
        ]
        runs += [f"{one.policy} on {one.card} not compiled" for one in self.not_compiled]
        return f"Forecast of {self.model}: {', '.join(runs)}"
