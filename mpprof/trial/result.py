"""What a ladder has shown: a row for each setting, and one sentence on what to keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ratio
from mpprof.report import words
from mpprof.trial import kept_word, ladder, switches, text
from mpprof.trial.kept_word import Outcome
from mpprof.trial.ladder import Plan
from mpprof.trial.remedies import Advice, ByHand
from mpprof.trial.rounds import FEWEST_ROUNDS, Ratio, Trained, interval, learns_worse, losses, ratio
from mpprof.trial.settings import Setting, differences

SCHEMA = "mpprof.try/1"
_NOTABLE_MEMORY = 0.03


@frozen
class Row:
    """One setting. `speedup`: over the first setting; None: not known, or it is the first. `error`: why it
    was not measured, or not all of it. `output`: the file with what its last training printed. Times and
    rates are means over its rounds."""

    setting: Setting
    changes: tuple[str, ...]
    rounds: tuple[str, ...]
    step_ns: float | None
    batch: int | None
    examples_per_s: float | None
    speedup: Ratio | None
    peak_memory_bytes: int | None
    joules_per_example: float | None
    skipped: int | None
    loss: float | None
    finite: bool | None
    worse: bool
    kept: bool
    error: str | None
    output: str | None = None


@frozen
class Tried:
    """The ladder of a script. `keep`: the name of the setting to keep; None: none is recommended.
    `energy_absent`: why no energy is known. `busy`: in how many trainings other work kept the machine busy.
    `stopped`: it was broken off, with time left. `unfinished`: more time would show more. `already`: what was
    not tried, as the script does so. Where remedies were tried, `outcomes`: what they promised and brought,
    `by_hand`: those that no switch applies."""

    script: str
    rows: tuple[Row, ...]
    overridden: tuple[str, ...]
    left_out: tuple[str, ...]
    dropped: tuple[str, ...]
    on_cpu: bool
    keep: str | None
    sentence: str
    keras: str = "keras"
    energy_absent: str | None = None
    busy: int = 0
    stopped: bool = False
    unfinished: bool = False
    outcomes: tuple[Outcome, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    already: tuple[str, ...] = ()

    def __str__(self) -> str:
        return text.render(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document, schema "mpprof.try/1"."""
        return {
            "schema": SCHEMA,
            "script": self.script,
            "settings": [_document(row) for row in self.rows],
            "overridden": list(self.overridden),
            "left_out": list(self.left_out),
            "dropped": list(self.dropped),
            "already": list(self.already),
            "on_cpu": self.on_cpu,
            "keep": self.keep,
            "energy_absent": self.energy_absent,
            "busy_trainings": self.busy,
            "sentence": self.sentence,
            "code": self.code(),
            "remedies": [each.document() for each in self.outcomes],
            "by_hand": [each._asdict() for each in self.by_hand],
        }

    def code(self) -> list[str]:
        """Return the lines of the script to change for what is kept."""
        row = next((row for row in self.rows if row.setting.name == self.keep), None)
        return [] if row is None else code_of(row, self.rows[0], self.keras)


def conclude(script: str, plan: Plan, done: Sequence[Trained]) -> Tried:
    """Return what the trainings show. The first setting comes first, then the others as they were tried."""
    settings = list(dict.fromkeys((plan.first, *(each.setting for each in done))))
    by_setting = {each: [one for one in done if one.setting == each] for each in settings}
    kept = _kept(plan, done)
    rows = tuple(_row(plan, done, each, by_setting, each in kept) for each in settings)
    on_cpu = any(each.is_cpu for each in done)
    best = kept[-1] if kept else None
    sentence = sentence_of(rows, best, on_cpu=on_cpu)
    measured = any(row.step_ns is not None for row in rows)
    decided = best != plan.first or not undecided(rows[1:])
    tried = set(settings)
    advice = next((each.advice for each in done if each.advice is not None), Advice())
    outcomes = kept_word.outcomes(plan, done, advice)
    return Tried(
        script=script,
        rows=rows,
        overridden=_once(shared(note) for each in done for note in each.overridden),
        left_out=_once(name for each in done for name in each.left_out),
        dropped=_dropped(plan, done, tried),
        on_cpu=on_cpu,
        keep=best.name if best is not None and measured and decided and not on_cpu else None,
        sentence=sentence,
        keras=done[-1].keras if done else "keras",
        energy_absent=_why_no_energy(done),
        busy=sum(each.busy for each in done if each.counts),
        outcomes=outcomes,
        by_hand=kept_word.left_to_do(advice, outcomes),
        already=plan.already,
    )


