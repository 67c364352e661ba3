"""Trainings that no `fit` runs: calls of `train_on_batch`, and loops of which only the machine is seen."""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

MOST_SAMPLES = 20_000
"""Of hardware, kept until it is known that nothing else was recorded: five hours of one GPU."""

FRAMEWORKS = ("tensorflow", "jax", "torch")

_LINES = {
    "tensorflow": """\
from mpprof import StepRecorder

with StepRecorder({logdir}, model=model, optimizer=optimizer) as recorder:
    for x, y in recorder.batches(dataset):
        with recorder.step():
            loss = train_step(x, y)
        recorder.update(loss=float(loss))""",
    "jax": """\
from mpprof import StepRecorder

with StepRecorder({logdir}, wait=lambda: jax.block_until_ready(params)) as recorder:
    for x, y in recorder.batches(batches):
        with recorder.step():
            params, loss = train_step(params, x, y)""",
    "torch": """\
from mpprof import StepRecorder

with StepRecorder({logdir}{wait}) as recorder:
    for x, y in recorder.batches(loader):
        with recorder.step():
            loss = train_step(x, y)
        recorder.update(loss=float(loss))""",
}


class Calls:
    """One run of all calls of `train_on_batch`, whichever model's, each a step. It ends with the process, or
    when it has `enough` steady steps: `end` is called then. `make` returns the recorder, entered; None
    where there can be none."""

    def __init__(
        self, make: Callable[[Any], Any], enough: Callable[[int], bool] | None, end: Callable[[Any], None]
    ) -> None:
        self._make, self._enough, self._end = make, enough, end
        self._recorder: Any = None
        self._begun = False
        self._trained: Callable[[], Any] = lambda: None  # the model of the first call

    def step(self, model: Any, train: Callable[[], Any]) -> Any:
        if not self._begun:
            self._begun, self._trained, self._recorder = True, weakref.ref(model), self._make(model)
            atexit.register(self.close)  # which comes before what closes a recorder that is left open
        recorder = self._recorder
        if recorder is None:
            return train()
        with recorder.step():
            result = train()
        recorder.update(loss=_loss(result), optimizer_variables=self._variables(model))
        if self._enough is not None and self._enough(recorder.steady_steps):
            self.close()
            self._end(model)
        return result

    def _variables(self, model: Any) -> Any:
        """Return the optimizer's variables after a call, for JAX, where the recorder cannot read them itself;
        None for another model than the one that is described."""
        if self._trained() is not model or framework() != "jax":
            return None
        return [each.value for each in model.optimizer.variables]

    def close(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            error = getattr(sys, "last_value", None)
            recorder.__exit__(None if error is None else type(error), error, None)


class Machine:
    """Samples the hardware from a framework's import on, into memory, until a training is seen."""

    def __init__(self) -> None:
        self._sampler: Any = None
        self.made_s = time.time()  # as the script begins
        self.begun = 0, 0
        self.samples: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self.absent: dict[str, str] = {}

    def start(self) -> None:
        if self._sampler is None:
            from mpprof.record.hardware import HardwareSampler

            self.begun = time.monotonic_ns(), time.time_ns()
            self._sampler = HardwareSampler(
                self.samples.append, time.monotonic_ns, self.begun[0], self.absent, set()
            )
            self._sampler.start()

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def write(self, logdir: str) -> Any:
        """Write the samples as a run without steps. Returns its directory, None where there are none."""
        from mpprof.record.recorder import Recorder
        from mpprof.store import formats
        from mpprof.store.writing import LineWriter

        recorder = Recorder(logdir, hardware=False, clock=time.monotonic_ns)
        if self.samples:
            recorder.open(begun=self.begun)
        if not recorder.on:
            return None
        recorder.absent.pop("hardware", None)
        recorder.absent |= {**self.absent, "steps": "the script called no fit of Keras"}
        recorder.resume()
        path = recorder.folder / formats.HARDWARE_FILE
        writer = LineWriter(
            path, formats.HARDWARE_SCHEMA, lambda path, error: recorder.fail("hardware", error)
        )
        for sample in self.samples:
            writer.put(sample)
        writer.close()
        recorder.close()
        return recorder.root


def used(samples: Iterable[dict[str, Any]]) -> list[str]:
    """Return a line on each GPU of these samples: how busy it was, and its memory."""
    by_gpu: dict[Any, list[dict[str, Any]]] = {}
    for sample in samples:
        if "utilization_ratio" in sample:
            by_gpu.setdefault(sample.get("gpu"), []).append(sample)
    lines = []
    for gpu, taken in sorted(by_gpu.items(), key=lambda pair: str(pair[0])):
        busy = sum(sample["utilization_ratio"] for sample in taken) / len(taken)
        most = max((sample.get("memory_used_bytes", 0) for sample in taken), default=0)
        memory = f", {most / 2**30:.1f} GiB of memory at most" if most else ""
        lines.append(f"GPU {gpu}: some kernel ran {busy:.0%} of the time ({len(taken)} samples){memory}")
    return lines


def framework() -> str | None:
    """Return the framework that a loop of this process trains with; None where none is imported."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend"):
        return str(keras.backend.backend())
    found = [name for name in FRAMEWORKS if name in sys.modules]
    return found[0] if found else None


def lines_to_add(backend: str, logdir: str) -> str:
    """Return the lines that record a loop of this framework."""
    torch = sys.modules.get("torch")
    on_gpu = backend == "torch" and torch is not None and torch.cuda.is_initialized()
    wait = ", wait=torch.cuda.synchronize" if on_gpu else ""
    return _LINES.get(backend, _LINES["tensorflow"]).format(logdir=f'"{logdir}"', wait=wait)


def _loss(result: Any) -> float | None:
    """Return the loss of what `train_on_batch` returns: a number, a list that begins with it, or names and
    values."""
    value = result.get("loss") if isinstance(result, dict) else result
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
