"""What proves the sentence and what limits the run: the one or two sentences behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpprof.analysis.comparison.bounds import HOST_NOT_EXCLUDED
from mpprof.analysis.steps import spent
from mpprof.analysis.steps.run_time import CALLBACKS_AND_BETWEEN
from mpprof.diagnosis import profiled_steps
from mpprof.diagnosis.answer.cause import NO_SPEEDUP, clause, filled
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.leading import unlike
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.rules import mp803_tf32_baseline, mp902_recompiles
from mpprof.diagnosis.wording import CLASS_WORDS, LONGEST, as_profiled, change
from mpprof.model.account import IDLE_CLASSES, Class, Limit, LimitKind, Speedup, tells
from mpprof.model.finding import Finding
from mpprof.model.quantities import format_count, format_ns, format_ratio, format_speedup
from mpprof.model.run import Run
from mpprof.model.run_time import THE_RUN, PartName, RunTime

LOW_SPEEDUP = 2.0
"""A speedup by precision alone below it wants an explanation: 16 bits are known for more."""
LEAST_RATIO, ENOUGH_RATIO, MOST_LIMITS = 0.15, 0.5, 2
MUCH_FASTER, NOTABLE_RATIO, MEETS_RATIO = 1.2, 0.05, 1.02
LITTLE = 1.05
"""Below it a speedup is next to nothing."""
IDLE_RATIO = 0.20
"""So much idle time without a known cause comes before all that is not much more."""
_WHY: dict[LimitKind, str] = {
    "float32": "stays in float32",
    "memory": "is bound by memory",
    "short": "is kernels too short to gain",
    "wait": "is a wait, which precision does not shorten",
    "same": "is the same in 16 bits",
}


def because(view: View, leads: str, found: Finding | None) -> Iterator[str]:
    """Yield clauses in the order of their worth: what makes the figures doubtful, what proves the cause, what
    precision alone gives."""
    if view.report.run.stopped:
        yield _stopped(view.report.run)
    if leads == "time" and view.signals.one_step:
        yield "only one step was profiled, and it may not be typical"
    elif leads == "time" and view.report.unlike:
        yield f"{profiled_steps.difference(view.signals)}, so that all parts are about"
    if leads == "time" and (waits := idle(view)):
        yield waits
    if leads in ("invalid", "time", "nothing") and (outside := _outside_the_steps(view, found)):
        yield outside
    if leads == "error" and view.report.steps is not None:
        yield "the training did not finish; what was recorded until then is shown below"
    yield from _changes(view, found)
    if found is not None and found.proof:
        yield filled(view, found, found.proof)
    if view.kind == "incomparable":
        yield from _no_speedup(view)
    if leads in ("inactive", "invalid"):
        yield from _steps(view)
    if view.signals.in_window and leads in ("time", "nothing"):
        yield from _window(view, leads)
    if leads in ("time", "nothing", "memory"):
        yield from _unsure(view, leads)
        yield from _alone(view)
        yield from _without_baseline(view, leads)
        if leads == "nothing" and view.best is not None and not view.on_cpu:
            yield clause(view, view.best)
        yield from _memory(view)


def _stopped(run: Run) -> str:
    """Return after which step a training stopped that left no word of its end."""
    after = f"after step {format_count(run.last_step)}" if run.last_step else "before its first step"
    said = f"training stopped {after} without an end on record"
    return f"{said}: its process was killed, or its machine stopped"


def _outside_the_steps(view: View, found: Finding | None) -> str:
    """Return the largest of what no step's time holds and no cause is made of, where it is much of the run: a
    validation that was asked for is no fault; "" where there is none."""
    times = known(view.signals.run_time)
    if times is None:
        return ""
    compiles = found is not None and found.code == mp902_recompiles.CODE
    much = (each for each in _outside(view, times, compiles=compiles) if times.share(each.ns) >= each.least)
    most = max(much, default=None)
    if most is None:
        return ""
    share = format_ratio(times.share(most.ns))
    return f"{most.what} took {format_ns(most.ns)}{most.above}, {share} of {THE_RUN}{most.tail}"


class _Took(NamedTuple):
    ns: int
    what: str
    least: float
    tail: str
    above: str = ""


def _outside(view: View, times: RunTime, *, compiles: bool) -> Iterator[_Took]:
    """Yield what may be said; `compiles`: compiling is the cause already."""
    for part in times.parts:
        if part.name in _OUTSIDE and not (compiles and part.name == "compile"):
            what, least, tail = _OUTSIDE[part.name]
            untold = part.by and part.by[0].name == CALLBACKS_AND_BETWEEN
            yield _Took(part.ns, f"callbacks (not timed), or {what}," if untold else what, least, tail)
    run = view.report.run
    if "input" in times.absent and (first := spent.first_calls_of_epochs(run)):
        many = f"the first calls of {format_count(first.times)} epochs"
        yield _Took(first.ns, many, MUCH_OUTSIDE, "; whether for input is not known", " above a usual step")
    if not compiles and (starts := spent.starts_of_fits(run)) is not None:
        ahead = f", and at most {format_ns(starts.ahead_ns)} more before the first hook"
        more = "another fit" if starts.times == 1 else f"{format_count(starts.times)} more fits"
        many = f"starting {more}"
        yield _Took(starts.ns, many, MUCH_OUTSIDE, ahead if starts.ahead_ns else "")


MUCH_OUTSIDE = 0.2
_NO_STEP = ", which is in no step's time"
_OUTSIDE: dict[PartName, tuple[str, float, str]] = {
    "validation": ("validation", MUCH_OUTSIDE, _NO_STEP),
    "between_epochs": ("what Keras and the data do between epochs", MUCH_OUTSIDE, _NO_STEP),
    "compile": ("compiling", 0.5, ""),
}
"""What the part is called, its `RunTime.share` from which it is said, and what is added. Each short run
mostly compiles."""


def _no_speedup(view: View) -> Iterator[str]:
    """Yield why no speedup is stated, where no difference of the two runs says it."""
    speedup = view.report.speedup
    why = (speedup.absent or {}).get("observed", "") if speedup and not unlike(view.report) else ""
    if why:
        yield f"no speedup is stated: {why}"
    if speedup is not None and speedup.profiled is not None:
        yield as_profiled(speedup.profiled.ratio, per_example=speedup.per_example)


def _window(view: View, leads: str) -> Iterator[str]:
    """Yield for how much of the window the device worked, and that the window is no step."""
    if not view.signals.on_cpu and not view.signals.of("matmul"):
        yield "the window holds no matrix work: profile a later step"
    steps = "" if leads == "nothing" else "; the trace does not show where a step begins"
    yield f"the {view.device} was busy for {format_ratio(view.signals.busy_ratio)} of the window{steps}"


def _steps(view: View) -> Iterator[str]:
    """Yield the step, and the baseline's where they can be compared, of a run whose figure counts for nothing
    yet."""
    speedup, step = view.comparison, view.step_ns
    if speedup is not None and speedup.baseline_step_ns and step:
        yield f"a step takes {format_ns(step)}, and {format_ns(speedup.baseline_step_ns)} in {view.base}"
    elif step and view.kind in ("incomparable", "records", "cpu"):
        yield f"a step takes {format_ns(step)}"


def _changes(view: View, found: Finding | None) -> Iterator[str]:
    """Yield what became of the matrix work and of the first cause's wait against the baseline."""
    speedup, step = view.comparison, view.step_ns
    if speedup is None or not step or view.on_cpu:
        return
    said = list(_of_cause(view, found, speedup, step)) if found is not None else []
    yield from said or _kernels(view, speedup, step)


