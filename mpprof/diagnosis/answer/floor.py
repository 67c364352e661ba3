"""Why no more is to be gained: what the step consists of after all changes, and why that does not shrink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpprof.analysis.memory.out_of_memory import read
from mpprof.diagnosis.after_changes import OFF_UNITS, Parts, baseline_after, left_after, parts_of, paying
from mpprof.diagnosis.answer.kept import Part, why
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.leading import causes, changes_type, leads
from mpprof.diagnosis.wording import CLASS_WORDS, sentence
from mpprof.model.account import IDLE_CLASSES, SHOWN_AS, Account, Class
from mpprof.model.finding import Finding
from mpprof.model.frozen import frozen
from mpprof.model.memory import STATES
from mpprof.model.quantities import format_bytes, format_ns, format_speedup

LONGEST = 270
"""Characters of the sentence."""
BESIDE_RATIO = 0.02
"""What is more of a part than this is in its name."""
MOST_PARTS, LEAST_RATIO, ENOUGH_RATIO = 3, 0.1, 0.75
"""So many parts are named, of a tenth of the step or more each, until they are three quarters of it."""
BY_HOST = "the host needs that long for the launches that are left"


def limits(view: View) -> tuple[tuple[str, str], ...]:
    """Return why each larger part of the step after all changes becomes no shorter, in the words of the
    sentence: its segment in a picture, and why; of all of it, "", where the host does."""
    account, now = view.report.account, _changed(view)
    if account is None or now is None or now.left is None or view.report.unlike:
        return ()
    if now.by_host:
        return (("", BY_HOST),)
    whole = sum(now.left.values())
    large = (part for part in _parts(now.left) if part.ns >= LEAST_RATIO * whole)
    found = ((part.key, why(view, account, part, now.done)) for part in large)
    return tuple((key, reason) for key, reason in found if reason)


def floor(view: View) -> str:
    """Return the sentence; "" where nothing is known that it could be about."""
    report = view.report
    if report.account is None and report.window is None:
        return "What the step consists of is not known: no trace was recorded." if view.step_ns else ""
    if said := _of_memory(view):
        return sentence(said)
    ways = ((MOST_PARTS, True), (2, True), (2, False), (1, True), (1, False))
    texts = (sentence(_of_time(view, most, both=both)) for most, both in ways)
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


@frozen
class _Changed:
    """The step after the changes of `done`, and its parts; None: not known. `other_type`: the first change
    goes back to the baseline's type: the parts are those of the step as it is, since no others are known.
    `unsized`: there is a change, and what it gains is not known."""

    step_ns: float
    done: tuple[Finding, ...]
    left: Parts | None
    by_host: bool
    other_type: bool
    unsized: bool


def _changed(view: View) -> _Changed | None:
    """Return the step after all changes that pay; None without an account."""
    report, account = view.report, view.report.account
    if account is None:
        return None
    first = next((each for each in causes(report.findings) if each.code not in report.dismissed), None)
    plan, other_type = report.whatif, first is not None and changes_type(first)
    codes = [] if other_type else paying(plan, account.step_ns)
    done = tuple(each for each in report.findings if each.code in codes)
    after = plan.best_step_ns if plan and codes else account.step_ns
    slices = account.main.slices
    left = left_after(slices, done, after) if done else parts_of(slices)
    unsized = (
        not done
        and first is not None
        and first.code == leads(report)[1]
        and (plan is None or first.gain_ns_per_step is None)
    )
    return _Changed(after, done, left, bool(plan and codes and plan.floor.by == "host"), other_type, unsized)


def _of_time(view: View, most: int, *, both: bool) -> str:
    """Return the step after all changes, and so many of its parts; `both`: beside the baseline with them,
    too."""
    report, account, now = view.report, view.report.account, _changed(view)
    if account is None or now is None:
        assert report.window is not None
        head = f"no step is marked, so that no gain is known; the window's {format_ns(report.window.step_ns)}"
        return f"{head}: {_consists(view, report.window, parts_of(report.window.main.slices), (), most)}"
    back = now.other_type or _slower_on_cpu(view)
    head = _in_other_type(view) if back else _head(view, now, both=both)
    if now.by_host:
        return f"{head}: {BY_HOST}"
    if report.unlike:
        return f"{head}: {_as_profiled(view, account)}"
    if now.left is None:
        return f"{head}; what that consists of is not known"
    return f"{head}: {_consists(view, account, now.left, now.done, most)}{_unexplained(view, now.step_ns)}"


def _slower_on_cpu(view: View) -> bool:
    """Return whether 16 bits are emulated, more slowly than the baseline computes."""
    speedup = view.comparison
    return view.on_cpu and speedup is not None and speedup.observed is not None and speedup.observed < 1


def _as_profiled(view: View, account: Account) -> str:
    """Return what most of a profiled step is, of a run whose profiled steps are longer."""
    parts = parts_of((account.profiled or account.main).slices)
    first = _parts(parts)[0]
    of = f"{format_ns(first.ns)} of a profiled step's {format_ns(sum(parts.values()))}"
    on = " on a CPU, which has no Tensor Cores" if view.on_cpu and first.kind == "matmul" else ""
    return f"{of} are {CLASS_WORDS[first.classes[0]]}{on}"


def _head(view: View, now: _Changed, *, both: bool) -> str:
    """Return the step after all changes, against the baseline where there is one: as it is, and with the same
    changes."""
    account, speedup, done, after = view.report.account, view.comparison, now.done, now.step_ns
    one = account.unit if account and account.unit != "window" else "step"
    off = ", in float32," if view.kind == "float32" and view.report.how_to_switch else ""
    if now.unsized:
        return f"what the change gains is not known; of the {format_ns(after)} {one}"
    if not done:
        return f"no change was found that makes the {format_ns(after)} {one} shorter{off.strip(',')}"
    many = "changes" if len(done) > 1 else "change"
    said = f"after {'all changes' if len(done) > 1 else 'the change'}{off} about {format_ns(after)} a {one}"
    base = speedup.baseline_step_ns if speedup else None
    if not base:
        return said
    times, same = (format_speedup(each / after) for each in (base, baseline_after(base, done)))
    beside = [format_ns(base)] * (base < after) + [f"{same} with the same {many}"] * (both and same != times)
    told = f" ({', '.join(beside)})" if beside else ""
    return f"{said}, {times} over {view.base}{told}"


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


def _parts(left: Parts) -> list[Part]:
    """Return the parts as a picture shows them, the longest first."""
    found: dict[tuple[str, bool], dict[Class, float]] = {}
    for (role, place), ns in left.items():
        kind = role if role in IDLE_CLASSES else SHOWN_AS.get(role) or _OF_MATRIX_WORK.get(place, role)
        inside = found.setdefault((kind, place in OFF_UNITS), {})
        inside[role] = inside.get(role, 0.0) + ns
    made = []
    for (kind, off), inside in found.items():
        whole, roles = sum(inside.values()), tuple(sorted(inside, key=lambda each: -inside[each]))
        notable = tuple(role for role in roles if inside[role] >= BESIDE_RATIO * whole)
        made.append(Part(kind, off, whole, roles, notable))
    return sorted(made, key=lambda part: -part.ns)


def _named(parts: Sequence[Part], whole: float) -> Iterator[Part]:
    so_far = 0.0
    for part in parts:
        if so_far and (part.ns < LEAST_RATIO * whole or so_far >= ENOUGH_RATIO * whole):
            return
        so_far += part.ns
        yield part


def _said(view: View, account: Account, part: Part, done: Sequence[Finding]) -> str:
    """Return a part with its time, and why it becomes no shorter."""
    reason = why(view, account, part, done)
    return f"{format_ns(part.ns)} of {_name(part)}{f' {reason}' if reason else ''}"


def _name(part: Part) -> str:
    """Return what a part is, all of it: by its longest class, and the next that is notable beside it."""
    if part.kind == "idle_other":
        return "idling"
    name = CLASS_WORDS[part.classes[0]]
    if part.kind == "rest" and part.classes[0] == "matmul":
        name = "helpers of matrix work"
    if len(part.notable) < 2:
        return name
    beside = "other work" if part.kind == "rest" else CLASS_WORDS[part.notable[1]]
    return f"{name}, {beside}" if " and " in beside else f"{name} and {beside}"


def _unexplained(view: View, after: float) -> str:
    """Return what no finding explains of the step, where it is much of what is left."""
    speedup = view.comparison
    ns = speedup.unexplained_ns if speedup and speedup.attainable is not None else None
    much = ns is not None and ns >= LEAST_RATIO * after
    return f"; {format_ns(ns)} of it is not explained" if much else ""
