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
ALREADY_RATIO = 0.9
"""Of matrix work that is on matrix units after the changes, what is there before them."""
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


_SHORT = "in kernels so short that starting them takes the time"
_SMALL = "in products too small to fill the card"
_ODD = "of an odd size, which loads slowly"
_OLDER = "in kernels made for older cards"
_BYTES = "with little to multiply for each byte"
_OPEN = ""
"""Nothing is known."""
_NO_RATE: tuple[float, None] = (0.0, None)


def why(view: View, account: Account, part: Part, done: Sequence[Finding]) -> str:
    """Return why the part becomes no shorter than it is after the changes of `done`; it follows the part's
    name or time."""
    main = part.classes[0]
    cells = [cell for cell in account.main.cells if cell.category in part.classes]
    if main in IDLE_CLASSES:
        return _wait(main, cells, done)
    if part.kind in ("open", "unknown"):
        return "not placed by the trace" if part.kind == "open" else _OPEN
    cells = [cell for cell in cells if cell.busy_ns_per_step > 0 and _of(part, cell)]
    calls, busy = sum(cell.calls_per_step for cell in cells), sum(cell.busy_ns_per_step for cell in cells)
    if part.kind == "copy":
        return _copies(account, part, busy)
    if part.kind == "matmul":
        return _off(view, part, cells) if part.off else _on(view, account, part, cells, done)
    gained = sum(each.excess_ns for found in done for each in found.claimed if each.category in part.classes)
    changed = gained >= CHANGED_RATIO * part.ns
    halved = changed and abs(part.ns - 0.5 * busy) < CHANGED_RATIO * busy
    ratio, _ = _NO_RATE if changed and not halved else _rate(view, part, cells, busy if halved else part.ns)
    rate = _streams(view, ratio) if ratio else _OPEN
    if not rate and calls and busy / calls < LAUNCH_BOUND_NS:
        return _SHORT
    kind = _type(part, cells, busy, halved=halved, rated=bool(rate))
    return ", ".join(filter(None, (kind, rate)))


def _of(part: Part, cell: Cell) -> bool:
    """Return whether a cell of the part's classes is in it."""
    if part.kind == "matmul":
        return not part.off or cell.placement in OFF_UNITS
    return part.kind != "rest" or cell.category != "matmul" or cell.placement == "not_matmul"


_WAITS: dict[Class, str] = {
    "idle_launch": "as long as the host needs",
    "idle_between_steps": "on the host alone",
    "idle_input": "while the host makes batches",
}


def _wait(main: Class, cells: Sequence[Cell], done: Sequence[Finding]) -> str:
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
        return "while ops run on the CPU"
    if most == QUEUED[1]:
        return "between kernels in the queue"
    if most.startswith(HOST_RUNS):
        return f"while {most}"
    return f"for {most}" if most else "for a cause that the trace does not show"


def _copies(account: Account, part: Part, busy: float) -> str:
    """Return why copies stay: no more work is there to hide them behind."""
    work = sum(cell.busy_ns_per_step for cell in account.main.cells) - busy
    return (
        "longer than the work that could hide them"
        if part.ns > work
        else "with no change found that hides them"
    )


def _type(part: Part, cells: Sequence[Cell], busy: float, *, halved: bool, rated: bool) -> str:
    """Return the type that most of the work is in, and who needs it; of work with a rate the type after a
    change alone, as the rate is the reason."""
    if not busy:
        return _OPEN
    wide = sum(cell.busy_ns_per_step for cell in cells if cell.precision in ("fp32", "tf32"))
    if halved and wide >= 0.5 * busy:
        return "then in 16 bits"
    if rated:
        return _OPEN
    if wide >= 0.5 * busy:
        lost = sum(cell.busy_ns_per_step for cell in cells if is_loss(cell))
        if lost >= 0.5 * busy:
            return _mostly(min(wide, lost) / busy, "of the loss, in float32")
        if part.classes[0] == "optimizer":
            return _mostly(wide / busy, "in float32, as the weights are")
        return _mostly(wide / busy, "in float32")
    narrow = sum(cell.busy_ns_per_step for cell in cells if cell.precision in NARROW)
    if narrow >= 0.5 * busy:
        return _mostly(narrow / busy, "in 16 bits already")
    return "usually limited by memory"


