"""Processes of their own with TensorFlow in them, forked from one that has imported it and done nothing else.

An import takes seconds, and many tests here need a process: to kill it, to give it devices, a cluster or Keras 2.
Keras on JAX needs an interpreter of its own, as a process has one backend.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from mpprof.record.facts import described
from tests.paths import ROOT
from tests.record import hangs

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # off by default where a CPU has no AVX-512; read at the import
}  # fmt: skip
IMPORTED = ["tensorflow", "tf_keras", "mpprof.record.loop", "tests.record.training"]
OURS = re.compile(rf"(?:^|[\s:])mpprof[ :]|{re.escape(str(ROOT / 'mpprof' / ''))}")
"""A message of ours, or a traceback through our package; not a path in which the name stands."""

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


class Looking(Process):
    """Stands in for the process that looks at a saved model, as `described.started` starts it."""

    def __init__(self, asked: Path, answer: Path, said: Path) -> None:
        super().__init__(said, _look, asked, answer, **described.environment())

    @property
    def returncode(self) -> int | None:
        return self.code

    poll = Process.code.fget

    def wait(self, timeout_s: float | None = None) -> int:  # type: ignore[override]
        self._process.join(timeout_s)
        if self.code is None:
            raise subprocess.TimeoutExpired("looking", timeout_s or 0.0)
        return self.code

    def kill(self) -> None:
        self._process.kill()


def _look(asked: Path, answer: Path) -> None:
    request = json.loads(asked.read_text())
    asked.write_text(json.dumps({**request, "parent": os.getppid()}))  # it is the one that was forked
    described.main(str(asked), str(answer))


def done(said: Path, work: Callable[..., object], *arguments: Any, **environment: str) -> str:
    """What a process printed that has ended well."""
    process = Process(said, work, *arguments, **environment)
    printed = process.wait()
    assert process.code == 0, printed[-4000:]
    return printed


XLA_GAVE_UP, XLA_ATTEMPTS = "rendezvous.cc", 3
"""XLA ends a process whose virtual devices do not meet in a collective within 40 s, which was seen on two busy cores.
Only then are the trainings done again, from nothing."""
XLA_THREADS = "16"
"""Of XLA's pool, which else has one for each core: on two cores two devices that wait for each other hold both."""


def done_on_jax(work: Callable[[Path], object], folder: Path, **environment: str) -> str:
    """What an interpreter printed that has ended well, in which Keras runs on JAX. A program that trainings
    share, such as the one with the callback and the one without, is compiled once, and all of them quickly: how
    fast they run matters to nobody."""
    call = (
        "import gc; gc.disable(); import pathlib, sys; import keras; from tests.record import hangs; "
        "from {} import {} as work; gc.freeze(); gc.enable(); hangs.no_clock(); work(pathlib.Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as programs:
        given = {
            **os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "JAX_COMPILATION_CACHE_DIR": programs, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1", **environment,
            "XLA_FLAGS": " ".join(["--xla_backend_optimization_level=0", environment.get("XLA_FLAGS", "")]),
        }  # fmt: skip
        before = set(folder.iterdir())
        for _ in range(XLA_ATTEMPTS):
            ended = subprocess.run(
                [sys.executable, "-c", call.format(work.__module__, work.__name__), str(folder)],
                env=given, cwd=folder, text=True, timeout=900, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if ended.returncode == 0 or XLA_GAVE_UP not in ended.stdout:
                break
            for made in set(folder.iterdir()) - before:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
    assert ended.returncode == 0, ended.stdout[-4000:]
    return ended.stdout


def our_lines(said: str) -> list[str]:
    """The lines that mpprof printed, but for the alarm about a loss that is not finite on purpose."""
    return [line for line in said.splitlines() if OURS.search(line) and "MP206" not in line]


def _run(
    said: Path, environment: Mapping[str, str], work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with said.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    gc.freeze()  # what was imported before
    hangs.no_clock()
    work(*arguments)
    sys.stdout.flush()