def _why_no_energy(done: Sequence[Trained]) -> str | None:
    """Return why no training's energy is known; None: one is, or nothing was measured."""
    counted = [each for each in done if each.counts]
    known = any(each.joules_per_example is not None for each in counted)
    return None if known or not counted else counted[-1].energy_absent or "it was not read"


def _kept(plan: Plan, done: Sequence[Trained]) -> list[Setting]:
    """Return the settings that were kept, the first one and the best among them."""
    started = [plan.first] if any(e.counts for e in done if e.setting == plan.first) else []
    if plan.together:
        paying = [each for each in plan.together if each != plan.first
                  and ladder.pays(done, plan.first, each, plan.first, 0)]  # fmt: skip
        if not paying:
            return started
        return [*started, max(paying, key=lambda each: _value(ratio(done, plan.first, each)))]
    rungs = 1 + max((each.rung for each in done), default=-1)
    found = [ladder.best_before(plan, done, at) for at in range(min(rungs, plan.rungs) + 1)]
    return [each for each in dict.fromkeys(found) if each != plan.first or started]


def _value(found: Ratio | None) -> float:
    return 0.0 if found is None else found.value


def _dropped(plan: Plan, done: Sequence[Trained], tried: set[Setting]) -> tuple[str, ...]:
    if plan.together:
        return tuple(each.name for each in plan.together if each not in tried)
    if not plan.changes:
        return ()
    new = [each.rung for each in done if each.setting in ladder.rung_at(plan, done, each.rung).new]
    return ladder.names_from(plan, done, 1 + max(new, default=-1))


def _row(
    plan: Plan,
    done: Sequence[Trained],
    setting: Setting,
    by_setting: dict[Setting, list[Trained]],
    kept: bool,
) -> Row:
    mine = by_setting[setting]
    counted = [each for each in mine if each.counts]
    firsts = [each for each in by_setting[plan.first] if each.counts]
    found = losses(counted, [each for each in done if each.counts])
    last = mine[-1] if mine else None
    peaks = [each.peak_memory_bytes for each in counted if each.peak_memory_bytes is not None]
    skips = [each.skipped for each in counted if each.skipped is not None]
    return Row(
        setting=setting,
        changes=tuple(differences(plan.first, setting)),
        rounds=tuple(each.root for each in counted if each.root is not None),
        step_ns=_mean([each.step_ns for each in counted]),
        batch=counted[-1].batch if counted else None,
        examples_per_s=_mean([each.examples_per_s for each in counted]),
        speedup=None if setting == plan.first else ratio(done, plan.first, setting),
        peak_memory_bytes=max(peaks) if peaks else None,
        joules_per_example=_mean([each.joules_per_example for each in counted]),
        skipped=sum(skips) if skips else None,
        loss=_mean(found),
        finite=_finite(counted),
        worse=setting.batch == plan.first.batch and learns_worse(counted, firsts),
        kept=kept,
        error=None if last is None else _why_not(last, counted),
        output=None if last is None else last.output,
    )


def _finite(counted: Sequence[Trained]) -> bool | None:
    """Return whether every training's last loss is finite; None where none has one."""
    known = [each.finite for each in counted if each.finite is not None]
    return all(known) if known else None


