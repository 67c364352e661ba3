"""The kernels, ops and layers of a run as the tables of the page: per step, grouped, in short names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING, Any

from mpprof.model.account import Phase, class_of
from mpprof.model.columns import Column
from mpprof.model.frozen import changed
from mpprof.model.rows import columns, flat, page
from mpprof.report.content import matrix_units
from mpprof.report.tables import summed_over
from mpprof_dashboards import theme
from mpprof_dashboards.rows import Row, Table
from mpprof_dashboards.rows import text as cell

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.rows import KernelRow, LayerRow, OpRow, ProductRow
    from mpprof.model.source import RunTables

NOT_ATTRIBUTED = "not attributed"
_ELIGIBLE = {"did": "already does", "could": "yes", "could_never": "no", "unknown": "unknown"}


@dataclass(frozen=True, slots=True)
class Per:
    """What the times of a run's tables are of: one step, or the whole window where none can be told apart;
    and what the matrix units of its device are called."""

    steps: int | None
    units: str = theme.LANE_LABELS["matrix_unit"]

    @property
    def text(self) -> str:
        return "a step" if self.steps else "in the whole window"

    def ns(self, total_ns: float) -> float:
        return total_ns / (self.steps or 1)

    def calls(self, calls: int) -> float:
        return calls / (self.steps or 1)


def per(document: Report) -> Per:
    time = document.time
    return Per(time.window_steps if time and time.window_steps else None, matrix_units(document))


def over(document: Report) -> str:
    """Return what the tables are summed over, where the user named ranges as steps; empty otherwise."""
    time = document.time
    return f"; over {summed_over(document)}" if time and time.step_range is not None else ""


# --- names -------------------------------------------------------------------------------------------------

_ENVELOPE = re.compile(
    r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/|cond(?:_\d+)?/(?:then|else)/_\d+/|while(?:_\d+)?/body/_\d+/"
    r"|jit\([^()]*\)/)+"
)
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")
_LONGEST_ARGUMENTS = 32
_WRAPPERS = ("Kernel", "Kernel2")


def short_op(name: str) -> str:
    """Return a scope without the parts that the framework wraps around every op."""
    return _ENVELOPE.sub("", name) or name


def short_kernel(name: str) -> str:
    """Return a kernel without return type, namespaces and parameters, long template arguments left out; of
    CUTLASS' wrapper the kernel that it is made of."""
    text = _ANONYMOUS.sub("", name.removeprefix("void "))
    if "/" in text.partition("<")[0].partition("(")[0]:
        return short_op(name)
    head, bracket, arguments = text.partition("<")
    head = head.partition("(")[0].rpartition("::")[2] or text
    if not bracket:
        return head
    inside = arguments.rpartition(">")[0] if ">" in arguments else arguments
    if head in _WRAPPERS and inside.isidentifier():
        return inside
    return f"{head}<{inside if len(inside) <= _LONGEST_ARGUMENTS else '…'}>"


# --- tables ------------------------------------------------------------------------------------------------


SORT = "-ns"
_TITLES = {"short": "{kind}", "ns": "time {per}"}
"""What these columns are called, by the kind of the table and by what its times are of."""


def columns_of(kind: str, per: Per, *, devices: bool = False) -> tuple[Column, ...]:
    """Return the columns of the table `kind`; the device among them where there are several."""
    shown = (each for each in page(f"{kind}s") if devices or each.key != "device")
    return tuple(
        changed(
            each,
            title=theme.of_units(
                _TITLES.get(each.key, "").format(kind=kind, per=per.text) or each.title, per.units
            ),
        )
        for each in shown
    )


KINDS = ("kernel", "product", "op", "layer")


def table(source: RunTables, run: str, document: Report, kind: str, cause: str | None = None) -> Table:
    """Return the table `kind` of a run, or of its work that the finding `cause` is about. Raises MpprofError
    where the run has no trace that can be read."""
    each = per(document)
    ops = source.ops(run, in_steps=True)
    kernels = source.kernels(run, in_steps=True) if kind != "op" or cause else []
    if cause:
        kernels = of_cause(document, cause, kernels, ops)
        launched = {(row["device"], row["op"]) for row in kernels}
        ops = [row for row in ops if (row["device"], row["op"]) in launched]
    if kind == "product":
        rows = [
            product_row(row, each) for row in _of_parts(document, cause, source.products(run, in_steps=True))
        ]
    elif kind == "op":
        rows = [op_row(row, each) for row in ops]
    elif kind == "layer":
        named = {(row["device"], row["layer"]) for row in kernels}
        kept = [
            row
            for row in source.layers(run, in_steps=True)
            if not cause or (row["device"], row["layer"]) in named
        ]
        rows = layers(kept, kernels, ops, each)
    else:
        rows = grouped(kernels, ops, each)
    devices = len({row["device"] for row in rows}) > 1
    if kind != "kernel":  # kernels keep the share that was summed
        rows = sorted(rows, key=lambda row: -row["ns"])
    return Table(columns_of(kind, each, devices=devices), rows, _MORE[kind])


