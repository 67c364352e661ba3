"""The sentence of a run in which nothing leads: whether mixed precision pays, or what could not be judged."""

from __future__ import annotations

from mpprof.analysis.steps import validity
from mpprof.analysis.steps.run_time import callbacks_untold
from mpprof.diagnosis.answer.cause import clause as clause_of
from mpprof.diagnosis.answer.limits import LITTLE, LOW_SPEEDUP, MEETS_RATIO, MUCH_FASTER, alone, idle
from mpprof.diagnosis.answer.view import View
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.rules import mp301_input_bound, mp305_slow_callbacks, mp902_recompiles
from mpprof.diagnosis.wording import change
from mpprof.errors import with_file_name
from mpprof.model.account import FEW_WORKS, Speedup, tells
from mpprof.model.quantities import format_count, format_ns, format_ratio, format_speedup

AS_GOOD_RATIO = 0.95
"""From here on a run has what precision alone gives."""
USED_RATIO = 0.80
"""Below it a device idles a fifth of the time or more, which is a hint at input or the host."""
IN_EFFECT, LOW_SHARE = 0.9, 0.5
"""Shares of matrix time on matrix units: mixed precision is in effect, and wants an explanation."""


def clause(view: View) -> str:
    """Return what there is to say where nothing leads."""
    return {
        "measured": _measured, "estimated": _estimated, "float32": _float32, "window": _window, "cpu": _cpu,
        "records": _records, "incomparable": _incomparable,
    }[view.kind](view)  # fmt: skip


def _measured(view: View) -> str:
    speedup = view.comparison
    assert speedup is not None
    assert speedup.observed is not None
    what = "mixed precision" if view.mixed else "this run"
    times = _times(view, speedup)
    if speedup.difference == "not known":
        said = f"the timings do not show whether {what} is faster than {view.base}"
        return f"{said}: {times}" if times else said
    if speedup.difference == "none" and not view.mixed:
        return "no difference: the two runs take the same time within what was measured"
    if speedup.observed < 1 / LITTLE:
        slower = times or format_speedup(speedup.observed)
        return f"{what} is slower here: {slower}, and no cause of it was found"
    if (waits := idle(view)) and speedup.observed < LITTLE:
        return waits
    if speedup.observed < LITTLE and speedup.difference == "none" and view.step_ns:
        return f"{what} brings nothing here: both steps take {format_ns(view.step_ns)}"
    if speedup.observed < LITTLE:
        return f"{what} brings next to nothing here: {times or format_speedup(speedup.observed)}"
    pays = f"{what} is {format_speedup(speedup.observed)} as fast as {view.base}"
    if view.mixed and times:
        pays = f"{what} pays: {times}"
    most = speedup.attainable
    if view.report.account is None and not view.on_cpu:
        return _by_records(view, speedup, times) if view.mixed and times else pays
    if most is None or view.on_cpu:
        return pays
    if speedup.observed > MEETS_RATIO * most:
        return pays
    if speedup.observed >= AS_GOOD_RATIO * most:
        return f"{pays}, about all that precision alone can give"
    return f"{pays}, less than precision alone can give, and no cause of that was found"


def _by_records(view: View, speedup: Speedup, times: str) -> str:
    """Return what two step times tell, and which limit is the likelier, as far as the device's utilisation
    shows it."""
    assert speedup.observed is not None
    few = speedup.observed < MUCH_FASTER
    times = f"brings only {format_speedup(speedup.observed)}, {times}" if few else f"pays: {times}"
    used = view.utilization
    if used is not None and used < USED_RATIO:
        busy = f"the {view.device} was busy {format_ratio(used)} of the time"
        return f"mixed precision {times}; input or the host probably limits it: {busy}"
    if speedup.observed >= LOW_SPEEDUP:
        return f"mixed precision {times}"
    return f"mixed precision {times}; what limits it is not known without a trace"


def _times(view: View, speedup: Speedup) -> str:
    if not speedup.baseline_step_ns or not view.step_ns:
        return ""
    times = change(speedup.baseline_step_ns, view.step_ns)
    return f"{times} for the same examples" if speedup.per_example else f"{times} a step"


def _estimated(view: View) -> str:
    if waits := idle(view):
        return waits
    share, half = view.share, view.signals.half
    if view.without_units and half:
        return f"this card has no {view.units}: 16 bits save memory and often cost time"
    if half is None:
        runs = "no cause of lost time was found"
        if share is not None:
            runs = f"{format_ratio(share)} of matrix time ran on {view.units}"
        return f"{runs}; {view.signals.computes.reason or 'what the run computes in is not known'}"
    if share is None:
        return "this run computes in 16 bits; where its matrix work ran is not known"
    if share < LOW_SHARE:
        return f"only {format_ratio(share)} of matrix time ran on {view.units}, and no cause of it was found"
    if share < IN_EFFECT:
        in_effect = f"mixed precision is in effect, with {format_ratio(share)} of matrix time on {view.units}"
        return f"{in_effect}; whether it pays is not known without a float32 run"
    return "mixed precision is in effect; whether it pays is not known without a float32 run"


