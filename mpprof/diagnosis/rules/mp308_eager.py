"""Training runs eagerly, op by op.

What it means
    With `run_eagerly=True` Python launches every op by itself: no graph, no fusion, and the device waits for
    Python.

How we know
    `run_eagerly` of the compiled model, as recorded. Without a record, a trace in which each step is one call
    of a compiled function shows that it is not eager.

What it costs
    With a trace: the device's idle time in launch code. Without one it is not known.

When to ignore
    While debugging.

Sources
    TensorFlow guide "Better performance with tf.function". XProf warns from 10 % of eager ops on.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies import conditions

CODE, SLUG, TITLE = "MP308", "eager", "Training runs eagerly"
ABOUT = "eager execution"
SAYS = "training runs eagerly, op by op[: the {device} idles {time}]"
ONCE = "as a graph"
SPECIFICITY = NAMED
BOUND = "host"


def judge(signals: Signals) -> Outcome:
    fit = known(signals.fit)
    if (fit is None or fit.run_eagerly is None) and conditions.calls_a_function(signals):
        return Clear("each step is one call of a compiled function")
    eagerly = need(signals.fit).run_eagerly
    if eagerly is None:
        return Unable(f"whether the model runs eagerly was not recorded{signals.hint('record model')}")
    if not eagerly:
        return Clear("the step is compiled into a graph")
    rows = signals.of("idle_launch")
    return Found(
        summary="training runs eagerly, op by op"
        + (": the device idles {cost} {each} ({share}) for it" if rows else ""),
        evidence=(evidence.text("run_eagerly", True),),
        severity="error",
        claims=attainable.whole(rows),
    )
