"""Traces to read: those recorded by others (where they are), and small ones recorded here on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import NO_TRACES, SHARED
from tests.record.processes import done
from tests.traces.servers import Web

V100 = SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb"

_RECORD = """
import glob, os, shutil, sys
backend, policy, jit, target = sys.argv[1:5]
os.environ["KERAS_BACKEND"] = backend
import keras, random, numpy as np
random.seed(0); np.random.seed(0)  # on JAX Keras' own way would import TensorFlow
keras.config.set_dtype_policy(policy)
layers = keras.layers
model = keras.Sequential([
    keras.Input((16, 16, 1)), layers.Conv2D(4, 3, activation="relu", name="conv"),
    layers.Flatten(), layers.Dense(64, activation="relu", name="dense"), layers.Dense(10, name="my_dense"),
    layers.Activation("softmax", dtype="float32"),
])
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", jit_compile=jit == "1")
x = np.random.rand(16 * 12, 16, 16, 1).astype("float32")
y = np.random.randint(0, 10, 16 * 12)
log = target + ".log"
if backend == "tensorflow":
    import tensorflow as tf
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    start, stop = (lambda: tf.profiler.experimental.start(log, options=options)), tf.profiler.experimental.stop
    mark = lambda n: tf.profiler.experimental.Trace("mpprof_step", step_num=n, _r=1)
    wait = lambda: None
else:
    import jax
    more = {}
    if hasattr(jax.profiler, "ProfileOptions"):  # older versions have none, and trace Python's frames, too
        more["profiler_options"] = jax.profiler.ProfileOptions()
        more["profiler_options"].python_tracer_level, more["profiler_options"].host_tracer_level = 0, 2
    start, stop = (lambda: jax.profiler.start_trace(log, **more)), jax.profiler.stop_trace
    mark = lambda n: jax.profiler.StepTraceAnnotation("mpprof_step", step_num=n)
    wait = lambda: jax.block_until_ready(list(model._jax_state["trainable_variables"]))

class Window(keras.callbacks.Callback):
    step, open = 0, None
    def on_train_batch_begin(self, batch, logs=None):
        self.step += 1
        if self.open:
            self.open.__exit__(None, None, None)
            self.open = None
        if self.step in (6, 9):
            wait()
            start() if self.step == 6 else stop()
        if 6 <= self.step < 9:
            self.open = mark(self.step)
            self.open.__enter__()

model.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[Window()])
shutil.copy(glob.glob(log + "/plugins/profile/*/*.xplane.pb")[0], target)
"""


def shared_xplanes() -> list[Path]:
    return sorted(SHARED.glob("*/*.xplane.pb"))


def shared_xplanes_of_gpus() -> list[Path]:
    """Those that XProf has kernel statistics of."""
    return [path for path in shared_xplanes() if "tpu" not in str(path.relative_to(SHARED))]


def needs_shared() -> pytest.MarkDecorator:
    return pytest.mark.skipif(not V100.exists(), reason=NO_TRACES)


def record_with(python: str | Path, backend: str, policy: str, jit: bool, target: Path) -> Path:
    """Train a tiny Keras model in a process of this interpreter and profile its steps 6 to 8."""
    given = [backend, policy, str(int(jit)), str(target)]
    if backend == "tensorflow" and str(python) == sys.executable:
        done(target.with_suffix(".said"), _run_script, given)  # which has imported TensorFlow already
        return target
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environment["XLA_FLAGS"] = (
        "--xla_backend_optimization_level=0"  # compiled quickly: nothing here is about speed
    )
    environment.pop("PYTHONPATH", None)  # another interpreter's packages are not ours
    arguments = [str(python), "-c", _RECORD, *given]
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=300)
    assert target.exists(), ended.stderr[-2000:]
    return target


def _run_script(arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    exec(_RECORD, {"__name__": "__main__"})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, empty and this test's own."""
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, bool], Path]:
    """Record with the frameworks of this environment; each case once."""
    made: dict[tuple[str, str, bool], Path] = {}

    def run(backend: str, policy: str, jit: bool) -> Path:
        key = (backend, policy, jit)
        if key not in made:
            target = tmp_path_factory.mktemp("recorded") / f"{backend}_{policy}_{int(jit)}.xplane.pb"
            made[key] = record_with(sys.executable, backend, policy, jit, target)
        return made[key]

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `web` serves."""
    (tmp_path / "web").mkdir()
    return tmp_path / "web"


@pytest.fixture
def web(folder: Path) -> Iterator[Web]:
    server = Web(folder)
    yield server
    server.close()
