"""No profile window was recorded.

What it means
    The window never opened (training ended before it), never closed (the process was killed in it), or the
    profiler could not start. There is no trace, so kernels cannot be judged.

How we know
    The run's own list of windows and the status of each; the reason recorded where there is none.

What it costs
    Every answer about kernels, Tensor Cores and idle time.

When to ignore
    When no window was wanted (`profile_steps=None`).

Sources
    mpprof's own records. Keras: `TensorBoard(profile_batch=...)` has the same limitation.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP910", "no-window", "No profile window was recorded"
ABOUT = "a missing profiler window"
LEADS = INVALID

NOT_WANTED = "not wanted"
"""How the recorder begins the reason for a part that was switched off."""


def judge(signals: Signals) -> Outcome:
    if signals.case.trace is not None:
        return Clear("there is a trace")
    facts = need(signals.facts)
    windows, why = facts.profile_windows, facts.absent.get("profile_windows", "")
    if not windows and why.startswith(NOT_WANTED):
        return NotApplicable("no window was wanted")
    if windows and windows[-1].status in ("done", "foreign"):
        return Clear("the window was recorded, but its trace is not where it was written")
    if not _case(facts) and (ended := signals.ended_by_error):
        return ended  # which is what there is to mend, before a window can be recorded
    steps = len(signals.case.run.steps) if signals.case.run.steps is not None else 0
    run = signals.case.run
    last = run.last_step
    if windows:
        never = "never closed" if run.finished else f"had not closed by step {last:,}"
        happened = f"the profile window {never}" if windows[-1].status == "open" else windows[-1].status
    elif run.finished:
        happened = why or "training ended before the profile window opened"
    else:
        opens = facts.planned.opens(last) if facts.planned else ""
        happened = why or f"the profile window had not opened by step {last:,}" + (
            f": it was to open {opens}" if opens else ""
        )
    return Found(
        summary=f"there is no trace: {happened}",
        said="no trace was recorded: "
        + (
            "the step time is known, but not where it goes"
            if signals.mean_step_ns
            else "where the time goes is not known"
        ),
        proof=happened,
        evidence=(evidence.text("window", happened), evidence.text("recorded calls", format_count(steps))),
        cases=(_case(facts),),
        severity="warning",
    )


def was_asked_for(facts: RunFacts | None) -> bool:
    """Return, for a run whose missing window is a finding, whether a window was asked for."""
    return facts is None or _case(facts) != "not asked"


def _case(facts: RunFacts) -> str:
    """Return the case of the run: which of the ways to have no window it is."""
    windows = facts.profile_windows
    if windows and windows[-1].status != "open":
        return "failed"
    if not windows and "asked for" in facts.absent.get("profile_windows", ""):
        return "not asked"
    return ""
