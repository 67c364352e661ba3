"""What shows, in the records or the trace of a later run, that a remedy of an earlier one was applied.

The table's own conditions show it: the remedy is no longer advised, because the run does it already. If no
row has a condition, the settings and the layers that both runs recorded are compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mpprof.analysis.comparison.comparability import settings
from mpprof.analysis.comparison.layer_names import layer_names
from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies.choosing import ROWS
from mpprof.diagnosis.remedies.conditions import Condition
from mpprof.model.finding import Finding
from mpprof.model.run import LayerFacts, Run

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

_DONE = frozenset(
    (
        its.compiled, its.replays_graphs, its.several_steps_a_call, its.fused_optimizer, its.prefetches,
        its.prefetches_to_device, its.maps_in_parallel, its.caches, its.loads_in_workers, its.pins_memory,
        its.channels_last,
    )
)  # fmt: skip
"""Conditions that hold where a remedy was applied; the others say whether one would fit."""
_PIPELINE = frozenset((its.prefetches, its.caches, its.maps_in_parallel))
_SETTINGS = {
    "MP302": ("steps per execution",),
    "MP311": ("steps per execution",),
    "MP304": ("optimizer",),
    "MP307": ("deterministic ops",),
    "MP308": ("eager",),
    "MP504": ("optimizer", "gradient accumulation"),
}
"""Recorded settings that a remedy of this cause changes, for causes whose rows have no condition that shows
it."""
_BY_POLICY = ("MP1", "MP2", "MP304")
"""Causes that another policy remedies."""
MOST_LAYERS = 3


def evidence(finding: Finding, before: Signals, after: Signals) -> tuple[str, ...]:
    """Return what shows that a remedy of `finding`, of the run `before`, was applied in the run `after`."""
    earlier, later = before.case.run, after.case.run
    said = [*_advised_no_more(finding.code, before, after), *_settings(finding.code, earlier, later)]
    if finding.code.startswith(_BY_POLICY):
        said += _changed("policy", _policy(earlier), _policy(later))
    return tuple(dict.fromkeys([*said, *_layers(finding, earlier, later)]))


def _advised_no_more(code: str, before: Signals, after: Signals) -> list[str]:
    rows = [
        row
        for row in ROWS
        if row.code == code and (after.loop_framework if row.loop else after.framework) in row.on
    ]
    return [
        row.text
        for row in rows
        if any(condition in _DONE and _came(condition, before, after) for condition in row.unless)
    ]


def _came(done: Condition, before: Signals, after: Signals) -> bool:
    """Return whether the condition holds in the later run and did not in the earlier. What both runs recorded
    of their pipelines is what the user wrote; a trace also shows what TensorFlow added by itself."""
    if done in _PIPELINE and all(_operations(signals.case.run) for signals in (before, after)):
        before, after = (type(each)(replace(each.case, trace=None)) for each in (before, after))
    return done(after) and not done(before)


def _operations(run: Run) -> object:
    return run.last_fit.input.get("operations") if run.last_fit else None


def _settings(code: str, earlier: Run, later: Run) -> list[str]:
    was, now = settings(earlier), settings(later)
    return [text for name in _SETTINGS.get(code, ()) for text in _changed(name, was.get(name), now.get(name))]


def _changed(name: str, was: object, now: object) -> list[str]:
    """Return one text where both values are recorded and differ."""
    return [f"{name}: {was} → {now}"] if was is not None and now is not None and was != now else []


def _policy(run: Run) -> str | None:
    return run.last_fit.policy.own if run.last_fit else None


def _layers(finding: Finding, earlier: Run, later: Run) -> list[str]:
    """Return how the layers that the finding names differ: in the type that they compute in, and in their
    configuration."""
    was, now = ({layer.name: layer for layer in run.layers} for run in (earlier, later))
    names = layer_names(earlier, later)
    counterparts = names.counterparts | names.resized
    said = [
        text
        for name in finding.layers
        if name in was and counterparts.get(name) in now
        for text in _layer(name, was[name], now[counterparts[name]])
    ]
    return said[:MOST_LAYERS]


def _layer(name: str, was: LayerFacts, now: LayerFacts) -> list[str]:
    keys = sorted(was.config.keys() & now.config.keys())
    said = _changed(name, was.compute_dtype, now.compute_dtype)
    return said + [
        text for key in keys for text in _changed(f"{name}, {key}", was.config[key], now.config[key])
    ]
