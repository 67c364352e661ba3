"""What happens in a launched script's process, from its begin to its end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mpprof.launch import loops
from mpprof.launch.options import Options

# Calls a function once a module has been imported, whoever imports it.

Then = Callable[[ModuleType], None]


class ImportHook:
    """Stands first among Python's finders. It finds nothing itself: it has the loader that another one finds
    tell of the end of the import. One that fails may be tried again by the script.

    `then` are the functions by a module's name; each is called once, at once for what is imported already."""

    def __init__(self, then: dict[str, Then]) -> None:
        self._waiting = dict(then)

    def install(self) -> None:
        for name in [name for name in self._waiting if name in sys.modules]:
            self._waiting.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that another finder returns, for a module that is waited for; else None."""
        if name not in self._waiting:
            return None
        for finder in [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(name, spec)
                return spec
        return None

    def _follow(self, name: str, spec: ModuleSpec) -> None:
        """Have the loader call `then` behind its own work. It stays the loader that it is: what is set on it
        goes again."""
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            then = self._waiting.pop(name, None)
            if then is not None:
                then(module)

        vars(loader)["exec_module"] = exec_module


if TYPE_CHECKING:
    from mpprof.record.keras_compat import Method

KERAS = ("keras", "tf_keras")


class Script:
    """One launched script: the callbacks of its models, and the notes for its end.

    A model's fits are one run; each model has a run of its own. A failure of ours is noted, and the script
    goes on without us."""

    def __init__(self, options: Options) -> None:
        self.options, self.pid, self._began_in = options, os.getpid(), os.getcwd()
        self.machine = loops.Machine()
        self.asked: list[str] = []  # the policies that the script asks for, where another is set
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._ended = False  # by us, after so many steps
        self._refused = False  # before it trained, for what was asked of it
        self._trained = False  # by Keras' fit or train_on_batch
        self._predicted = False  # by Keras' predict or evaluate
        self._callbacks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._hook = ImportHook(
            {
                **dict.fromkeys(KERAS, self._keras_imported),
                **dict.fromkeys(loops.FRAMEWORKS, self._framework_imported),
            }
        )

    def begin(self) -> None:
        atexit.register(self.end)  # the first, so it is called last
        self._hook.install()

    def end(self) -> None:
        """Say what was recorded. What others have to do at the exit is done by now."""
        if os.getpid() != self.pid:
            return  # a forked child: its parent tells
        with contextlib.suppress(KeyboardInterrupt):
            self._attempt("the report", self._say_end)
            self._say_notes()
        if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
            _end_by_interrupt()

    def note(self, text: str) -> None:
        """Note what is to be known beside the result, once."""
        if text not in self._noted:
            self._noted.add(text)
            self._notes.append(text)

    def _attempt(self, what: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do our own work. Where it fails the script does not: that is noted, and None returned."""
        try:
            return work(*arguments)
        except Exception as error:  # noqa: BLE001 - see above
            self.note(f"{what} failed: {type(error).__name__}: {error}")
            return None

    def _say_end(self) -> None:
        from mpprof.launch import ending

        self._hook.remove()
        self.machine.stop()
        if self._refused:
            return
        with contextlib.suppress(OSError):
            os.chdir(self._began_in)  # whose reader is there: paths are shown relative to it
        if self.options.steps is not None and not self._ended:
            self.note(f"the script ended before {self.options.steps} steady steps were recorded")
        self._say_notes()
        recorder = sys.modules.get("mpprof.record.recorder")
        roots: list[Path] = [] if recorder is None else [root for root in recorder.ROOTS if root.is_dir()]
        if roots:
            ending.report(roots, self.options)
        elif not self._trained:
            ending.unrecorded(self.options, loops.framework(), self.machine, predicted=self._predicted)
        elif recorder is not None and recorder.REFUSED:
            ending.say(f"mpprof: there is no report: {'; '.join(dict.fromkeys(recorder.REFUSED))}")

    def _say_notes(self) -> None:
        from mpprof.launch import ending

        notes, self._notes = self._notes, []
        for text in () if self.options.quiet else notes:
            ending.say(f"mpprof: {text}")

    # --- what the script imports -----------------------------------------------------------------------

    def _framework_imported(self, module: ModuleType) -> None:
        self._attempt("sampling the hardware", self.machine.start)

    def _keras_imported(self, keras: ModuleType) -> None:
        self._attempt(f"recording {keras.__name__}", self._put_into, keras)

    def _put_into(self, keras: ModuleType) -> None:
        from mpprof.launch import fit, settings
        from mpprof.record.fit_calls import watch_fits
        from mpprof.record.keras_compat import replace

        options, training = self.options, fit.Training()
        if options.policy is not None:
            try:
                settings.set_policy(keras, options.policy, self.note, self.asked.append)
            except (TypeError, ValueError):
                self._refused = True
                sys.exit(f"mpprof: {keras.__name__} has no dtype policy {options.policy!r}")
        if options.jit is not None:
            settings.set_jit(keras, options.jit, self.note)
        watch_fits()  # first: what wraps `fit` next makes our first callback, and then calls this one
        added = functools.partial(self._added, keras)
        fit.with_callbacks(keras, training, added, self._look_at_types)
        calls = loops.Calls(
            lambda model: self._attempt("recording train_on_batch", self._loop_recorder, model),
            self._enough(),
            self._end_now,
        )
        fit.with_steps(keras, training, calls.step)
        for name in ("predict", "evaluate"):
            replace(keras, name, self._noting)

    def _noting(self, method: Method) -> Method:
        @functools.wraps(method)
        def predicting(*args: Any, **kwargs: Any) -> Any:
            self._predicted = True
            return method(*args, **kwargs)

        return predicting

    # --- what it trains --------------------------------------------------------------------------------

    def _added(self, keras: ModuleType, model: Any, has_ours: bool) -> list[Any]:
        """Return what a fit of this model gets beside the script's own callbacks."""
        self._trained = True
        self.machine.stop()
        return [] if has_ours else self._attempt("recording a fit", self._callbacks_of, keras, model) or []

    def _callbacks_of(self, keras: ModuleType, model: Any) -> list[Any]:
        from mpprof.record import MPProfilerCallback

        options, recorded = self.options, self._callbacks.get(model)
        if recorded is None:
            recorded = MPProfilerCallback(
                options.logdir, profile_steps=options.profile or "auto", verbose=0, numerics=options.numerics
            )
            self._callbacks[model] = recorded
        return [*self._ending(keras, model, recorded), recorded]

    def _ending(self, keras: ModuleType, model: Any, recorded: Any) -> list[Any]:
        """Return the callback that ends the process once it has trained long enough, if it is to."""
        from mpprof.launch.stopping import ending_after

        enough, end = self._enough(), functools.partial(self._end_now, model)
        return [] if enough is None else [ending_after(keras, model, recorded, enough, end)]

    def _enough(self) -> Callable[[int], bool] | None:
        """Return what tells of a number of steady steps whether they are enough; None: of no number."""
        steps = self.options.steps
        return None if steps is None else lambda steady: steady >= steps

    def _loop_recorder(self, model: Any) -> Any:
        from mpprof.record import StepRecorder

        self._trained = True
        self.machine.stop()
        options = self.options
        recorder = StepRecorder(
            options.logdir, model=model, profile_steps=options.profile or "auto", verbose=0
        )
        return recorder.__enter__()

    def _look_at_types(self, model: Any) -> None:
        """Note where the policy that was asked for has not reached the layers."""
        if self.options.policy is not None:
            from mpprof.launch import settings

            policy = self.options.policy
            took = self._attempt("reading the layers' types", settings.computing_in, model, policy)
            if took is not None and took[0] < took[1]:
                self.note(settings.not_computing_in(policy, *took))

    def _end_now(self, model: Any) -> None:
        """End the process: what the script does after its training does not happen."""
        from mpprof.launch import ending

        self._look_at_types(model)
        self._ended, steps = True, self.options.steps
        self.note(f"ended after {steps} steady steps: what the script does after its training did not happen")
        for stream in (sys.stdout, sys.stderr):
            self._attempt("writing the script's output", stream.flush)
        self.end()
        self._attempt("ending the script's processes", ending.end_children)
        os._exit(0)


def _end_by_interrupt() -> None:
    """Have Python end by the signal of an interrupt that the script did not handle, as it was about to. It
    keeps that of the text that it ran last, and imports have run others (CPython's `run_eval_code_obj`)."""
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")
