"""A script without mpprof and under `mpprof run`: in processes of their own, or forked from one that has TensorFlow.

In a fork the script is run by `runpy`, so what Python itself does for a script is proven by the real processes."""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

from mpprof.launch.options import Options
from tests.paths import ROOT
from tests.record.processes import Process

SCRIPTS = Path(__file__).parent / "scripts"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def python(*words: str, cwd: Path, **environment: str) -> Ran:
    return _ran([sys.executable, *words], cwd, environment)


def launched(*words: str, cwd: Path, **environment: str) -> Ran:
    return _ran([sys.executable, "-m", "mpprof", "run", *words], cwd, environment)


def interruptible() -> None:
    """As in a terminal: in a shell's background job SIGINT is ignored, and so it is in what that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ran(command: list[str], cwd: Path, environment: dict[str, str]) -> Ran:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=surroundings(**environment),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=interruptible,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a script's process."""
    given = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "dashboards")]), "COLUMNS": "100",
        "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    return {**os.environ, **given, **more}


class Forked:
    """A script in a fork, under way. `options`: those of `mpprof run`; None: without it."""

    def __init__(self, folder: Path, name: str, *arguments: str, options: Options | None = None) -> None:
        self._folder = folder / ("plain" if options is None else "launched")
        self._folder.mkdir()
        work = (str(SCRIPTS / name), list(arguments), None if options is None else options.text())
        self._process = Process(self._folder / "said", _script, str(self._folder), *work)

    def ended(self) -> Ran:
        said = self._process.wait()
        assert self._process.code is not None, said
        return Ran(self._process.code, *((self._folder / name).read_text() for name in ("out", "err")))


def options(folder: Path, name: str = "train.py", **more: object) -> Options:
    return Options(str(folder / "logs"), name)._replace(**more)  # type: ignore[arg-type]


def _script(folder: str, path: str, arguments: list[str], launch: str | None) -> None:
    for descriptor, name in ((1, "out"), (2, "err")):
        with open(os.path.join(folder, name), "wb") as file:
            os.dup2(file.fileno(), descriptor)
    os.chdir(folder)
    code = 0
    try:
        try:
            _run(path, arguments, launch)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException as error:  # noqa: BLE001 - as Python ends a script
            code, sys.last_value = 1, error
            traceback.print_exc()
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(code)


def _run(path: str, arguments: list[str], launch: str | None) -> None:
    sys.argv = [path, *arguments]
    if launch is not None:
        from mpprof.launch import beginning
        from mpprof.record import recorder

        atexit.unregister(recorder._close_all)  # which this fork has imported before the script begins
        beginning.begin(launch)
        atexit.register(recorder._close_all)
    runpy.run_path(path, run_name="__main__")