def _kernels(view: View, speedup: Speedup, step: float) -> Iterator[str]:
    """Yield that the device's work got shorter and the step did not, because the device waits."""
    work = [part for part in speedup.slices if part.category not in (*IDLE_CLASSES, "profiling")]
    was, now = sum(part.baseline_ns for part in work), sum(part.mixed_ns for part in work)
    idles = sum(part.mixed_ns for part in speedup.slices if part.category in IDLE_CLASSES) / step
    unchanged = speedup.observed is not None and speedup.observed < LITTLE
    if unchanged and now > 0 and was >= MUCH_FASTER * now and idles >= ENOUGH_RATIO:
        faster = f"kernels became {format_speedup(was / now)} as fast ({change(was, now)})"
        yield f"{faster}, and the step did not: the {view.device} idles {format_ratio(idles)} of it"


def _of_cause(view: View, found: Finding, speedup: Speedup, step: float) -> Iterator[str]:
    """Yield what 16 bits launch beyond the baseline, and what became of the matrix work and of the wait that
    the cause is."""
    if launches := _launches(view):
        yield launches
    waits: list[Class] = [part.category for part in found.claimed if part.category in IDLE_CLASSES]
    matrix, wait = view.longer("matmul"), view.longer(waits[0]) if waits else None
    grew = wait[1] - wait[0] if wait else 0.0
    if matrix is None or not waits or matrix[1] <= 0 or matrix[0] < MUCH_FASTER * matrix[1]:
        return
    if matrix[0] < NOTABLE_RATIO * (speedup.baseline_step_ns or step):
        return
    if grew < NOTABLE_RATIO * step and (told := list(_kernels(view, speedup, step))):
        yield from told
        return
    times = f"{matrix[0] / matrix[1]:.1f}x"
    said = f"matrix work became {times} as fast ({change(*matrix)})"
    if grew >= NOTABLE_RATIO * step:
        said += f"; {CLASS_WORDS[waits[0]]} grew by {format_ns(grew)}"
    yield said


