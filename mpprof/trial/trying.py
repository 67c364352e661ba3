"""The ladder of a script, from the first training to the last."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mpprof.errors import UnableError
from mpprof.launch.options import Options, Trial
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns
from mpprof.model.shell import quoted
from mpprof.trial import ladder, measured, training
from mpprof.trial.journal import Journal
from mpprof.trial.ladder import Plan, Turn
from mpprof.trial.result import Tried, conclude, shared
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import FLOAT32, Choices, Setting, changes, first, product, usual, without_own

LEAST_S = 5.0
"""So long the steady steps of a training last at least."""
MINUTES, MINUTES_ON_A_CPU = 20.0, 2.0
"""Of all trainings together, unless others are asked for. On a CPU the ladder says nothing about a GPU."""
UNMEASURED = "unmeasured"
"""Where runs lie until their training has ended, and those for good that are no setting's measure: other fits
of the script, and what was broken off."""
_SHOWN_IN_SECONDS = 100

Say = Callable[[str], None]
Train = Callable[[Turn, float], Trained]
"""Runs one training, in so many seconds at most."""


@frozen
class Asked:
    """What is asked for. `words`: the script with its arguments, or `-m` and a module. `choices`: None for
    the usual ladder. `together`: all combinations take turns. `remedies`: those that the
    first training's diagnosis has are tried instead. `minutes`: None for `MINUTES`, or on a CPU fewer."""

    words: tuple[str, ...]
    name: str
    logdir: Path
    choices: Choices | None = None
    together: bool = False
    steps: int = 60
    minutes: float | None = None
    fit: int | None = None
    keep_callbacks: bool = False
    resume: bool = False
    most_rounds: int | None = None
    remedies: bool = False

    def journal(self) -> Journal:
        choices = None if self.choices is None else repr(self.choices)
        return Journal(self.logdir, {
            "script": list(self.words), "choices": choices, "all": self.together, "steps": self.steps,
            "fit": self.fit, "keep_callbacks": self.keep_callbacks,
            **({"remedies": True} if self.remedies else {}),
        })  # fmt: skip


def in_processes(asked: Asked) -> Train:
    """Return what runs each training in a process of its own, its run in LOGDIR/<setting>/<round>."""

    def train(turn: Turn, within_s: float) -> Trained:
        setting = turn.setting
        root, until_then = (
            folder / setting.folder / str(turn.round) for folder in (asked.logdir, asked.logdir / UNMEASURED)
        )
        for folder in (root.parent, until_then.parent):
            folder.mkdir(parents=True, exist_ok=True)
        answer, output = until_then.with_name(f"{root.name}.json"), root.with_name(f"{root.name}.txt")
        answer.unlink(missing_ok=True)
        trial = Trial(
            os.getpid(), str(answer), LEAST_S, setting.batch, setting.sets, asked.keep_callbacks, asked.fit,
            profiles=turn.round == 1, policies=() if asked.choices is None else asked.choices.policies,
        )  # fmt: skip
        options = Options(
            str(until_then), asked.name, asked.steps, None, setting.policy, setting.jit,
            quiet=True, trial=trial,
        )  # fmt: skip
        ended = training.run(asked.words, options, output, within_s)
        one = _put_in_place(measured.trained(turn, ended, answer, output, asked.steps), root)
        answer.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other runs lie there
            until_then.parent.rmdir()
            until_then.parent.parent.rmdir()
        is_first = (turn.rung, turn.round) == (0, 1) and setting == Setting()
        return measured.advised(one) if asked.remedies and is_first else one

    return train


def _put_in_place(one: Trained, root: Path) -> Trained:
    """Move the run of a training to where no other lies beside or below it."""
    if one.root is not None:
        with contextlib.suppress(OSError):  # somebody's own lies there: the run stays where it is
            Path(one.root).rename(root)
            return replace(one, root=str(root))
    return one


class Interrupted(Exception):
    """The ladder was broken off, by `by`: `tried` is what was measured until then."""

    def __init__(self, tried: Tried, by: KeyboardInterrupt) -> None:
        super().__init__(tried.sentence)
        self.tried, self.by = tried, by


