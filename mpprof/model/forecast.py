"""What a card that is not here would do with a train step: `mpprof.forecast/1` in types."""

from __future__ import annotations

from typing import Annotated, Literal

from mpprof.model.account import Phase
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Family, Placement, Precision
from mpprof.model.quantities import format_ns
from mpprof.model.written import HIDDEN, LATER, NULL, After, Key

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
    obstacle: Annotated[str, HIDDEN]  # code of what keeps it off the matrix units, "" for nothing
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

    layer: Annotated[str, NULL]
    phase: Phase
    dtype: Annotated[str, NULL]
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
    card_bytes: Annotated[int | None, After("peak_bytes")] = None  # set in the forecast of a card


@frozen
class BatchBytes:
    """What the compiled step needs at one batch: `bytes` as a band over the programs. `recomputed`: there XLA
    computes some activations a second time, to need less, which takes time."""

    batch_size: Annotated[int, Key("batch")]
    bytes: Annotated[Band, Key("peak_bytes")]
    recomputed: Annotated[bool, Key("recomputes")]


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
    compiled: Annotated[tuple[BatchBytes, ...], After("example_bytes")]
    fixed_bytes: Band | None
    example_bytes: Band | None
    reason: Annotated[str, NULL] = ""


@frozen
class Obstacle:
    """What keeps matrix work off the matrix units: `flops_ratio` of the model's matrix operations,
    `time_ratio` of the step's roofline time; None: that is not known, because cuDNN's kernels run in place of
    a recurrent layer's."""

    code: str
    reason: str
    remedy: Annotated[str, NULL]
    layers: tuple[str, ...]
    flops_ratio: float
    time_ratio: Annotated[float | None, LATER]


@frozen
class TimeShares:
    """Shares of the step's roofline time: of products that can use the matrix units, that cannot, and that
    nothing here decides; `other` is no product. They sum to 1."""

    can: float
    cannot: float
    open: float
    other: float


@frozen
class ForecastSpeedup:
    """Over the same model in float32 on the same card.

    `over`: what float32 runs as there by default, "tf32" or "float32". `at_roofline`: the ratio of the
    two steps' roofline times, each with its launches; `at_roofline_float32`: the same
    with TF32 switched off, equal where the card has none. No measurement is in either.
    `typical`: over `over`, by the steps of models of this family that were measured on cards of this
    compute capability; None: too few were, or they are too far apart. `at_most`: always None."""

    over: str
    at_roofline: float
    at_roofline_float32: float
    typical: Band | None = None
    at_most: float | None = None


@frozen
class StepForecast:
    at_least: float
    typical: Band | None


@frozen
class MatrixUnits:
    """Shares of the model's matrix operations; they sum to 1."""

    can: float | None
    cannot: float | None
    open: float | None


@frozen
class Float8Layer:
    """A layer that is quantised to float8: how many of its products can be in float8 (the library's kernels
    take it), how many are only rounded to it, and the types that those without it are multiplied in."""

    layer: str
    in_float8: int
    turned_back: int
    turned_into: tuple[Precision, ...]


@frozen
class CardForecast:
    """One card and policy.

    `at_least_ns`: no step can be shorter. `family`: "convolutional", "transformer"; "": none that was
    measured. `typical_ns` None: fewer than two models of this family and about this size were measured on
    such a card, or they are too far apart. `roofline_ns`: each kernel at the card's stated peaks; `time`:
    where it goes. None: cuDNN's recurrent layers are in place of what was compiled, or there is no work.
    `can_ratio`, `cannot_ratio` and `open_ratio` share the model's matrix operations: those that can use the
    matrix units, those that cannot, and those that nothing here decides. They sum to 1.
    `decided_ratio`: the share for which only a library's own choice of a kernel is open. All four are None
    for a model that multiplies no matrices.
    """

    card: str
    policy: str
    batch_size: Annotated[int, Key("batch")]
    memory: ForecastMemory
    card_memory_bytes: Annotated[int, HIDDEN]
    at_least_ns: Annotated[float, HIDDEN]
    typical_ns: Annotated[Band | None, HIDDEN]
    speedup: ForecastSpeedup | None
    can_ratio: Annotated[float | None, HIDDEN]
    cannot_ratio: Annotated[float | None, HIDDEN]
    open_ratio: Annotated[float | None, HIDDEN]
    decided_ratio: float | None
    model_flops: Annotated[float, Key("flops")]
    executed_flops: float
    kernels: tuple[ForecastKernel, ...]
    obstacles: tuple[Obstacle, ...]
    unknown: tuple[str, ...]
    compile_ns: int
    largest_batch: Annotated[LargestBatch | None, After("obstacles")] = None  # not asked for, or recurrent
    family: Annotated[str, LATER, NULL] = ""
    roofline_ns: Annotated[float | None, LATER] = None
    time: Annotated[TimeShares | None, LATER] = None
    float8: Annotated[tuple[Float8Layer, ...], LATER] = ()  # of a model that is quantised to it

    @property
    def step_ns(self) -> Annotated[StepForecast, After("memory")]:
        """How long a step is."""
        return StepForecast(self.at_least_ns, self.typical_ns)

    @property
    def matrix_units(self) -> Annotated[MatrixUnits, After("decided_ratio")]:
        """What of the matrix operations can use the matrix units."""
        return MatrixUnits(self.can_ratio, self.cannot_ratio, self.open_ratio)


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
    versions: Annotated[dict[str, str], After("model")]
    not_compiled: tuple[NotCompiled, ...] = ()

    @property
    def schema(self) -> Annotated[Literal["mpprof.forecast/1"], After("")]:
        """The name of its document."""
        return "mpprof.forecast/1"

    def __repr__(self) -> str:
        runs = [
            f"{one.policy} on {one.card} at least {format_ns(one.at_least_ns)} a step" for one in self.runs
        ]
        runs += [f"{one.policy} on {one.card} not compiled" for one in self.not_compiled]
        return f"Forecast of {self.model}: {', '.join(runs)}"
