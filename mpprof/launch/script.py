"""What happens in a launched script's process, from its begin to its end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

from mpprof.launch import loops
from mpprof.launch.import_hook import ImportHook
from mpprof.launch.options import Options

KERAS = ("keras", "tf_keras")


class Script:
    """One launched script: the callbacks of its models, and what is to be said at its end.

    A model's fits are one run; each model has a run of its own. A failure of ours is said, and the script goes
    on without us."""

    def __init__(self, options: Options) -> None:
        self.options, self.pid = options, os.getpid()
        self.machine = loops.Machine()
        self.notes: list[str] = []
        self._callbacks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._calls = loops.Calls(self._loop_recorder, options.steps, self._end_now)
        self._hook = ImportHook(
            {
                **{name: self._keras_imported for name in KERAS},
                **{name: self.machine.start for name in loops.FRAMEWORKS},
            }
        )

    def begin(self) -> None:
        atexit.register(self.end)  # the first, so it is called last
        self._hook.install()

    def end(self) -> None:
        """Say what was recorded. What others have to do at the exit is done by now."""
        if os.getpid() != self.pid:
            return  # a forked child: its parent tells
        try:
            self._hook.remove()
            self.machine.stop()
            self._say_end()
        except KeyboardInterrupt:
            pass
        except Exception as error:  # noqa: BLE001 - the script has ended, and its exit code is its own
            self.note(f"no report: {type(error).__name__}: {error}")
        if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
            _end_by_interrupt()

    def note(self, text: str) -> None:
        """Note what is to be known beside the result, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _say_end(self) -> None:
        from mpprof.launch import ending

        if not self.options.quiet:
            for text in self.notes:
                ending.say(f"mpprof: {text}")
        roots = _recorded()
        if roots:
            ending.report(roots, self.options)
        else:
            ending.unrecorded(self.options, loops.framework(), self.machine)

    # --- Keras -----------------------------------------------------------------------------------------

    def _keras_imported(self, keras: ModuleType) -> None:
        try:
            self._put_into(keras)
        except Exception as error:  # noqa: BLE001 - see the class
            self.note(f"{keras.__name__} could not be prepared: {type(error).__name__}: {error}")

    def _put_into(self, keras: ModuleType) -> None:
        from mpprof.launch import fit, settings

        options, training = self.options, fit.Training()
        if options.policy is not None:
            try:
                settings.set_policy(keras, options.policy, self.note)
            except (TypeError, ValueError):
                sys.exit(f"mpprof: {keras.__name__} has no dtype policy {options.policy!r}")
        if options.jit is not None:
            settings.set_jit(keras, options.jit, self.note)
        added = functools.partial(self._added, keras)
        fit.with_callbacks(keras, training, added, self._look_at_types)
        fit.with_steps(keras, training, self._calls.step)

    def _added(self, keras: ModuleType, model: Any, has_ours: bool) -> list[Any]:
        """Return what a fit of this model gets beside the script's own callbacks."""
        self.machine.stop()
        if has_ours:
            return []
        try:
            recorded = self._callbacks.get(model)
            if recorded is None:
                recorded = self._callbacks[model] = self._callback()
            if self.options.steps is None:
                return [recorded]
            from mpprof.launch.stopping import ending_after

            end = functools.partial(self._end_now, model)
            return [ending_after(keras, model, recorded, self.options.steps, end), recorded]
        except Exception as error:  # noqa: BLE001 - see the class
            self.note(f"a fit is not recorded: {type(error).__name__}: {error}")
            return []

    def _look_at_types(self, model: Any) -> None:
        """Note where the policy that was asked for has not reached the layers."""
        from mpprof.launch import settings

        if self.options.policy is not None:
            said = settings.computes_in(model, self.options.policy)
            if said is not None:
                self.note(said)

    def _callback(self) -> Any:
        from mpprof.record import MPProfilerCallback

        options = self.options
        return MPProfilerCallback(options.logdir, profile_steps=options.profile or "auto", verbose=0)

    def _loop_recorder(self, model: Any) -> Any:
        from mpprof.record import StepRecorder

        self.machine.stop()
        options = self.options
        return StepRecorder(
            options.logdir, model=model, profile_steps=options.profile or "auto", verbose=0, announce=None
        )

    def _end_now(self) -> None:
        """End the process: what the script does after its fit does not happen."""
        from mpprof.launch import ending

        self.note(
            f"ended after {self.options.steps} steady steps: what the script does after its training did not happen"
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.end()
        ending.end_children()
        os._exit(0)


def begin(text: str) -> None:
    """Begin, in the script's process, with what the launcher has left."""
    Script(Options.of_text(text)).begin()


def _end_by_interrupt() -> None:
    """Have Python end by the signal of an interrupt that the script did not handle, as it was about to. It notes
    that for the text that it has run last, and importing modules has run others (CPython's
    `run_eval_code_obj`)."""
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _recorded() -> list[Path]:
    """Return the directories of the runs of this process, by whomever they were recorded."""
    recorder = sys.modules.get("mpprof.record.recorder")
    return [] if recorder is None else [root for root in recorder.ROOTS if root.is_dir()]
