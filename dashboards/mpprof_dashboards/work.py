"""The kernels, ops and layers of a run as the tables of the page: per step, grouped, in short names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpprof.model.account import Phase, class_of
from mpprof.report import words
from mpprof.report.tables import summed_over
from mpprof_dashboards import theme
from mpprof_dashboards.rows import Column, Table

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.rows import KernelRow, LayerRow, OpRow
    from mpprof.model.source import RunTables

NOT_ATTRIBUTED = "not attributed"
_ELIGIBLE = {"did": "already does", "could": "yes", "could_never": "no", "unknown": "unknown"}


@dataclass(frozen=True, slots=True)
class Per:
    """What the times of a run's tables are of: one step, or the whole window where none can be told apart."""

    steps: int | None

    @property
    def text(self) -> str:
        return "a step" if self.steps else "in the whole window"

    def ns(self, total_ns: float) -> float:
        return total_ns / (self.steps or 1)

    def calls(self, calls: int) -> float:
        return calls / (self.steps or 1)


def per(document: Report) -> Per:
    time = document.time
    return Per(time.window_steps if time and time.window_steps else None)


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


def short_op(name: str) -> str:
    """Return a scope without the parts that the framework wraps around every op."""
    return _ENVELOPE.sub("", name) or name


def short_kernel(name: str) -> str:
    """Return a kernel without return type, namespaces and parameters, long template arguments left out."""
    text = _ANONYMOUS.sub("", name.removeprefix("void "))
    if "/" in text.partition("<")[0].partition("(")[0]:
        return short_op(name)
    head, bracket, arguments = text.partition("<")
    head = head.partition("(")[0].rpartition("::")[2] or text
    if not bracket:
        return head
    inside = arguments.rpartition(">")[0] if ">" in arguments else arguments
    return f"{head}<{inside if len(inside) <= _LONGEST_ARGUMENTS else '…'}>"


# --- tables ------------------------------------------------------------------------------------------------


_WHOLE = "a part of the name, or =dense for that name and what lies below it"


def _columns(per: Per, name: str, second: Column, *rest: Column) -> tuple[Column, ...]:
    """Return the columns that all three tables begin with."""
    return (
        Column("place", "Ran on", dot=True),
        Column("short", name, full="name", hint=_WHOLE),
        second,
        Column("ns", f"Time {per.text}", "ns", bar=True),
        Column("ratio", "Share", "ratio"),
        *rest,
    )


_COULD = (Column("could", "Could use Tensor Cores?"), Column("why", "Why not", full="why"))
_CALLS = Column("calls", "Calls", "count")
_DEVICE = Column("device", "Device")
SORT = "-ns"


def columns_of(kind: str, per: Per, *, devices: bool = False) -> tuple[Column, ...]:
    """Return the columns of the table `kind`; the device among them where there are several."""
    layer, last = Column("layer", "Layer", full="layers", hint=_WHOLE), ((_DEVICE,) if devices else ())
    more: tuple[Column, ...]
    if kind == "op":
        more = (
            *_COULD, Column("rate", "Rate", "flops_per_s"), Column("roofline", "Of roofline", "ratio"),
            Column("bound", "Bound by"), Column("phase", "Phase"), Column("type", "Type"), _CALLS,
        )  # fmt: skip
        return (*_columns(per, "Op", layer, *more), *last)
    if kind == "layer":
        more = (
            Column("unit_ns", "On matrix units", "ns"), Column("off_ns", "Off them", "ns"),
            Column("cast_ns", "Casts", "ns"), Column("rest_ns", "Other", "ns"),
            Column("could_ns", "Could move", "ns", hint="matrix work that could use Tensor Cores"),
            Column("forward_ns", "Forward", "ns"), Column("backward_ns", "Backward", "ns"),
            Column("dtype", "Computes in"), _CALLS,
        )  # fmt: skip
        return (*_columns(per, "Layer", Column("class", "Class"), *more), *last)
    more = (
        *_COULD, Column("because", "Placed by", full="because"), Column("family", "Family"), _CALLS,
    )  # fmt: skip
    return (*_columns(per, "Kernel", layer, *more), *last)


KINDS = ("kernel", "op", "layer")


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
    if kind == "op":
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
    findings = [found for found in document.findings if found.code == cause]
    parts = {(part.category, part.layer) for found in findings for part in found.parts}
    phases = {(row["device"], row["op"]): row["phase"] for row in ops}
    return [row for row in kernels if not parts.isdisjoint(_parts_of(row, phases))]


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


