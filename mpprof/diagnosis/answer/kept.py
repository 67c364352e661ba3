"""Why a part of the step becomes no shorter: what of the hardware, the host or the type limits it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mpprof.analysis.attainable.evidence import LARGE_NS
from mpprof.analysis.attainable.work import (
    LARGE_SHARE,
    LAUNCH_BOUND_NS,
    NARROW,
    STREAMING,
    WAITING,
    BoundBy,
    roofline,
)
from mpprof.analysis.breakdown.rates import stated
from mpprof.analysis.breakdown.roofline import Cost
from mpprof.analysis.kernels import shapes
from mpprof.analysis.steps.idle import HOST_OPS, HOST_RUNS, QUEUED
from mpprof.diagnosis.after_changes import OFF_UNITS
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.cells import is_loss
from mpprof.diagnosis.outcomes import known
from mpprof.model.account import IDLE_CLASSES, Account, Cell, Class
from mpprof.model.finding import Finding
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, Precision
from mpprof.model.quantities import format_ratio

STATED_RATIO = 0.8
"""A rate is said of a class where shapes state the work of so much of its time."""
NEARLY_ALL_RATIO = 0.95
"""What holds for less of a part is said of most of it."""
LEAST_RATE, LEAST_STREAMING = 0.005, 0.3
"""A lower rate says that shapes state nearly nothing of the work, and that memory does not limit it."""
NEAR_RATE = 0.9 * LARGE_SHARE
"""From here on matrix work is as fast as large products are."""
CHANGED_RATIO = 0.02
"""A change that gains so much of a class may change what the class moves."""
FULL_LOAD_BYTES = 16
"""What a thread loads at once of operands whose rows begin at multiples of it."""
_MADE_FOR = re.compile(
    r"(?:sm|cutlass_)([7-9]\d|1\d\d)(?=_)|(volta)_|(turing)_|(ampere)_|(s884|s1688|s16816)(?=\D)"
)
_GENERATIONS = {"volta": 7, "turing": 7, "ampere": 8, "s884": 7, "s1688": 8, "s16816": 8}
"""Of instructions and cards that kernels' names state, the first digit of the compute capability. Cards of
9.x and 10.x have instructions of their own for matrix work, by which alone they reach their peak (wgmma: Luo
et al. 2025, arXiv:2501.12084); others run those of 8.x."""


@frozen
class Part:
    """Work of one colour in the step, its classes the longest first, and those of them that are `notable`.
    `off`: matrix work off the matrix units."""

    kind: str
    off: bool
    ns: float
    classes: tuple[Class, ...]
    notable: tuple[Class, ...]

    @property
    def key(self) -> str:
        """Its segment in a picture."""
        return self.kind if self.kind != "matmul" else "off" if self.off else "unit"


@frozen
class Why:
    """`said` follows the part's name, `short` stands at its segment. "": nothing is known."""

    said: str = ""
    short: str = ""


_SHORT = Why("in kernels so short that starting them takes the time", "short kernels")
_SMALL = Why("in products too small to fill the card", "small products")
_ODD = Why("of an odd size, which loads slowly", "odd size")
_OLDER = Why("in kernels made for older cards", "older kernels")
_BYTES = Why("with little to multiply for each byte", "memory-bound")
_OPEN = Why()


def why(view: View, account: Account, part: Part, done: Sequence[Finding]) -> Why:
    """Return why the part becomes no shorter than it is after the changes of `done`."""
    main = part.classes[0]
    cells = [cell for cell in account.main.cells if cell.category in part.classes]
    if main in IDLE_CLASSES:
        return _wait(main, cells, done)
    if part.kind in ("open", "unknown"):
        return Why("that nothing places") if part.kind == "open" else _OPEN
    cells = [cell for cell in cells if cell.busy_ns_per_step > 0 and _of(part, cell)]
    calls, busy = sum(cell.calls_per_step for cell in cells), sum(cell.busy_ns_per_step for cell in cells)
    short = bool(calls) and busy / calls < LAUNCH_BOUND_NS
    if part.kind == "copy":
        return _copies(account, part, busy)
    gained = sum(each.excess_ns for found in done for each in found.claimed if each.category in part.classes)
    changed = gained >= CHANGED_RATIO * part.ns
    if part.kind != "matmul":
        halved = changed and abs(part.ns - 0.5 * busy) < CHANGED_RATIO * busy
        rate = _OPEN if changed and not halved else _rate(view, part, cells, busy if halved else part.ns)
        kind = _type(part, cells, busy, halved=halved, rated=bool(rate.said))
        return (
            Why(" ".join(filter(None, (kind.said, rate.said))), rate.short or kind.short)
            if (rate.said or not short)
            else _SHORT
        )
    rate = _rate(view, part, cells, part.ns)
    if part.off:
        return rate if rate.said else _off(view)
    cause = max(_causes(view, cells, done).items(), key=lambda each: each[1], default=(_OPEN, 0.0))
    whole = sum(ns for _, ns in _after(cells, done))
    if cause[0].said and cause[1] >= 0.5 * whole:
        told = f" ({_bare(rate)})" if rate.said else ""
        return Why(f"mostly {cause[0].said}{told}", cause[0].short)
    return rate if rate.said else Why(f"on {view.units} already", f"on {view.units}")


