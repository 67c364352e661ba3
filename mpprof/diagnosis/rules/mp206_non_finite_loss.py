"""The loss is NaN or infinite, or weights are.

What it means
    A value left the range of float16 (above 65504, or an epsilon of 1e-8 that is 0), or the training
    diverged. With a dynamic loss scale the step is skipped; without one the weights are lost.

How we know
    The recorded loss, from the first step on which it is not finite; and the weights, which are checked when
    `fit` ends, because a loss may stay finite while weights are not. Keras hands its callbacks the running
    mean of the epoch: once one step's loss is not finite, the mean is not finite until the epoch ends, so
    later steps of that epoch are not reported.

What it costs
    Every step from there on, if the loss stays non-finite.

When to ignore
    When the loss is undefined for some single batch, and you know why.

Sources
    keras#17571, google/flax#982, huggingface/transformers#382 (masks); keras#11832 (epsilon 1e-4); pt#40497.
    Read in Keras 3.15.1: its attention masks with -3e4 in float16.
"""

from __future__ import annotations

import numpy as np

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import what_overflows
from mpprof.model.arrays import Int64
from mpprof.model.limits import MOST_WEIGHTS_NAMED
from mpprof.model.steps import StepTable

CODE, SLUG, TITLE = "MP206", "non-finite-loss", "The loss or weights are not finite"
ABOUT = "a loss that is not finite"
OF_TRAINING = True
LEADS = LEARNING


_EPOCHS = 1 << 32
"""More than a fit has."""


def judge(signals: Signals) -> Outcome:
    fit = known(signals.fit)
    spoiled = fit.non_finite_weights if fit else None
    table = known(signals.table)
    rows = np.flatnonzero(table.loss_known) if table is not None else np.array([], np.int64)
    if table is None or not len(rows):
        if spoiled:
            return _weights(spoiled, "; the loss was not recorded")
        need(signals.table)
        need(Absent("the loss was not recorded", signals.advice("record run")))
    assert table is not None
    bad = rows[~np.isfinite(table.loss[rows])]
    if not len(bad):
        last = int(rows[-1])
        to_the_end = last == len(table) - 1
        loss = (
            ", though the loss is" if to_the_end else f"; the loss was last read at step {table.step[last]}"
        )
        return _weights(spoiled, loss) if spoiled else Clear("the recorded loss is finite")
    first, whence = int(table.step[bad[0]]), _whence(table, rows, bad[0])
    many = int(table.covers[bad].sum())  # a loss is of all steps of a call
    stays = bool((~np.isfinite(table.loss[rows[rows >= bad[0]]])).all())
    running = _running_mean(signals, table, rows)
    mean = ""
    if lost := _skipped_since(signals, first):
        when = f"{whence}: all {format_count(lost)} updates since were skipped"
    elif running:
        again = len(np.unique(table.fit[bad] * _EPOCHS + table.epoch[bad])) - 1
        later = f" and in {format_count(again)} later epoch{'s' * (again > 1)}" if again else ""
        when = f"{'by' if whence.startswith('by') else 'on'} step {first}{later}"
        mean = "a running mean, which stays non-finite until the epoch ends"
    elif stays:
        when = whence
    else:
        of = format_count(int(table.covers[rows].sum()))
        when = f"on {format_count(many)} of {of} recorded steps, first on step {first}"
    spoils = f", and weights are lost ({_names(spoiled)})" if spoiled else ""
    breaks = what_overflows(signals.case.run)
    return Found(
        summary=breaks.after(f"the loss is not finite {when}{f' ({mean})' if mean else ''}{spoils}"),
        said=breaks.said_after(f"the loss is not finite {when}"),
        layers=breaks.layers,
        first=breaks.first,
        proof=f"weights are lost: {_names(spoiled)}" if spoiled else f"it is {mean}" if mean else "",
        evidence=(
            evidence.count("first step", first),
            *(() if running else (evidence.count("recorded steps with such a loss", many, 0),)),
            *((_count(spoiled),) if spoiled else ()),
            *breaks.evidence,
        ),
        severity="error" if stays or spoiled else "warning",
    )


def _whence(table: StepTable, rows: Int64, row: int) -> str:
    """Return from where on the loss is not finite, by the first such row of those with a loss. It may have
    been so before where losses were not read on every step."""
    before = rows[rows < row]
    read = int(table.step[before[-1]]) if len(before) else 0
    first = int(table.step[row])
    return f"from step {first} on" if first - int(table.covers[row]) <= read else f"by step {first}"


def _skipped_since(signals: Signals, first: int) -> int:
    """Return how many updates were skipped from that step to the end of the records; 0 if any of them was not
    skipped, or skips were not read."""
    skips = known(signals.skips)
    since = skips[skips.step >= first] if skips is not None else None
    if since is None or not len(since.step) or (since.skipped[1:] < since.span[1:]).any():
        return 0
    steps = int(since.step[-1]) - first + 1
    return steps if int(since.skipped.sum()) >= steps else 0


def _running_mean(signals: Signals, table: StepTable, rows: Int64) -> bool:
    """Return whether the loss on record may be the mean of an epoch so far, as Keras' loss is: it does not
    come from a custom loop, and it is never finite again within the epoch in which it was not."""
    facts = signals.case.run.facts
    if facts is not None and facts.framework.get("loop") == "custom":
        return False
    epoch = table.fit[rows] * _EPOCHS + table.epoch[rows]
    recovers = np.isfinite(table.loss[rows][1:]) & ~np.isfinite(table.loss[rows][:-1])
    return not (recovers & (np.diff(epoch) == 0)).any()


def _weights(spoiled: tuple[str, ...], loss: str) -> Found:
    """Return the finding that weights are not finite, and in words what is known of the `loss`. It need not
    show it: a ReLU, for example, turns NaN into 0."""
    return Found(
        summary=f"weights are not finite at the end ({_names(spoiled)}){loss}",
        evidence=(_count(spoiled),),
        cases=("weights",),
        severity="error",
    )


def _names(spoiled: tuple[str, ...]) -> str:
    """Return the first of these weights, and how many more there are, as far as they were looked for."""
    said = evidence.listed(list(spoiled))
    return f"{said}, at least" if len(spoiled) >= MOST_WEIGHTS_NAMED else said


def _count(spoiled: tuple[str, ...]) -> Evidence:
    least = ", at least" if len(spoiled) >= MOST_WEIGHTS_NAMED else ""
    return evidence.count(f"weights that are not finite{least}", len(spoiled), 0)