def _kernel(
    same: list[KernelRow], eligible: dict[tuple[str, str | None], OpRow], each: Per
) -> dict[str, Any]:
    first = same[0]
    layers = list(dict.fromkeys(row["layer"] for row in same if row["layer"]))
    ops = list(dict.fromkeys(row["op"] for row in same if row["op"]))
    matrix = first["placement"] in ("tensor_core", "matrix_core", "cuda_core", "cpu")
    could, why = _could([op for row in same if (op := eligible.get((row["device"], row["op"])))], matrix)
    return {
        "place": place(first["placement"], first["precision"]), "kind": _kind(first["placement"]),
        "name": first["name"], "short": short_kernel(first["name"]),
        "layer": _named(layers), "layer_names": tuple(layers),
        "layers": ", ".join(layers[:20]), "ops": ", ".join(map(short_op, ops[:8])),
        "ns": each.ns(sum(row["total_ns"] for row in same)), "ratio": sum(row["ratio"] for row in same),
        "could": could, "why": why, "because": first["reason"]["text"], "family": first["family"] or "",
        "calls": each.calls(sum(row["calls"] for row in same)), "device": first["device"],
        "code": first["reason"]["code"], "key": "",
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
    name = row["op"] or NOT_ATTRIBUTED
    return {
        "place": place(row["placement"], row["precision"]), "kind": _kind(row["placement"]),
        "name": name, "short": short_op(name), "layer": row["layer"] or "", "type": row["type"] or "",
        "ns": each.ns(row["total_ns"]), "ratio": row["ratio"],
        "could": _ELIGIBLE.get(eligible or "", ""),
        "why": reason["text"] if reason and eligible != "did" else "",
        "rate": row.get("flops_per_s"), "roofline": row.get("roofline_ratio"),
        "bound": row.get("bound") or "",
        "phase": row["phase"], "calls": each.calls(row["calls"]), "device": row["device"],
        "keys": frozenset((op_key(row["device"], row["op"]),)), "key": op_key(row["device"], row["op"]),
        "intensity": _over(row.get("flops_per_call"), row.get("bytes_per_call")),
        "flops_per_call": row.get("flops_per_call"), "bytes_per_call": row.get("bytes_per_call"),
    }  # fmt: skip


def _over(flops: float | None, bytes_: float | None) -> float | None:
    return flops / bytes_ if flops and bytes_ else None


def layers(
    rows: Sequence[LayerRow], kernels: Sequence[KernelRow], ops: Sequence[OpRow], each: Per
) -> list[dict[str, Any]]:
    """Return a row for each layer with its time on matrix units, off them, in casts and in the rest."""
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
        unit, off, cast = (sums.get(part, 0.0) for part in ("unit", "off", "cast"))
        kind = max((("unit", unit), ("off", off), ("other", 1.0)), key=lambda part: part[1])[0]
        made.append(
            {
                "place": _LAYER_PLACES[kind] if unit or off else "no matrix work", "kind": kind,
                "name": row["layer"] or NOT_ATTRIBUTED, "short": row["layer"] or NOT_ATTRIBUTED,
                "class": row["class"] or "", "dtype": row["compute_dtype"] or "",
                "ns": each.ns(row["total_ns"]), "ratio": row["ratio"], "unit_ns": each.ns(unit),
                "off_ns": each.ns(off), "cast_ns": each.ns(cast),
                "rest_ns": each.ns(max(0.0, row["total_ns"] - unit - off - cast)),
                "could_ns": each.ns(could[key]) if could.get(key) else None,
                "forward_ns": each.ns(row["forward_ns"]),
                "backward_ns": each.ns(row["backward_ns"]),
                "calls": each.calls(row["calls"]), "device": row["device"],
                "key": "", "keys": frozenset(of_layer.get(key, ())),
            }
        )  # fmt: skip
    return made


_LAYER_PLACES = {"unit": "mostly matrix units", "off": "mostly off them", "other": "mostly other work"}


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


def _more(*fields: tuple[str, str]) -> Any:
    def tell(row: Any) -> list[tuple[str, str]]:
        return [(name, _said(row, key)) for name, key in fields if _said(row, key)]

    return tell


def _said(row: Any, key: str) -> str:
    value = row.get(key)
    if value is None or value == "":
        return ""
    if key == "ns":
        return words.duration(value)
    if key == "ratio":
        return f"{words.percent(value)} of the device's kernel time"
    if key in ("rate", "flops_per_call", "bytes_per_call"):
        unit = {"rate": "flops_per_s", "bytes_per_call": "bytes"}.get(key, "")
        return f"{value:,.0f}" if not unit else words.quantity(value, unit)
    if key == "intensity":
        return f"{value:,.1f} FLOP a byte"
    if key == "calls":
        return f"{value:,.1f}".removesuffix(".0")
    return str(value)


_ENDS = (("of it", "ratio"), ("calls", "calls"), ("device", "device"))
_MORE = {
    "kernel": _more(
        ("ran on", "place"), ("because", "because"), ("by rule", "code"), ("family", "family"),
        ("could use Tensor Cores", "could"), ("why not", "why"), ("layers", "layers"), ("ops", "ops"),
        ("takes", "ns"), *_ENDS,
    ),
    "op": _more(
        ("ran on", "place"), ("type", "type"), ("layer", "layer"), ("phase", "phase"),
        ("could use Tensor Cores", "could"), ("why not", "why"), ("operations", "flops_per_call"),
        ("bytes", "bytes_per_call"), ("intensity", "intensity"), ("rate", "rate"), ("bound by", "bound"),
        ("takes", "ns"), *_ENDS,
    ),
    "layer": _more(("class", "class"), ("computes in", "dtype"), ("ran", "place"), ("takes", "ns"), *_ENDS),
}  # fmt: skip