def _float32(view: View) -> str:
    speedup = view.report.speedup
    could = speedup.potential if speedup else None
    if view.without_units:
        return f"this card has no {view.units}: float32 is right here, and 16 bits would only save memory"
    if waits := idle(view):
        return waits
    if could is None or could.eligible_ratio is None:
        return "mixed precision is off; what it would bring is not known"
    if could.high < LITTLE:
        return "mixed precision is off, and would bring next to nothing here"
    tf32 = could.tf32_ratio or 0.0
    share = format_ratio(could.eligible_ratio)
    if tf32 >= 0.5 * could.eligible_ratio:
        of = "" if tf32 >= could.eligible_ratio else "most of "
        matrix = f"{of}the matrix work, {share} of the {view.device}'s time"
        return f"mixed precision is off; TF32 already runs {matrix}, on {view.units}"
    return f"mixed precision is off; {share} of the {view.device}'s time could run on {view.units} in 16 bits"


def _window(view: View) -> str:
    account, share = view.report.window, view.share
    assert account is not None
    calls = account.main.calls
    if account.too_little:
        many = round(calls.per_step) if calls is not None else 0
        shown = f"{format_count(many)} kernel{'s' * (many != 1)}" if many < FEW_WORKS else "too little"
        return f"the window holds {shown}: too little to judge a training"
    if waits := idle(view):
        return waits
    if share is None:
        return "the trace does not show where a step begins, and no matrix work in this window"
    said = f"{view.units} do {format_ratio(share)} of the matrix work in this window"
    return f"{said}; the trace does not show where a step begins"


def _cpu(view: View) -> str:
    speedup, step = view.comparison, view.step_ns
    half = known(view.signals.compute_dtype) if view.signals.half else None
    emulates = f": this one emulates {half}" if half else ""
    said = f"on a CPU mixed precision says nothing about a GPU{emulates}"
    if speedup is not None and (times := _times(view, speedup)):
        return f"{said}, {times}"
    if not step:
        return said
    return f"{said}{',' if half else ':'} {format_ns(step)} a step{_open(view)}"


def _open(view: View) -> str:
    """Return what is not known of the step, the largest of it; "" where nothing is open."""
    unable, times = {one.code for one in view.report.unable}, known(view.signals.run_time)
    long = validity.long_steps(view.report.run)
    if mp902_recompiles.CODE in unable and long is not None and long.notable:
        took = f"{format_count(long.count)} long steps, {format_ratio(long.lost_ratio)} of the time,"
        return f"; whether {took} compiled anew is not known"
    least_ns = view.signals.time(view.signals.of("idle_input"))  # other waits may be for input, too
    what = ["waits for input"] if mp301_input_bound.CODE in unable else []
    if what and least_ns:
        return f"; whether it waits over {format_ns(least_ns)} for input is not known"
    if mp305_slow_callbacks.CODE in unable and times is not None and callbacks_untold(times.absent):
        what.append("is callbacks")
    return f"; how much of it {' or '.join(what)} is not known" if what else ""


def _records(view: View) -> str:
    if view.mentioned is not None:
        return clause_of(view, view.mentioned)
    return without_trace(view)


def without_trace(view: View) -> str:
    """Return what records alone tell."""
    if view.step_ns:
        return "no trace was recorded: the step time is known, but not where it goes"
    if view.unread:
        return f"{with_file_name(view.unread)}: nothing can be judged"
    return "no trace and no step times were recorded: nothing can be judged"


def _incomparable(view: View) -> str:
    speedup = view.report.speedup
    why = (speedup.absent or {}).get("observed", "") if speedup else ""
    return f"these two runs cannot be compared: {why}" if why else "these two runs cannot be compared"


def could_give(view: View) -> str:
    """Return what 16 bits could make of a float32 run, for the label."""
    speedup = view.report.speedup
    could = speedup.potential if speedup else None
    if could is not None and could.high < LITTLE:
        return "next to nothing to gain by precision alone"
    if could is None or not tells(could):
        return "what precision alone gives is not known"
    return f"{alone(could.low, could.high)} by precision alone"


def worth_trying(view: View) -> bool:
    """Return whether 16 bits may make a float32 run faster, as far as is known."""
    speedup = view.report.speedup
    could = speedup.potential if speedup else None
    return not view.without_units and (could is None or could.high >= LITTLE)
