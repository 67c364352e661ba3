"""The device waits for the next batch.

What it means
    The input pipeline does not deliver batches as fast as the device takes them. Mixed precision makes the
    compute shorter and the wait longer: the step stays as long as the pipeline needs.

How we know
    In the trace: idle time of the device during which the training thread waited for the iterator
    (`idle_input` of the account). In the records: how long the host was blocked for the next batch, as Keras
    on JAX and torch fetches it, or as `StepRecorder.batches` does. Where the device runs behind the host, a
    blocked host is a cause only where the trace shows that the device idled, too. Time that no host event
    explains (`idle_other`) is not counted. Where the wait was not recorded and much idle time could be it,
    nothing is claimed and nothing is cleared.

What it costs
    The wait itself. While the pipeline is the limit, neither a faster device nor any remedy on the device
    gains time. Never more than the recorded step takes beyond the device's work, even where the profiled
    steps waited longer.

When to ignore
    In the first epoch of a cached data set, and in a window that covers an epoch's first step.

Sources
    Limits 5 % and 20 %: XProf's input pipeline analyser. apache/mxnet#14173 (AMP: 300 images/s on synthetic
    data against 200 real), tf#34406, NVIDIA/DALI#2095. TensorFlow guide "Better performance with tf.data".
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.steps import spent
from mpprof.analysis.steps.idle import HOST_RUNS
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.outcomes import (
    GENERAL,
    Absent,
    Claim,
    Clear,
    Found,
    Outcome,
    Scale,
    Unable,
    known,
    need,
)
from mpprof.diagnosis.remedies.frameworks import ON_JAX, ON_TORCH
from mpprof.diagnosis.signals import Signals
from mpprof.model.account import Cell
from mpprof.model.quantities import format_ns, format_ratio

CODE, SLUG, TITLE = "MP301", "input-bound", "The device waits for input"
ABOUT = "waits for input"
SAYS = "the {device} waits for data[ {time}]"
ONCE = "once the input keeps up"
SPECIFICITY = GENERAL
BOUND = "host"

SCALE = Scale(info_ratio=0.05, warning_ratio=0.05, error_ratio=0.20)
"""XProf's own limits for "moderately" and "highly" input-bound."""
_ROUNDING = 1.001


def judge(signals: Signals) -> Outcome:
    if signals.case.measured is None:
        return _from_records(signals)
    share = need(signals.share("idle_input"))
    rows = signals.of("idle_input")
    if share >= SCALE.info_ratio:
        waited = evidence.ratio("{span} spent waiting for input", share, SCALE.crossed(share))
        longer = signals.time(rows) > share * signals.whole_ns * _ROUNDING
        return Found(
            summary="the device waits {cost} {each} for input ({share})",
            evidence=(
                waited,
                *((evidence.ns("the same in a profiled step", signals.time(rows)),) if longer else ()),
            ),
            scale=SCALE,
            claims=attainable.whole(rows),
        )
    wait_ns, step_ns = _recorded_ns(signals), signals.mean_step_ns
    if wait_ns is not None and step_ns:
        return _by_recorded_wait(signals, wait_ns, step_ns)
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
    stalled = _unexplained_stalls(signals)
    if stalled >= SCALE.warning_ratio and stalled > share:
        return Unable(
            f"stalls of no known cause take {format_ratio(stalled)} of the step, and no profiled step shows "
            "what they wait for"
        )
    between = need(signals.share("idle_between_steps"))
    if _fetches_on_host(signals) and share + between >= SCALE.warning_ratio:
        return Unable(
            f"the device idles {format_ratio(between)} of {{whole}} between steps, where Keras fetches the "
            f"next batch, and that wait was not recorded: {_why_not_recorded(signals)}"
        )
    return Clear(f"waiting for input takes {format_ratio(share)} of the step")


def _unexplained_stalls(signals: Signals) -> float:
    """Return the share of the step that stalls take whose cause the records do not tell."""
    account = known(signals.account)
    if account is None or account.grouped:
        return 0.0
    rows = [row for row in signals.of("idle_stall") if signals.cells[row].cause is None]
    return signals.time(rows) / account.step_ns if rows else 0.0


def _recorded_ns(signals: Signals) -> float | None:
    """Return the recorded mean wait for input of a step after warm-up; None where it was not recorded."""
    summary, times = known(signals.summary), known(signals.run_time)
    if summary is None:
        return None
    timed = times is not None and times.part("input") is not None  # one without a line took nothing
    wait_ns = spent.input_ns(signals.case.run, summary.first_steady)
    return 0.0 if wait_ns is None and timed else wait_ns


def _fetches_on_host(signals: Signals) -> bool:
    """Tell whether Keras fetches batches on the host, where a trace does not show it."""
    return known(signals.facts) is not None and signals.loop_framework in ON_JAX | ON_TORCH


def _why_not_recorded(signals: Signals) -> str:
    found = known(signals.run_time)
    return (found.absent.get("input") if found else None) or "there is no step log"


def _by_recorded_wait(signals: Signals, wait_ns: float, step_ns: float) -> Outcome:
    """Judge by how long the host was blocked, and by how much of that the device idled."""
    ratio = min(1.0, wait_ns / step_ns)
    if ratio < SCALE.warning_ratio:
        return Clear(f"the host waits for input {format_ratio(ratio)} of the step")
    claims = tuple(_idle_up_to(signals, wait_ns))
    if signals.runs_behind and signals.cost_ratio(claims) < SCALE.warning_ratio:
        return Clear(f"the host waits for input {format_ratio(ratio)} of the step, while the device works")
    waited = (
        evidence.ratio("step that the host waits for input", ratio, SCALE.crossed(ratio)),
        evidence.ns("mean wait for input", wait_ns),
    )
    if not claims:
        return Found(_said(wait_ns, ratio), waited, severity=SCALE.severity(ratio), cost_ns=wait_ns)
    return Found(_said(wait_ns, ratio), waited, scale=SCALE, claims=claims)


def _said(wait_ns: float, ratio: float) -> str:
    return f"training waits {format_ns(wait_ns)} a step for input ({format_ratio(ratio)})"


def _idle_up_to(signals: Signals, wait_ns: float) -> Iterator[Claim]:
    """Yield claims to idle time of no other known cause, as much as was waited."""
    # Where steps are timed in groups, `idle_stall` is what profiled steps lack: no profiler adds that.
    for row in (*signals.select(_may_be_input), *signals.of("idle_stall")):
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
        why = _why_not_recorded(signals) if _fetches_on_host(signals) else reason
        return Unable(f"the wait for input was not measured separately: {why}")
    ratio = min(1.0, wait_ns / step_ns)
    if signals.runs_behind and ratio >= SCALE.warning_ratio:
        return Unable(
            f"the host waits for input {format_ratio(ratio)} of the step, and only a trace shows whether "
            f"the device idles meanwhile: {reason}"
        )
    return _by_recorded_wait(signals, wait_ns, step_ns)