def _why_not(last: Trained, counted: Sequence[Trained]) -> str | None:
    if last.error is not None:
        return f"after {words.plural(len(counted), 'round')}: {last.error}" if counted else last.error
    if last.did_not_take and last.took is not None:
        return f"did not take: {last.took[0]} of {last.took[1]} layers"
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _once(texts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def shared(note: str) -> str:
    """Return a note without the value that differs from setting to setting."""
    return note.partition(": ")[0].removesuffix(" was overridden")


def _document(row: Row) -> dict[str, Any]:
    found = row.speedup
    return {
        "name": row.setting.name, "policy": row.setting.policy, "jit": row.setting.jit,
        "batch": row.batch, "changes": list(row.changes), "rounds": [str(Path(each)) for each in row.rounds],
        "step_ns": row.step_ns, "examples_per_s": row.examples_per_s,
        "speedup": None if found is None else found.value,
        "speedup_interval": None if found is None or found.interval is None else list(found.interval),
        "peak_memory_bytes": row.peak_memory_bytes, "joules_per_example": row.joules_per_example,
        "skipped": row.skipped, "loss": row.loss, "loss_finite": row.finite, "kept": row.kept,
        "error": row.error, "output": row.output,
    }  # fmt: skip


# --- in words ----------------------------------------------------------------------------------------------


def sentence_of(rows: Sequence[Row], best: Setting | None, *, on_cpu: bool) -> str:
    """Return what to keep, and what it brings."""
    first = rows[0] if rows else None
    if first is None or all(row.step_ns is None for row in rows):
        return "No setting could be measured."
    others = [row for row in rows[1:] if row.speedup is not None]
    if on_cpu:
        found = "; ".join(f"{row.setting.name} {interval(row.speedup)}{_but(row)}" for row in others)
        return f"{text.ON_A_CPU}. {found or first.setting.name + ' alone was measured'}."
    kept = next((row for row in rows if row.setting == best), None)
    if kept is None or kept is first:
        if once := undecided(others):
            found = "; ".join(f"{row.setting.name} {interval(row.speedup)}" for row in once)
            return (
                f"Fewer than {FEWEST_ROUNDS} rounds decide nothing: {found}. Give it more time: --resume and "
                "more --minutes."
            )
        said = "; ".join(f"{row.setting.name} {interval(row.speedup)}{_but(row)}" for row in others)
        return f"Keep {first.setting.name}: {said or 'nothing else was measured'}."
    rest = [f"{row.setting.name} {_no_more(row)}{_but(row)}" for row in others if not row.kept]
    head = f"{kept.setting.name}: {interval(kept.speedup)}{_memory(kept, first)}"
    return "; ".join([head, *rest]) + "."


def undecided(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that were faster in too few rounds, which is no evidence yet."""
    return [row for row in rows if row.speedup and not row.speedup.decides and row.speedup.value > 1]


def _no_more(row: Row) -> str:
    return "brings no more" if row.speedup is None or row.speedup.decides else interval(row.speedup)


def _but(row: Row) -> str:
    if row.finite is False:
        return ", and its loss is not finite"
    if row.worse:
        return ", and its loss is higher"
    return " and skips updates" if row.skipped else ""


def _memory(row: Row, first: Row) -> str:
    if not row.peak_memory_bytes or not first.peak_memory_bytes:
        return ""
    change = row.peak_memory_bytes / first.peak_memory_bytes - 1
    if abs(change) < _NOTABLE_MEMORY:
        return ""
    return f", {format_ratio(abs(change))} {'less' if change < 0 else 'more'} memory"


def code_of(row: Row, first: Row, keras: str) -> list[str]:
    """Return the lines to change for a setting."""
    setting, lines = row.setting, []
    if setting.policy is not None:
        call = "mixed_precision.set_global_policy" if keras == "tf_keras" else "config.set_dtype_policy"
        lines.append(f'{keras}.{call}("{setting.policy}")  # before the model is built')
    if setting.jit is not None:
        lines.append(f"model.compile(..., jit_compile={setting.jit})")
    if setting.batch != 1 and row.batch is not None:
        lines.append(f"batch_size={row.batch}  # or .batch({row.batch}) of a tf.data set")
    return [*lines, *(line for name, value in setting.sets for line in switches.code(name, value))]