def climb(
    asked: Asked,
    train: Train,
    say: Say,
    done: Sequence[Trained] = (),
    add: Callable[[Trained], None] = lambda one: None,
    clock: Callable[[], float] = time.monotonic,
    grown: Callable[[Tried], None] = lambda tried: None,
) -> Tried:
    """Run trainings until the ladder is known, or the time is spent. `add` gets each training, `grown` what
    the ladder shows with it. Raises UnableError where the script cannot be measured under any setting;
    Interrupted."""
    history, begun = list(done), clock()
    plan = _plan(asked, history)
    said_of: set[str] = set()
    try:
        while (turn := _next(plan, history, _left_s(asked, history, begun, clock()))) is not None:
            one = train(turn, max(1.0, _left_s(asked, history, begun, clock())))
            history.append(one)
            if _fails(plan, history):
                raise UnableError(f"{asked.name}: {one.error}", next=_what_next(one))
            if not measured.lacked_time(one):  # else --resume would take the setting for one that fails
                add(one)
            plan = _plan(asked, history)
            grown(conclude(asked.name, plan, history))
            _say_once(said_of, _notes(one), say)
            say(_progress(plan, history, _left_s(asked, history, begun, clock())))
    except KeyboardInterrupt as error:
        raise Interrupted(replace(conclude(asked.name, plan, history), stopped=True), error) from error
    left = _next(plan, [each for each in history if not measured.lacked_time(each)], math.inf)
    return replace(conclude(asked.name, plan, history), unfinished=left is not None)


def _left_s(asked: Asked, done: Sequence[Trained], begun_s: float, now_s: float) -> float:
    usual = MINUTES_ON_A_CPU if any(each.is_cpu for each in done) else MINUTES
    return begun_s + 60 * (usual if asked.minutes is None else asked.minutes) - now_s


def _plan(asked: Asked, done: Sequence[Trained]) -> Plan:
    """Return what is to be tried: the usual ladder is known once the first training has shown the script."""
    if asked.remedies:
        promises = done[0].advice.promises if done and done[0].advice is not None else ()
        changes_tried = tuple(each.change for each in promises)
        return Plan(Setting(), changes_tried, most_rounds=asked.most_rounds)
    choices = asked.choices
    if choices is None:
        start = Setting(FLOAT32)
        if not done:
            return Plan(start)
        one = next((each for each in done if each.step_ns is not None), done[0])
        choices = usual(one.asked, one.capability, is_cpu=one.is_cpu)
    jit = next((each.jit for each in done if each.counts and each.setting.jit is None), None)
    left = without_own(choices, jit)
    already = () if left == choices else ("with XLA" if jit else "without XLA",)
    if asked.together:
        return Plan(first(left), (), product(left), asked.most_rounds, already)
    return Plan(first(left), changes(left), (), asked.most_rounds, already)


def _next(plan: Plan, done: Sequence[Trained], left_s: float) -> Turn | None:
    return ladder.next_turn(plan, done, left_s) if done else Turn(plan.first, 0, 0, 1)


def _fails(plan: Plan, done: Sequence[Trained]) -> bool:
    """Return whether it is the script that fails: under the first setting, to which all others are compared,
    or under the first two with the same words."""
    errors = [each.error for each in done]
    if len(errors) == 1:
        return done[0].script_failed and done[0].setting == plan.first
    return None not in errors and len(set(errors)) == 1


def _what_next(one: Trained) -> str:
    said = one.error or ""
    if "steady steps" in said:
        return "Give it more epochs, or fewer --steps"
    if said == measured.NO_FIT or measured.BEFORE_A_FIT in said:
        printed = "" if one.output is None else f" What it printed: {quoted(one.output)}."
        return (
            "It measures fit and train_on_batch of Keras in the script's own process, not in one that it "
            f"starts.{printed} Runs of a loop of your own: mpprof compare"
        )
    if said.startswith("it asks for input"):
        return "Give by arguments what it asks for"
    if "no dtype policy" in said:
        return "Keras' own are float32, mixed_bfloat16 and mixed_float16"
    return "" if one.output is None else f"What it printed: {quoted(one.output)}"


def _notes(one: Trained) -> list[str]:
    return [
        *(f"overridden: {shared(text)}" for text in one.overridden),
        *(f"left out: {name} (--keep-callbacks keeps it)" for name in one.left_out),
    ]


def _say_once(said: set[str], texts: Sequence[str], say: Say) -> None:
    for text in texts:
        if text not in said:
            said.add(text)
            say(text)


def _progress(plan: Plan, done: Sequence[Trained], left_s: float) -> str:
    one = done[-1]
    found = f"{format_ns(one.step_ns)} a step" if one.counts else one.error or "the policy reached no layer"
    said = f"{one.setting.name}, round {one.round}: {found} ({one.seconds:.0f} s)"
    end = ladder.climbable(plan, done, left_s)
    if len(done) == 1 and not plan.together and end < plan.rungs:
        said += f"; no time for: {'; '.join(ladder.names_from(plan, done, max(1, end)))}"
    left = f"{left_s / 60:.0f} min" if left_s >= _SHOWN_IN_SECONDS else f"{max(0.0, left_s):.0f} s"
    return f"{said}; {left} left at most"
