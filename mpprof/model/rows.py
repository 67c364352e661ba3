"""Every table of mpprof: what a row holds, and of each column its title, its unit and where it is shown.

A column is one line: the field's name is its key in CSV and JSON and in the public `Table`, its type what a
row of JSON holds, and its `Column` how a terminal and the page show it. Fields of an object that has columns
of its own become several (`reason.code`). `TABLES` says which columns a terminal and the page list, and in
which order; CSV and JSON hold all. To add a column, add its line here, and its value where rows are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args, get_origin, get_type_hints

from mpprof.model.account import Difference, Phase
from mpprof.model.columns import Column
from mpprof.model.frozen import changed, frozen
from mpprof.model.kernels import Family, Placement, Precision, Strength
from mpprof.model.memory import MemoryItem
from mpprof.model.source import RunState

Row = Mapping[str, Any]
"""A row of any table, for what goes by the keys of its columns."""


class Reason(TypedDict):
    code: Annotated[str, Column("why")]
    text: Annotated[str, Column("placed by", full="reason.text")]


class KernelRow(TypedDict):
    """A row of `mpprof kernels`: a kernel name of one op, with one verdict on where it ran.

    The page puts the rows of a kernel's ops together: a number says at its column how (`Column.grouped`)."""

    device: str
    name: Annotated[str, Column("kernel")]
    op: str | None
    layer: str | None
    placement: Placement
    precision: Annotated[Precision, Column("prec")]
    family: Annotated[Family | None, Column(optional=1)]
    reason: Reason
    calls: Annotated[int, Column(unit="count", grouped="sum")]
    total_ns: Annotated[int, Column("total", "ns", grouped="sum")]
    ratio: Annotated[float, Column("share", "ratio", grouped="sum")]
    strength: Strength
    flops_per_s: Annotated[float | None, Column("rate", "flops_per_s", optional=3, grouped="mean")]
    bytes_per_s: Annotated[float | None, Column("moved", "bytes_per_s", optional=2, grouped="mean")]
    roofline_ratio: Annotated[float | None, Column("of roofline", "ratio", optional=4, grouped="mean")]
    bound: Annotated[Literal["compute", "memory"] | None, Column("bound by", optional=1)]
    line: Annotated[str | None, Column(optional=5, sparse=True)]
    stream: NotRequired[str]


class ProductRow(TypedDict):
    """A row of `mpprof products`: the matrix products of one shape that ran alike. M, N, K are of one
    product, of which a call does `batch`; None for what is no plain product, and where they are not known."""

    device: str
    shape: str | None
    batch: int | None
    m: int | None
    n: int | None
    k: int | None
    operands: str | None
    family: Annotated[Family | None, Column(optional=1)]
    layer: Annotated[str | None, Column(optional=2)]
    placement: Placement
    precision: Annotated[Precision, Column("prec")]
    calls: Annotated[int, Column(unit="count", grouped="sum")]
    calls_per_step: Annotated[float | None, Column("a step", "count")]
    total_ns: Annotated[int, Column("total", "ns", grouped="sum")]
    ratio: Annotated[float, Column("share", "ratio", grouped="sum")]
    flops_per_call: Annotated[float | None, Column("operations a call", "count")]
    flops_per_s: Annotated[float | None, Column("rate", "flops_per_s")]
    peak_ratio: Annotated[float | None, Column("of peak", "ratio")]
    roofline_ratio: Annotated[float | None, Column("of roofline", "ratio", optional=3)]
    bound: Annotated[Literal["compute", "memory"] | None, Column("bound by", optional=1)]
    layers: NotRequired[list[str]]
    stream: NotRequired[str]


class Eligibility(TypedDict):
    """Whether the matrix work of an op could use Tensor Cores, and why not; None for an op without any."""

    eligible: Annotated[Literal["did", "could", "could_never", "unknown"] | None, Column(optional=1)]
    eligible_reason: Reason | None


class Rates(TypedDict):
    """How fast an op was; None for what shapes or the card's peaks do not tell."""

    flops_per_call: Annotated[float | None, Column("operations a call", "count")]
    bytes_per_call: Annotated[float | None, Column("bytes a call", "bytes")]
    flops_per_s: Annotated[float | None, Column("rate", "flops_per_s")]
    bytes_per_s: Annotated[float | None, Column("moved", "bytes_per_s")]
    roofline_ratio: Annotated[float | None, Column("of roofline", "ratio")]
    bound: Annotated[Literal["compute", "memory"] | None, Column("bound by")]


class _Op(TypedDict):
    device: str
    op: str | None
    type: Annotated[str | None, Column(optional=1)]
    layer: str | None
    phase: Phase
    calls: Annotated[int, Column(unit="count", grouped="sum")]
    total_ns: Annotated[int, Column("total", "ns", grouped="sum")]
    ratio: Annotated[float, Column("share", "ratio", grouped="sum")]
    matmul_ns: Annotated[int, Column(unit="ns", grouped="sum")]
    tensor_core_ratio: Annotated[float | None, Column("on TC", "ratio")]
    placement: Placement
    precision: Annotated[Precision, Column("prec")]
    placement_ns: dict[Placement, int]
    precision_ns: dict[Precision, int]


