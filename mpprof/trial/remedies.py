"""What a diagnosed training is advised: remedies that a switch applies, and those for the script's author.

Which remedies a cause has is the table's to say, and what they promise the report's. Here only their code is
read: a line that a switch stands for is tried, and all others are printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mpprof.diagnosis.rules import mp303_batch_not_raised, mp803_tf32_baseline
from mpprof.model.answer import Remedy
from mpprof.model.finding import Diagnosis, Finding
from mpprof.model.frozen import frozen
from mpprof.trial.settings import Change

XLA = "jit", True
_SWITCH = "mixed precision"
"""Stands for a code where a float32 training is told how to switch it on."""
_TWICE = 2.0
_MOST_WORKERS = 8


class Promise(NamedTuple):
    """A switch to try. `gain_ns`: what remedying its cause gains of a step, after those before it in the
    report's plan; None: the report states none. `after_ns`: the step with this cause alone remedied. Of a
    larger batch both are by the time of as many examples. `freed_ns`: that step if the host, which would
    limit it, has less to launch then; None: the host does not limit it, or has as much to launch."""

    code: str
    slug: str
    kind: str
    value: Any
    gain_ns: float | None = None
    after_ns: float | None = None
    freed_ns: float | None = None

    @property
    def change(self) -> Change:
        return self.kind, self.value


class ByHand(NamedTuple):
    """A remedy that no switch applies. `snippet` "": there is no code to copy."""

    code: str
    slug: str
    text: str
    snippet: str


@frozen
class Advice:
    """`step_ns`: of the diagnosed training; None: not known. `promises`: in the order of what they gain."""

    step_ns: float | None = None
    promises: tuple[Promise, ...] = ()
    by_hand: tuple[ByHand, ...] = ()


_OF_CODE: tuple[tuple[re.Pattern[str], Callable[[str], Change]], ...] = (
    (re.compile(r"_policy\(\"(\w+)\"\)"), lambda text: ("policy", text)),
    (re.compile(r"jit_compile=(True)"), lambda text: XLA),
    (re.compile(r"\.prefetch\((tf\.data\.AUTOTUNE)\)"), lambda text: ("sets", ("prefetch", "auto"))),
    (
        re.compile(r"\bworkers=(\d+)"),
        lambda text: ("sets", ("workers", str(min(int(text), _MOST_WORKERS)))),
    ),
    (re.compile(r"steps_per_execution=(\d+)"), lambda text: ("sets", ("steps_per_execution", text))),
    (
        re.compile(r"\binitial_scale=2\.0\*\*(\d+)"),
        lambda text: ("sets", ("loss_scale", str(2 ** int(text)))),
    ),
    (re.compile(r"dynamic_growth_steps=(\d+)"), lambda text: ("sets", ("loss_scale_growth", text))),
)
"""What a line of code changes that a switch changes, too."""


def switch_of(remedy: Remedy, code: str = "") -> Change | None:
    """Return the change of a setting that applies this remedy; None: it takes an edit of the script, as where
    another kind of input takes the place of the script's own."""
    if remedy.larger_batch or code == mp303_batch_not_raised.CODE:
        return "batch", _TWICE
    if "in place of" in remedy.text:
        return None
    for pattern, change in _OF_CODE:
        if (found := pattern.search(remedy.snippet)) is not None and "dynamic=False" not in remedy.snippet:
            return change(found[1])
    return None


def advice(diagnosis: Diagnosis) -> Advice:
    """Return what the diagnosis of a training has to be tried, and what is left to its author."""
    step_ns = diagnosis.account.step_ns if diagnosis.account is not None else None
    if step_ns is None and diagnosis.steps is not None:
        step_ns = diagnosis.steps.mean_ns
    promises: list[Promise] = []
    by_hand: list[ByHand] = []
    for found in diagnosis.findings:
        changes = [switch_of(remedy, found.code) for remedy in found.remedies]
        promises += [_promise(found, change, step_ns) for change in changes if change is not None]
        rest = [remedy for remedy, change in zip(found.remedies, changes, strict=True) if change is None]
        if rest and _matters(found):
            by_hand.append(ByHand(found.code, found.slug, rest[0].text, rest[0].snippet))
    for remedy in diagnosis.how_to_switch:
        if (change := switch_of(remedy)) is not None:
            promises.append(Promise(_SWITCH, "", *change))
    tf32 = mp803_tf32_baseline.CODE
    if tf32 in diagnosis.clear and diagnosis.computes is not None and diagnosis.computes.kind == "float32":
        promises.append(Promise(tf32, "true float32", "sets", ("tf32", "on")))
    promises.sort(key=lambda each: -(each.gain_ns or 0.0))
    first = {each.change: each for each in reversed(promises)}
    return Advice(step_ns, tuple(each for each in promises if first[each.change] is each), tuple(by_hand))


def _promise(found: Finding, change: Change, step_ns: float | None) -> Promise:
    gain_ns, after_ns = _gain(found), found.whatif_step_ns
    if change[0] == "batch":  # what a step costs once is divided among as many times the examples
        gain_ns = None if gain_ns is None else gain_ns * (1 - 1 / change[1])
        after_ns = (
            None
            if after_ns is None or step_ns is None
            else step_ns - (step_ns - after_ns) * (1 - 1 / change[1])
        )
    free_ns = None if step_ns is None or found.cost_ns_per_step is None else step_ns - found.cost_ns_per_step
    hidden = change == XLA and free_ns is not None and after_ns is not None and free_ns < after_ns
    return Promise(found.code, found.slug, *change, gain_ns, after_ns, free_ns if hidden else None)


def _gain(found: Finding) -> float | None:
    return found.cost_ns_per_step if found.gain_ns_per_step is None else found.gain_ns_per_step


def _matters(found: Finding) -> bool:
    """Return whether a finding is more than worth a mention."""
    return found.severity != "info" or (found.gain_ns_per_step or 0.0) > 0