def _launches(view: View) -> str:
    """Return what 16 bits launch beyond the baseline; "" where that is not more, or limits nothing."""
    speedup = view.comparison
    found = speedup.launches if speedup else None
    if found is None or found.mixed - found.baseline < 1:
        return ""
    more = [part for part in found.by_class if part.mixed - part.baseline >= 1][:1]
    of = [f"{format_count(round(p.mixed - p.baseline))} for {CLASS_WORDS[p.category]}" for p in more]
    added = f"{format_count(round(found.mixed - found.baseline))} launches a step"
    said = f"16 bits added {added} ({of[0]})" if of else f"16 bits added {added}"
    return f"{said}; shorter kernels cannot help until there are fewer"


def idle(view: View) -> str:
    """Return a clause on much idle time whose cause the trace does not show; "" where there is little."""
    if view.on_cpu or view.signals.case.measured is None:
        return ""
    of = "the window" if view.signals.in_window else "the step"
    hidden, (busy, runs) = known(view.signals.unattributed_idle_ratio) or 0.0, view.signals.code_on_host
    if hidden >= IDLE_RATIO and hidden >= busy:
        return f"the {view.device} idles {format_ratio(hidden)} of {of}, and the trace does not show what for"
    return f"the {view.device} idles {format_ratio(busy)} of {of} while {runs}" if busy >= IDLE_RATIO else ""


def _unsure(view: View, leads: str) -> Iterator[str]:
    """Yield what makes a measured speedup uncertain, and what is known without a trace."""
    speedup = view.comparison
    if speedup is None:
        return
    undecided = speedup.difference == "not known"
    if undecided and leads == "time":
        yield f"the timings do not show whether this run is faster than {view.base}"
    if speedup.interval is None and (why := (speedup.absent or {}).get("interval")):
        either = f"it is {speedup.difference} with and without stalls; the figure has no interval"
        yield f"{'the speedup has no interval' if undecided else either}: {why}"
    if undecided and speedup.profiled is not None:
        yield as_profiled(speedup.profiled.ratio, per_example=speedup.per_example)
    if view.report.account is None and "bounds" in view.report.absent:
        why = view.report.absent["bounds"]
        if HOST_NOT_EXCLUDED not in why:
            yield why
        elif speedup.observed is not None and speedup.observed < LOW_SPEEDUP:
            open_ones = "input or the host limits both runs, or the device does"
            yield f"two explanations remain: {open_ones}; a profile window tells"


def _alone(view: View) -> Iterator[str]:
    """Yield what precision alone gives against a measured baseline, and why it is no more."""
    speedup = view.comparison
    most = speedup.attainable if speedup else None
    if speedup is None or most is None or view.on_cpu:
        return
    step = "the float32 step" if view.mixed else "the baseline's step"
    why = limiting(speedup.limits, step)
    host = bool(speedup.limits) and speedup.limits[0].kind == "host"
    beaten = speedup.observed is not None and speedup.observed > most
    if beaten and format_speedup(speedup.observed) != format_speedup(most):
        far = next((each.proof for each in view.report.findings if each.code == mp803_tf32_baseline.CODE), "")
        more = f"{format_speedup(most)} was estimated for precision alone"
        yield f"more than estimated, because {far}" if far else more
    elif most < NO_SPEEDUP:
        yield f"precision alone gives nothing here{f': {why}' if why else ''}"
    elif most < LOW_SPEEDUP and why and not host:
        said = f"precision alone gives about {format_speedup(most)}"
        whole = f"{said}: {why}"
        yield whole if len(whole) < LONGEST else f"{said}: {limiting(speedup.limits, step, most=1)}"
    else:
        yield f"precision alone gives about {format_speedup(most)}"


