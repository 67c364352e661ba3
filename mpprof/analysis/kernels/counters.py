"""Hardware counters of Nsight Compute, read from its CSV: verdicts that outrank every other evidence.

Both pages are understood: `--page raw` has one row per launch and a column per metric (its second line are
units), `--page details` one row per launch and metric. Counters that name the instruction or its operands
(`…pipe_tensor_op_hmma`, `…path_tensor_src_bf16…`) prove Tensor Core work by being above zero.

The trap: `sm__inst_executed_pipe_tensor` counts the whole pipe, which on Turing and on A100 runs plain half
arithmetic too. There it proves only the contrary, by being zero.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.name_parts import spelled
from mpprof.analysis.kernels.names import classify
from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import MATMUL_FAMILIES, OTHER_CARD, Precision, Reason, Verdict

METRICS = (
    "sm__inst_executed_pipe_tensor",
    "sm__inst_executed_pipe_tensor_op_hmma",
    "sm__inst_executed_pipe_tensor_op_imma",
    "sm__inst_executed_pipe_tensor_op_dmma",
    "sm__inst_executed_pipe_tensor_op_gmma",
    "sm__inst_executed_pipe_tensor_subpipe_hmma",
    "sm__inst_executed_pipe_tensor_subpipe_imma",
    "sm__inst_executed_pipe_tensor_subpipe_dmma",
    "sm__ops_path_tensor_src_fp64",
    "sm__ops_path_tensor_src_tf32_dst_fp32",
    "sm__ops_path_tensor_src_fp16_dst_fp16",
    "sm__ops_path_tensor_src_fp16_dst_fp32",
    "sm__ops_path_tensor_src_bf16_dst_fp32",
    "sm__ops_path_tensor_src_int8",
    "sm__ops_path_tensor_src_fp8_dst_fp16",
    "sm__ops_path_tensor_src_fp8_dst_fp32",
)
"""What to ask of a card, as far as it has them (`ncu --query-metrics`), summed over its SMs (`.sum`)."""

_SPECIFIC = re.compile(
    r"(?:pipe|subpipe)(?:_tensor)?(?:_op|_subpipe)?_(?P<op>[hidq]g?mma|gmma|utcmma|tcgen05)(?![a-z])"
    r"|tensor(?:_op_\w+?)?_src_(?P<src>fp16|bf16|tf32|fp64|int8|fp8|fp4)"
)
_WHOLE = re.compile(
    r"^(?:sm|smsp)__(?:inst_executed_pipe_tensor(?:[._](?:sum|avg)\b|$)|pipe_tensor_cycles_active)"
)
_BY_OP: dict[str, Precision] = {
    "imma": "int8", "igmma": "int8", "dmma": "fp64", "dgmma": "fp64", "qmma": "fp8", "qgmma": "fp8",
}  # fmt: skip
MOST_KERNELS = 20_000
"""Names of kernels in a table; a run has some hundred. Each takes about 2 kB."""

_CAPABILITY = re.compile(r"^(\d{1,3})\.(\d{1,3})$")
_SHARES_ITS_PIPE = frozenset(((7, 2), (7, 5), (8, 0), (8, 7)))
"""Where half arithmetic may use the tensor pipe. On Volta it has a pipe of its own, from GA10x on it is part
of the FMA pipe (Nsight Compute, Kernel Profiling Guide, table of pipelines)."""


@dataclass(slots=True)
class _Kernel:
    """What the counters of all launches of one kernel name on one kind of card say together."""

    launches: set[str] = field(default_factory=set)
    specific: dict[str, float] = field(default_factory=dict)  # metric -> sum over launches
    whole: dict[str, float] = field(default_factory=dict)
    precisions: set[Precision] = field(default_factory=set)
    capability: tuple[int, int] | None = None
    doubt: str = ""  # what the table says against the card that it is taken for


def verdicts(lines: Iterable[str], *, card: str = "", where: str = "") -> dict[tuple[str, str], Verdict]:
    """Return the verdicts by (kernel name, card) from the lines of a CSV that `ncu` printed.

    `card` is the name that the run's device calls itself, "" for any. Lines of `ncu` and of the program
    before the table are skipped. Kernels whose counters prove nothing are left out. Raises UnreadableError
    where no table with kernel names and tensor metrics is found; `where` is the file's name for its message.
    Another compute capability than that of `card` is a contradiction, which each reason then says.
    """
    product = device_peaks.find(card) if card else None
    capability = product.compute_capability if product else None
    rows = _rows(lines, where)
    header = next((row for row in rows if "Kernel Name" in row), None)
    if header is None:
        raise UnreadableError(
            "not a table of Nsight Compute: it has no column 'Kernel Name'",
            where=where,
            next="Write it with `ncu --csv --page raw`",
        )
    kernels: dict[str, _Kernel] = {}
    for row in rows:
        if len(row) == len(header) and row != header:  # ncu may write a table per process
            _take(dict(zip(header, row, strict=True)), kernels, where)
    if not any(kernel.specific or kernel.whole for kernel in kernels.values()):
        raise UnreadableError(
            "the table has no counters of the tensor pipe",
            where=where,
            next=f"Ask ncu for --metrics {METRICS[0]}.sum,{METRICS[1]}.sum",
        )
    for kernel in kernels.values():
        if kernel.capability is None:
            kernel.capability = capability  # older versions of ncu have no column CC
        elif capability is not None and kernel.capability != capability:
            counted = "contradiction: counted on compute capability {}.{}, ".format(*kernel.capability)
            kernel.doubt = counted + "but {} has {}.{}".format(card, *capability)
    said = {(name, card): _verdict(name, kernel) for name, kernel in kernels.items()}
    return {key: verdict for key, verdict in said.items() if verdict is not None}


def of_devices(
    stored: Mapping[tuple[str, str], Verdict], present: Sequence[DeviceFacts]
) -> dict[tuple[str, str], Verdict]:
    """Return the stored verdicts as the devices of a trace need them: under the names that these call
    themselves, and under the common spelling of each kernel's name.

    A verdict of a card applies to a device of the same product. To a device without a name (older traces
    state none) it applies where the two do not contradict each other in compute capability.
    """
    found: dict[tuple[str, str], Verdict] = {}
    for (name, card), verdict in stored.items():
        of_card = [facts for facts in present if not card or _same_card(card, facts)]
        for device in {facts.name or "" for facts in of_card}:
            found.setdefault((spelled(name), device), verdict)
            found[name, device] = verdict
    return found


def _same_card(card: str, facts: DeviceFacts) -> bool:
    if facts.name:
        product = device_peaks.product_of(facts)
        return facts.name == card or (product is not None and product == device_peaks.by_name(card))
    known = device_peaks.find(card)
    stated = (known.compute_capability if known else None, facts.compute_capability)
    return None in stated or stated[0] == stated[1]


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


def _take(row: dict[str, str], kernels: dict[str, _Kernel], where: str) -> None:
    name = row["Kernel Name"].strip()
    if not name:  # the line of units
        return
    kernel = kernels.setdefault(name, _Kernel())
    if len(kernels) > MOST_KERNELS:
        raise UnreadableError(
            f"the table names more than {MOST_KERNELS:,} kernels",
            where=where,
            next="Count one run only: ncu --launch-count 2000",
        )
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
    """Return a value as ncu prints it ("1,234.5"); None: no finite number ("n/a")."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _verdict(name: str, kernel: _Kernel) -> Verdict | None:
    named = classify(name, kernel.capability, "nvidia")
    busy = _busiest(kernel.specific)
    whole = _busiest(kernel.whole)
    if busy is None and whole is not None and kernel.capability not in _SHARES_ITS_PIPE:
        if kernel.capability is None:
            return None  # the pipe was busy, with what is not said
        busy = whole
    if busy is not None:
        precision = next(iter(kernel.precisions)) if len(kernel.precisions) == 1 else named.precision
        if precision == "fp32":  # no Tensor Core multiplies it: as what it was multiplied is not counted
            precision = "unknown"
        family = named.family if named.family in MATMUL_FAMILIES else "gemm"
        reason = Reason(OTHER_CARD if kernel.doubt else "counter-tensor", _text(busy, kernel))
        return Verdict("tensor_core", precision, family, reason, "counter")
    if (metric := _zero_that_proves(kernel)) is None:
        return None
    reason = Reason(OTHER_CARD if kernel.doubt else "counter-none", _text((metric, 0.0), kernel))
    if named.placement == "not_matmul":
        return Verdict("not_matmul", named.precision, named.family, reason, "counter")
    if named.family in MATMUL_FAMILIES:
        return Verdict("cuda_core", named.precision, named.family, reason, "counter")
    return None  # no Tensor Core, but whether it multiplies matrices is not known either


