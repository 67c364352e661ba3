"""The pytest fixture `mpprof_run`: records what a test trains, and judges it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mpprof.api.results import Diagnosis
    from mpprof.record import MPProfilerCallback


class MpprofRun:
    """What a test has of mpprof: a directory of its own, a callback that records into it, the judgement.

    Nothing of mpprof is imported before it is used."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = logdir

    def callback(self, **options: Any) -> MPProfilerCallback:
        """Return a callback for `fit` that records into this test's directory; `options` are its own."""
        from mpprof.record import MPProfilerCallback

        quiet = {"verbose": 0, "announce": None}
        return MPProfilerCallback(self.logdir, **(quiet | options))

    def diagnose(self, path: Any = None, baseline: Any = None) -> Diagnosis:
        """Return the judgement of what was recorded here, or of the run at a path."""
        from mpprof.api import public

        run = public.load(self.logdir, run="latest") if path is None else public.load(path)
        return run.diagnose(baseline)


@pytest.fixture
def mpprof_run(tmp_path: Path) -> MpprofRun:
    """Return an object that records what this test trains (`callback()`) and judges it (`diagnose()`), or a
    run that is there (`diagnose("logs/mixed")`); for `mpprof.testing.assert_tensor_cores`."""
    return MpprofRun(tmp_path / "mpprof-logs")
