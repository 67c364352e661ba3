"""What makes the median of the steady steps say less than it seems to: two kinds of steps, or a trend."""

from __future__ import annotations

from mpprof.analysis import steps as stepping
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.run import Run

NOTABLE_DRIFT = 0.05
"""Steps that differ by a twentieth between the beginning and the end of a run are not one sample."""


def timings(run: Run) -> int:
    """How many times of steady steps were read: fewer than the steps where a backend runs ahead and is waited
    for now and then."""
    return 0 if run.steps is None else int(stepping.steady(run.steps).sum())


def doubts(run: Run) -> tuple[str, ...]:
    """Each in one sentence, with its numbers; empty where the steps are one sample, few or not recorded.

    Steps that become slower are a cause of their own (MP807); here are those that become faster, which no
    cause explains and a comparison suffers from as well.
    """
    if run.steps is None:
        return ()
    times = stepping.per_step_ns(run.steps)[stepping.steady(run.steps)]
    said = []
    modes = stepping.bimodal(times)
    if modes is not None:
        said.append(
            f"the steady steps are of two kinds, {format_ns(modes.fast_ns)} and {format_ns(modes.slow_ns)} "
            f"({format_ratio(modes.slow_ratio)} are slow): their median stands for one of them alone"
        )
    trend = stepping.drift(times)
    if modes is None and trend is not None and trend.significant and trend.ratio <= -NOTABLE_DRIFT:
        said.append(
            f"the steady steps became {format_ratio(-trend.ratio)} shorter from the first third of the run "
            "to the last: their median stands for neither; train longer"
        )
    return tuple(said)