def _of(part: Part, cell: Cell) -> bool:
    """Return whether a cell of the part's classes is in it."""
    if part.kind == "matmul":
        return not part.off or cell.placement in OFF_UNITS
    return part.kind != "rest" or cell.category != "matmul" or cell.placement == "not_matmul"


def _off(view: View) -> Why:
    if view.without_units:
        return Why(f"on a card without {view.units}", f"no {view.units}")
    kind = "16 bits" if view.signals.half else "float32"
    return Why(f"off the {view.units}, in {kind}", f"off {view.units}")


_WAITS: dict[Class, Why] = {
    "idle_launch": Why("that the host needs", "the host"),
    "idle_between_steps": Why("that is not the GPU's", "the loop"),
    "idle_input": Why("while the host makes batches", "the input"),
}


def _wait(main: Class, cells: Sequence[Cell], done: Sequence[Finding]) -> Why:
    """Return what the device waits for: of idling by what most of what is left of it was seen to be."""
    if main != "idle_other":
        return _WAITS.get(main, _OPEN)
    by: dict[str, float] = defaultdict(float)
    for cell in cells:
        by[cell.cause or ""] += cell.ns_per_step
    for part in (part for found in done for part in found.claimed if part.category == main):
        by[part.cause or ""] -= part.excess_ns
    most = max(by, key=lambda each: by[each], default="")
    if most == HOST_OPS[1]:
        return Why("while ops run on the CPU", "ops on the CPU")
    if most == QUEUED[1]:
        return Why("between kernels in the queue", "between kernels")
    if most.startswith(HOST_RUNS):
        return Why(f"while {most}", "the host")
    return (
        Why(f"for {most}", "the host")
        if most
        else Why("whose cause the trace does not show", "no cause recorded")
    )


def _copies(account: Account, part: Part, busy: float) -> Why:
    """Return why copies stay: no more work is there to hide them behind."""
    work = sum(cell.busy_ns_per_step for cell in account.main.cells) - busy
    if part.ns > work:
        return Why("longer than the work that could hide them", "nothing hides them")
    return Why("that no change found hides", "no change found")


def _type(part: Part, cells: Sequence[Cell], busy: float, *, halved: bool, rated: bool) -> Why:
    """Return the type that most of the work is in, and who needs it; of work with a rate the type after a
    change alone, as the rate is the reason."""
    if not busy:
        return _OPEN
    wide = sum(cell.busy_ns_per_step for cell in cells if cell.precision in ("fp32", "tf32"))
    if halved and wide >= 0.5 * busy:
        return Why("then in 16 bits", "in 16 bits")
    if rated:
        return _OPEN
    if wide >= 0.5 * busy:
        lost = sum(cell.busy_ns_per_step for cell in cells if is_loss(cell))
        if lost >= 0.5 * busy:
            return _mostly(min(wide, lost) / busy, "of the loss, in float32", "float32 loss")
        if part.classes[0] == "optimizer":
            return _mostly(wide / busy, "in float32, as the weights are", "float32 weights")
        return _mostly(wide / busy, "in float32", "in float32")
    narrow = sum(cell.busy_ns_per_step for cell in cells if cell.precision in NARROW)
    return (
        _mostly(narrow / busy, "in 16 bits already", "in 16 bits already")
        if narrow >= 0.5 * busy
        else Why("usually memory-bound", "usually memory-bound")
    )


def _mostly(ratio: float, said: str, short: str) -> Why:
    """Return what holds for this share of a part."""
    return Why(said if ratio >= NEARLY_ALL_RATIO else f"mostly {said}", short)


# --- matrix work on matrix units ---------------------------------------------------------------------------


def _after(cells: Sequence[Cell], done: Sequence[Finding]) -> Iterator[tuple[Cell, float]]:
    """Yield each cell with its time after the changes, which take from the cells of their class, phase and
    layer alike."""
    excess: dict[tuple[str, str, str | None], float] = defaultdict(float)
    whole: dict[tuple[str, str, str | None], float] = defaultdict(float)
    for each in (part for found in done for part in found.claimed):
        excess[each.category, each.phase, each.layer] += max(0.0, each.excess_ns)
    for cell in cells:
        whole[cell.category, cell.phase, cell.layer] += cell.busy_ns_per_step
    for cell in cells:
        key = cell.category, cell.phase, cell.layer
        yield cell, cell.busy_ns_per_step * max(0.0, 1.0 - excess[key] / whole[key])


def _causes(view: View, cells: Sequence[Cell], done: Sequence[Finding]) -> dict[Why, float]:
    """Return the time after the changes by why it is above what large products take; what a change shortened
    is not judged."""
    found: dict[Why, float] = defaultdict(float)
    for cell, ns in _after(cells, done):
        found[_OPEN if ns < cell.busy_ns_per_step else _cause(view, cell)] += ns
    return found


