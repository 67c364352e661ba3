"""Hardware counters of Nsight Compute, read from its CSV: verdicts that outrank every other evidence.

Both pages are understood: `--page raw` has one row per launch and a column per metric (its second line are
units), `--page details` one row per launch and metric. Counters that name the instruction (`…tensor_op_hmma`,
`…tensor_src_bf16…`) prove Tensor Core work by being above zero. The pipe as a whole
(`sm__inst_executed_pipe_tensor`) proves only the contrary: on A100 it also counts plain half arithmetic.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mpprof.analysis.kernel_names import classify
from mpprof.errors import UnreadableError
from mpprof.model.kernels import MATMUL_FAMILIES, Precision, Reason, Verdict

METRICS = (
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor_op_imma.sum",
    "sm__inst_executed_pipe_tensor_op_dmma.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor.sum",
)
"""What to ask `ncu` for: metrics that a card does not have are left out of its CSV."""

_SPECIFIC = re.compile(
    r"tensor_op_(?P<op>[hidq]g?mma|gmma|utcmma|tcgen05)|tensor(?:_op_\w+?)?_src_(?P<src>fp16|bf16|tf32|fp64|int8|fp8|fp4)"
)
_WHOLE = re.compile(r"^(?:sm|smsp)__(?:inst_executed_pipe_tensor(?:\.|$)|pipe_tensor_cycles_active)")
_BY_OP: dict[str, Precision] = {
    "imma": "int8", "igmma": "int8", "dmma": "fp64", "dgmma": "fp64", "qmma": "fp8", "qgmma": "fp8",
}  # fmt: skip
_CAPABILITY = re.compile(r"^(\d+)\.(\d+)$")


@dataclass(slots=True)
class _Kernel:
    """What the counters of all launches of one kernel name on one card say together."""

    launches: set[str] = field(default_factory=set)
    specific: dict[str, float] = field(default_factory=dict)  # metric -> sum over launches
    whole: dict[str, float] = field(default_factory=dict)
    precisions: set[Precision] = field(default_factory=set)
    capability: tuple[int, int] | None = None


def verdicts(lines: Iterable[str], *, card: str = "", where: str = "") -> dict[tuple[str, str], Verdict]:
    """Verdicts by (kernel name, card) from the lines of a CSV that `ncu` printed.

    `card` is the name that the run's device calls itself, "" for any. Lines of `ncu` before the table
    (`==PROF==`) are skipped. Kernels whose counters prove nothing are left out. Raises UnreadableError where
    no table with kernel names and tensor metrics is found; `where` is the file's name for its message.
    """
    rows = _rows(lines, where)
    header = next((row for row in rows if "Kernel Name" in row), None)
    if header is None:
        raise UnreadableError(
            "no table of Nsight Compute (no column 'Kernel Name')",
            where=where,
            next="Write it with `ncu --csv --page raw`",
        )
    kernels: dict[str, _Kernel] = {}
    for row in rows:
        if len(row) == len(header):
            _take(dict(zip(header, row, strict=True)), kernels)
    if not any(kernel.specific or kernel.whole for kernel in kernels.values()):
        raise UnreadableError(
            "the table has no counters of the tensor pipe",
            where=where,
            next="Ask ncu for --metrics " + ",".join(METRICS),
        )
    said = {(name, card): _verdict(name, kernel) for name, kernel in kernels.items()}
    return {key: verdict for key, verdict in said.items() if verdict is not None}


def _rows(lines: Iterable[str], where: str) -> Iterator[list[str]]:
    reader = csv.reader(line for line in lines if not line.startswith("=="))
    try:
        yield from reader
    except csv.Error as error:
        raise UnreadableError(
            f"line {reader.line_num} of the table is damaged: {error}",
            where=where,
            next="Write it again with `ncu --csv --page raw`",
        ) from error


def _take(row: dict[str, str], kernels: dict[str, _Kernel]) -> None:
    name = row["Kernel Name"].strip()
    if not name:  # the line of units
        return
    kernel = kernels.setdefault(name, _Kernel())
    kernel.launches.add(row.get("ID", ""))
    if match := _CAPABILITY.match(row.get("CC", "").strip()):
        kernel.capability = (int(match.group(1)), int(match.group(2)))
    if "Metric Name" in row:
        _count(kernel, row["Metric Name"], row.get("Metric Value", ""))
        return
    for metric, value in row.items():
        _count(kernel, metric, value)


def _count(kernel: _Kernel, metric: str, text: str) -> None:
    value = _number(text)
    if value is None:
        return
    if specific := _SPECIFIC.search(metric):
        kernel.specific[metric] = kernel.specific.get(metric, 0.0) + value
        if value > 0:
            precision = specific["src"] or _BY_OP.get(specific["op"] or "")
            if precision:
                kernel.precisions.add(precision)  # type: ignore[arg-type]
    elif _WHOLE.match(metric):
        kernel.whole[metric] = kernel.whole.get(metric, 0.0) + value


def _number(text: str) -> float | None:
    """A value as ncu prints it ("1,234.5"); None: no finite number ("n/a")."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _verdict(name: str, kernel: _Kernel) -> Verdict | None:
    counted = next(((metric, value) for metric, value in kernel.specific.items() if value > 0), None)
    named = classify(name, kernel.capability, "nvidia")
    if counted is not None:
        precision = next(iter(kernel.precisions)) if len(kernel.precisions) == 1 else named.precision
        text = f"{counted[0]} = {counted[1]:g} over {len(kernel.launches)} launches"
        return Verdict("tensor_core", precision, named.family, Reason("counter-tensor", text), "counter")
    if any(value > 0 for value in kernel.whole.values()) and not kernel.specific:
        return None  # the pipe was busy, with what is not said
    if not kernel.specific and not kernel.whole:
        return None
    metric = next(iter(kernel.specific or kernel.whole))
    text = f"{metric} = 0 over {len(kernel.launches)} launches"
    if named.placement == "not_matmul":
        return Verdict("not_matmul", named.precision, named.family, Reason("counter-none", text), "counter")
    if named.family in MATMUL_FAMILIES:
        return Verdict("cuda_core", named.precision, named.family, Reason("counter-none", text), "counter")
    return None  # no Tensor Core, but whether it multiplies matrices is not known either