class OpRow(_Op, Eligibility, Rates):
    """A row of `mpprof ops`."""

    line: Annotated[str | None, Column(optional=5, sparse=True)]
    spans: NotRequired[list[Span]]
    stream: NotRequired[str]


class Span(TypedDict):
    layer: str | None
    ratio: float


LayerRow = TypedDict(
    "LayerRow",
    {
        "device": str,
        "layer": str | None,
        "class": Annotated[str | None, Column(optional=1)],
        "compute_dtype": Annotated[str | None, Column("dtype")],
        "calls": Annotated[int, Column(unit="count", grouped="sum")],
        "total_ns": Annotated[int, Column("total", "ns", grouped="sum")],
        "ratio": Annotated[float, Column("share", "ratio", grouped="sum")],
        "forward_ns": Annotated[int, Column("forward", "ns", grouped="sum")],
        "backward_ns": Annotated[int, Column("backward", "ns", grouped="sum")],
        "other_ns": Annotated[int, Column("other", "ns", grouped="sum")],
        "matmul_ns": Annotated[int, Column(unit="ns", grouped="sum")],
        "tensor_core_ratio": Annotated[float | None, Column("on TC", "ratio")],
        "fused_ns": Annotated[int, Column("fused", "ns", grouped="sum")],
        "shared_ns": NotRequired[Annotated[int, Column("shared", "ns")]],
        "layers": NotRequired[list[str]],
        "stream": NotRequired[str],
    },
)
"""A row of `mpprof layers`."""


class RunRow(TypedDict):
    """A row of `mpprof ls`: one run. Null: not known, with the reason in `absent`; a run that cannot be read
    has its `problem`. `error`: what ended a training that failed. `progress`: of one that is running, how far
    it has come and when its profile opens."""

    run: str
    id: str | None
    policy: str | None
    card: str | None
    batch_size: Annotated[int | None, Column("batch", "count")]
    steps: int | None
    step_ns: Annotated[float | None, Column("step", "ns")]
    state: RunState | None
    error: str | None
    progress: str | None
    created_unix_ns: int | None
    last_written_unix_ns: Annotated[int | None, Column("written", "age")]
    traces: int | None
    problem: str | None
    absent: dict[str, str]


class ComparedRow(TypedDict):
    """A row of a comparison's table: one of its runs. None: not known."""

    run: str
    policy: Annotated[str | None, Column("what", optional=1)]
    card: str | None
    batch_size: int | None
    step_ns: Annotated[float | None, Column("step", "ns")]
    examples_per_s: Annotated[float | None, Column("examples/s", "count", optional=3)]
    gpu_hours_per_epoch: float | None
    speedup_over_first: Annotated[float | None, Column("x first", "speedup")]
    speedup_over_before: Annotated[float | None, Column("x before", "speedup")]
    tensor_core_ratio: Annotated[float | None, Column("on units", "ratio", optional=4)]
    skipped_ratio: float | None
    peak_memory_bytes: Annotated[int | None, Column("peak memory", "bytes", optional=2)]


class SurveyRow(TypedDict):
    """A row of `mpprof survey`: one run. Null: not known, or there is none. `problem` says what could not be
    read: the run's trace, or, where there is no `id`, all of it."""

    run: str
    path: str
    id: str | None
    baseline: str | None
    policy: Annotated[str | None, Column(optional=5)]
    card: Annotated[str | None, Column(optional=3)]
    gpus: int | None
    batch_size: int | None
    step_ns: Annotated[float | None, Column("step", "ns")]
    examples_per_s: float | None
    speedup: Annotated[float | None, Column(unit="speedup")]
    attainable_low: float | None
    attainable_high: float | None
    estimated: bool
    tensor_core_ratio: Annotated[float | None, Column("on units", "ratio", optional=4)]
    unknown_ratio: float | None
    skipped_ratio: Annotated[float | None, Column("skips", "ratio", optional=2)]
    peak_memory_bytes: Annotated[int | None, Column("memory", "bytes", optional=1)]
    cause: str | None
    cause_slug: str | None
    cause_gain_ns: float | None
    lost_ratio: float | None
    lost_by: str | None
    lost_gpu_hours_per_day: Annotated[float | None, Column("GPU-h/day", "count")]
    one_step: bool
    warnings: int
    problem: str | None
    difference: NotRequired[
        Annotated[Difference | None, Column(), "What the timings tell of the run and its baseline."]
    ]
    figure: NotRequired[Annotated[str | None, Column(), "The report's answer: its figure,"]]
    label: NotRequired[Annotated[str | None, Column(), "what the figure is of,"]]
    sentence: NotRequired[Annotated[str | None, Column(), "its sentence,"]]
    do: NotRequired[Annotated[str | None, Column(), "and what to do first."]]


