"""How long the hooks of the other callbacks of a `fit` take, wherever in the list they stand.

Keras calls the hooks of `CallbackList.callbacks`, a list that it makes for each `fit`. For this `fit` another
list stands in its place: the same callbacks, and between them markers that read the clock. The callbacks
themselves are called by Keras as ever, and nothing is set on them: Keras looks at their hooks to decide
whether it may train asynchronously. `MPProfilerCallback` is not in that list. The markers call its hooks, so
that a step begins behind the hooks of all callbacks and ends before them.

Keras calls each hook of whatever is in the list, and a marker that does nothing at a batch would cost as much
as one that does. So between the begin of an epoch and its end another list is there, with the few that do,
and without Keras' own callbacks that have no hooks of a batch, such as its `History`.

Read in Keras 3.15, `callbacks/callback_list.py`. Training does not wait for hooks that Keras runs in a pool
of threads (`_async_train`, `_async_test`), so they are not timed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mpprof.model.limits import LONG_CALL_NS
from mpprof.model.run_time import OURS
from mpprof.record.facts.fit import is_fit
from mpprof.record.keras_compat import overrides
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled
from mpprof.record.wall_time.sums import Spent, Sum

Hook = Callable[..., None]
Hooks = dict[str, list[Hook]]
"""By a hook's name what a marker does there, in order."""

PLACES = {
    "on_train_begin": "train",
    "on_epoch_begin": "epoch begin",
    "on_epoch_end": "epoch",
    "on_train_batch_begin": "batch",
    "on_train_batch_end": "batch",
    "on_test_begin": "validation",
    "on_test_end": "validation",
    "on_test_batch_begin": "validation",
    "on_test_batch_end": "validation",
}
"""Hooks that are timed. The record of a `fit` ends as `on_train_end` begins."""

_ALIASES = {"on_train_batch_begin": "on_batch_begin", "on_train_batch_end": "on_batch_end"}
_IN_A_POOL = {"on_train_batch_end": "_async_train", "on_test_batch_end": "_async_test"}

BEGIN = "on_train_batch_begin"
BATCH_HOOKS = {BEGIN, "on_train_batch_end"}
EDGES = ("on_epoch_begin", "on_test_begin", "on_test_end", "on_epoch_end")
"""Hooks of the list that decide which callbacks it goes through."""

TIMED_ALREADY = "another MPProfilerCallback of this fit times the callbacks"
NOT_TIMED = (
    "callbacks are timed where Keras 3 makes their list for this fit: this CallbackList was made before"
)


class TimedList(list[Any]):
    """The list with markers. `original` is the one that it stands for."""

    original: list[Any]


