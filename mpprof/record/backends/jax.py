"""Answers from JAX, whose device runs behind the host.

Within an epoch the state lives in the trainer's `_jax_state`, not in the model's variables; touching
`callback.model` there would copy all of it back, so only the bare model is used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import monitoring

from mpprof.record.backends.base import (
    ALONE,
    MARKER,
    Absent,
    Facts,
    Reading,
    Snapshot,
    Unanswered,
    counters_of,
    loss_of,
)
from mpprof.record.backends.compiles import Compiles, Durations, Told

COMPILED = "/jax/core/compile/backend_compile_duration"
COMPILING = frozenset(
    {COMPILED, "/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration"}
)
"""What `jax.monitoring` tells of: tracing, lowering and compiling (read in JAX 0.10, `_src/dispatch.py`)."""

EACH_ITS_OWN = (
    "several JAX processes train together without a shared name for the training: each of them records a "
    "run of its own, and this is one of them"
)


class JaxProbe(Unanswered):
    asynchronous = True
    reading_waits = True  # a program's outputs are there when all of it has run

    def __init__(self) -> None:
        super().__init__("jax")
        self._pack = jax.jit(_packed)
        self._places: tuple[weakref.ref[Any], int, list[int | None]] | None = None  # with n variables
        self._good_steps = True  # wanted: each array that is copied costs
        self._loss_places: tuple[Any, int, tuple[int, int] | None] | None = None  # a tracker among n
        self._stands_in: tuple[Path, Path] | None = None  # where JAX writes a trace, and where it belongs

    def framework(self) -> Facts:
        precision = jax.config.jax_default_matmul_precision
        return {
            "backend_version": jax.__version__,
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "matmul_precision": None if precision is None else str(precision),
        }

    def settings(self) -> Facts:
        return {
            "tf32_enabled": Absent("JAX decides per operation, by matmul_precision and the device"),
            "deterministic_ops": "--xla_gpu_deterministic_ops=true" in os.environ.get("XLA_FLAGS", ""),
            "graph_rewrite": False,
        }

    def devices(self) -> list[Facts]:
        return [_device(device) for device in jax.local_devices() if device.platform != "cpu"]

    def distribution(self, model: Any) -> Facts:
        import keras

        current = keras.distribution.distribution()
        alone = {"workers": Absent(EACH_ITS_OWN)} if jax.process_count() > 1 else {}
        if current is None:
            return {"distribution": Absent(ALONE), "replicas": 1, **alone}
        return {"distribution": type(current).__name__, "replicas": _replicas(current), **alone}

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        found = counters_of(optimizer)
        if isinstance(found, Absent):
            return found
        if good_steps != self._good_steps:
            self._good_steps, self._places = good_steps, None
        variables = (found.iterations, found.loss_scale, found.good_steps if good_steps else None)

        def read() -> Reading:
            return _reading(jax.device_get([_value(variable) for variable in variables]))

        return read

    def snapshot(self, model: Any) -> Snapshot | None:
        state = getattr(model, "_jax_state", None)
        if not state:
            return None
        values = state["optimizer_variables"]
        places = self._find(model.optimizer, len(values))
        if places is None:
            return None
        # The next step donates these buffers: what is kept must be a copy, enqueued before it.
        wanted = [None if place is None else values[place] for place in places]
        metrics = state["metrics_variables"]
        loss = self._find_loss(model, len(metrics))
        if loss is not None:
            wanted += (metrics[loss[0]], metrics[loss[1]])
        return _Queued(self._pack(wanted), places)

    def _find_loss(self, model: Any, count: int) -> tuple[int, int] | None:
        """Return where the loss' running mean lies among the `count` variables of the metrics."""
        tracker, found = getattr(model, "_loss_tracker", None), self._loss_places
        if found is None or found[0] is not tracker or found[1] != count:
            wanted, variables = loss_of(model), list(model.metrics_variables)
            places = [k for part in wanted or () for k, variable in enumerate(variables) if variable is part]
            known = len(places) == 2 and len(variables) == count
            found = self._loss_places = (tracker, count, (places[0], places[1]) if known else None)
        return found[2]

    def handed(self, optimizer: Any, variables: list[Any]) -> Reading | None:
        places = self._find(optimizer, len(variables))
        if places is None:
            return None
        return _reading(jax.device_get([None if place is None else variables[place] for place in places]))

    def _find(self, optimizer: Any, count: int) -> list[int | None] | None:
        """Return where the counters lie among the optimizer's `count` variables."""
        if self._places is None or self._places[0]() is not optimizer or self._places[1] != count:
            found = counters_of(optimizer)
            if isinstance(found, Absent):
                return None
            variables = list(optimizer.variables)
            counters = (found.iterations, found.loss_scale, found.good_steps if self._good_steps else None)
            # Their order differs by version and backend, and names repeat: identity alone is certain.
            self._places = (
                weakref.ref(optimizer),
                count,
                [next((k for k, v in enumerate(variables) if v is counter), None) for counter in counters],
            )
        return self._places[2]

    def state(self, model: Any) -> int | None:
        # Each call makes the dict anew while the one before is still held, so no two share an address.
        return id(getattr(model, "_jax_state", None))

    def wait(self, model: Any) -> None:
        state = getattr(model, "_jax_state", None)
        if state:
            # Keras' list types are leaves to JAX, which then waits for nothing: hand it plain lists.
            jax.block_until_ready([list(values) for values in state.values() if values is not None])

    def compiles(self, model: Any, told: Told) -> Compiles | Absent:
        forget = getattr(monitoring, "unregister_event_duration_listener", None) or getattr(
            monitoring, "_unregister_event_duration_listener_by_callback", None
        )
        if forget is None:
            return Absent("this JAX cannot be told to stop telling of its compiling")
        source = Durations("jax", told)

        def heard(event: str, seconds: float, **more: Any) -> None:
            if event in COMPILING:
                source.heard(seconds, int(event == COMPILED))

        monitoring.register_event_duration_secs_listener(heard)
        source.stop = lambda: forget(heard)
        return source

    def reset_memory_peak(self) -> str | None:
        return "JAX cannot reset the peak: peak_bytes is since the start of the process"

    def memory(self) -> list[Facts] | Absent:
        devices = [device for device in jax.local_devices() if device.platform != "cpu"]
        if not devices:
            return Absent("no accelerator: JAX has no statistics of the host's memory")
        stats = [(device, device.memory_stats()) for device in devices]
        known = [_memory(device, stat) for device, stat in stats if stat]
        return known or Absent("this device's allocator keeps no statistics")

    def start_trace(self, folder: Path) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        # JAX takes only text: a directory whose name is not text is replaced by another one meanwhile.
        self._stands_in = None if _is_text(folder) else (Path(tempfile.mkdtemp(prefix="mpprof-")), folder)
        at = self._stands_in[0] if self._stands_in else folder
        try:
            jax.profiler.start_trace(str(at), profiler_options=options)
        except BaseException:  # an interrupt, too, must leave no folder behind; it goes on to the caller
            self._moved()
            raise

    def stop_trace(self) -> None:
        try:
            jax.profiler.stop_trace()
        finally:
            self._moved()

    def _moved(self) -> None:
        """Move what JAX wrote to where it belongs."""
        if self._stands_in is not None:
            (at, folder), self._stands_in = self._stands_in, None
            shutil.copytree(at, folder, dirs_exist_ok=True)
            shutil.rmtree(at, ignore_errors=True)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        marker: contextlib.AbstractContextManager[Any]
        marker = jax.profiler.StepTraceAnnotation(MARKER, step_num=step)
        return marker


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Queued(NamedTuple):  # made in a hook: see Reading
    packed: Any  # int32[5], see _packed
    places: list[int | None]

    def ready(self) -> bool:
        return bool(self.packed.is_ready())

    def reading(self) -> Reading:
        packed = np.asarray(self.packed)
        iterations, scale, good, total, count = _WORDS.unpack(packed)  # type: ignore[arg-type]  # a buffer
        loss = total / count if count else None
        has_iterations, has_scale, has_good = self.places
        return Reading(
            None if has_iterations is None else iterations,
            None if has_scale is None else scale,
            None if has_good is None else good,
            loss,
        )