def of_cause(
    document: Report, cause: str, kernels: Sequence[KernelRow], ops: Sequence[OpRow]
) -> list[KernelRow]:
    """Return the kernels in those parts of the step that a finding is about; none where the finding names no
    work."""
    parts = _parts_named(document, cause)
    phases = {(row["device"], row["op"]): row["phase"] for row in ops}
    return [row for row in kernels if not parts.isdisjoint(_parts_of(row, phases))]


def _parts_named(document: Report, cause: str) -> set[tuple[str, str | None]]:
    findings = [found for found in document.findings if found.code == cause]
    return {(part.category, part.layer) for found in findings for part in found.parts}


def _of_parts(document: Report, cause: str | None, rows: Sequence[ProductRow]) -> Sequence[ProductRow]:
    """Return the products of the layers whose matrix work a finding is about; all where there is none."""
    if not cause:
        return rows
    parts = _parts_named(document, cause)
    return [
        row for row in rows if any(("matmul", layer) in parts for layer in row.get("layers", [row["layer"]]))
    ]


def _parts_of(row: KernelRow, phases: Mapping[tuple[str, str | None], Phase]) -> list[tuple[str, str | None]]:
    """Return a kernel's class with each of the layers that it works for."""
    phase = phases.get((row["device"], row["op"]), "other")
    category = class_of(row["family"] or "other", row["placement"], phase)
    return [(category, layer) for layer in (row["layer"].split(", ") if row["layer"] else [None])]


def grouped(kernels: Sequence[KernelRow], ops: Sequence[OpRow], each: Per) -> list[dict[str, Any]]:
    """Return a row for each kernel name on each device with one verdict, over all ops that launched it."""
    eligible = {(row["device"], row["op"]): row for row in ops}
    groups: dict[tuple[Any, ...], list[KernelRow]] = {}
    for row in kernels:
        key = (row["device"], row["name"], row["placement"], row["precision"], row["family"])
        groups.setdefault(key, []).append(row)
    made = [_kernel(same, eligible, each) for same in groups.values()]
    made.sort(key=lambda row: -row["ns"])
    return made


def _as_they_are(kind: str, same: Sequence[Row], each: Per) -> dict[str, Any]:
    """Return the values of these rows, per step, by the keys of their columns, put together as each column
    says (`Column.grouped`)."""
    spelled, times = list(map(flat, same)), [row["total_ns"] for row in same]
    found: dict[str, Any] = {}
    for column in columns(kind):
        values: list[Any] = [row.get(column.key) for row in spelled]
        if column.grouped == "sum" and None not in values:
            found[column.key] = sum(values) if column.unit == "ratio" else each.ns(sum(values))
        elif all(value == values[0] for value in values):
            found[column.key] = values[0]
        elif column.grouped == "mean" and None not in values and any(times):
            found[column.key] = sum(map(mul, values, times)) / sum(times)
        else:
            found[column.key] = None
    return found


def _kernel(
    same: list[KernelRow], eligible: dict[tuple[str, str | None], OpRow], each: Per
) -> dict[str, Any]:
    first = same[0]
    layers = list(dict.fromkeys(row["layer"] for row in same if row["layer"]))
    ops = list(dict.fromkeys(row["op"] for row in same if row["op"]))
    matrix = first["placement"] in ("tensor_core", "matrix_core", "cuda_core", "cpu")
    could, why = _could([op for row in same if (op := eligible.get((row["device"], row["op"])))], matrix)
    found = _as_they_are("kernels", same, each)
    return {
        **found,
        "place": place(first["placement"], first["precision"]), "kind": _kind(first["placement"]),
        "short": short_kernel(first["name"]), "ns": found["total_ns"],
        "layer": _named(layers), "layer_names": tuple(layers),
        "layers": ", ".join(layers[:20]), "ops": ", ".join(map(short_op, ops[:8])),
        "could": could, "why": why, "reason.text": first["reason"]["text"],
        "reason.code": first["reason"]["code"], "key": "",
        "keys": frozenset(op_key(row["device"], row["op"]) for row in same),
    }  # fmt: skip


def _could(ops: list[OpRow], matrix: bool) -> tuple[str, str]:
    """Return whether matrix work could use Tensor Cores, and why it does not; for several ops, the worst
    answer."""
    if not matrix:
        return "", ""
    known = {op["eligible"]: op for op in ops if op.get("eligible")}
    for answer in ("could", "could_never", "unknown", "did"):
        if answer in known:
            reason = known[answer].get("eligible_reason")
            return _ELIGIBLE[answer], reason["text"] if reason and answer != "did" else ""
    return "", ""


def op_row(row: OpRow, each: Per) -> dict[str, Any]:
    eligible, reason = row.get("eligible"), row.get("eligible_reason")
    name, key = row["op"] or NOT_ATTRIBUTED, op_key(row["device"], row["op"])
    found = _as_they_are("ops", [row], each)
    return {
        **found,
        "place": place(row["placement"], row["precision"]), "kind": _kind(row["placement"]),
        "name": name, "short": short_op(name), "ns": found["total_ns"],
        "could": _ELIGIBLE.get(eligible or "", ""),
        "why": reason["text"] if reason and eligible != "did" else "",
        "keys": frozenset((key,)), "key": key,
        "intensity": _over(row.get("flops_per_call"), row.get("bytes_per_call")),
    }  # fmt: skip