def _zero_that_proves(kernel: _Kernel) -> str | None:
    """Return a counter that proves by being zero that no Tensor Core worked; None: what was counted leaves
    some Tensor Core work out.

    The whole pipe does, and the operations by each 16-bit and TF32 operand together. HMMA alone does before
    Hopper only, whose wgmma instructions have a counter of their own.
    """
    pipe = next((metric for metric, value in kernel.whole.items() if value == 0), None)
    if pipe is not None:
        return pipe
    if {"fp16", "bf16", "tf32"} <= {m["src"] for key in kernel.specific if (m := _SPECIFIC.search(key))}:
        return next(key for key in kernel.specific if "src_fp16" in key)
    if kernel.capability is None or kernel.capability >= (9, 0):
        return None
    return next((key for key in kernel.specific if "hmma" in key), None)


def _busiest(counts: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the largest counter above zero."""
    return max(
        ((metric, value) for metric, value in counts.items() if value > 0),
        key=lambda pair: pair[1],
        default=None,
    )


def _text(counted: tuple[str, float], kernel: _Kernel) -> str:
    launches = f"{len(kernel.launches)} launch{'es' if len(kernel.launches) != 1 else ''}"
    said = f"verified by hardware counters: {counted[0]} = {counted[1]:g} over {launches}"
    return f"{said}; {kernel.doubt}" if kernel.doubt else said