@cache
def marker_class() -> type[Any]:
    """Return the class of what stands between two callbacks. What it does is set on the instance."""
    import keras

    class Marker(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            pass

        on_train_batch_end = on_test_batch_begin = on_test_batch_end = on_train_batch_begin

    return Marker


def list_being_made(ours: Any) -> Any:
    """Return the `CallbackList` that a `fit` of Keras makes and that is calling `set_params` of our callback;
    None where there is no such list."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is ours:
        frame = frame.f_back  # type: ignore[assignment]
    making = None if frame is None else frame.f_back
    fits = None if making is None else making.f_back
    if frame is None or making is None or fits is None:
        return None
    found = frame.f_locals.get("self")
    if making.f_code.co_name != "__init__" or making.f_locals.get("self") is not found:
        return None
    if not is_fit(fits):
        return None
    callbacks = getattr(found, "callbacks", None)
    return found if isinstance(callbacks, list) and any(each is ours for each in callbacks) else None


def time_hooks(
    made: Any, ours: Any, spent: Spent, first: dict[str, Hook], own: dict[str, Hook], last: dict[str, Hook],
    begin: Callable[[Sum | None], Hook] | None, failed: Callable[[BaseException], None],
    left: Callable[[BaseException], None],
) -> None:  # fmt: skip
    """Put a list with markers in the place of `made.callbacks`. `ours` is not in it: `first` is what it does
    before the hooks of all callbacks (at those of a batch it sets `spent.since` as it ends), `own` at its
    place among them, `last` behind all. `begin` makes what it does behind all as a batch begins: that ends
    the time of the callback before, whose sum it is given; None: there is nothing to do then. `left` is
    told of what callbacks raise as an epoch begins or ends: it leaves the `fit`."""
    original = made.callbacks
    timed, short = TimedList(), TimedList()
    timed.original = short.original = original
    lap = _laps(spent, failed)
    others = [each for each in original if each is not ours]
    does = [_timed_hooks(made, each) for each in others]
    at = next(k for k, each in enumerate(original) if each is ours)
    to_come = dict(last)
    for k in range(len(others) + 1):
        before = does[k - 1] if k else ()
        behind = does[k] if k < len(others) else ()
        later = {hook for each in does[k:] for hook in each}
        hooks: Hooks = {}
        _append(hooks, first if k == 0 else {})
        _append(hooks, {hook: lap(type(others[k - 1]).__name__, hook) for hook in before})
        if k == at:
            begins = lap(None, "on_train_begin")
            ends = lap(OURS, "on_train_begin")
            _append(hooks, {"on_train_begin": begins}, own, {"on_train_begin": ends})
        told = before if k else tuple(BATCH_HOOKS & first.keys())
        _append(hooks, {hook: lap(None, hook) for hook in behind if hook not in told})
        if begin is not None and BEGIN not in later:
            ended = spent.of("callbacks", type(others[k - 1]).__name__, "batch") if BEGIN in before else None
            hooks[BEGIN], begin = [begin(ended)], None
        _append(hooks, {hook: to_come.pop(hook) for hook in last if hook in to_come and hook not in later})
        markers = [_marker(hooks)] if hooks else []
        timed += [*markers, *others[k : k + 1]]
        short += markers if BATCH_HOOKS & hooks.keys() else ()
        short += [each for each in others[k : k + 1] if not _idle_at_batches(each)]
    _go_through(made, timed, short, left)


def _go_through(made: Any, timed: TimedList, short: TimedList, left: Callable[[BaseException], None]) -> None:
    """Switch `made` to `short` within an epoch, but for its validation, and to `timed` elsewhere."""
    held, kind = weakref.ref(made), type(made)  # which holds what follows: it would keep the model alive

    def told(name: str, then: TimedList) -> Hook:
        def hook(*arguments: Any, **named: Any) -> None:
            fit = held()
            assert fit is not None
            if isinstance(fit.callbacks, TimedList):  # else they were put back
                fit.callbacks = timed
            try:
                getattr(kind, name)(fit, *arguments, **named)
            except BaseException as error:
                if PLACES[name] != "validation":  # which the user's own `evaluate` may survive
                    left(error)
                raise
            if isinstance(fit.callbacks, TimedList):
                fit.callbacks = then

        return hook

    made.callbacks = timed
    for name, then in zip(EDGES, (short, timed, short, timed), strict=True):
        setattr(made, name, told(name, then))


def put_back(fit: Any) -> None:
    """Put the original list back into a `CallbackList`, where there is another in its place."""
    callbacks = getattr(fit, "callbacks", None)
    if isinstance(callbacks, TimedList):
        fit.callbacks = callbacks.original
        for hook in EDGES:
            vars(fit).pop(hook, None)


def _timed_hooks(made: Any, callback: Any) -> tuple[str, ...]:
    """Return the hooks at which a callback does something while the training waits for it."""
    return tuple(
        hook
        for hook in PLACES
        if not getattr(made, _IN_A_POOL.get(hook, ""), False)
        and (overrides(callback, hook) or (hook in _ALIASES and overrides(callback, _ALIASES[hook])))
    )


def _idle_at_batches(callback: Any) -> bool:
    """Return whether a callback is Keras' own and has no hooks of a batch: one of the user's might get them
    while the training runs."""
    hooks = {*BATCH_HOOKS, *(_ALIASES[hook] for hook in BATCH_HOOKS)}
    keras_own = type(callback).__module__.startswith("keras.")
    return keras_own and not any(overrides(callback, hook) for hook in hooks)


def _laps(spent: Spent, failed: Callable[[BaseException], None]) -> Callable[[str | None, str], Hook]:
    """Return what makes hooks: each ends the time of the callback of that name, and begins the next one's."""
    clock = spent.clock

    def begin(event: Any = None, logs: Any = None) -> None:
        try:
            spent.since = clock()
        except FAILURES as error:  # no failure of ours may stop the user's training
            raise_if_signalled(error)
            failed(error)

    def lap(name: str | None, hook: str) -> Hook:
        if name is None:
            return begin
        total = spent.of("callbacks", name, PLACES[hook])

        def end(event: Any = None, logs: Any = None) -> None:
            try:
                now = clock()
                took, spent.since = now - spent.since, now
                total.calls += 1
                total.ns += took
                if took >= LONG_CALL_NS:
                    spent.stalled(total, took)
            except FAILURES as error:  # as above
                raise_if_signalled(error)
                failed(error)

        return end

    return lap


def _append(hooks: Hooks, *more: dict[str, Hook]) -> None:
    for each in more:
        for name, hook in each.items():
            hooks.setdefault(name, []).append(hook)


def _marker(hooks: Hooks) -> Any:
    marker = marker_class()()
    for name, several in hooks.items():
        setattr(marker, name, several[0] if len(several) == 1 else _one_by_one(several))
    return marker


def _one_by_one(several: Sequence[Hook]) -> Hook:
    if len(several) == 2:
        one, other = several

        def both(event: Any = None, logs: Any = None) -> None:
            one(event, logs=logs)
            other(event, logs=logs)

        return both

    def each_of(event: Any = None, logs: Any = None) -> None:
        for hook in several:
            hook(event, logs=logs)

    return each_of
