"""Copies are not hidden behind work.

What it means
    Each batch travels to the device. If it is sent ahead, the copy runs beside the step before; if not, the
    device waits for it. Mixed precision shortens the work and leaves the copy as it is. Copies within the
    device are of another kind: tensors that are put together, cloned or made contiguous. And where one op's
    tensor goes to the host and comes back, the op runs on the CPU (MP306, where the trace holds the host's
    ops). Tensors that are parked in the host's memory and fetched again (offloaded activations, weights or
    optimizer slots) are not input: no prefetch of batches hides them, and sending uint8 does not shorten
    them.

How we know
    Two times are added: that in which a copy runs and no kernel does (the account's class `copy`), and idle
    time in which the host was in a copy that did not return. Such a copy, to the host or from pageable
    memory, waits for all work in front of it, and meanwhile nothing is launched. For the largest copies to or
    from the device the rate is computed from bytes and time. Some collectors state whether host memory was
    pageable. Otherwise a rate below 4 GB/s, a third of what pinned memory reaches over PCIe 3.0 x16,
    indicates pageable memory, which the driver copies twice. Copies are offloading where an instruction of
    the compiled program names the host's memory, or moves a tensor between host and device itself; and where
    both ways take about as long, because what leaves for logs is small beside a batch.

What it costs
    The time of these copies, as far as work is there to hide them: where they take longer than all other
    work, the rest of their time stays, unless pinned memory makes them faster. A float32 run has the same
    copies: below a fifth of the step they are a note without a cost, which explains why little can be gained.
    The copy of the batch to the device, which a prefetch hides, is mentioned from 3 % of the step on, all
    others from 10 %.

When to ignore
    When the copies are logs read once in many steps.

Sources
    NVIDIA, CUDA C++ Best Practices (overlapping transfers with work); TensorFlow's guide to data performance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from mpprof.analysis.breakdown import copies
from mpprof.analysis.steps.idle import COPYING
from mpprof.diagnosis import launch_waits
from mpprof.diagnosis.prelude import *
from mpprof.model.frozen import frozen

CODE, SLUG, TITLE = "MP310", "exposed-copies", "Copies are not hidden behind work"
ABOUT = "exposed copies"
SAYS = "the {device} does nothing but copy[ for {time}]"
ONCE = "once copies are hidden"
BOUND = "host"
OF_ACCELERATOR = True

_DOWN = r"(?i)D2H|DtoH|Device\s*-?(to|>)-?\s*(Host|Pageable|Pinned)"
_UP = r"(?i)H2D|HtoD|(Host|Pageable|Pinned)\s*-?(to|>)-?\s*Device"
_IN_HOST_MEMORY = r"S\(5\)|is_host_transfer=true"
"""How an HLO instruction that XLA writes out on a TPU names the host's memory."""
_FIRST_HALF = r"^%?(?:[\w.-]+ = .*? )?[\w-]+-start(?:\.\d+)*(?:\(|$)"
"""The start of a copy whose end (`copy-done`) is in the trace, too: one copy, not two."""
BOTH_WAYS_RATIO = 0.5
"""Copies to the host take at least so much of the time of those from it, or the other way round."""
_WITHIN = r"(?i)D2D|DtoD|Device\s*-?(to|>)-?\s*Device"
_WAYS = (("copies to the host", _DOWN), ("copies from the host", _UP), ("copies within the device", _WITHIN))
SCALE = Scale(info_ratio=0.10, warning_ratio=0.20, error_ratio=0.30, normal=True)
"""A note only from a tenth of the step on, because a float32 run has the same copies. From XProf's limit for
"highly" input-bound on, a fifth of the step, the batch's way to the device is a loss that a prefetch hides,
whatever the precision; 14 recorded trainings on T4 and RTX 2060 have 1 % or less."""
OF_THE_BATCH = Scale(0.03, SCALE.warning_ratio, SCALE.error_ratio, normal=True)
"""XProf calls 3 % of the step moderate for input; the recorded trainings above lie well below it."""
NOTABLE_RATIO = 0.01
"""Share of the step: idle time behind copies is listed separately from here on."""
_COPIES = (None, "copy")
"""Families of a copy. The account's class also holds fills, which move nothing."""
LARGE_BYTES = 1 << 20
"""Smaller copies are bound by their latency."""
PAGEABLE_BYTES_PER_S = 4e9


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    rows = signals.of("copy")
    waits = signals.select(lambda cell: cell.cause == COPYING[1])
    waited, copied = signals.time(waits), signals.time(rows)
    if waited < NOTABLE_RATIO * signals.whole_ns or not copied:
        waits = ()
    claims, scale = attainable.whole((*rows, *waits)), SCALE
    if signals.cost_ratio(claims) < scale.info_ratio:
        sent = [row for row in rows if re.search(_UP, signals.cells[row].kernel or "")]
        ahead, scale = attainable.whole(sent), OF_THE_BATCH
        if signals.cost_ratio(ahead) < scale.info_ratio:
            return Clear(f"copies take {format_ratio(signals.cost_ratio(claims))} of the step")
        rows, waits, waited, claims, copied = tuple(sent), (), 0.0, ahead, signals.time(sent)
    cells = [signals.cells[row] for row in rows]
    within = math.fsum(cell.ns_per_step for cell in cells if re.search(_WITHIN, cell.kernel or ""))
    outside = 2 * within <= copied
    returning = _there_and_back(cells) if outside else ()
    offloaded = outside and not returning and _offloads(cells)
    blocking = bool(waits) and waited > copied and not offloaded
    case = (
        "there and back"
        if returning
        else "offloaded"
        if offloaded
        else "from outside"
        if outside
        else "within"
    )
    largest = _largest(signals, cells) if outside else None
    what = "copy tensors to and from the host's memory" if offloaded else "copy"
    does = "copies, or waits for copies that block the host," if waits else f"does nothing but {what}"
    calls = launch_waits.in_mid_step(signals) if blocking else ()
    named = evidence.listed(_moving(cells)) if blocking else _said(largest) if largest else ""
    faster = largest is not None and largest.unpinned  # from pinned memory they take a fraction of that time
    stays = 0.0 if returning or not outside or faster else _longer_than_all_work(signals)
    ratio, taken = signals.cost_ratio(claims), format_ns(signals.cost_ns(claims) * signals.undistorted)
    if stays:
        claims = attainable.lessened(signals, claims, stays)
    hideable = format_ns(signals.cost_ns(claims) * signals.undistorted)
    could = f"; other work could hide {hideable} of that" if stays else ""
    return Found(
        summary=f"the device {does} for "
        + (f"{taken} {{each}} ({format_ratio(ratio)})" if stays else "{cost} {each} ({share})")
        + ("; other work could hide {cost} of that" if stays else "")
        + (f": {named}" if named else "")
        + (f"; to the host and back for {evidence.listed(returning)}" if returning else ""),
        proof=named,
        evidence=(
            evidence.ratio(
                f"exposed copies{' and the wait behind them' if waits else ''} in {{whole}}",
                ratio,
                scale.info_ratio,
            ),
            *_counted(cells),
            evidence.ratio("of their time, within the device", within / copied),
            *((evidence.ns("idle behind copies that block the host", waited),) if waits else ()),
            *((evidence.text("calls that block the host", evidence.listed(calls)),) if calls else ()),
            *((evidence.rate("rate of the largest copies", largest.rate),) if largest else ()),
        ),
        cases=("blocking" if blocking else case,),
        scale=scale,
        severity=scale.severity(ratio) if stays else None,
        said=f"the {{device}} does nothing but {what} for {taken} of {{whole}}{could}"
        if offloaded or stays
        else "",
        claims=claims,
    )


