"""Which callbacks a fit gets, and what the hook on an import does: without Keras."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mpprof.launch import fit
from mpprof.launch.script import ImportHook
from mpprof.record.fit_calls import watch_fits


class Callback:
    """Does nothing at a batch's end, as ours on JAX."""

    def on_train_batch_end(self, batch: int) -> None: ...

    on_train_batch_end._is_default = True  # type: ignore[attr-defined]

    def set_model(self, model: Any) -> None:
        self.model = model

    def set_params(self, params: Any) -> None:
        self.params = params


class CallbackList:
    def __init__(self, callbacks: list[Any]) -> None:
        self.callbacks, self.params, self._async_train = callbacks, {"epochs": 2}, True


class EndsBatches(Callback):
    """As ours on TensorFlow and torch."""

    def on_train_batch_end(self, batch: int) -> None: ...


ONE, TWO, OURS, ENDS = Callback(), Callback(), Callback(), EndsBatches()


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (None, [OURS]),
        ([], [OURS]),
        ({}, [OURS]),
        ([ONE, TWO], [ONE, TWO, OURS]),
        ((ONE,), [ONE, OURS]),
        ([[ONE], TWO], [[ONE], TWO, OURS]),
        (ONE, {"0": ONE, "1": OURS}),
        ({"a": ONE}, {"0": {"a": ONE}, "1": OURS}),
    ],
)
def test_callbacks_are_given_in_many_ways(given: Any, becomes: Any) -> None:
    kept = repr(given)
    assert fit.joined(given, [OURS], "model") == becomes
    assert repr(given) == kept


@pytest.mark.parametrize("given", [ONE, {"0": ONE}, [ONE], (ONE,)])
def test_batches_end_in_order_where_ours_has_to_know(given: Any) -> None:
    """Where `callbacks` is not a list, Keras calls the hooks of a batch's end in a pool of threads."""
    assert fit.joined(given, [ENDS], "model") == [ONE, ENDS]
    assert fit.joined(CallbackList([ONE]), [ENDS], "model")._async_train is False


def test_a_list_object_of_the_scripts_own_stays_as_it_is() -> None:
    given = CallbackList([ONE])
    longer = fit.joined(given, [OURS], "model")
    assert (given.callbacks, longer.callbacks) == ([ONE], [ONE, OURS])
    assert longer._async_train is True
    assert (OURS.model, OURS.params) == ("model", {"epochs": 2})
    assert not hasattr(ONE, "model")


def keras(calls: list[Any]) -> Any:
    class Trainer:
        def fit(self, x: Any = None, callbacks: Any = None, **more: Any) -> str:
            calls.append((x, callbacks, more))
            return "history"

        def train_on_batch(self, x: Any) -> Any:
            return x

    class Model(Trainer):
        pass

    return SimpleNamespace(Model=Model)


def test_each_fit_gets_the_callback_once_and_one_within_it_none() -> None:
    calls: list[Any] = []
    asked: list[Any] = []
    module, training = keras(calls), fit.Training()
    fit.with_callbacks(module, training, lambda model, has: asked.append(has) or [OURS], lambda model: None)

    class Twice(module.Model):  # type: ignore[misc, name-defined]
        def fit(self, x: Any) -> Any:
            return super().fit(x, [ONE], epochs=2)

    assert Twice().fit(1) == "history"
    assert module.Model().fit(2, callbacks=TWO) == "history"
    with training.running():
        module.Model().fit(3)
    assert calls == [(1, [ONE, OURS], {"epochs": 2}), (2, {"0": TWO, "1": OURS}, {}), (3, None, {})]
    assert asked == [False, False]


def test_a_batch_is_recorded_where_no_fit_calls_it() -> None:
    module, training, seen = keras([]), fit.Training(), []
    fit.with_steps(module, training, lambda model, train: seen.append(train()) or seen[-1])
    assert module.Model().train_on_batch(x=4) == 4
    with training.running():
        assert module.Model().train_on_batch(5) == 5
    assert seen == [4]


def test_a_keras_that_is_being_imported_is_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """tf_keras imports TensorFlow, and that Keras 3, before it has any model."""
    monkeypatch.setitem(sys.modules, "keras", ModuleType("keras"))
    monkeypatch.setitem(sys.modules, "tf_keras", ModuleType("tf_keras"))
    watch_fits()
    assert not hasattr(sys.modules["keras"], "Model")
    assert not hasattr(sys.modules["tf_keras"], "Model")


def test_a_hook_waits_for_an_import_that_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first import fails, as one of a framework that lacks its backend, and the script tries again."""
    (tmp_path / "hooked_module.py").write_text("import hooked_state\nhooked_state.runs()\nready = True\n")
    state: Any = ModuleType("hooked_state")
    fails = [True, False, False]
    state.runs = lambda: 1 / 0 if fails.pop(0) else None
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "hooked_state", state)
    imported: list[Any] = []
    before = list(sys.meta_path)
    hook = ImportHook({"hooked_module": imported.append, "hooked_state": imported.append})
    hook.install()
    try:
        assert imported == [state]  # what is there already is told at once
        assert importlib.util.find_spec("hooked_module") is not None
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("hooked_module")
        assert imported == [state]
        module = importlib.import_module("hooked_module")
        assert imported == [state, module]
        assert importlib.reload(module).ready
        assert imported == [state, module]  # once
        assert "exec_module" not in vars(module.__loader__)
    finally:
        hook.remove()
        sys.modules.pop("hooked_module", None)
    assert sys.meta_path == before
