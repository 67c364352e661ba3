"""Hardware counters of Nsight Compute, read from its CSV: verdicts that outrank every other evidence.

Both pages are understood: `--page raw` has one row per launch and a column per metric (its second line are
units), `--page details` one row per launch and metric.

Operations by operand type (`sm__ops_path_tensor_src_bf16…`) decide both ways: one above zero proves Tensor
Core work and its precision; all of them zero, for every type that the card multiplies, prove that there was
none. A type that was not asked for stays open. So do counters of one instruction (`…_op_imma`, `…_op_gmma`).

The traps: `sm__inst_executed_pipe_tensor` counts the whole pipe, which on Turing and on A100 runs plain half
arithmetic too; and on Hopper even `…_op_hmma` is above zero for kernels without any matrix instruction, such as
copies and float32 `ffma` products (seen on an H100). Compilers load constants by HFMA2.MMA
(`HFMA2.MMA R5, -RZ, RZ, 0, 0`), which is the likely reason. There the two prove only the contrary, by being zero.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.eligibility import multiplies
from mpprof.analysis.kernels.name_parts import spelled
from mpprof.analysis.kernels.names import classify, is_generic
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
    "sm__ops_path_tensor_src_fp16",
    "sm__ops_path_tensor_src_fp16_dst_fp16",
    "sm__ops_path_tensor_src_fp16_dst_fp32",
    "sm__ops_path_tensor_src_bf16_dst_fp32",
    "sm__ops_path_tensor_src_int8",
    "sm__ops_path_tensor_src_int4",
    "sm__ops_path_tensor_src_int1",
    "sm__ops_path_tensor_src_fp8",
    "sm__ops_path_tensor_src_fp8_sparsity_off",
    "sm__ops_path_tensor_src_fp8_sparsity_on",
    "sm__ops_path_tensor_src_fp8_dst_fp16",
    "sm__ops_path_tensor_src_fp8_dst_fp32",
    "sm__ops_path_tensor_src_fp4_dst_fp32",
    "sm__ops_path_tensor_src_fp4_fp6_dst_fp16",
    "sm__ops_path_tensor_src_fp4_fp6_dst_fp32",
    "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16",
    "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32",
)
"""What to ask of a card, as far as it has them (`ncu --query-metrics`), summed over its SMs (`.sum`). Cards
differ: Hopper counts half operands without what they are accumulated in, fp8 is told from fp4 on some only."""

_INSTRUCTION = re.compile(
    r"(?:pipe|subpipe)(?:_tensor)?(?:_op|_subpipe)?_(?P<op>[hidq]g?mma|gmma|utcmma|tcgen05)(?![a-z])"
)
_OPERANDS = re.compile(
    r"tensor(?:_op_(?P<op>\w+?))?_src_(?P<src>(?:fp|bf|tf|int)\d+(?:_(?:fp|int)\d+)*)"
    r"(?:_dst_(?P<dst>[a-z]+\d+))?(?:_sparsity_(?P<sparsity>on|off))?(?![a-z0-9])"
)
_WHOLE = re.compile(
    r"^(?:sm|smsp)__(?:inst_executed_pipe_tensor(?:[._](?:sum|avg|min|max)\b|$)|pipe_tensor_cycles_active)"
)
_BY_OP: dict[str, Precision] = {
    "imma": "int8", "igmma": "int8", "dmma": "fp64", "dgmma": "fp64", "qmma": "fp8", "qgmma": "fp8",
}  # fmt: skip
MOST_KERNELS = 20_000
"""Names of kernels in a table; a run has some hundred. Each takes about 2 kB."""

_CAPABILITY = re.compile(r"^(\d{1,3})\.(\d{1,3})$")
_WHOLE_PROVES_BELOW = (7, 2)
"""Below it plain half arithmetic has a pipe of its own (Nsight Compute, Kernel Profiling Guide, pipelines)."""
_HMMA_PROVES_BELOW = (8, 0)
_MULTIPLIED: tuple[Precision, ...] = ("fp16", "bf16", "tf32", "fp64", "int8", "fp8", "fp4")


@dataclass(slots=True)
class _Kernel:
    """What the counters of all launches of one kernel name on one kind of card say together."""

    card: tuple[int, int] | None  # of the card that the table is said to be of
    launches: set[str] = field(default_factory=set)
    proven: set[str] = field(default_factory=set)  # launches with a counter that proves Tensor Core work
    counts: dict[str, float] = field(default_factory=dict)  # metric -> sum over launches
    counted_on: tuple[int, int] | None = None  # older versions of ncu have no column CC
    doubt: str = ""  # what the table says against the card that it is taken for

    @property
    def capability(self) -> tuple[int, int] | None:
        return self.counted_on or self.card


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
            _take(dict(zip(header, row, strict=True)), kernels, capability, where)
    if not any(kernel.counts for kernel in kernels.values()):
        raise UnreadableError(
            "the table has no counters of the tensor pipe",
            where=where,
            next=f"Ask ncu for --metrics {METRICS[0]}.sum,{METRICS[1]}.sum",
        )
    for kernel in kernels.values():
        if None not in (capability, kernel.counted_on) and kernel.counted_on != capability:
            counted = "contradiction: counted on compute capability {}.{}, ".format(*kernel.counted_on or ())
            kernel.doubt = counted + "but {} has {}.{}".format(card, *capability or ())
    said = {(name, card): _verdict(name, kernel) for name, kernel in kernels.items()}
    return {key: verdict for key, verdict in said.items() if verdict is not None}


NOT_PROVEN = "counter-not-proven"
"""Code of a stored verdict that its counter does not prove: mpprof took more for proofs before."""
_EVERY_TYPE = ", and so for every type that the card multiplies"
_STATED = re.compile(r"hardware counters: (?P<metric>\S+) = (?P<count>[\d.e+]+) over ")


def as_proven(
    stored: Mapping[tuple[str, str], Verdict], present: Sequence[DeviceFacts]
) -> dict[tuple[str, str], Verdict]:
    """Return the stored verdicts, as unknown with the reason where the counter that each states proves nothing
    by today's rules on its card (for any card: on a device that is present)."""
    found = {}
    for (name, card), verdict in stored.items():
        known = device_peaks.find(card) if card else None
        of_card = {_capability(facts) for facts in present if not card or _same_card(card, facts)}
        capabilities = {known.compute_capability} if known else of_card
        unproven = [each for each in capabilities if not _still_proves(verdict, each)]
        found[name, card] = _not_proven(verdict, card or "this card") if unproven else verdict
    return found


