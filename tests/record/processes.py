"""Processes of their own with TensorFlow in them, forked from one that has imported it and done nothing else.

An import takes seconds, and many tests here need a process: to kill it, to give it devices, a cluster or Keras 2.
What needs another backend of Keras, or the end of an interpreter, starts one of its own instead.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
IMPORTED = ["tensorflow", "tf_keras", "mpprof.record.loops", "tests.record.training"]

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(IMPORTED)


class Process:
    """Runs `work(*arguments)`, a function of a module's own, at once; what it prints goes into the file `said`.
    `environment` is set before; what the imports themselves read of it they have read."""

    def __init__(self, said: Path, work: Callable[..., object], *arguments: Any, **environment: str) -> None:
        self.said = said
        given = (said, {**ENVIRONMENT, **environment}, work, arguments)
        self._process = _processes.Process(target=_run, args=given, daemon=True)
        with mock.patch.dict(os.environ, ENVIRONMENT):  # the first one starts the one that imports
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.exitcode

    def wait(self, timeout_s: float = 300.0) -> str:
        """What it printed, once it has ended. Raises AssertionError where it does not."""
        self._process.join(timeout_s)
        if self.code is None:
            self._process.kill()
            raise AssertionError(f"no end within {timeout_s:g} s: {self.said.read_text()[-3000:]}")
        return self.said.read_text()


def done(said: Path, work: Callable[..., object], *arguments: Any, **environment: str) -> str:
    """What a process printed that has ended well."""
    process = Process(said, work, *arguments, **environment)
    printed = process.wait()
    assert process.code == 0, printed[-4000:]
    return printed


def _run(
    said: Path, environment: Mapping[str, str], work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with said.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    work(*arguments)
    sys.stdout.flush()
