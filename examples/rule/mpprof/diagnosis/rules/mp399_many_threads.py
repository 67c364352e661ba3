"""More host threads launch kernels than the machine has cores.

What it means
    ...

How we know
    The threads of the launches in the trace.

What it costs
    Nothing that is counted.

When to ignore
    ...

Sources
    ...
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import Clear, Found, Outcome, Unable
from mpprof.diagnosis.signals import Signals

CODE, SLUG, TITLE = "MP399", "many-threads", "Many host threads launch kernels"
ABOUT = "many host threads"
BOUND = "host"
MOST_THREADS = 64


def judge(signals: Signals) -> Outcome:
    if signals.case.trace is None:
        return Unable("no trace was recorded")
    threads = len(signals.case.trace.threads)
    if threads <= MOST_THREADS:
        return Clear(f"{threads} host threads")
    return Found(
        summary=f"{threads} host threads launch kernels",
        evidence=(evidence.count("host threads", threads, MOST_THREADS),),
        severity="info",
    )
