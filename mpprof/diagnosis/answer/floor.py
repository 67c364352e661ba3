"""Why no more is to be gained: what the step consists of after all changes, and why that does not shrink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpprof.analysis.attainable.work import LAUNCH_BOUND_NS, NARROW, roofline
from mpprof.analysis.breakdown.rates import stated
from mpprof.analysis.breakdown.roofline import Cost
from mpprof.analysis.memory.out_of_memory import read
from mpprof.diagnosis.after_changes import OFF_UNITS, Parts, baseline_after, left_after, parts_of, paying
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.leading import causes, changes_type
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.wording import CLASS_WORDS, sentence
from mpprof.model.account import IDLE_CLASSES, SHOWN_AS, Account, Cell, Class
from mpprof.model.finding import Finding
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, COMPUTE_DTYPES, Precision
from mpprof.model.memory import STATES
from mpprof.model.quantities import format_bytes, format_ns, format_ratio, format_speedup

LONGEST = 240
"""Characters of the sentence."""
MOST_PARTS, LEAST_RATIO, ENOUGH_RATIO = 3, 0.1, 0.75
"""So many parts are named, of a tenth of the step or more each, until they are three quarters of it."""
STATED_RATIO = 0.8
"""A rate is said of a class where shapes state the work of so much of its time."""
LEAST_RATE = 0.005
"""A lower rate says that shapes state nearly nothing of the work."""
GOOD_RATE = 0.5
"""A lower rate is no reason in itself: what keeps the work at it is not known."""
IN_FLOAT32, NOT_KNOWN = "in float32", "(why is not known)"
CHANGED_RATIO = 0.02
"""A change that gains so much of a class may change what the class moves: then it has no rate."""


@frozen
class _Part:
    """Work of one colour in the step. `off`: matrix work off the matrix units."""

    kind: str
    off: bool
    ns: float
    classes: tuple[Class, ...]


def floor(view: View) -> str:
    """Return the sentence; "" where nothing is known that it could be about."""
    report = view.report
    if report.account is None and report.window is None:
        return "What the step consists of is not known: no trace was recorded." if view.step_ns else ""
    if said := _of_memory(view):
        return sentence(said)
    texts = (sentence(_of_time(view, most)) for most in range(MOST_PARTS, 0, -1))
    return next((text for text in texts if len(text) <= LONGEST), "")


def _of_memory(view: View) -> str:
    """Return what fills the memory, of a run that it did not suffice for: what no record shows, else what
    stays whatever the batch; "" of others."""
    memory, facts = view.report.memory, view.report.run.facts
    ended = facts.ended if facts is not None else None
    if facts is None or memory is None or ended is None or ended.reason != "out_of_memory":
        return ""
    error = read(ended.error or "")
    limit = (error.limit_bytes if error else None) or next(
        (one.memory_bytes for one in facts.devices if one.kind == "gpu"), None
    )
    peak = format_bytes(memory.peak_bytes)
    if error is not None and error.used_bytes is None and limit:
        rest = limit - memory.peak_bytes - (error.asked_bytes or 0)
        if rest > 0:
            asked = f" and {format_bytes(error.asked_bytes)} asked" if error.asked_bytes else ""
            return (
                f"{peak} recorded{asked} fit into {format_bytes(limit)}: {format_bytes(rest)} were taken by "
                "something that no record shows"
            )
    kinds = {item.name: item.bytes for item in memory.at_peak if item.by == "kind"}
    stays = sum(kinds.get(name, 0) for name in STATES[:2])
    if not stays:
        return ""
    rest = memory.peak_bytes - stays
    return (
        f"of {peak} at the peak, parameters and optimizer slots take {format_bytes(stays)} at any batch; "
        f"the other {format_bytes(rest)} shrink with it"
    )


def _of_time(view: View, most: int) -> str:
    """Return the step after all changes, and so many of its parts."""
    report, account = view.report, view.report.account
    if account is None:
        assert report.window is not None
        head = f"no step is marked, so that no gain is known; the window's {format_ns(report.window.step_ns)}"
        return f"{head}: {_consists(view, report.window, parts_of(report.window.main.slices), (), most)}"
    first = next((each for each in causes(report.findings) if each.code not in report.dismissed), None)
    plan, step = report.whatif, account.step_ns
    other_type = first is not None and changes_type(first)
    codes = [] if other_type else paying(plan, step)
    done = [each for each in report.findings if each.code in codes]
    after = plan.best_step_ns if plan and codes else step
    head = _in_other_type(view) if other_type else _head(view, done, after)
    if plan and codes and plan.floor.by == "host":
        return f"{head}: the host needs that long for the launches that are left"
    if report.unlike:
        return f"{head}; profiled steps are longer, so that its parts are not known"
    left = left_after(account.main.slices, done, after) if done else parts_of(account.main.slices)
    if left is None:
        return f"{head}; what that consists of is not known"
    return f"{head}: {_consists(view, account, left, done, most)}{_unexplained(view, after)}"


def _head(view: View, done: Sequence[Finding], after: float) -> str:
    """Return the step after all changes, against the baseline where there is one: as it is, and with the same
    changes."""
    account, speedup = view.report.account, view.comparison
    one = account.unit if account and account.unit != "window" else "step"
    off = ", in float32," if view.kind == "float32" and view.report.how_to_switch else ""
    if not done:
        return f"no change was found that makes the {format_ns(after)} {one} shorter"
    many = "changes" if len(done) > 1 else "change"
    said = f"after {'all changes' if len(done) > 1 else 'the change'}{off} about {format_ns(after)} a {one}"
    base = speedup.baseline_step_ns if speedup else None
    if not base:
        return said
    times, same = (format_speedup(each / after) for each in (base, baseline_after(base, done)))
    beside = "" if same == times else f", {same} over it with the same {many}"
    return f"{said}, {times} over {view.base}{f' ({format_ns(base)})' if base < after else ''}{beside}"


def _in_other_type(view: View) -> str:
    """Return what the step takes in the baseline's type, to which the first change goes back."""
    step, speedup = format_ns(view.step_ns), view.comparison
    base = speedup.baseline_step_ns if speedup else None
    return (
        f"{view.base} takes {format_ns(base)}, as measured; this run's {step}" if base else f"of these {step}"
    )