def _capability(facts: DeviceFacts) -> tuple[int, int] | None:
    product = device_peaks.product_of(facts)
    return facts.compute_capability or (product.compute_capability if product else None)


def _still_proves(verdict: Verdict, capability: tuple[int, int] | None) -> bool:
    """Return whether the counter in a stored verdict's reason proves it by today's rules."""
    stated = _STATED.search(verdict.reason.text)
    if stated is None:
        return False
    metric = stated["metric"]
    if _number(stated["count"]):
        return _proves(metric, capability)
    if _OPERANDS.search(metric):
        return _EVERY_TYPE in verdict.reason.text
    if said := _INSTRUCTION.search(metric):
        return _no_hmma_proves(capability) and said["op"] == _own_instruction(verdict.precision)
    return True


def _not_proven(verdict: Verdict, card: str) -> Verdict:
    stated = _STATED.search(verdict.reason.text)
    counted = f"{stated['metric']} = {stated['count']}" if stated else "it states no counter"
    text = (
        f"its stored hardware counters do not show Tensor Core use on {card} ({counted}): "
        "run `mpprof verify` again"
    )
    return Verdict("unknown", "unknown", verdict.family, Reason(NOT_PROVEN, text), "counter")


def of_devices(
    stored: Mapping[tuple[str, str], Verdict], present: Sequence[DeviceFacts]
) -> dict[tuple[str, str], Verdict]:
    """Return the stored verdicts as the devices of a trace need them: under the names that these call
    themselves, and under the common spelling of each kernel's name.

    A verdict of a card applies to a device of the same product. To a device without a name (older traces
    state none) it applies where the two do not contradict each other in compute capability. One that proves
    nothing gives way to one that does. Kernels that share a spelling and ran in different places have none
    under it.
    """
    own: dict[tuple[str, str], Verdict] = {}
    for (name, card), verdict in sorted(stored.items(), key=_proves_something):
        of_card = [facts for facts in present if not card or _same_card(card, facts)]
        own |= {(name, device): verdict for device in {facts.name or "" for facts in of_card}}
    found: dict[tuple[str, str], Verdict] = {}
    shared: dict[tuple[str, str], set[str]] = {}
    for (name, device), verdict in own.items():
        shared.setdefault((spelled(name), device), set()).add(verdict.placement)
        found.setdefault((spelled(name), device), verdict)
    return {key: verdict for key, verdict in found.items() if len(shared[key]) == 1} | own


