"""The breakdown of a step, or of a whole window, as rows and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.model.account import Class, MatmulShare, Slice
from mpprof.model.frozen import changed, frozen
from mpprof.model.quantities import first_of
from mpprof.model.report import Report, Time, Window
from mpprof.report import units, whole_window, words

SMALL_RATIO = 0.005
"""Slices below this share of the step are folded into one row, where there are more than two of them."""
SPLIT_RATIO = 0.05
"""An idle class is split by its causes from a twentieth of the step on."""
ADDED_RATIO = 0.01
"""What profiling added is told from a hundredth of the step on."""
MOST_BETWEEN, LEAST_BETWEEN_NS = 4, 1_000.0
"""So many things that lie between two steps are named, of a microsecond or more."""
MOSTLY_RATIO = 0.5
"""What is more than half of one kind goes by its name."""
SHOWN_RATIO = 0.002
"""A smaller part of a class hardly shows in three figures."""
COUNTED_RATIO = 0.001
"""Less of a step is not listed: the sums beside it do not show it."""
NAMED_RATIO = 0.1
"""A tenth of a class is named beside it."""
ROOM_FOR_NAMES = 30
"""Columns for the names of what is folded into one row."""
MARKED_BY_A_LOOP = ("torch", "optimizer")
"""Sources of steps that are marks of the loop, such as `ProfilerStep#6`: they hold more than one call."""
MEANT_TO_BE_HIDDEN = ("comm", "copy")
"""Good where they run beside compute: how long is in their rows."""
NEVER_FOLDED = ("unknown", "profiling")
_BETWEEN: Class = "idle_between_steps"
_UNPROFILED: tuple[Class, ...] = ("profiling", "idle_stall")
"""What no profiled step holds: the differences of the others from it, and from each other."""


@frozen
class TimeRow:
    """One row of the breakdown of a step. `part` rows split the row above and add nothing to the sum."""

    label: str
    ns: float
    ratio: float
    hidden_ns: float = 0.0
    text: str = ""
    part: bool = False

    @property
    def share(self) -> str:
        """The share in percent; empty for a class that is negative, which has none."""
        return "" if self.ratio < 0 else words.percent(self.ratio)


def time_heading(time: Time) -> str:
    """Return what the breakdown divides, and what its step time rests on."""
    return units.worded(_time_heading(time), time)


def shares_of(time: Time) -> str:
    """Return of how much time the rows are shares, where a row is negative: of the sum of the others."""
    whole = sum(max(0.0, part.ns_per_step) for part in time_slices(time))
    said = words.duration(whole)
    return "" if said == words.duration(time_whole(time)) else f"of {said}, "


def _time_heading(time: Time) -> str:
    window = words.plural(time.window_steps, "profiled step")
    if said := spread(time):
        window += f"{said},"
    if time.step_range is not None:
        window = f"{window.rstrip(',')}, each a range {words.plain(time.step_range)},"
    where = words.where(time.device, time.basis)
    if time.unlike is not None:
        return (
            f"A step takes {words.duration(time.step_ns)} (wall, mean); shares are of a profiled step "
            f"of {words.duration(time_whole(time))} ({window} on {where})"
        )
    if time.wall_ns is not None:
        return (
            f"A step takes {words.duration(time.step_ns)} (wall, mean; shares {shares_of(time)}from {window} "
            f"on {where})"
        )
    said = f"A step takes {words.duration(time.step_ns)}"
    of_function = time.step_range is None and time.unit == "step" and time.step_source not in MARKED_BY_A_LOOP
    if of_function and time.function_ns is not None and time.basis != "host":
        said += _of_the_function(time)
    return f"{said} (in the profiler window: {window} on {where})"


def spread(time: Time) -> str:
    """Return between what the profiled steps lie, to stand behind their number; empty where they agree."""
    found = time.spread
    if found is None:
        return ""
    ends = f"{words.duration(found.shortest_ns)} to {words.duration(found.longest_ns)}"
    within = found.shortest_ns <= time_whole(time) <= found.longest_ns
    ends = f" of {ends}" if within else f"; {ends} without what lies between them"
    return ends if time.window_steps == 2 else f"{ends}, median {words.duration(found.median_ns)}"


def mean_of(time: Time | None) -> str:
    """Return of which profiled steps the step time is the mean, to stand behind it; empty where it is not, or
    where they agree."""
    if time is None or time.wall_ns is not None or time.spread is None:
        return ""
    return f" (mean of {words.plural(time.window_steps, 'step')}{spread(time)})"


def _of_the_function(time: Time) -> str:
    """Return where a step begins and ends that is counted to the end of the device's work, and when the host
    was done."""
    call_ns, function_ns = time.call_ns, time.function_ns
    if time.idle_between_steps_ns is not None or not call_ns or not function_ns:
        return ""
    if call_ns >= 0.99 * function_ns:
        return ", the call of the training function"
    waited_ns = time.waited_ns or 0.0
    wait = f", after which the host waits {words.duration(waited_ns)} for the device"
    return (
        " from the call of the training function to the end of its last kernel; on the host the call takes "
        f"{words.duration(call_ns)}{wait if waited_ns >= SPLIT_RATIO * function_ns else ''}"
    )


def between(time: Time | None) -> list[str]:
    """Return what the loop and its callbacks do between two steps, the longest first; empty: not known, or
    nothing."""
    listed = (time.between_steps if time else None) or ()
    lines = []
    for part in [each for each in listed if each.host_ns + each.device_ns >= LEAST_BETWEEN_NS][:MOST_BETWEEN]:
        device = f", {words.duration(part.device_ns)} on the device" if part.device_ns else ""
        lines.append(f"{words.plain(part.name)}: {words.duration(part.host_ns)} on the host{device}")
    return lines


def outside_the_step(time: Time | None) -> str:
    """Return between what the work outside the steps lies; for a single step nothing tells where the next
    began."""
    one = time is not None and time.window_steps == 1 and time.idle_between_steps_ns is None
    return "Afterwards" if one else "Between steps"


def time_rows(time: Time) -> list[TimeRow]:
    """Return the slices of the step, largest first, `profiling` last; small ones folded, or left out where
    they are hardly anything. They sum to the step, or to the profiled step where that is unlike the
    others."""
    basis = time.basis
    return _rows(time_slices(time), time_whole(time), wall=basis == "wall", on_host=basis == "host")


def time_slices(time: Time) -> tuple[Slice, ...]:
    """Return what the step is divided into, with shares that sum to 1: of the profiled step, without
    `profiling` and `idle_stall`, where that is unlike the others."""
    if time.unlike is None:
        return time.slices
    parts = [part for part in time.slices if part.category not in _UNPROFILED]
    own = sum(part.ns_per_step for part in parts if part.category != _BETWEEN)
    profiled = {_BETWEEN: max(0.0, time.window_ns - own)}  # in `slices` it is that of unprofiled steps
    lengths = [profiled.get(part.category, part.ns_per_step) for part in parts]
    whole = sum(lengths)
    return tuple(
        changed(part, ns_per_step=ns, ratio=ns / whole if whole else 0.0)
        for part, ns in zip(parts, lengths, strict=True)
    )


def time_whole(time: Time) -> float:
    """Return the sum of these slices, in ns."""
    if time.unlike is None:
        return float(time.step_ns)
    return float(sum(part.ns_per_step for part in time_slices(time)))


def time_per(time: Time) -> str:
    """Return what the numbers refer to, and over how many steps they are the mean."""
    steps = words.plural(time.window_steps, "step")
    return f"per profiled step, {steps}" if time.unlike is not None else f"per step, {steps}"


def time_doubt(time: Time) -> str | None:
    """Return a sentence that the window is not representative, and why; None where it is."""
    said = time.unlike
    return f"{words.plain(said[0].upper() + said[1:])}." if said else None


def window_rows(found: Window) -> list[TimeRow]:
    """Return the same rows for a whole window: they sum to its span."""
    return _rows(whole_window.as_slices(found), found.span_ns, on_host=found.basis == "host")


def _rows(
    parts: Sequence[Slice], step_ns: float, *, wall: bool = False, on_host: bool = False
) -> list[TimeRow]:
    slices = sorted(parts, key=lambda part: (part.category == "profiling", -part.ns_per_step))
    whole = sum(max(0.0, part.ns_per_step) for part in parts)
    small = [
        p
        for p in slices
        if abs(p.ns_per_step) < SMALL_RATIO * whole
        and p.hidden_ns_per_step < SPLIT_RATIO * step_ns
        and p.category not in NEVER_FOLDED
    ]
    folded = small if len(small) > 2 else [p for p in small if abs(p.ns_per_step) < COUNTED_RATIO * whole]
    added = -sum(part.ns_per_step for part in slices if part.category == "profiling") / (whole or 1.0)
    rows: list[TimeRow] = []
    for part in slices:
        if part in folded:
            continue
        category, ratio = part.category, part.ratio
        hidden = _worth_saying(part.hidden_ns_per_step, step_ns)
        note = _pooling(part) or words.class_text(category, on_host=on_host, ns=part.ns_per_step)
        if category == "idle_launch" and wall and ADDED_RATIO <= added <= ratio:
            note = f"{words.percent(ratio - added)} without profiling"
        causes = _causes(part, whole, on_host=on_host)
        if category == "idle_other" and not causes:
            note = _only_cause(part, on_host=on_host)
        rows.append(TimeRow(category, part.ns_per_step, ratio, hidden, note))
        rows += _shares(part, whole)
        rows += causes
    if len(folded) > 2:
        names = _names([part.category for part in folded])
        rows.append(
            TimeRow(
                f"{len(folded)} smaller",
                sum(part.ns_per_step for part in folded),
                sum(max(0.0, part.ratio) for part in folded),
                _worth_saying(sum(part.hidden_ns_per_step for part in folded), step_ns),
                names,
            )
        )
    return rows


def _only_cause(part: Slice, *, on_host: bool) -> str:
    """Return the cause of most of this idle time, where it is too short to be split."""
    cause = max(part.causes, key=lambda cause: cause.ns_per_step, default=None)
    if cause is None or cause.ns_per_step < MOSTLY_RATIO * part.ns_per_step:
        known = sum(cause.ns_per_step for cause in part.causes)
        return f"cause {'mostly ' if known >= SHOWN_RATIO * part.ns_per_step else ''}{NOT_IN_THE_TRACE}"
    return words.cause_of_idling(cause.cause, on_host=on_host)


def _pooling(part: Slice) -> str:
    """Return how much of the elementwise work is pooling: slow kernels of their own, to which 16 bits bring
    least."""
    pooling, whole = part.pooling_ns_per_step, part.ns_per_step
    if whole <= 0 or pooling < NAMED_RATIO * whole:
        return ""
    return "pooling" if pooling >= 0.995 * whole else f"{pooling / whole:.0%} pooling".replace("%", " %")


def _names(names: list[str]) -> str:
    """Return the first of these names, as many whole ones as fit, and how many more there are."""
    for shown in range(len(names), 0, -1):
        if len(said := first_of(names, shown)) <= ROOM_FOR_NAMES:
            return said
    return ""


def hidden(time: Time) -> list[str]:
    """Return what ran for a twentieth of the step or more behind other work, by class and by its longest
    op."""
    lines = []
    for part in sorted(time_slices(time), key=lambda part: -part.hidden_ns_per_step):
        behind, longest = part.hidden_ns_per_step, part.longest_hidden
        if behind < SPLIT_RATIO * time_whole(time) or longest is None or part.category in MEANT_TO_BE_HIDDEN:
            continue
        name = words.op(words.plain(longest.name), 60)
        most = "most of it" if longest.ns_per_step >= MOSTLY_RATIO * behind else "the longest"
        lines.append(
            f"{words.duration(behind)} of {part.category} ran beside work that is counted first: {most} "
            f"{name}, {words.duration(longest.ns_per_step)}"
        )
    return lines


def _worth_saying(hidden_ns: float, step_ns: float) -> float:
    """Return the hidden time where it is a thousandth of the step or more, else 0; less is left to the JSON
    report."""
    return hidden_ns if hidden_ns >= step_ns / 1000 else 0.0


def _shares(part: Slice, step_ns: float) -> list[TimeRow]:
    shares = sorted(part.by, key=lambda share: -share.ns_per_step)
    if [_placed(share) for share in shares] == ["cpu"]:
        return []  # all of it, where the rest of the step ran, too
    return [
        TimeRow(
            _placed(share),
            share.ns_per_step,
            share.ns_per_step / step_ns if step_ns else 0.0,
            text=_helpers(share),
            part=True,
        )
        for share in shares
        if (share.placement, share.precision) != ("not_matmul", "unknown")
        or share.ns_per_step >= COUNTED_RATIO * step_ns
    ]


def _placed(share: MatmulShare) -> str:
    """Return where a part of the matrix work ran, and in which precision; a part that multiplies nothing is
    named by what it is."""
    if share.placement != "not_matmul":
        known = share.precision != "unknown" or share.placement == "unknown"
        narrow = "narrow pairs" if share.precision == "mixed" else share.precision
        return f"{share.placement} {narrow}" if known else share.placement
    most = share.transforms_ns_per_step >= MOSTLY_RATIO * share.ns_per_step
    name = "transforms" if most else "helpers"
    return name if share.precision == "unknown" else f"{name} {share.precision}"


NOT_IN_THE_TRACE = "not in the trace"


def _causes(part: Slice, step_ns: float, *, on_host: bool) -> list[TimeRow]:
    """Return the known causes of a large idle class, and how much of `idle_other` has no known cause."""
    causes = [
        (words.cause_of_idling(cause.cause, on_host=on_host), cause.ns_per_step) for cause in part.causes
    ]
    rest = part.ns_per_step - sum(ns for _, ns in causes)
    if part.category == "idle_other":
        causes.append((NOT_IN_THE_TRACE, rest))
    shown = [(cause, ns) for cause, ns in causes if step_ns and ns >= SMALL_RATIO * step_ns]
    if part.ratio < SPLIT_RATIO or not [cause for cause, _ in shown if cause != NOT_IN_THE_TRACE]:
        return []
    if len(shown) == 1 and part.category == "idle_launch" and shown[0][1] >= 0.995 * part.ns_per_step:
        return []  # the row above has that number
    shown.sort(key=lambda item: -item[1])
    return [TimeRow(cause, ns, ns / step_ns, part=True) for cause, ns in shown]


def _helpers(share: MatmulShare) -> str:
    """Return the name of a part of the matrix work that multiplies nothing, where it is transforms of
    convolutions."""
    transforms, whole = share.transforms_ns_per_step, share.ns_per_step
    if transforms <= 0:
        return ""
    if transforms >= 0.995 * whole:
        return "of convolutions"
    what = "for convolutions" if transforms >= MOSTLY_RATIO * whole else "transforms of convolutions"
    return f"{words.percent(transforms / whole)} of it {what}"


def slices_of(document: Report) -> tuple[Slice, ...]:
    """Return the slices of the step, else of the whole window; empty where there is no account."""
    if document.time:
        return document.time.slices
    return whole_window.as_slices(document.window) if document.window is not None else ()