def _counted(cells: Sequence[Cell]) -> tuple[Evidence, ...]:
    """Return how many copies these are, by their way where it is known: hidden ones, too, and each once, if
    the trace holds its two halves or not."""
    counted: dict[str, float] = {}
    for cell in cells:
        if cell.family in _COPIES and not re.match(_FIRST_HALF, cell.kernel or ""):
            way = next((way for way, found in _WAYS if re.search(found, cell.kernel or "")), "copies")
            counted[way] = counted.get(way, 0.0) + cell.calls_per_step
    return tuple(evidence.count(f"{way} {{per}}", count) for way, count in counted.items())


def _offloads(cells: Sequence[Cell]) -> bool:
    """Return whether these copies park tensors in the host's memory: instructions of the compiled program,
    most of their time, or copies that take about as long both ways."""
    whole = math.fsum(cell.busy_ns_per_step for cell in cells)
    down, up, compiled = (
        math.fsum(cell.busy_ns_per_step for cell in cells if tells(cell))
        for tells in (_is(_DOWN), _is(_UP), _in_program)
    )
    both = down + up
    return 2 * compiled > whole or (2 * both > whole and min(down, up) >= BOTH_WAYS_RATIO * max(down, up))


def _is(pattern: str) -> Callable[[Cell], bool]:
    return lambda cell: re.search(pattern, cell.kernel or "") is not None