def product_row(row: ProductRow, each: Per) -> dict[str, Any]:
    found, name = _as_they_are("products", [row], each), row["shape"] or "shape not known"
    return {
        **found,
        "place": place(row["placement"], row["precision"]), "kind": _kind(row["placement"]),
        "name": name, "short": name, "ns": found["total_ns"], "key": "", "keys": frozenset(),
    }  # fmt: skip


def _over(flops: float | None, bytes_: float | None) -> float | None:
    return flops / bytes_ if flops and bytes_ else None


def layers(
    rows: Sequence[LayerRow], kernels: Sequence[KernelRow], ops: Sequence[OpRow], each: Per
) -> list[dict[str, Any]]:
    """Return a row for each layer with its time on matrix units, off them, in casts and in the rest, and the
    parts of its bar by what they are drawn as."""
    parts: dict[tuple[str, str | None], dict[str, float]] = {}
    could: dict[tuple[str, str | None], float] = {}
    of_layer: dict[tuple[str, str | None], set[str]] = {}
    for kernel in kernels:
        sums = parts.setdefault((kernel["device"], kernel["layer"]), {})
        part = "cast" if kernel["family"] == "cast" else _kind(kernel["placement"])
        sums[part] = sums.get(part, 0.0) + kernel["total_ns"]
    for op in ops:
        key = op["device"], op["layer"]
        of_layer.setdefault(key, set()).add(op_key(op["device"], op["op"]))
        if op.get("eligible") == "could":
            could[key] = could.get(key, 0.0) + op["matmul_ns"]
    made = []
    for row in rows:
        key = row["device"], row["layer"]
        sums = parts.get(key, {})
        unit, off, cast, unknown = (sums.get(part, 0.0) for part in ("unit", "off", "cast", "unknown"))
        rest = max(0.0, row["total_ns"] - unit - off - cast)
        divided = (("unit", unit), ("off", off), ("cast", cast), ("other", max(0.0, rest - unknown)),
                   ("unknown", min(rest, unknown)))  # fmt: skip
        kind = max((("unit", unit), ("off", off), ("other", 1.0)), key=lambda part: part[1])[0]
        made.append(
            {
                **(found := _as_they_are("layers", [row], each)),
                "place": ("mostly " if unit and off else "") + theme.kind_word(kind, each.units)
                if unit or off
                else "no matrix work",
                "kind": kind, "parts": [(part, each.ns(ns)) for part, ns in divided if ns > 0],
                "name": row["layer"] or NOT_ATTRIBUTED, "short": row["layer"] or NOT_ATTRIBUTED,
                "ns": found["total_ns"], "unit_ns": each.ns(unit),
                "off_ns": each.ns(off), "cast_ns": each.ns(cast),
                "rest_ns": each.ns(rest),
                "could_ns": each.ns(could[key]) if could.get(key) else None,
                "key": "", "keys": frozenset(of_layer.get(key, ())),
            }
        )  # fmt: skip
    return made


def op_key(device: str, op: str | None) -> str:
    """Return the key by which a figure names an op: short, and the same in every table."""
    return f"{zlib.crc32(f'{device} {op}'.encode()):08x}"


def place(placement: str, precision: str) -> str:
    name = theme.PLACEMENT_LABELS.get(placement, placement)
    return name if precision in ("unknown", "") or placement == "not_matmul" else f"{name} · {precision}"


def _kind(placement: str) -> str:
    return theme.PLACEMENT_KINDS.get(placement, "unknown")


def _named(layers: list[str]) -> str:
    if len(layers) < 2:
        return layers[0] if layers else ""
    return f"{len(layers)} layers"


def _more(kind: str, told: str) -> Any:
    """Return what the side panel says of a row: these values by the titles of their columns."""
    known = {each.key: each for each in (*columns(kind), *page(kind), *_IN_PANEL)}
    shown = [known[key] for key in told.split()]

    def tell(row: Any) -> list[tuple[str, str]]:
        return [(each.title, said) for each in shown if (said := cell(each, row))]

    return tell


_IN_PANEL = (
    Column("layers", key="layers"), Column("ops", key="ops"), Column("FLOP a byte", "count", key="intensity"),
)  # fmt: skip
_ENDS = "ns ratio calls device"
_MORE = {
    "kernel": _more(
        "kernels", f"place reason.text reason.code family could why layers ops flops_per_s {_ENDS}"
    ),
    "product": _more(
        "products", "place family operands layer flops_per_call flops_per_s peak_ratio bound " + _ENDS
    ),
    "op": _more(
        "ops",
        "place type layer phase could why flops_per_call bytes_per_call intensity flops_per_s bound " + _ENDS,
    ),
    "layer": _more("layers", f"class compute_dtype place {_ENDS}"),
}
