"""The facts of the process: framework, settings, devices, distribution, and what cannot be known."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mpprof.record.backends.base import Absent, Facts, Probe
from mpprof.record.facts import machine
from mpprof.record.facts.graph_rewrite import LOG_PATH, rewrite_facts
from mpprof.record.keras_compat import KERAS_2, keras_of
from mpprof.record.recorder import Recorder
from mpprof.record.run_with_timeout import with_timeout

# Which script trains here.


def script_of(main: ModuleType | None = None) -> str | None:
    """Return the script of this process as a command names it: "src/train.py", "-m package.train"; of one
    that is not below the working directory its name alone. None where there is none of the user's: in a
    notebook, an interactive session, or a program that was installed.

    `main`: the module that Python runs; None: this process' own."""
    main = sys.modules.get("__main__") if main is None else main
    path: str | None = getattr(main, "__file__", None)
    spec: ModuleSpec | None = getattr(main, "__spec__", None)
    if not path or not path.endswith(".py") or _is_installed(path):
        return None
    if spec is not None and spec.name != "__main__":
        return f"-m {spec.name.removesuffix('.__main__')}"
    if spec is not None:  # a directory, of which Python runs `__main__.py`
        path = os.path.dirname(path)
    try:
        below = os.path.relpath(path)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        below = os.pardir
    return os.path.basename(path.rstrip(os.sep)) if below.startswith((os.pardir, "-")) else below


def _is_installed(path: str) -> bool:
    path = os.path.realpath(path)
    folders = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    return any(path.startswith(os.path.realpath(each) + os.sep) for each in folders)


_LAUNCHED = "mpprof.launch.beginning"
"""The module with which a process begins that `mpprof run` or `mpprof try` has started."""
NO_LOG_PATH = (
    f"set {LOG_PATH} to a directory before TensorFlow starts, or put the training's log into the run as "
    "mpprof/graph_rewrite.log"
)
NO_GRAPHS = (
    "TensorFlow saved no graph since the run began: it rewrites only for GPUs, and each graph only once"
)


def describe_process(recorder: Recorder, probe: Probe, model: Any) -> None:
    """Ask the probe, and write its answers into the recorder's facts and its absences into `absent`."""
    for part, question in (("settings", probe.settings), ("distribution", lambda: probe.distribution(model))):
        for key, value in (recorder.attempt(part, _answers, question) or {}).items():
            if isinstance(value, Absent):
                recorder.absent[key] = value.reason
            else:
                recorder.facts[key] = value
    recorder.facts["devices"] = recorder.attempt("devices", _devices, probe)
    recorder.facts["script"] = recorder.attempt("script", script_of)
    if _LAUNCHED in sys.modules:
        recorder.facts["launched"] = True
    memory = recorder.attempt("memory", _memory, probe)
    if isinstance(memory, Absent):
        recorder.absent["memory"] = memory.reason


def describe_rewrite(recorder: Recorder) -> None:
    """Describe, at the end of a fit, what the graph rewrite for mixed precision did, where it was asked
    for."""
    asked = recorder.facts.get("graph_rewrite")
    if not asked:
        return
    facts = with_timeout(rewrite_facts, asked, recorder.facts["created_unix_ns"] / 1e9)
    if facts:
        recorder.facts["graph_rewrite_result"] = facts
    if "graphs" in facts:
        recorder.absent.pop("graph_rewrite_result", None)
    else:
        recorder.absent["graph_rewrite_result"] = NO_GRAPHS if os.environ.get(LOG_PATH) else NO_LOG_PATH


def _answers(question: Callable[[], Facts]) -> Facts:
    """Return the answer to a question as facts. Raises TypeError where the answer is none."""
    return dict(question())


def _memory(probe: Probe) -> list[Facts] | Absent:
    """Return the memory as the probe states it. Raises TypeError where the answer is none."""
    memory = probe.memory()
    if not isinstance(memory, list | Absent):
        raise TypeError(f"{memory!r} is not an allocator's state")
    return memory


def _devices(probe: Probe) -> list[Facts]:
    return with_timeout(lambda: [*machine.with_nvml(probe.devices()), machine.cpu()])


def framework_facts(probe: Probe, model: Any = None) -> Facts:
    """Return run.json's `framework`; Keras only where it is in use: the Keras of the model."""
    keras = keras_of(model)
    facts = {
        "keras": getattr(keras, "__version__", None),
        "keras_package": KERAS_2 if keras is not None and keras.__name__ == KERAS_2 else None,
        "backend": probe.backend,
        "python": platform.python_version(),
        **probe.framework(),
    }
    return {key: value for key, value in facts.items() if value is not None}
