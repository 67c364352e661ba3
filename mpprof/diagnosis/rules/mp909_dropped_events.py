"""The trace itself states that it is incomplete.

What it means
    A collector that runs out of buffer drops events, and a file can be cut off. What is missing looks like
    idle time or like less work.

How we know
    The errors and warnings that the collector wrote into the trace, what the reader found damaged or cut
    off, and steps that had launches but no kernels.

What it costs
    Certainty about everything that comes from the trace.

When to ignore
    When the warning concerns a part that is not judged (another host, another device).

Sources
    XProf and TensorFlow write `errors` and `warnings` into each xplane file (xplane.proto).
    openxla/xprof#655.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP909", "dropped-events", "The trace is incomplete"
ABOUT = "dropped events"
LEADS = INVALID

SHOWN = 5
_OWN = "the profiler itself says so"


def judge(signals: Signals) -> Outcome:
    trace = need(signals.trace)
    if not trace.warnings:
        return Clear("the trace reports no lost events")
    more = len(trace.warnings) - 1
    head, _, what = trace.warnings[0].partition(": ")
    by_profiler = head.endswith("own warning")
    return Found(
        summary=f"the trace is incomplete: {trace.warnings[0]}"
        + (f" (and {more} more warning{'s' if more > 1 else ''})" if more else ""),
        said=f"the trace is incomplete: {_OWN if by_profiler else head}",
        proof=what,
        evidence=tuple(evidence.text("warning", warning) for warning in trace.warnings[:SHOWN]),
        confidence="medium",
        severity="error" if signals.case.account is None else "warning",
    )