def _consists(view: View, account: Account, left: Parts, done: Sequence[Finding], most: int) -> str:
    """Return the longest parts, each with why it does not shrink."""
    parts = _parts(left)
    named = _named(parts[:most], sum(part.ns for part in parts))
    return ", ".join(_said(view, account, part, done) for part in named)


_OF_MATRIX_WORK = {"not_matmul": "rest", "unknown": "open", "": "open"}
"""What matrix work is shown as that is neither on units nor off them: helpers, and what nothing places."""


def _parts(left: Parts) -> list[_Part]:
    """Return the parts as a picture shows them, the longest first."""
    found: dict[tuple[str, bool], dict[Class, float]] = {}
    for (role, place), ns in left.items():
        kind = role if role in IDLE_CLASSES else SHOWN_AS.get(role) or _OF_MATRIX_WORK.get(place, role)
        inside = found.setdefault((kind, place in OFF_UNITS), {})
        inside[role] = inside.get(role, 0.0) + ns
    made = [
        _Part(kind, off, sum(inside.values()), tuple(sorted(inside, key=lambda each: -inside[each])))
        for (kind, off), inside in found.items()
    ]
    return sorted(made, key=lambda part: -part.ns)


def _named(parts: Sequence[_Part], whole: float) -> Iterator[_Part]:
    so_far = 0.0
    for part in parts:
        if so_far and (part.ns < LEAST_RATIO * whole or so_far >= ENOUGH_RATIO * whole):
            return
        so_far += part.ns
        yield part


def _said(view: View, account: Account, part: _Part, done: Sequence[Finding]) -> str:
    """Return a part with its time, and why it becomes no shorter."""
    many = " and other work" if part.kind == "rest" and len(part.classes) > 1 else ""
    why = _why(view, account, part, done)
    name = "idling" if part.kind == "idle_other" else CLASS_WORDS[part.classes[0]]
    if part.kind == "rest" and part.classes[0] == "matmul":
        name = "helpers of matrix work"
    return f"{format_ns(part.ns)} of {name}{many}{f' {why}' if why else ''}"


