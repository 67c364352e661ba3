"""How long the hooks of the other callbacks of a `fit` take, wherever in the list they stand.

Keras calls the hooks of `CallbackList.callbacks`, a list that it makes for each `fit`, or that a loop of the
user's own has made. While the training runs another list stands in its place, with one callback: it calls the
hooks of all the others, in their order, and reads the clock between them. Nothing is set on the others: Keras
looks at their hooks to decide whether it may train asynchronously. What ours does at a batch comes behind the
hooks of all callbacks as it begins, and before them as it ends.

Read in Keras 3.15, `callbacks/callback_list.py`. Training does not wait for hooks that Keras runs in a pool
of threads (`_async_train`, `_async_test`), so they are not timed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from mpprof.model.run_time import OURS
from mpprof.record.calls import Failed, Hook, Others
from mpprof.record.facts.fit import is_fit
from mpprof.record.keras_compat import overrides
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled
from mpprof.record.wall_time.sums import Spent, Sum

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
BATCH_HOOKS = (BEGIN, "on_train_batch_end")
EDGES = ("on_epoch_begin", "on_epoch_end")
"""Hooks whose exceptions leave a `fit`: of an epoch's steps they are seen elsewhere."""
OUR_PLACE = ("on_train_begin", "on_train_end")
"""Hooks that ours is called at where it stands among the others."""

TIMED_ALREADY = "another MPProfilerCallback of this fit times the callbacks"
NOT_TIMED = "callbacks are timed where a CallbackList of Keras 3 calls them: here something else does"


class TimedList(list[Any]):
    """The list with the one callback. `original` is the one that it stands for, `ours` whose it is."""

    original: list[Any]
    ours: Any


Timed = tuple[Spent, Callable[[], Any]]
"""Where the hooks of a `fit` are timed: into which sums, and what returns its `CallbackList`."""


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


def list_that_begins(ours: Any) -> Any:
    """Return the `CallbackList` that calls `on_train_begin` of our callback; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            break
        found = frame.f_locals.get("self")
        callbacks = getattr(found, "callbacks", None)
        if isinstance(callbacks, list) and frame.f_code.co_name == "on_train_begin":
            heard = getattr(callbacks, "original", callbacks)
            return found if any(each is ours for each in heard) else None
        frame = frame.f_back
    return None


_FRAMES = 8
"""In so many calls a `CallbackList` tells ours of a begin."""


def time_hooks(
    made: Any, ours: Any, spent: Spent, first: dict[str, Hook], last: dict[str, Hook],
    batch: Callable[[str, Others], Hook | None], failed: Failed, left: Callable[[BaseException], None],
) -> None:  # fmt: skip
    """Put a list of one callback in the place of `made.callbacks`. At each hook it calls `first`, the others
    and `last`; `ours` itself it calls at its place as the training begins and ends. `batch` makes a hook of
    a batch, of its name and the others; None: ours does nothing there. `left` is told of what callbacks raise
    as an epoch begins or ends: it leaves the `fit`."""
    import keras

    original = made.callbacks
    at = next(k for k, each in enumerate(original) if each is ours)
    others = [each for each in original if each is not ours]
    with_ours = [*original[:at], ours, *(each for each in original[at:] if each is not ours)]
    one = keras.callbacks.Callback()
    for name in dir(keras.callbacks.Callback):
        if not name.startswith(("on_", "set_")):
            continue
        called = with_ours if name in OUR_PLACE else others
        if name in BATCH_HOOKS:
            called = [each for each in others if not _idle_at_batches(each)]
        summed = [(each, _sum(made, each, name, spent, ours)) for each in called]
        hook = batch(name, summed) if name in BATCH_HOOKS else None
        setattr(one, name, hook or _hook(name, summed, spent, failed, first.get(name), last.get(name)))
    made.callbacks = timed = TimedList([one])
    timed.original, timed.ours = original, ours
    held, kind = weakref.ref(made), type(made)  # which holds what follows: it would keep the model alive
    for name in EDGES:
        setattr(made, name, _edge(held, getattr(kind, name), left))


def put_back(fit: Any) -> None:
    """Put the original list back into a `CallbackList`, where there is another in its place."""
    callbacks = getattr(fit, "callbacks", None)
    if isinstance(callbacks, TimedList):
        fit.callbacks = callbacks.original
        for hook in EDGES:
            vars(fit).pop(hook, None)


def _hook(
    name: str, callbacks: Others, spent: Spent, failed: Failed,
    first: Hook | None, last: Hook | None,
) -> Hook:  # fmt: skip
    """Return what calls the hooks of that name of callbacks, and `first` before and `last` behind them."""

    def hook(*arguments: Any, **named: Any) -> None:
        if first is not None:
            first(*arguments, **named)
        for callback, total in callbacks:
            if total is not None:
                lap(None)
            getattr(callback, name)(*arguments, **named)
            if total is not None:
                lap(total)
        if last is not None:
            last(*arguments, **named)

    def lap(total: Sum | None) -> None:
        try:
            begin_ns, spent.since = spent.since, spent.clock()
            if total is not None:
                spent.add(total, spent.since - begin_ns)
        except FAILURES as error:  # no failure of ours may stop the user's training
            raise_if_signalled(error)
            failed(error)

    return hook


def _edge(held: Callable[[], Any], hook: Hook, left: Callable[[BaseException], None]) -> Hook:
    def told(*arguments: Any, **named: Any) -> None:
        try:
            hook(held(), *arguments, **named)
        except BaseException as error:
            left(error)
            raise

    return told


def _sum(made: Any, callback: Any, hook: str, spent: Spent, ours: Any = None) -> Sum | None:
    """Return what the time of a callback at a hook is added to; None where it does nothing there, or the
    training does not wait for it."""
    does = overrides(callback, hook) or (hook in _ALIASES and overrides(callback, _ALIASES[hook]))
    if hook not in PLACES or not does or getattr(made, _IN_A_POOL.get(hook, ""), False):
        return None
    return spent.of("callbacks", OURS if callback is ours else type(callback).__name__, PLACES[hook])


def _idle_at_batches(callback: Any) -> bool:
    """Return whether a callback is Keras' own and has no hooks of a batch: one of the user's might get them
    while the training runs."""
    hooks = (*BATCH_HOOKS, *(_ALIASES[hook] for hook in BATCH_HOOKS))
    keras_own = type(callback).__module__.startswith("keras.")
    return keras_own and not any(overrides(callback, hook) for hook in hooks)