def _proves_something(stored: tuple[tuple[str, str], Verdict]) -> bool:
    return stored[1].reason.code != NOT_PROVEN


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


def _take(row: dict[str, str], kernels: dict[str, _Kernel], card: tuple[int, int] | None, where: str) -> None:
    name = row["Kernel Name"].strip()
    if not name:  # the line of units
        return
    kernel = kernels.setdefault(name, _Kernel(card))
    if len(kernels) > MOST_KERNELS:
        raise UnreadableError(
            f"the table names more than {MOST_KERNELS:,} kernels",
            where=where,
            next="Count one run only: ncu --launch-count 2000",
        )
    launch = f"{row.get('Process ID', '')} {row.get('ID', '')}"
    kernel.launches.add(launch)
    if match := _CAPABILITY.match(row.get("CC", "").strip()):
        kernel.counted_on = (int(match.group(1)), int(match.group(2)))
    if "Metric Name" in row:
        _count(kernel, launch, row["Metric Name"], row.get("Metric Value", ""))
        return
    for metric, value in row.items():
        _count(kernel, launch, metric, value)


def _count(kernel: _Kernel, launch: str, metric: str, text: str) -> None:
    value = _number(text)
    if value is None or ".min" in metric or not any(said.search(metric) for said in _COUNTERS):
        return  # the least of all SMs is zero where one had no work
    kernel.counts[metric] = kernel.counts.get(metric, 0.0) + value
    if value > 0 and _proves(metric, kernel.capability):
        kernel.proven.add(launch)


_COUNTERS = (_INSTRUCTION, _OPERANDS, _WHOLE)


def _proves(metric: str, capability: tuple[int, int] | None) -> bool:
    """Return whether this counter proves Tensor Core work by being above zero on a card."""
    if _OPERANDS.search(metric):
        return True
    if said := _INSTRUCTION.search(metric):
        below = _HMMA_PROVES_BELOW if said["op"] == "hmma" else None
    else:
        below = _WHOLE_PROVES_BELOW
    return below is None or (capability is not None and capability < below)


def _number(text: str) -> float | None:
    """Return a value as ncu prints it ("1,234.5"); None: no finite number ("n/a")."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _verdict(name: str, kernel: _Kernel) -> Verdict | None:
    named = classify(name, kernel.capability, "nvidia")
    counts = _summed(kernel.counts)
    busy = _busiest({metric: n for metric, n in counts.items() if _proves(metric, kernel.capability)})
    if busy is not None:
        if kernel.proven < kernel.launches and is_generic(name):
            return None  # other work under the same name
        precision = _precision(counts, named.precision)
        family = named.family if named.family in MATMUL_FAMILIES else "gemm"
        reason = Reason(OTHER_CARD if kernel.doubt else "counter-tensor", _text(busy, kernel))
        return Verdict("tensor_core", precision, family, reason, "counter")
    if (metric := _zero_that_proves(counts, kernel.capability, named.precision)) is None:
        return None
    reason = Reason(OTHER_CARD if kernel.doubt else "counter-none", _text((metric, 0.0), kernel, counts))
    if named.placement == "not_matmul":
        return Verdict("not_matmul", named.precision, named.family, reason, "counter")
    if named.family in MATMUL_FAMILIES:
        return Verdict("cuda_core", named.precision, named.family, reason, "counter")
    return None  # no Tensor Core, but whether it multiplies matrices is not known either


def _summed(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counters without the averages and largest values of those whose sum was printed too."""
    summed = {metric.removesuffix(".sum") for metric in counts if metric.endswith(".sum")}
    return {
        metric: count
        for metric, count in counts.items()
        if metric.endswith(".sum") or metric.partition(".")[0] not in summed
    }


