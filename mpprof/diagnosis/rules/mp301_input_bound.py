"""The device waits for the next batch.

What it means
    The input pipeline does not deliver batches as fast as the device takes them. Mixed precision makes the
    compute shorter and the wait longer: the step stays as long as the pipeline needs.

How we know
    In the trace: idle time of the device during which the training thread waited for the iterator
    (`idle_input` of the account), and what profiled stalls waited for (`idle_stall`); unprofiled stalls are
    taken to wait for the same. In the records: how long the host was blocked for the next batch (in Keras on
    JAX and torch, and in `StepRecorder.batches`), and stalls that come again after as many steps as the
    loader has workers, or its queue has places. While the device still has queued work, a blocked host costs
    nothing. It counts only if the trace shows that the device idled, too, or if the host waits longer for
    input than for the device. A recorded wait below 0.1 ms is as short as for a batch of arrays in memory.
    Time that no host event explains (`idle_other`) is not counted. If the wait was not recorded and much idle
    time could be it, the cause is not judged. The wait for the first batch of an epoch, where a shuffle
    buffer fills or workers start, is in no step's time: from the second epoch on it counts as its share of
    the run.

What it costs
    The wait itself. While the pipeline is the limit, neither a faster device nor any remedy on the device
    gains time. It is never more than the recorded step takes beyond the device's work, even if the profiled
    steps waited longer.

When to ignore
    In the first epoch of a cached data set, and in a window that covers an epoch's first step.

Sources
    Limits 5 % and 20 %: XProf's input pipeline analyser. apache/mxnet#14173 (AMP: 300 images/s on synthetic
    data against 200 real), tf#34406, NVIDIA/DALI#2095. TensorFlow guide "Better performance with tf.data".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpprof.analysis.steps import spent
from mpprof.analysis.steps.idle import HOST_RUNS
from mpprof.analysis.steps.stalls import LOADER, Stalls
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.frameworks import ON_JAX, ON_TORCH
from mpprof.diagnosis.shared import of_the_run
from mpprof.diagnosis.wording import of_step

CODE, SLUG, TITLE = "MP301", "input-bound", "The device waits for input"
ABOUT = "waits for input"
SAYS = "the {device} waits for data[ {time}]"
ONCE = "once the input keeps up"
BOUND = "host"

SCALE = Scale(info_ratio=0.05, warning_ratio=0.05, error_ratio=0.20)
"""XProf's own limits for "moderately" and "highly" input-bound."""
OF_THE_RUN = Scale(info_ratio=0.05, warning_ratio=0.10, error_ratio=0.30)
"""Of the first batches of epochs. Each epoch has to begin; with few steps that is a part of it."""
OWN_FETCH_NS = 100_000.0
"""A shorter wait does not come from a pipeline: Keras on JAX takes 20 to 80 µs for a batch of small arrays in
memory (seen in trainings of 0.15 to 0.4 ms a step, on two CPU cores)."""
NEARLY_ALL_RATIO = 0.9
"""If the account holds a smaller part of the recorded wait, its steps waited less than the recorded ones."""
_ROUNDING = 1.001


def judge(signals: Signals) -> Outcome:
    outside = spent.outside_steps(signals.case.run, "input")
    first = of_the_run.costly(signals, outside, OF_THE_RUN, "the first batches of epochs take", "first")
    return of_the_run.together(_of_steps, first, signals)


def _of_steps(signals: Signals) -> Outcome:
    if signals.case.measured is None:
        return _from_records(signals)
    share = need(signals.share("idle_input"))
    stalled = tuple(row for row in signals.of("idle_stall") if signals.cells[row].cause == LOADER)
    in_stalls = _of_the_step(signals, stalled)
    wait_ns, step_ns = _recorded_ns(signals), signals.mean_step_ns
    if wait_ns is not None and step_ns and wait_ns > share * step_ns:  # of all steps, not of profiled ones
        return _by_recorded_wait(signals, wait_ns, step_ns)
    if share + in_stalls >= SCALE.info_ratio:
        return _in_the_account(signals, share, in_stalls, stalled)
    if wait_ns is None and step_ns and signals.untraced_ns >= SCALE.warning_ratio * step_ns:
        return Unable(
            f"profiled steps wait for input {format_ratio(share)} of {{whole}}, but the others are "
            f"{format_ns(signals.untraced_ns)} longer, and the trace does not show what for: a loader may "
            "have worked ahead while the profiler started"
        )
    hidden, (busy, runs) = need(signals.unattributed_idle_ratio), signals.code_on_host
    if share + busy >= SCALE.warning_ratio and busy > max(share, hidden):
        return Unable(
            f"the device idles {format_ratio(busy)} of {{whole}} while {runs}, and the trace does not show "
            "whether that code makes the input"
        )
    if share + hidden >= SCALE.warning_ratio and hidden > share:
        return Unable(
            f"the device idles {format_ratio(hidden)} of {{whole}} and the trace does not show what "
            f"for{signals.hint('record host events')}"
        )
    unexplained = _of_the_step(
        signals, [row for row in signals.of("idle_stall") if signals.cells[row].cause is None]
    )
    if unexplained >= SCALE.warning_ratio and unexplained > share:
        return Unable(
            f"stalls of no known cause take {format_ratio(unexplained)} of the step, and no profiled step "
            f"shows what they wait for{_where_to_look(signals)}"
        )
    between = need(signals.share("idle_between_steps"))
    if _fetches_on_host(signals) and share + between >= SCALE.warning_ratio:
        return Unable(
            f"the device idles {format_ratio(between)} of {{whole}} between steps, where Keras fetches the "
            f"next batch, and that wait was not recorded: {_why_not_recorded(signals)}"
        )
    return Clear(f"waiting for input takes {format_ratio(share)} of the step")