_WORDS = struct.Struct("=ififf")


def _packed(values: list[Any]) -> Any:
    """Return (iterations, loss scale, good steps, and of the loss: sum, count) in one array of 32-bit words;
    a value that is no integer is held by its bits. Fetching one array costs a fifth of fetching several."""
    zero = jax.numpy.zeros(())
    known = [zero if value is None else value for value in values]
    iterations, scale, good, *loss = [*known, zero, zero][:5]
    numbers = [jax.lax.bitcast_convert_type(n.astype("float32"), "int32") for n in (scale, *loss)]
    return jax.numpy.stack([iterations.astype("int32"), numbers[0], good.astype("int32"), *numbers[1:]])


def _reading(values: list[Any]) -> Reading:
    iterations, scale, good = (None if value is None else np.asarray(value).item() for value in values)
    return Reading(
        None if iterations is None else int(iterations),
        None if scale is None else float(scale),
        None if good is None else int(good),
    )


def _value(variable: Any) -> Any:
    return None if variable is None else variable.value


def _replicas(distribution: Any) -> int:
    """Return how many whole copies of the model there are: the devices along the batch's axis of the mesh. A
    ModelParallel spreads each of them over the other axes."""
    mesh = distribution.device_mesh
    axis = distribution.batch_dim_name or mesh.axis_names[0]  # as Keras takes it
    return int(mesh.shape[mesh.axis_names.index(axis)])


def _device(device: Any) -> Facts:
    facts: Facts = {"kind": "tpu" if device.platform == "tpu" else "gpu", "name": device.device_kind}
    capability = getattr(device, "compute_capability", None)
    if isinstance(capability, str) and capability.replace(".", "").isdigit():
        facts["compute_capability"] = [int(part) for part in capability.split(".")][:2]
    for ours, theirs in (("sm_count", "core_count"), ("sm_clock_khz", "clock_rate")):
        value = getattr(device, theirs, None)
        if isinstance(value, int) and value > 0:
            facts[ours] = value
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        facts["allocator_limit_bytes"] = int(limit)
    return facts


def _memory(device: Any, stats: dict[str, int]) -> Facts:
    return {
        "device": f"{device.platform}:{device.local_hardware_id}",
        "peak_bytes": int(stats["peak_bytes_in_use"]),
        "live_bytes": int(stats["bytes_in_use"]),
    }