def limiting(limits: Sequence[Limit], step: str, most: int = MOST_LIMITS) -> str:
    """Return what keeps a speedup low, as a clause: "31.1 % of the float32 step (reductions) stays in
    float32"; "" where nothing is known of it."""
    whole = sum(limit.best_ns for limit in limits)
    named: list[Limit] = []
    for limit in limits:
        so_far = sum(other.best_ns for other in named)
        enough = len(named) == most or so_far >= ENOUGH_RATIO * whole
        if enough or limit.best_ns < LEAST_RATIO * whole:
            break
        if limit.ratio >= 0.01 or limit.kind == "host":
            named.append(limit)
    if not named:
        return ""
    if named[0].kind == "host":
        return f"the host needs {format_ns(named[0].best_ns)} a step"
    said = [_limit(named[0], f" of {step}"), *(_limit(each, " of it") for each in named[1:])]
    return " and ".join(said)


def _limit(limit: Limit, of: str) -> str:
    part = f"{format_ratio(limit.ratio)}{of}"
    if limit.kind == "tf32":
        return f"TF32 already runs {part} on Tensor Cores"
    named = f"{part} ({CLASS_WORDS[limit.category]})"
    if limit.kind == "compute":
        return f"{named} gets about {format_speedup(limit.ns_per_step / limit.best_ns)} as fast"
    return f"{named} {_WHY[limit.kind]}"


def _without_baseline(view: View, leads: str) -> Iterator[str]:
    """Yield what a run alone shows of mixed precision: what it could bring a float32 run, and that the
    speedup of a 16-bit run is not known."""
    kind, share, speedup = view.kind, view.share, view.report.speedup
    if kind == "float32" and leads != "nothing":
        could = speedup.potential if speedup else None
        if could is None:
            yield "mixed precision is off"
        elif not tells(could):
            yield "mixed precision is off, and what precision alone would give is not known"
        elif could.high < NO_SPEEDUP:
            why = limiting(could.limits, "the step")
            yield f"mixed precision is off, and would give nothing here{f': {why}' if why else ''}"
        else:
            gives = f"{alone(could.low, could.high)} by precision alone"
            basis = " from one step" if view.signals.one_step else ""
            yield f"mixed precision is off: {gives} is estimated{basis}"
    elif kind == "float32":
        could = speedup.potential if speedup else None
        own = [limit for limit in could.limits if limit.kind != "tf32"] if could else []
        why = limiting(own, "the step") if could and could.high < LOW_SPEEDUP else ""
        if why:
            yield why
    elif kind == "cpu" and leads != "nothing":
        yield "on a CPU mixed precision says nothing about a GPU"
    elif kind == "estimated":
        if share is not None and leads != "nothing":
            unknown = view.report.tensor_core.unknown_ratio if view.report.tensor_core else 0.0
            more = f"; {format_ratio(unknown)} of kernel time is not recognised" if unknown >= 0.01 else ""
            yield f"{format_ratio(share)} of matrix time ran on {view.units}{more}"
        if leads != "nothing" and view.signals.half:
            yield "what mixed precision brings is not known without a float32 run"


def alone(low: float, high: float) -> str:
    """Return a range of speedups; of one that begins below 1, which is no goal, the upper end alone."""
    if low < 1 or format_speedup(low) == format_speedup(high):
        return f"up to {format_speedup(high)}"
    return f"{format_speedup(low)} to {format_speedup(high)}"


NOTABLE_MEMORY_RATIO = 0.80


def _memory(view: View) -> Iterator[str]:
    """Yield how much memory was saved, where that is a fifth or more."""
    held = view.report.memory
    if held is None or held.saved_bytes is None or held.peak_bytes + held.saved_bytes <= 0:
        return
    ratio = held.peak_bytes / (held.peak_bytes + held.saved_bytes)
    if ratio <= NOTABLE_MEMORY_RATIO:
        yield f"peak memory fell to {format_ratio(ratio)} of {view.base}'s"