def _mostly(ratio: float, said: str) -> str:
    """Return what holds for this share of a part."""
    return said if ratio >= NEARLY_ALL_RATIO else f"mostly {said}"


# --- matrix work -------------------------------------------------------------------------------------------


def _off(view: View, part: Part, cells: Sequence[Cell]) -> str:
    """Return where matrix work stays that runs off the matrix units."""
    on = f"on a card without {view.units}"
    if not view.without_units:
        on = f"off the {view.units}, in {'16 bits' if view.signals.half else 'float32'}"
    ratio, by = _rate(view, part, cells, part.ns)
    if by == "memory":
        return f"{on}, {_streams(view, ratio)}"
    return f"{on} ({format_ratio(ratio)} of the float32 peak)" if ratio else on


def _on(view: View, account: Account, part: Part, cells: Sequence[Cell], done: Sequence[Finding]) -> str:
    """Return why matrix work on matrix units gets no faster: what most of it shows, else that it is on them,
    which nothing on the card exceeds; with its rate."""
    ratio, by = _rate(view, part, cells, part.ns)
    rate = f"{format_ratio(ratio)} of {'bandwidth' if by == 'memory' else 'peak'}" if ratio else ""
    cause, ns = max(_causes(view, cells, done).items(), key=lambda each: each[1], default=(_OPEN, 0.0))
    if cause and ns >= 0.5 * sum(each for _, each in _after(cells, done)):
        return f"mostly {cause}{f' ({rate})' if rate else ''}"
    places = (place for each in account.main.slices if each.category == "matmul" for place in each.by)
    now = sum(place.ns_per_step for place in places if place.placement in ACCELERATED)
    on = f"on {view.units} already" if now >= ALREADY_RATIO * part.ns else f"then on {view.units}"
    if by == "memory":
        return f"{on}, {_streams(view, ratio)}"
    return f"{on}, the fastest units{f' ({rate})' if rate else ''}"


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


def _causes(view: View, cells: Sequence[Cell], done: Sequence[Finding]) -> dict[str, float]:
    """Return the time after the changes by why it is above what large products take; what a change shortened
    is not judged."""
    found: dict[str, float] = defaultdict(float)
    for cell, ns in _after(cells, done):
        found[_OPEN if ns < cell.busy_ns_per_step else _cause(view, cell)] += ns
    return found


def _cause(view: View, cell: Cell) -> str:
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


def _rate(view: View, part: Part, cells: Sequence[Cell], ns: float) -> tuple[float, BoundBy | None]:
    """Return at how much of the card's peak rate or bandwidth the work of these cells is done in this time,
    and which of the two; (0, None) where shapes or peaks do not tell."""
    peaks = view.peaks
    if peaks is None:
        return _NO_RATE
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
    by: BoundBy = "memory" if least["memory"] > least["compute"] else "compute"
    ratio = whole[by] / ns
    lowest = LEAST_STREAMING if by == "memory" else LEAST_RATE
    if not busy or told < STATED_RATIO * busy or not lowest <= ratio <= 1:
        return _NO_RATE
    return ratio, by


def _streams(view: View, ratio: float) -> str:
    """Return that memory limits work which moves its bytes at this share of the bandwidth; of a share that
    streams exceed, that nothing here explains it."""
    of = f"{format_ratio(ratio)} of bandwidth"
    if ratio >= WAITING:
        return f"limited by memory ({of})"
    return f"mostly moving memory ({of}{_unexplained(view)})"


def _unexplained(view: View) -> str:
    """Return what would tell why work reaches less of the peak than others of its kind do: nothing here
    does."""
    return "; Nsight Compute shows why" if view.capability is not None else "; why is not known"


def _cost(cell: Cell) -> Cost:
    """Return what the shapes state of a cell. A cast between float32 and 16 bits reads one and writes the
    other of each value that its shapes state."""
    if cell.category == "cast" and cell.precision == "mixed" and cell.hlo is None:
        values = sum(math.prod(shape) for _, shape in shapes.tensors(cell.shapes or ""))
        return Cost(None, 6.0 * values * cell.done_per_step if values else None)
    return stated(Cost(cell.flops_per_step, cell.bytes_per_step), cell.family, by_hlo=cell.hlo is not None)
