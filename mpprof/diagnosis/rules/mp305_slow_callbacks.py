"""Callbacks and the loop around the step take a noticeable part of the time.

What it means
    Python runs between the end of one step and the beginning of the next: callbacks, metrics, progress bars,
    summaries. The device waits meanwhile.

How we know
    The recorded time of each callback's batch hooks, wherever the callback stands in the list, and the
    recorded time between steps (from the end of one call to the beginning of the next) without the wait for
    input. Means over the steps after warm-up: a checkpoint every hundred steps counts. If the callbacks were
    not timed one by one, the time between steps is that of callbacks and loop together, without the callbacks
    before mpprof's in the list. In a custom loop it includes the wait for input, unless the loop iterates
    over `recorder.batches(data)`. In the trace it is the device's idle time between step markers.

    What callbacks do outside the steps, as an epoch begins or ends and in a validation, is in no step's time:
    it counts as its share of the run without mpprof, with the same limits. Not counted is what they do once,
    as the first `fit` begins. mpprof's own hooks count separately.

What it costs
    That time, in the mean step, or of the run.

When to ignore
    In a model whose steps take microseconds: Keras' own loop is then a noticeable part.

Sources
    tf#37876 (two thirds of the time in on_train_batch_end). TensorFlow's warning "is slow compared to the
    batch update" starts where a hook takes longer than a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mpprof.analysis.steps import spent
from mpprof.analysis.steps.stalls import LOADER
from mpprof.analysis.steps.statistics import FEWEST_STEPS
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import of_the_run
from mpprof.model.run_time import OURS

CODE, SLUG, TITLE = "MP305", "slow-callbacks", "Callbacks take a noticeable part of the time"
ABOUT = "slow callbacks"
ONCE = "once callbacks and the loop do less"
BOUND = "host"
OF_TRAINING = True

SCALE = Scale(info_ratio=0.05, warning_ratio=0.10, error_ratio=0.30)
"""Keras' loop itself takes up to 5 % of a step of some milliseconds; an error where a third is lost."""
OWN_LOOP_NS = 50_000.0
"""What Keras' loop takes between two steps by itself (our judgement)."""
BUSY_LOOP_NS = 100_000.0
"""What the loop takes with a progress bar and a few metrics: in a short step this much is only a note."""


READ_EVERY = 16
"""Reading the counters this often is the default."""
MOSTLY_RATIO = 0.5
"""A callback with half of the time is named first; idle time is claimed if it is half of it or more."""
NEARLY_ALL_RATIO = 0.9
"""From this share on, the whole time is attributed to one callback."""
WITHIN_RATIO = 1.5
"""Idle time so many times the recorded one lies within steps, too."""
MOST_NAMED = 3
"""Callbacks that are named with their times."""


def judge(signals: Signals) -> Outcome:
    outside = spent.outside_steps(signals.case.run, "callbacks")
    own_ns = outside.pop(OURS, 0)
    costly = of_the_run.costly(signals, outside, SCALE, "callbacks take", "beside", named=True)
    outcome = of_the_run.together(_of_steps, costly, signals)
    own = _of_our_own(signals, own_ns)
    if own is None or isinstance(outcome, Clear):
        return own or outcome
    if isinstance(outcome, Found) and outcome.severity == "info":
        return own if (outcome.cost_ns or 0.0) < (own.cost_ns or 0.0) else outcome
    return outcome


def _of_steps(signals: Signals) -> Outcome:
    need(signals.table)
    summary, step_ns = need(signals.summary), signals.mean_step_ns
    if not step_ns:
        return Unable("there are no steady steps to measure the gap between; train longer")
    run, since = signals.case.run, summary.first_steady
    # In few steps, callbacks mostly set things up at their first call. On JAX few of many steps are timed.
    if summary.count - (since or 1) + 1 < FEWEST_STEPS:
        return Unable("too few steps after warm-up to tell callbacks from what they set up; train longer")
    hooks = spent.per_step(run, "callbacks")
    own_ns, gap_ns = hooks.pop(OURS, 0.0), spent.gap_ns(run)
    if gap_ns is not None:
        gap_ns = max(0.0, gap_ns - own_ns)
    times = known(signals.run_time)
    unsplit = None if times is None else times.absent.get("callbacks")
    own_loop = run.facts is not None and run.facts.framework.get("loop") == "custom"
    if gap_ns is None and (unsplit or times is None):
        return Unable(f"the gaps between steps were not recorded{signals.hint('record run')}")
    cost_ns = max(gap_ns or 0.0, sum(hooks.values()))
    if own_loop and (found := _within_steps(signals, cost_ns)) is not None:
        return found
    ratio = min(1.0, cost_ns / step_ns)
    if SCALE.severity(ratio) is None:
        if unsplit and not own_loop:
            return Unable(
                f"between steps lies {format_ratio(ratio)} of the step; callbacks that stand before mpprof's "
                f"in the list are not in that, and were not timed: {unsplit}"
            )
        return Clear(f"callbacks and the loop take {format_ratio(ratio)} of the step")
    claims = tuple(_idle_up_to(signals, cost_ns))
    if signals.cost_ns(claims) < MOSTLY_RATIO * cost_ns:
        claims = ()  # the trace has most of it elsewhere, as within its steps
    claimed = signals.cost_ratio(claims)
    between = "callbacks and the loop"
    if own_loop:
        between = "the loop between steps"
        between += " and its wait for data" if times is not None and "input" in times.absent else ""
    return Found(
        summary=_said(hooks, cost_ns, step_ns, between),
        said=f"{_what(hooks, cost_ns, between)}[ {{time}}]",
        evidence=(
            evidence.ratio("callbacks and loop", ratio, SCALE.crossed(ratio)),
            evidence.ns("mean time of callbacks and loop", cost_ns),
            *(evidence.ns(name, ns) for name, ns in list(hooks.items())[:MOST_NAMED]),
            *((evidence.ratio("device idle between steps", claimed),) if claimed else ()),
        ),
        confidence="high" if claimed or hooks else "medium",
        severity=SCALE.severity(max(0.0, cost_ns - BUSY_LOOP_NS) / step_ns) or "info",
        claims=claims,
        cost_ns=cost_ns,
    )