def _why(view: View, account: Account, part: _Part, done: Sequence[Finding]) -> str:
    main = part.classes[0]
    if main in IDLE_CLASSES:
        return _WAITS.get(main, "")
    cells = [
        cell for cell in account.main.cells if cell.category in part.classes and cell.busy_ns_per_step > 0
    ]
    if part.kind == "matmul":
        cells = [cell for cell in cells if not part.off or cell.placement in OFF_UNITS]
    if part.kind == "rest":
        cells = [cell for cell in cells if cell.category != "matmul" or cell.placement == "not_matmul"]
    if part.kind == "open":
        return "that nothing places"
    gained = sum(each.excess_ns for found in done for each in found.claimed if each.category in part.classes)
    changed = gained >= CHANGED_RATIO * part.ns
    if (part.kind == "matmul" or not changed) and (rate := _rate(view, part, cells)):
        return rate
    if part.kind == "matmul" and not part.off:
        return f"on {view.units} already"
    if part.kind == "matmul":
        off = f"off the {view.units}, in {'16 bits' if view.signals.half else 'float32'}"
        return "on a card without Tensor Cores" if view.without_units else off
    calls, busy = sum(cell.calls_per_step for cell in cells), sum(cell.busy_ns_per_step for cell in cells)
    if calls and busy / calls < LAUNCH_BOUND_NS:
        return "in kernels too short to gain"
    return (_changed(account, part, cells, busy) if changed else _in_type(cells, busy)) or NOT_KNOWN


_WAITS: dict[Class, str] = {
    "idle_launch": "that the host needs", "idle_other": "without a known cause",
    "idle_between_steps": "that is not the GPU's",
}  # fmt: skip


def _changed(account: Account, part: _Part, cells: Sequence[Cell], busy: float) -> str:
    """Return why what a change shortens keeps its rest: no more work is there to hide copies behind, and half
    the time of float32 is what half the bytes take."""
    if part.kind == "copy":
        work = sum(cell.busy_ns_per_step for cell in account.main.cells) - busy
        return "longer than the work that could hide them" if part.ns > work else ""
    halved = abs(part.ns - 0.5 * busy) < CHANGED_RATIO * busy
    return "then in 16 bits" if halved and _in_type(cells, busy) == IN_FLOAT32 else ""


def _in_type(cells: Sequence[Cell], busy: float) -> str:
    """Return the type that most of the work is in."""
    wide = sum(cell.busy_ns_per_step for cell in cells if cell.precision in ("fp32", "tf32"))
    narrow = sum(cell.busy_ns_per_step for cell in cells if cell.precision in NARROW)
    if wide >= 0.5 * busy:
        return IN_FLOAT32
    return "in 16 bits already" if narrow >= 0.5 * busy else ""


def _rate(view: View, part: _Part, cells: Sequence[Cell]) -> str:
    """Return at how much of the card's peak rate or bandwidth the work of these cells is done in the time of
    the part; "" where shapes or peaks do not tell."""
    peaks = view.peaks
    if peaks is None:
        return ""
    half = COMPUTE_DTYPES.get(known(view.signals.compute_dtype) or "")
    busy, told, least = 0.0, 0.0, {"compute": 0.0, "memory": 0.0}
    for cell in cells:
        busy += cell.busy_ns_per_step
        work = stated(
            Cost(cell.flops_per_step, cell.bytes_per_step), cell.family, by_hlo=cell.hlo is not None
        )
        if cell.category == "copy" or (cell.category == "matmul" and not work.flops):
            continue
        on_units = cell.placement in ACCELERATED or not part.off
        precision: Precision | None = cell.precision if cell.placement in ACCELERATED else half
        rate = peaks.flops_per_s.get(str(precision) if on_units else "fp32_cuda")
        found = roofline(
            work.flops if cell.category == "matmul" else None, work.bytes, rate, peaks.bandwidth_bytes_per_s
        )
        if found is not None:
            told += cell.busy_ns_per_step
            least[found[1]] += found[0]
    ratio = sum(least.values()) / part.ns
    if not busy or told < STATED_RATIO * busy or not LEAST_RATE < ratio <= 1:
        return ""
    memory = least["memory"] > least["compute"]
    of = (
        "the memory's bandwidth"
        if memory
        else f"the {view.units}' rate"
        if not part.off
        else "the card's float32 rate"
    )
    return f"at {format_ratio(ratio)} of {of}{'' if ratio >= GOOD_RATE else f' {NOT_KNOWN}'}"


def _unexplained(view: View, after: float) -> str:
    """Return what no finding explains of the step, where it is much of what is left."""
    speedup = view.comparison
    ns = speedup.unexplained_ns if speedup and speedup.attainable is not None else None
    much = ns is not None and ns >= LEAST_RATIO * after
    return f"; {format_ns(ns)} of it is not explained" if much else ""
