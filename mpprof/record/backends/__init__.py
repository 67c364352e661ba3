"""One probe per backend: it answers fixed questions with a value, or with an absence and its reason."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from mpprof.record.backends.base import Absent, Probe, Unanswered

PROBES = {
    "tensorflow": "mpprof.record.backends.tensorflow:TensorFlowProbe",
    "jax": "mpprof.record.backends.jax:JaxProbe",
    "torch": "mpprof.record.backends.torch:TorchProbe",
}

ASYNCHRONOUS = frozenset({"jax", "torch"})
"""Keras' backends that run ahead of the device, where a batch end hook would cost a wait per step."""

__all__ = ["ASYNCHRONOUS", "PROBES", "Absent", "Probe", "Unanswered", "probe_for"]


def probe_for(backend: str) -> Probe:
    """Return the probe of Keras' backend of that name; for one that has none, all answers are absences."""
    if backend not in PROBES:
        return Unanswered(backend)
    module, _, name = PROBES[backend].partition(":")
    return cast(Probe, getattr(import_module(module), name)())