def _in_the_account(signals: Signals, share: float, in_stalls: float, stalled: tuple[int, ...]) -> Outcome:
    """Judge by the waits in the account: `share` in usual steps, `in_stalls` in the cells `stalled`."""
    rows, account = signals.of("idle_input"), known(signals.account)
    total = min(1.0, share + in_stalls)
    waited = evidence.ratio("{span} spent waiting for input", total, SCALE.crossed(total))
    shown = [waited, *_of_the_stalls(signals, stalled)]
    if signals.time(rows) > share * signals.whole_ns * _ROUNDING:
        shown.append(evidence.ns("the same in a profiled step", signals.time(rows)))
    if account is not None and stalled and signals.distorted:
        # Stalls are of unprofiled steps, the rest of the account is of longer ones.
        cost_ns = total * account.step_ns
        return Found(_said(cost_ns, total), tuple(shown), severity=SCALE.severity(total), cost_ns=cost_ns)
    if account is not None and signals.untraced_ns:
        # A loader works ahead while the profiler starts: profiled steps wait less than the others.
        step_ns, least_ns = account.step_ns, total * signals.whole_ns
        most_ns = min(step_ns, least_ns + step_ns - account.window_ns)
        waits = f"waits for data {of_step(least_ns, step_ns, 'to')} {of_step(most_ns, step_ns)}"
        longer = evidence.ns("unprofiled steps above profiled ones", signals.untraced_ns)
        return Found(
            summary=f"training {waits}: the loader may work ahead while the profiler starts, and profiled "
            f"steps are {format_ns(signals.untraced_ns)} shorter than the others",
            evidence=(*shown, longer),
            confidence="low",
            severity=SCALE.severity(total),
            cost_ns=least_ns,
            said=f"the {{device}} {waits}",
        )
    return Found(
        summary="the device waits {cost} {each} for input ({share})",
        evidence=tuple(shown),
        scale=SCALE,
        claims=attainable.whole((*rows, *stalled)),
    )


def _of_the_stalls(signals: Signals, stalled: Sequence[int]) -> Iterator[Evidence]:
    """Yield what shows that stalls wait for the loader."""
    told, account = signals.stalls, known(signals.account)
    if told is None or not stalled:
        return
    seen = account.stalled if account is not None else None
    if seen is not None:
        yield evidence.count("profiled stalls", seen.count)
        yield evidence.ratio("these wait for input", seen.waits_ratio)
    if told.every is not None:
        yield evidence.count("steps from one stall to the next", told.every)
    yield evidence.ns("median stall", told.length_ns)


def _of_the_step(signals: Signals, rows: Sequence[int]) -> float:
    """Return the share of the mean recorded step that these stalls take."""
    account = known(signals.account)
    return signals.time(rows) / account.step_ns if account is not None and rows else 0.0


def _where_to_look(signals: Signals) -> str:
    """Return which window would hold a stall, where they come at regular distances."""
    told = signals.stalls
    if told is None or told.every is None:
        return ""
    return f"; profile {told.every + 1} steps or more: one in {told.every} stalls"


def _recorded_ns(signals: Signals) -> float | None:
    """Return the recorded mean wait for input of a step after warm-up; None where it was not recorded."""
    summary, times = known(signals.summary), known(signals.run_time)
    if summary is None:
        return None
    timed = times is not None and times.part("input") is not None  # one without a line took nothing
    wait_ns = spent.input_ns(signals.case.run)
    return 0.0 if wait_ns is None and timed else wait_ns


def _fetches_on_host(signals: Signals) -> bool:
    """Tell whether Keras fetches batches on the host, where a trace does not show it."""
    return known(signals.facts) is not None and signals.loop_framework in ON_JAX | ON_TORCH


def _why_not_recorded(signals: Signals) -> str:
    found = known(signals.run_time)
    if reason := found.absent.get("input") if found else None:
        return reason
    if (summary := known(signals.summary)) is None:
        return "there is no step log"
    return "the records do not have it" if summary.steady else "no recorded step is a steady one"


