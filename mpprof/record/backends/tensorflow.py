"""Answers from TensorFlow. Keras turns logs into floats at every batch end: every step is synchronous."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from mpprof.record.backends.base import ALONE, MARKER, Absent, Facts, Reading, Unanswered, Worker, counters_of
from mpprof.record.backends.compiles import Compiles, Counted, Told, tracings

_NAMES = {"CollectiveAllReduceStrategy": "MultiWorkerMirroredStrategy"}  # a class, and what people call it


class TensorFlowProbe(Unanswered):
    def __init__(self) -> None:
        super().__init__("tensorflow")
        self._gpus = tf.config.list_logical_devices("GPU")

    def framework(self) -> Facts:
        build = tf.sysconfig.get_build_info()
        return {
            "backend_version": tf.__version__,
            "cuda": build.get("cuda_version"),
            "cudnn": build.get("cudnn_version"),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "tf_xla_flags": os.environ.get("TF_XLA_FLAGS", ""),
        }

    def settings(self) -> Facts:
        return {
            "tf32_enabled": tf.config.experimental.tensor_float_32_execution_enabled(),
            "deterministic_ops": _deterministic(),
            "graph_rewrite": _graph_rewrite(),
        }

    def devices(self) -> list[Facts]:
        return [_gpu(device) for device in tf.config.get_visible_devices("GPU")]

    def distribution(self, model: Any) -> Facts:
        strategy = getattr(model, "distribute_strategy", None) or tf.distribute.get_strategy()
        kind = type(strategy).__name__
        return {
            "distribution": Absent(ALONE) if _default(strategy) else _NAMES.get(kind, kind),
            "replicas": int(strategy.num_replicas_in_sync),
        }

    def worker(self, model: Any) -> Worker | None:
        strategy = getattr(model, "distribute_strategy", None)
        resolver = getattr(strategy, "cluster_resolver", None)
        if resolver is None:
            return None
        cluster = resolver.cluster_spec().as_dict()
        if sum(map(len, cluster.values())) < 2 or resolver.task_type not in ("chief", "worker"):
            return None
        first = 1 if "chief" in cluster and resolver.task_type == "worker" else 0
        text = json.dumps(cluster, sort_keys=True)
        return Worker(first + int(resolver.task_id), hashlib.sha256(text.encode()).hexdigest()[:16])

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        found = counters_of(optimizer)
        if isinstance(found, Absent):
            return found
        iterations = _readable(found.iterations)
        if iterations is None:
            return Absent("the optimizer's counter is not a TensorFlow variable")
        return _reader(
            iterations, _readable(found.loss_scale), _readable(found.good_steps if good_steps else None)
        )

    def reset_memory_peak(self) -> str | None:
        for device in self._gpus:
            tf.config.experimental.reset_memory_stats(_short(device.name))
        return None

    def memory(self) -> list[Facts] | Absent:
        # For a CPU this returns zeros, which are no measurement: ask GPUs only.
        if not self._gpus:
            return Absent("no GPU: TensorFlow has no statistics of the host's memory")
        return [_memory(_short(device.name)) for device in self._gpus]

    def start_trace(self, folder: Path) -> None:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=1
        )
        # As bytes: a directory's name need be no text.
        tf.profiler.experimental.start(os.fsencode(folder), options=options)

    def stop_trace(self) -> None:
        tf.profiler.experimental.stop()

    def compiles(self, model: Any, told: Told) -> Compiles | Absent:
        # Keras makes the function anew where it is compiled or told to: it is asked for each time.
        def traced() -> tuple[int, int | None]:
            function = getattr(model(), "train_tf_function", None)  # Keras 2
            return tracings(function or getattr(model(), "train_function", None)), None

        return Counted("tensorflow tracing", traced, told)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        marker: contextlib.AbstractContextManager[Any]
        marker = tf.profiler.experimental.Trace(MARKER, step_num=step, _r=1)
        return marker


def _reader(iterations: Any, scale: Any, good: Any) -> Callable[[], Reading]:
    """Return a function that reads the counters with the bare op, and without a call in between: `.numpy()`
    of a Keras variable costs three times that."""
    read = _read_op()
    handle, dtype = iterations.handle, iterations.dtype
    if scale is None:
        return lambda: Reading(int(read(handle, dtype)))
    scale_handle, scale_dtype = scale.handle, scale.dtype
    if good is None:
        return lambda: Reading(int(read(handle, dtype)), float(read(scale_handle, scale_dtype)))
    good_handle, good_dtype = good.handle, good.dtype
    return lambda: Reading(
        int(read(handle, dtype)),
        float(read(scale_handle, scale_dtype)),
        int(read(good_handle, good_dtype)),
    )


def _read_op() -> Callable[[Any, Any], Any]:
    """Return the op that reads a variable's handle. What TensorFlow lays around its public ops costs a fifth
    of a reading."""
    try:
        from tensorflow.python.ops.gen_resource_variable_ops import read_variable_op
    except ImportError:
        return lambda handle, dtype: tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    found: Callable[[Any, Any], Any] = read_variable_op
    return found


def _readable(variable: Any) -> Any:
    """Return TensorFlow's own variable behind `variable`, where that has a handle to read; else None."""
    # A variable of Keras 3 holds TensorFlow's in `value`; Keras 2 uses TensorFlow's own, whose `value` is a
    # method.
    value = getattr(variable, "value", None)
    value = variable if callable(value) else value
    # Under a strategy the variable is mirrored: all copies hold the same, the first local one will do.
    local = (getattr(value, "values", None) or [value])[0]
    return local if hasattr(local, "handle") else None


def _deterministic() -> bool | Absent:
    try:
        from tensorflow.python.framework import config
    except ImportError:
        return Absent("this version of TensorFlow does not state it")
    return bool(config.is_op_determinism_enabled())


def _graph_rewrite() -> Any:
    """Return whether grappler's auto_mixed_precision was asked for: False, or how."""
    for name in ("TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE"):
        if os.environ.get(name, "0").lower() in ("1", "true"):
            return name
    options = tf.config.optimizer.get_experimental_options()
    asked = [name for name in options if name.startswith("auto_mixed_precision") and options[name]]
    return asked[0] if asked else False


def _gpu(device: Any) -> Facts:
    details = tf.config.experimental.get_device_details(device)
    facts: Facts = {"kind": "gpu", "name": details.get("device_name")}
    if capability := details.get("compute_capability"):
        facts["compute_capability"] = list(capability)
    return facts


def _memory(device: str) -> Facts:
    info = tf.config.experimental.get_memory_info(device)
    return {"device": device, "peak_bytes": int(info["peak"]), "live_bytes": int(info["current"])}


def _short(name: str) -> str:
    """Return `/device:GPU:0` as get_memory_info wants it, GPU:0."""
    return name.split("device:")[-1]


def _default(strategy: Any) -> bool:
    return type(strategy).__name__ == "_DefaultDistributionStrategy"
