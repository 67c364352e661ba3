"""One call of the callback covers several steps.

What it means
    With `steps_per_execution` above 1 Keras calls the hooks once for several steps. Times per call must be
    divided by the steps that ran, and loss, scale and skips are seen at the end of each call only.

How we know
    The recorded setting, and the steps that each call covered; without records the batches that each call of
    the training function fetches, by the trace.

What it costs
    Nothing: it usually saves time. The step times shown are already divided.

When to ignore
    Always, once known.

Sources
    Keras API: Model.compile(steps_per_execution).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies import conditions

CODE, SLUG, TITLE = "MP904", "steps-per-execution", "One callback covers several steps"
ABOUT = "several steps timed as one call"
OF_TRAINING = True


def judge(signals: Signals) -> Outcome:
    table, fit = known(signals.table), known(signals.fit)
    traced = conditions.steps_per_call(signals) if table is None and fit is None else None
    if table is None and fit is None and traced is None:
        need(signals.fit)
    covered = int(table.covers.max()) if table is not None else round(traced or 1)
    several = max(covered, (fit.steps_per_execution or 1) if fit is not None else 1)
    if several <= 1:
        return Clear("every step is a call of its own")
    return Found(
        summary=f"each call covers up to {several} steps; step times are divided by the steps that ran",
        evidence=(evidence.count("steps per call", several, 1),),
        severity="info",
    )