def _precision(counts: Mapping[str, float], named: Precision) -> Precision:
    """Return what was multiplied, by the counters that name a type; where they name none or several, what
    the kernel's name says."""
    found: set[str] = set()
    for metric, count in counts.items():
        if count <= 0:
            continue
        if said := _OPERANDS.search(metric):
            found.add(said["src"])
        elif said := _INSTRUCTION.search(metric):
            found.update(filter(None, (_BY_OP.get(said["op"]),)))
    known = next(iter(found)) if len(found) == 1 else ""
    precision = next((of for of in _MULTIPLIED if of == known), named)
    # No Tensor Core multiplies float32, so the type in which it was multiplied was not counted.
    return "unknown" if precision == "fp32" else precision


def _zero_that_proves(
    counts: Mapping[str, float], capability: tuple[int, int] | None, named: Precision
) -> str | None:
    """Return a counter that proves by being zero that no Tensor Core worked; None: what was counted leaves
    some Tensor Core work out.

    The whole pipe does; the operations of every type that the card multiplies do together. HMMA alone does
    before Hopper, whose wgmma instructions have a counter of their own, and not for doubles and integers.
    """
    zero = [metric for metric, count in counts.items() if count == 0]
    if (pipe := next(filter(_WHOLE.search, zero), None)) is not None:
        return pipe
    paths, ops = _asked(zero)
    if paths and all(
        _counted(precision, paths, ops, capability)
        for precision in _MULTIPLIED
        if multiplies(precision, capability)
    ):
        return next(filter(_OPERANDS.search, zero))
    own = _own_instruction(named)
    if not _no_hmma_proves(capability) or not {"hmma", own} <= ops:
        return None
    return next(metric for metric in zero if (said := _INSTRUCTION.search(metric)) and said["op"] == own)


def _own_instruction(precision: Precision) -> str:
    """Return the instruction that multiplies values of this type; HMMA where no other one is known to."""
    return {"fp64": "dmma", "int8": "imma"}.get(precision, "hmma")


def _no_hmma_proves(capability: tuple[int, int] | None) -> bool:
    return capability is not None and capability < (9, 0)


_Path = tuple[str, str, str]
"""Operations by (operand type, accumulator, sparsity), "" for any."""


def _asked(zero: Iterable[str]) -> tuple[set[_Path], set[str]]:
    """Return what of the tensor path and which instructions these counters cover."""
    paths: set[_Path] = set()
    ops: set[str] = set()
    for metric in zero:
        if said := _OPERANDS.search(metric):
            if not said["op"]:  # one instruction of several
                both = (said["dst"] or "", said["sparsity"] or "")
                paths.update((part, *both) for part in said["src"].split("_"))
        elif said := _INSTRUCTION.search(metric):
            ops.add(said["op"])
    return paths, ops


def _counted(
    precision: Precision, paths: set[_Path], ops: set[str], capability: tuple[int, int] | None
) -> bool:
    """Return whether counters that are zero leave out no Tensor Core work on operands of this type."""

    def path(src: str, dst: str = "") -> bool:
        return (src, dst, "") in paths or {(src, dst, "on"), (src, dst, "off")} <= paths

    wide = path(precision, "fp32") and (precision in ("bf16", "tf32", "fp4") or path(precision, "fp16"))
    if precision == "fp64":
        return path("fp64") or "dmma" in ops
    if precision == "int8":  # 4-bit and 1-bit integers are multiplied by the same instruction
        before_hopper = capability is not None and capability < (9, 0)
        return ("imma" in ops and (before_hopper or path("int8"))) or all(map(path, ("int8", "int4", "int1")))
    if precision == "fp8" and capability == (9, 0) and "gmma" in ops:
        return True  # Hopper multiplies it by wgmma only
    return path(precision) or wide


def _busiest(counts: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the largest counter above zero."""
    return max(
        ((metric, value) for metric, value in counts.items() if value > 0),
        key=lambda pair: pair[1],
        default=None,
    )


def _text(counted: tuple[str, float], kernel: _Kernel, counts: Mapping[str, float] | None = None) -> str:
    """Return the reason in words; `counts` are named where they look like the contrary."""
    launches = f"{len(kernel.launches)} launch{'es' if len(kernel.launches) != 1 else ''}"
    said = f"verified by hardware counters: {counted[0]} = {counted[1]:g} over {launches}"
    if _OPERANDS.search(counted[0]) and counts is not None:
        said += _EVERY_TYPE
        if (other := _busiest(counts)) is not None:
            said += f" ({other[0]} = {other[1]:g} counts other instructions too)"
    return f"{said}; {kernel.doubt}" if kernel.doubt else said
