"""A model's facts without training it, and a saved model loaded for that."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

from mpprof.errors import NotFoundError, UnreadableError, UsageError
from mpprof.model.run import Run
from mpprof.record.describe import framework_facts
from mpprof.record.fits import fit_facts
from mpprof.record.layers import model_facts, walk
from mpprof.record.probes import probe_for
from mpprof.record.probes.base import Absent
from mpprof.store import formats
from mpprof.store.facts import facts_of


def run_of(model: Any, batch_size: int | None = None) -> Run:
    """A run that has not begun: the facts of `model` and of how it was compiled, no steps.

    Raises `UsageError` where `model` is no Keras model."""
    if not hasattr(model, "count_params"):
        raise UsageError(
            f"{type(model).__name__} is no Keras model", next="Give a model, compiled if it shall be trained"
        )
    probe = probe_for(_backend())
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
        "model": model_facts(model, written=True),
        "fits": [fit_facts(model, 1, 1, None, batch_size)],
        "absent": {"steps": "the model has not been trained yet"},
    }
    name = str(record["model"].get("name") or "model")
    facts = facts_of(formats.plain(record))
    return Run(name, Path(), facts, None, None, None, (), True)


def _backend() -> str:
    import keras

    return str(keras.backend.backend())


def load_model(path: str | os.PathLike[str]) -> Any:
    """A model saved by Keras, loaded under the policy it was saved with: under another one, Keras would
    compile it without loss scaling.

    Raises `NotFoundError`, `UsageError` without Keras, and `UnreadableError` where Keras cannot load it
    (custom classes must be registered; Lambda layers are not run from a file)."""
    file = Path(path)
    if not file.exists():
        raise NotFoundError("no such file", where=str(file), next="Give a model that model.save() wrote")
    try:
        import keras
    except ImportError as error:
        raise UsageError("Keras is not installed", next="pip install 'mpprof[tensorflow]'") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an optimizer's state, which says nothing here
            return _loaded(keras, file)
    except Exception as error:  # Keras raises many kinds for files that it cannot load
        text = str(error).strip().splitlines()
        raise UnreadableError(
            f"Keras cannot load it: {type(error).__name__}: {text[0] if text else ''}"[:300],
            where=str(file),
            next="Audit it where it is built instead: mpprof.audit(model)",
        ) from error


def _loaded(keras: Any, file: Path) -> Any:
    uncompiled = keras.saving.load_model(file, compile=False)
    names = [layer.dtype_policy.name for _, layer in walk(uncompiled) if hasattr(layer, "dtype_policy")]
    mixed = [name for name in names if name.startswith("mixed_")]
    before = keras.config.dtype_policy()
    if not mixed or len(mixed) < len(names) / 2:
        return keras.saving.load_model(file)
    try:
        keras.config.set_dtype_policy(max(set(mixed), key=mixed.count))
        return keras.saving.load_model(file)
    finally:
        keras.config.set_dtype_policy(before)