def _within_steps(signals: Signals, cost_ns: float) -> Found | None:
    """Return that the device idles while a loop of the user's own runs its own code, within its steps, too;
    None where the time between the steps explains it, or there is no account."""
    rows = signals.of("idle_between_steps")
    ns = signals.time(rows)
    if ns < WITHIN_RATIO * cost_ns or SCALE.severity(ns / (signals.whole_ns or math.inf)) is None:
        return None
    return Found(
        summary="the device idles {cost} {each} ({share}) between two launches of the step's work, while the "
        "loop's own code runs, within its steps too",
        said="the loop's own code on the host takes[ {time}]",
        evidence=(
            evidence.ns("device idle between the steps' work", ns),
            evidence.ns("mean time between steps, by the records", cost_ns),
        ),
        scale=SCALE,
        claims=tuple(Claim(row, min(OWN_LOOP_NS, signals.cells[row].ns_per_step)) for row in rows),
        cases=("within",),
    )


def _of_our_own(signals: Signals, outside_ns: float) -> Found | None:
    """Return that mpprof's own hooks take a part of the run; None where it is not worth a mention. Only
    reading less often is a remedy, where they read more often than by default."""
    times, summary, facts = known(signals.run_time), known(signals.summary), known(signals.facts)
    if times is None or summary is None:
        return None
    in_steps_ns = spent.per_step(signals.case.run, "callbacks").get(OURS, 0.0)
    ratio = (in_steps_ns * summary.count + outside_ns) / times.wall_ns
    if SCALE.severity(ratio) is None:
        return None
    timing = facts.timing if facts is not None else None
    often = timing is not None and 0 < timing.read_every < READ_EVERY
    said = f"the hooks of mpprof itself take {format_ratio(ratio)} of the run"
    return Found(
        summary=said,
        said=said,
        evidence=(
            evidence.ratio("of the run, in mpprof's own hooks", ratio, SCALE.crossed(ratio)),
            evidence.ns("mpprof's hooks in a mean step", in_steps_ns),
            evidence.ns("mpprof's hooks outside the steps", outside_ns),
        ),
        severity=SCALE.severity(ratio) if often else "info",
        cost_ns=in_steps_ns,
        cost_ns_of_run=float(outside_ns),
        cases=("own, often",) if often else ("own",),
    )


def _what(hooks: dict[str, float], cost_ns: float, between: str) -> str:
    """Return what takes all of the time: a callback alone, where the others and the loop take little."""
    name, ns = next(iter(hooks.items()), ("", 0.0))
    if ns >= NEARLY_ALL_RATIO * cost_ns:
        return f"`{name}` takes"
    if ns >= MOSTLY_RATIO * cost_ns:
        return f"callbacks, most of all `{name}`, take"
    return f"{between} take{'' if ' and ' in between else 's'}"


def _said(hooks: dict[str, float], cost_ns: float, step_ns: float, between: str) -> str:
    """Return where the time goes: to the callback that takes most of it, where one does."""
    name, ns = next(iter(hooks.items()), ("", 0.0))
    if ns >= MOSTLY_RATIO * cost_ns:
        return f"{name} takes {format_ns(ns)} a step, {format_ratio(min(1.0, ns / step_ns))} of it"
    share = format_ratio(min(1.0, cost_ns / step_ns))
    return f"{share} of the step lies between steps, in {between.replace(' between steps', '')}"


def _idle_up_to(signals: Signals, cost_ns: float) -> Iterator[Claim]:
    """Yield claims to the device's idle time between steps and in stalls, as much as was spent there. Where
    no work is queued behind a step, what the host does between two steps is waited for in full: idle time
    whose cause the trace does not show is that, too."""
    stalls = (row for row in signals.of("idle_stall") if signals.cells[row].cause != LOADER)
    untold = () if signals.runs_behind else signals.of("idle_other")
    for row in (*signals.of("idle_between_steps"), *stalls, *untold):
        own_ns = signals.cells[row].ns_per_step
        ns = min(cost_ns, own_ns)
        cost_ns -= ns
        if ns > 0:
            yield Claim(row, max(OWN_LOOP_NS, own_ns - ns))