def _cause(view: View, cell: Cell) -> Why:
    """Return why a kernel on matrix units is slower than large products are; nothing where it is not, or
    nothing tells."""
    if cell.calls_per_step and cell.busy_ns_per_step / cell.calls_per_step < LAUNCH_BOUND_NS:
        return _SHORT
    rate = view.peaks.flops_per_s.get(str(cell.precision)) if view.peaks else None
    bandwidth = view.peaks.bandwidth_bytes_per_s if view.peaks else None
    roof = roofline(cell.flops_per_step, cell.bytes_per_step, rate, bandwidth)
    if roof is None or not cell.flops_per_step or not rate or not cell.done_per_step:
        return _OPEN
    if roof[0] >= (WAITING if roof[1] == "memory" else NEAR_RATE) * cell.busy_ns_per_step:
        return _BYTES if roof[1] == "memory" else _OPEN
    aligned = shapes.kernel_alignment(cell.kernel or "")
    if aligned is not None and aligned * (4 if cell.precision == "tf32" else 2) < FULL_LOAD_BYTES:
        return _ODD
    if _older(view, cell.kernel or ""):
        return _OLDER
    if roof[1] == "memory":
        return _BYTES
    return _SMALL if cell.flops_per_step / cell.done_per_step / rate * 1e9 < LARGE_NS else _OPEN


def _older(view: View, kernel: str) -> bool:
    """Return whether a kernel's name states instructions that the card has faster ones for."""
    found = _MADE_FOR.search(kernel)
    if view.capability is None or found is None:
        return False
    name = next(filter(None, found.groups()))
    made = _GENERATIONS.get(name) or int(name) // 10
    return made < min(view.capability[0], 8) or (view.capability[0] in (9, 10) and made < view.capability[0])


# --- rates -------------------------------------------------------------------------------------------------


def _rate(view: View, part: Part, cells: Sequence[Cell], ns: float) -> Why:
    """Return at how much of the card's peak rate or bandwidth the work of these cells is done in this time,
    and what such work reaches; nothing where shapes or peaks do not tell."""
    peaks = view.peaks
    if peaks is None:
        return _OPEN
    half = COMPUTE_DTYPES.get(known(view.signals.compute_dtype) or "")
    busy, told = 0.0, 0.0
    least: dict[BoundBy, float] = {"compute": 0.0, "memory": 0.0}  # of what each bounds
    whole: dict[BoundBy, float] = {"compute": 0.0, "memory": 0.0}  # of all: what a rate is said of
    for cell in cells:
        busy += cell.busy_ns_per_step
        work = _cost(cell)
        if cell.category == "matmul" and (not work.flops or cell.placement == "not_matmul"):
            continue  # a helper bears the operations of its product, which another kernel does
        on_units = cell.placement in ACCELERATED or not part.off
        precision: Precision | None = cell.precision if cell.placement in ACCELERATED else half
        rate = peaks.flops_per_s.get(str(precision) if on_units else "fp32_cuda")
        flops = work.flops if cell.category == "matmul" else None
        found = roofline(flops, work.bytes, rate, peaks.bandwidth_bytes_per_s)
        if found is not None:
            told += cell.busy_ns_per_step
            least[found[1]] += found[0]
            whole["compute"] += (roofline(flops, None, rate, None) or (0.0,))[0]
            whole["memory"] += (roofline(None, work.bytes, None, peaks.bandwidth_bytes_per_s) or (0.0,))[0]
    bound: BoundBy = "memory" if least["memory"] > least["compute"] else "compute"
    ratio = whole[bound] / ns
    if not busy or told < STATED_RATIO * busy or not LEAST_RATE < ratio <= 1:
        return _OPEN
    said, short = format_ratio(ratio), f"{100 * ratio:.0f} %"
    if bound == "memory":
        if ratio < LEAST_STREAMING:
            return _OPEN
        beside = "" if ratio >= WAITING else f" (streams: about {_tenths(STREAMING)})"
        return Why(f"at {said} of the memory's bandwidth{beside}", f"{short} of bandwidth")
    if part.off:
        on = f", without {view.units}" if view.without_units else ""
        return Why(f"at {said} of the card's float32 rate{on}", f"{short} of float32 peak")
    large = view.capability is not None and ratio < NEAR_RATE  # what they reach was measured on such a card
    beside = f" (large products: about {_tenths(LARGE_SHARE)})" if large else ""
    return Why(f"at {said} of the {view.units}' rate{beside}", f"{short} of peak")


def _tenths(ratio: float) -> str:
    return f"{10 * round(10 * ratio)} %"


def _bare(rate: Why) -> str:
    """Return a rate without its preposition and what stands beside it."""
    return rate.said.removeprefix("at ").partition(" (")[0]


def _cost(cell: Cell) -> Cost:
    """Return what the shapes state of a cell. A cast between float32 and 16 bits reads one and writes the
    other of each value that its shapes state."""
    if cell.category == "cast" and cell.precision == "mixed" and cell.hlo is None:
        values = sum(math.prod(shape) for _, shape in shapes.tensors(cell.shapes or ""))
        return Cost(None, 6.0 * values * cell.done_per_step if values else None)
    return stated(Cost(cell.flops_per_step, cell.bytes_per_step), cell.family, by_hlo=cell.hlo is not None)