def _by_recorded_wait(signals: Signals, wait_ns: float, step_ns: float) -> Outcome:
    """Judge by how long the host was blocked, and by how much of that the device idled."""
    ratio = min(1.0, wait_ns / step_ns)
    if ratio < SCALE.warning_ratio:
        return Clear(f"the host waits for input {format_ratio(ratio)} of the step")
    if wait_ns < OWN_FETCH_NS:
        return Clear(
            f"the host waits {format_ns(wait_ns)} a step for input, as for a batch of arrays in memory"
        )
    claims = tuple(_idle_up_to(signals, wait_ns))
    if signals.runs_behind and signals.cost_ratio(claims) < SCALE.warning_ratio:
        return Clear(f"the host waits for input {format_ratio(ratio)} of the step, while the device works")
    waited = (
        evidence.ratio("step that the host waits for input", ratio, SCALE.crossed(ratio)),
        evidence.ns("mean wait for input", wait_ns),
    )
    short = not signals.runs_behind and signals.cost_ns(claims) < NEARLY_ALL_RATIO * wait_ns
    if not claims or signals.distorted or short:  # the profiled steps waited less than most do
        return Found(_said(wait_ns, ratio), waited, severity=SCALE.severity(ratio), cost_ns=wait_ns)
    return Found(_said(wait_ns, ratio), waited, scale=SCALE, claims=claims)


def _said(wait_ns: float, ratio: float) -> str:
    return f"training waits {format_ns(wait_ns)} a step for input ({format_ratio(ratio)})"


def _idle_up_to(signals: Signals, wait_ns: float) -> Iterator[Claim]:
    """Yield claims on idle time without another known cause, up to the time waited."""
    # Where steps are timed in groups, `idle_stall` is what profiled steps lack: no profiler adds that.
    stalls = (row for row in signals.of("idle_stall") if signals.cells[row].cause in (None, LOADER))
    for row in (*signals.select(_may_be_input), *stalls):
        ns = min(wait_ns, signals.cells[row].ns_per_step)
        wait_ns -= ns
        if ns > 0:
            yield Claim(row, signals.cells[row].ns_per_step - ns)


def _may_be_input(cell: Cell) -> bool:
    known_cause = cell.cause is not None and not cell.cause.startswith(HOST_RUNS)
    return cell.category in ("idle_input", "idle_between_steps") or (
        cell.category == "idle_other" and not known_cause
    )


def _from_records(signals: Signals) -> Outcome:
    wait_ns, step_ns = _recorded_ns(signals), signals.mean_step_ns
    absent = signals.account
    reason = absent if isinstance(absent, Absent) else Absent("no account", signals.advice("record window"))
    if not step_ns:
        return Unable(str(reason))
    if wait_ns is None:
        told = signals.stalls
        if told is not None and told.cause == LOADER and told.cause_ns >= SCALE.warning_ratio * step_ns:
            return _by_stalls(told, step_ns)
        why = _why_not_recorded(signals) if _fetches_on_host(signals) else reason
        return Unable(f"the wait for input was not measured separately: {why}")
    ratio = min(1.0, wait_ns / step_ns)
    if signals.runs_behind and ratio >= SCALE.warning_ratio:
        return _where_the_device_runs_behind(signals, wait_ns, step_ns, reason)
    return _by_recorded_wait(signals, wait_ns, step_ns)


def _by_stalls(told: Stalls, step_ns: float) -> Outcome:
    """Judge by stalls that come as the loader's workers deliver."""
    ratio = min(1.0, told.cause_ns / step_ns)
    shown = [
        evidence.ratio("step that stalls take above a usual one", ratio, SCALE.crossed(ratio)),
        evidence.ns("median stall", told.length_ns),
    ]
    if told.every is not None:
        shown.append(evidence.count("steps from one stall to the next, and workers or queue", told.every))
    return Found(
        _said(told.cause_ns, ratio), tuple(shown), "medium", SCALE.severity(ratio), cost_ns=told.cause_ns
    )


def _where_the_device_runs_behind(
    signals: Signals, wait_ns: float, step_ns: float, reason: Absent
) -> Outcome:
    """Judge by how long the host was blocked, less what it waits for the device: a device that keeps up with
    the loader waits for it."""
    ratio, since = min(1.0, wait_ns / step_ns), need(signals.summary).first_steady
    device_ns = spent.device_wait_ns(signals.case.run, since)
    own_ns = 0.0 if device_ns is None else wait_ns - device_ns
    if device_ns is None or own_ns < SCALE.warning_ratio * step_ns:
        return Unable(
            f"the host waits for input {format_ratio(ratio)} of the step, and only a trace shows whether "
            f"the device idles meanwhile: {reason}"
        )
    ratio = min(1.0, own_ns / step_ns)
    return Found(
        _said(own_ns, ratio),
        (
            evidence.ratio("step that the host waits for input", ratio, SCALE.crossed(ratio)),
            evidence.ns("mean wait for input", wait_ns),
            evidence.ns("mean wait for the device", device_ns),
        ),
        "medium",
        SCALE.severity(ratio),
        cost_ns=own_ns,
    )