def _in_program(cell: Cell) -> bool:
    """Tell whether this copy between host and device is an instruction of the compiled program."""
    moves = _is(_DOWN)(cell) or _is(_UP)(cell)
    return re.search(_IN_HOST_MEMORY, cell.kernel or "") is not None or (moves and cell.hlo is not None)


def _longer_than_all_work(signals: Signals) -> float:
    """Return by how much copies, exposed and hidden, take longer than all other work of the device, in ns:
    that much of their time stays exposed however well they are hidden."""
    measured = signals.case.measured
    if measured is None:
        return 0.0
    of_copies = [part for part in measured.main.slices if part.category == "copy"]
    copied = math.fsum(part.ns_per_step + part.hidden_ns_per_step for part in of_copies)
    work = signals.time([row for row in signals.work if signals.cells[row].category != "copy"])
    return max(0.0, copied - work)


def _moving(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the ops that copy between host and device, those that copy longest first."""
    moving = [cell for cell in cells if cell.op and not re.search(_WITHIN, cell.kernel or "")]
    return tuple(
        dict.fromkeys(cell.op for cell in sorted(moving, key=lambda cell: -cell.ns_per_step) if cell.op)
    )


def _there_and_back(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the ops whose tensors are copied to the host and back, where most of the time is theirs."""
    down = {cell.op for cell in cells if cell.op and re.search(_DOWN, cell.kernel or "")}
    up = {cell.op for cell in cells if cell.op and re.search(_UP, cell.kernel or "")}
    own = math.fsum(cell.ns_per_step for cell in cells if cell.op in down & up)
    whole = math.fsum(cell.ns_per_step for cell in cells)
    return tuple(sorted(op for op in down & up if op)) if 2 * own > whole else ()


@frozen
class _Large:
    """The largest copy, or the mean of the largest: bytes, bytes/s, the kinds of memory that are stated."""

    bytes: float
    rate: float
    memory: frozenset[str]
    one: bool = True
    down: bool = False

    @property
    def unpinned(self) -> bool:
        return "pageable" in self.memory or (not self.memory and self.rate < PAGEABLE_BYTES_PER_S)


def _largest(signals: Signals, cells: Sequence[Cell]) -> _Large | None:
    """Return the copy to or from the device that moves most bytes at once; None where no large one states
    them. For a whole window it is read from the trace; a cell of a step holds the copies of one op and of
    about one size."""
    trace, measured = signals.case.trace, signals.case.measured
    if signals.in_window and trace is not None and measured is not None:
        one = copies.largest(trace, measured.main.device)
        if one is None or one.bytes < LARGE_BYTES or one.duration_ns <= 0:
            return None
        rate, memory = one.bytes / one.duration_ns * 1e9, frozenset(filter(None, [one.memory]))
        return _Large(one.bytes, rate, memory, down=one.down)
    large = [
        cell
        for cell in cells
        if cell.bytes_per_step
        and cell.done_per_step > 0
        and cell.bytes_per_step / cell.done_per_step >= LARGE_BYTES
        and not re.search(_WITHIN, cell.kernel or "")
    ]
    found = max(large, key=lambda cell: (cell.bytes_per_step or 0.0) / cell.done_per_step, default=None)
    if found is None:
        return None
    kinds = {kind for kind in ("pageable", "pinned") if kind in (found.kernel or "").lower()}
    kinds = kinds or {kind for kind in ("pageable", "pinned") if signals.named(f"kind_src:{kind}")}
    moved = found.bytes_per_step or 0.0
    return _Large(
        moved / found.done_per_step,
        moved / found.busy_ns_per_step * 1e9,
        frozenset(kinds),
        found.calls_per_step <= 1,
        bool(re.search(_DOWN, found.kernel or "")),
    )


def _said(copy: _Large) -> str:
    """Return how much the copy moves and how fast, and which kind of host memory its rate suggests."""
    size, rate = format_bytes(copy.bytes), format_bytes_per_s(copy.rate)
    moved = "the largest copy moves" if copy.one else "the largest copies move"
    said = f"{moved} {size}{'' if copy.one else ' each on average'} at {rate}"
    if len(copy.memory) == 1:
        return f"{said}, {'to' if copy.down else 'from'} {next(iter(copy.memory))} memory"
    return f"{said}, as slow as pageable (unpinned) memory" if copy.unpinned else said
