"""What each remedy that was tried had promised, and what it has brought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_speedup
from mpprof.report import words
from mpprof.trial import ladder, switches
from mpprof.trial.ladder import Plan
from mpprof.trial.remedies import Advice, ByHand, Promise
from mpprof.trial.rounds import Ratio, Trained, interval, ratio
from mpprof.trial.settings import changed, differences

NO_TIME = "no time was left"


@frozen
class Outcome:
    """`promised`: the speedup that remedying the cause alone promises, from and to; None: no figure.
    `obtained`: over the setting it was put upon; None: not measured. `skipped`: updates skipped in a training
    before and with it; None: it is not about them. `error`: why it was not measured."""

    promise: Promise
    change: str
    promised: tuple[float, float] | None
    obtained: Ratio | None
    skipped: tuple[float, float] | None
    kept: bool
    error: str | None

    def document(self) -> dict[str, Any]:
        got = self.obtained
        return {
            "code": self.promise.code, "slug": self.promise.slug, "change": self.change,
            "promised_speedup": None if self.promised is None else self.promised[0],
            "promised_range": None if self.promised is None else list(self.promised),
            "obtained_speedup": None if got is None else got.value,
            "obtained_interval": None if got is None or got.interval is None else list(got.interval),
            "skipped": None if self.skipped is None else list(self.skipped),
            "kept": self.kept, "error": self.error,
        }  # fmt: skip

    @property
    def said(self) -> str:
        """The promise and what it has brought, in words."""
        ends = dict.fromkeys(map(format_speedup, self.promised or ()))
        said = f"promised {' to '.join(ends) or 'no figure'}"
        if self.error is not None:
            return f"{said}; not measured: {self.error}"
        said += f", obtained {interval(self.obtained)}"
        if self.skipped is not None:
            before, after = (words.count(round(value)) for value in self.skipped)
            said += f", skipped updates {before} before and {after} with it"
        return f"{said}; {'kept' if self.kept else 'not kept'}"


def outcomes(plan: Plan, done: Sequence[Trained], advice: Advice) -> tuple[Outcome, ...]:
    """Return what became of each promise, in the order in which they were tried."""
    return tuple(_outcome(plan, done, at, advice) for at in range(len(advice.promises)))


def _outcome(plan: Plan, done: Sequence[Trained], at: int, advice: Advice) -> Outcome:
    promise = advice.promises[at]
    best = ladder.best_before(plan, done, at)
    new = changed(best, promise.change)
    mine = [each for each in done if each.setting == new and each.rung == at]
    error = NO_TIME if not mine else mine[-1].error
    after_ns, skipped = promise.after_ns, None
    if switches.loss_scale(new.sets) != switches.loss_scale(best.sets):
        before = [each.skipped for each in done if each.setting == best and each.skipped is not None]
        after = [each.skipped for each in mine if each.skipped is not None]
        skipped = (_mean(before), _mean(after)) if before and after else None
    return Outcome(
        promise=promise,
        change=", ".join(differences(best, new)),
        promised=(advice.step_ns / after_ns, advice.step_ns / (promise.freed_ns or after_ns))
        if advice.step_ns and after_ns
        else None,
        obtained=ratio(done, best, new, at),
        skipped=skipped,
        kept=bool(mine) and ladder.pays(done, best, new, plan.first, at),
        error=error,
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def left_to_do(advice: Advice, outcomes: Sequence[Outcome]) -> tuple[ByHand, ...]:
    """Return the remedies that take an edit of the script, but for causes that a switch has remedied."""
    done = {each.promise.code for each in outcomes if each.kept}
    return tuple(each for each in advice.by_hand if each.code not in done)


def lines(outcomes: Sequence[Outcome], by_hand: Sequence[ByHand]) -> Iterator[list[str]]:
    """Yield the paragraphs of text: promised and obtained, and what is left to the script's author."""
    if outcomes:
        yield ["Promised and obtained:", *(f"    {_line(each)}" for each in outcomes)]
    if by_hand:
        said = ["To be done in the script:"]
        for each in by_hand:
            said.append(f"    {each.code} {each.slug}: {each.text}")
            said += [f"        {line}" for line in each.snippet.splitlines()]
        yield said


def _line(outcome: Outcome) -> str:
    cause = f"{outcome.promise.code} {outcome.promise.slug}".rstrip()
    return f"{cause}, {outcome.change}: {outcome.said}"
