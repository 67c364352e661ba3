"""A model's facts without training it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mpprof.errors import UsageError
from mpprof.model.run import Run
from mpprof.record.backends import probe_for
from mpprof.record.backends.base import Absent, Facts
from mpprof.record.facts.fit import fit_facts
from mpprof.record.facts.layers import LAYERS, layers_not_described, model_facts
from mpprof.record.facts.process import framework_facts
from mpprof.record.facts.symbolic import as_graph
from mpprof.record.keras_compat import KERAS_2, keras_of
from mpprof.store import formats
from mpprof.store.facts import facts_of


def run_of(model: Any, batch_size: int | None = None, *, symbolic: bool = False) -> Run:
    """Return a run that has not begun: see `record_of`."""
    return run_from(record_of(model, batch_size, symbolic=symbolic))


def run_from(record: Facts) -> Run:
    """Return the run of a record that `record_of` made."""
    facts = facts_of(record)
    return Run(str(record["model"].get("name") or "model"), Path(), facts, None, None, None, (), True)


def record_of(model: Any, batch_size: int | None = None, *, symbolic: bool = False) -> Facts:
    """Return what run.json would hold before a run begins: the facts of `model` and of how it was compiled,
    no steps.

    `symbolic`: call a subclassed model's `call` on symbolic inputs, so that its layers state their shapes.
    Raises `UsageError` where `model` is not a Keras model."""
    if not hasattr(model, "count_params"):
        raise UsageError(
            f"{type(model).__name__} is not a Keras model",
            next="Give a model, compiled if it is to be trained",
        )
    probe = probe_for(_backend(model))
    devices = probe.devices()
    settings = {k: v for k, v in probe.settings().items() if not isinstance(v, Absent)}
    distribution = {k: v for k, v in probe.distribution(model).items() if not isinstance(v, Absent)}
    record = {
        "run_id": "audit",
        "created_unix_ns": time.time_ns(),
        "framework": framework_facts(probe, model),
        **settings,
        **distribution,
        "devices": devices,
        "model": _described(model, symbolic=symbolic),
        "fits": [fit_facts(model, 1, 1, None, batch_size)],
        "absent": {"steps": "the model has not been trained yet"},
    }
    if too_many := layers_not_described(record["model"]):
        record["absent"][LAYERS] = too_many
    plain: Facts = formats.plain(record)
    return plain


def _described(model: Any, *, symbolic: bool) -> Facts:
    with as_graph(model) if symbolic else nullcontext() as graph:
        facts = model_facts(model, written=True)
        stated = {} if graph is None else model_facts(graph, written=True)
        return facts | {key: stated[key] for key in ("layers", "outputs", "functions") if key in stated}


def _backend(model: Any) -> str:
    """Return the backend of Keras 3; Keras 2 knows TensorFlow alone."""
    keras = keras_of(model)
    if keras is None or keras.__name__ == KERAS_2:
        return "tensorflow"
    return str(keras.backend.backend())