_WHOLE = "a part of the name, or =dense for that name and what lies below it"
_ON_PAGE = {
    "place": Column("ran on", dot=True),
    "short": Column("name", full="name", hint=_WHOLE),
    "layer": Column("layer", full="layers", hint=_WHOLE),
    "ns": Column("time", "ns", bar=True),
    "could": Column("could use Tensor Cores?"),
    "why": Column("why not", full="why"),
    "unit_ns": Column("on Tensor Cores", "ns"),
    "off_ns": Column("off Tensor Cores", "ns"),
    "cast_ns": Column("casts", "ns"),
    "rest_ns": Column("other work", "ns"),
    "could_ns": Column("could move", "ns", hint="matrix work that could use Tensor Cores"),
}
"""What the page works out of rows (per step, grouped, in short names), by the keys of its own rows."""


@frozen
class Shape:
    """A table: the type of its rows, and which columns a terminal and the page list, in their order.

    The terminal's last column is the one that is cut where the width does not suffice."""

    row: Any
    terminal: str
    page: str = ""


TABLES = {
    "kernels": Shape(
        KernelRow,
        "ratio total_ns calls flops_per_s bytes_per_s roofline_ratio placement precision family "
        "reason.code line name",
        "place short layer ns ratio could why reason.text family calls device",
    ),
    "ops": Shape(
        OpRow,
        "ratio total_ns calls tensor_core_ratio flops_per_s placement precision eligible type line op",
        "place short layer ns ratio could why flops_per_s roofline_ratio bound phase type calls device",
    ),
    "products": Shape(
        ProductRow,
        "ratio total_ns calls calls_per_step flops_per_s peak_ratio roofline_ratio placement precision "
        "family layer shape",
        "place short layer ns ratio flops_per_s peak_ratio bound family calls device",
    ),
    "layers": Shape(
        LayerRow,
        "ratio total_ns forward_ns backward_ns tensor_core_ratio compute_dtype class layer",
        "place short class ns ratio unit_ns off_ns cast_ns rest_ns could_ns forward_ns backward_ns "
        "compute_dtype calls device",
    ),
    "memory": Shape(MemoryItem, "bytes by estimated assigned name"),
    "ls": Shape(RunRow, "run policy card batch_size step_ns state last_written_unix_ns"),
    "runs": Shape(
        ComparedRow,
        "run policy step_ns examples_per_s speedup_over_before speedup_over_first tensor_core_ratio "
        "peak_memory_bytes",
    ),
    "survey": Shape(
        SurveyRow,
        "lost_gpu_hours_per_day run policy card step_ns speedup tensor_core_ratio skipped_ratio "
        "peak_memory_bytes cause",
    ),
}


@cache
def columns(kind: str) -> tuple[Column, ...]:
    """Return all columns of a table, in the order of CSV, each with its key and a title."""
    return tuple(_columns(TABLES[kind].row))


def keys(kind: str) -> tuple[str, ...]:
    """Return the keys of all columns of a table, in the order of CSV; none for a table that is not listed."""
    return tuple(each.key for each in columns(kind)) if kind in TABLES else ()


def terminal(kind: str) -> tuple[Column, ...]:
    """Return the columns that a terminal shows of a table."""
    return _named(TABLES[kind].terminal, {each.key: each for each in columns(kind)})


def page(kind: str) -> tuple[Column, ...]:
    """Return the columns that the page shows of a table: those of its rows, and those that the page works
    out."""
    own = {key: _complete(each, key) for key, each in _ON_PAGE.items()}
    return _named(TABLES[kind].page, {each.key: each for each in columns(kind)} | own)


def _named(keys: str, known: Mapping[str, Column]) -> tuple[Column, ...]:
    return tuple(known[key] for key in keys.split())


def flat(row: Row) -> dict[str, Any]:
    """Return the row by the keys of its columns: `reason` becomes `reason.code` and `reason.text`."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if key in ("reason", "eligible_reason"):
            out |= {f"{key}.{inner}": value[inner] if value else None for inner in Reason.__annotations__}
        else:
            out[key] = value
    return out


def _columns(kind: Any, above: str = "") -> Sequence[Column]:
    """Return the columns of a row's type. A field that only some rows have is a column where it says so."""
    hints = get_type_hints(kind, include_extras=True)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else list(hints)
    found: list[Column] = []
    for name in names:
        hint, key = hints[name], f"{above}{name}"
        if optional := get_origin(hint) is NotRequired:
            hint = get_args(hint)[0]
        plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        said = next((note for note in notes if isinstance(note, Column)), None)
        if Reason in (plain, *get_args(plain)):
            found += _columns(Reason, f"{key}.")
        elif said or not optional:
            found.append(_complete(said or Column(), key))
    return found


def _complete(column: Column, key: str) -> Column:
    title = column.title or key.removesuffix("_ns").replace("_", " ")
    return changed(column, key=key, title=title)
