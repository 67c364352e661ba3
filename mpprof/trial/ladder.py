"""Which training comes next, and which setting is kept.

A rung puts one change to the best setting so far. Its cycles train the first setting, the best so far and the
new one. All is computed from the trainings that are done, so a ladder that was broken off goes on where it
was.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.model.frozen import frozen
from mpprof.trial import switches
from mpprof.trial.rounds import FEWEST_ROUNDS, Trained, learns_worse, ratio, skips_less
from mpprof.trial.settings import Change, Setting, changed, differences


@frozen
class Plan:
    """What is to be tried: `changes` one after the other, or `together`, settings that all take turns. A rung
    has `most_rounds` cycles at most; None: as many as there is time for. `already`: what is not tried, as the
    script does so by itself."""

    first: Setting
    changes: tuple[Change, ...] = ()
    together: tuple[Setting, ...] = ()
    most_rounds: int | None = None
    already: tuple[str, ...] = ()

    @property
    def rungs(self) -> int:
        return 1 if self.together else len(self.changes)


@frozen
class Turn:
    setting: Setting
    rung: int
    cycle: int
    round: int


@frozen
class Rung:
    """`settings`: those that take turns. `new`: those that are measured in it for the first time."""

    settings: tuple[Setting, ...]
    new: tuple[Setting, ...]
    best: Setting


def rung_at(plan: Plan, done: Sequence[Trained], at: int) -> Rung:
    """Return a rung of the ladder, from what the rungs below it have shown."""
    if plan.together:
        new = tuple(each for each in plan.together if each != plan.first)
        return Rung((plan.first, *new), new, plan.first)
    best = best_before(plan, done, at)
    new_one = changed(best, plan.changes[at])
    return Rung(tuple(dict.fromkeys((plan.first, best, new_one))), (new_one,), best)


def best_before(plan: Plan, done: Sequence[Trained], at: int) -> Setting:
    """Return the best setting that the rungs before this one have found."""
    best = plan.first
    for below in range(at):
        new = changed(best, plan.changes[below])
        if pays(done, best, new, plan.first, below):
            best = new
    return best


def pays(done: Sequence[Trained], best: Setting, new: Setting, first: Setting, rung: int) -> bool:
    """Return whether a new setting is to be kept: it is faster beyond the scatter between rounds, its loss is
    finite, and where the batch is the same, no worse at as many updates. Another loss scale is to skip fewer
    updates, and need not be faster. Where the best so far could not be
    measured, it is enough that the new one can be."""
    mine = [each for each in done if each.setting == new]
    if not any(each.counts for each in mine) or any(each.finite is False for each in mine if each.counts):
        return False
    if not any(each.counts for each in done if each.setting == best):
        return True
    found = ratio(done, best, new, rung)
    if found is None:
        return False
    if switches.loss_scale(new.sets) != switches.loss_scale(best.sets):
        old = [each for each in done if each.setting == best and each.counts]
        if found.slower or not skips_less([each for each in mine if each.counts], old):
            return False
    elif not found.faster:
        return False
    theirs = [each for each in done if each.setting == first and each.counts]
    return new.batch != first.batch or not learns_worse([each for each in mine if each.counts], theirs)


def given_up(done: Sequence[Trained], setting: Setting) -> bool:
    """Return whether a setting is trained no more: it failed at once, or twice."""
    counted = [each.counts for each in done if each.setting == setting]
    return counted.count(False) > (1 if True in counted else 0)


def climbable(plan: Plan, done: Sequence[Trained], left_s: float) -> int:
    """Return up to which rung, not included, there is time: a rung has at least `FEWEST_ROUNDS` cycles, of a
    training of each of its settings."""
    one_s = cost_s(done)
    at = done[-1].rung if done else 0
    spent = 0.0
    for rung in range(at, plan.rungs):
        have = sum(each.rung == rung for each in done)
        spent += max(0, _fewest(plan, done, rung) - have) * one_s
        if spent > left_s and not have:
            return rung
    return plan.rungs


def _fewest(plan: Plan, done: Sequence[Trained], rung: int) -> int:
    """Return how many trainings a rung has at least: none more where what it changes has failed, and those of
    two settings where all changes before it have."""
    if plan.together:
        return len(plan.together) * FEWEST_ROUNDS
    failed = [
        given_up(done, changed(best_before(plan, done, at), plan.changes[at])) for at in range(rung + 1)
    ]
    return 0 if failed[-1] else (2 if all(failed[:-1]) else 3) * FEWEST_ROUNDS


def names_from(plan: Plan, done: Sequence[Trained], at: int) -> tuple[str, ...]:
    """Return what the rungs from this one on would change."""
    best = best_before(plan, done, min(at, 1 + max((each.rung for each in done), default=-1)))
    return tuple(", ".join(differences(best, changed(best, change))) for change in plan.changes[at:])


def cost_s(done: Sequence[Trained]) -> float:
    """Return what a training takes; 0 before the first has told."""
    return sum(each.seconds for each in done) / len(done) if done else 0.0


def next_turn(plan: Plan, done: Sequence[Trained], left_s: float) -> Turn | None:
    """Return the training to run next; None where the ladder is done, or there is no time for another."""
    if done and cost_s(done) > left_s:
        return None
    at = done[-1].rung if done else 0
    end = max(climbable(plan, done, left_s), at + 1)
    while at < min(end, plan.rungs):
        rung = rung_at(plan, done, at)
        cycle = cycle_to_go_on(done, at, rung)
        due = _due(plan, done, at, rung, cycle)
        if due is None and not _is_known(plan, done, at, rung, cycle) and _has_time(plan, done, at, left_s):
            cycle += 1
            due = _due(plan, done, at, rung, cycle)
        if due is not None:
            mine = sum(each.setting == due for each in done)
            return Turn(due, at, cycle, mine + 1)
        at += 1
    return None


def cycle_to_go_on(done: Sequence[Trained], at: int, rung: Rung) -> int:
    return max((each.cycle for each in done if each.rung == at), default=0)


def _due(plan: Plan, done: Sequence[Trained], at: int, rung: Rung, cycle: int) -> Setting | None:
    """Return the setting whose turn it is in this cycle; None where all have had theirs. One that cannot be
    measured has none, and where that is every new one, neither have the others."""
    usable = [each for each in rung.settings if not given_up(done, each)]
    if not any(each in usable for each in rung.new):
        return None
    order = usable[::-1] if cycle % 2 else usable
    had = {each.setting for each in done if (each.rung, each.cycle) == (at, cycle)}
    return next((each for each in order if each not in had), None)


def _is_known(plan: Plan, done: Sequence[Trained], at: int, rung: Rung, cycle: int) -> bool:
    """Return whether the rung has shown enough: its ratios are known well enough, or cannot be."""
    usable = [each for each in rung.settings if not given_up(done, each)]
    new = [each for each in rung.new if each in usable]
    if not new:
        return True
    if cycle + 1 < FEWEST_ROUNDS:
        return False
    if plan.most_rounds is not None and cycle + 1 >= plan.most_rounds:
        return True
    against = [each for each in dict.fromkeys((plan.first, rung.best)) if each in usable]
    found = [ratio(done, one, other, at) for one in against for other in new]
    return all(each is None or each.close for each in found)


def _has_time(plan: Plan, done: Sequence[Trained], at: int, left_s: float) -> bool:
    """Return whether there is time for one more cycle of this rung, and then for those above it that still
    fit."""
    settings = len(plan.together) if plan.together else min(3, at + 2)
    cycles = sum(each.rung == at for each in done)
    if cycles < settings * FEWEST_ROUNDS:
        return cost_s(done) <= left_s
    cycle_s = settings * cost_s(done)
    above = climbable(plan, done, left_s)
    needed = sum(min(3, rung + 2) * FEWEST_ROUNDS for rung in range(at + 1, above)) * cost_s(done)
    return cycle_s + needed <= left_s
