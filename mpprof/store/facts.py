"""run.json as the nouns of `model.run`. A field that is missing or of the wrong type becomes None."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts, DeviceKind, Vendor
from mpprof.model.run import (
    FitFacts,
    LayerFacts,
    ModelFacts,
    OptimizerFacts,
    OutputFacts,
    PolicyFacts,
    ProfileWindow,
    RunFacts,
    Timing,
)
from mpprof.store import formats
from mpprof.store.columns import INT64
from mpprof.store.regular import read_regular
from mpprof.store.upgrades import upgrade, version_of

Json = dict[str, Any]
T = TypeVar("T")

MOST_BYTES = 256 << 20
"""run.json holds facts, not series: one that is larger is not ours."""


def read_facts(path: Path) -> RunFacts:
    """Read a run.json.

    Raises `UnreadableError` where the file is not a run.json or is damaged, `TooNewError` where its schema
    is newer than this mpprof.
    """
    record = _load(path)
    version = version_of(record.get("schema"), "mpprof.run", str(path))
    return facts_of(upgrade(record, "mpprof.run", version))


def _load(path: Path) -> Json:
    damaged = UnreadableError(
        "not a run.json of mpprof, or damaged",
        where=str(path),
        next="Move it away to read the step log without the run's facts",
    )
    try:
        content = read_regular(path, MOST_BYTES)
        if len(content) > MOST_BYTES:
            raise damaged
        record = json.loads(content, parse_int=_whole)
    except OSError as error:
        raise UnreadableError(
            f"cannot be read: {error.strerror or error}", where=str(path), next="Check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(record, dict):
        raise damaged
    return record


def _whole(text: str) -> int | None:
    """Every whole number of ours fits into 64 bits; a larger one was never measured."""
    number = int(text) if len(text) <= 20 else INT64
    return number if -INT64 <= number < INT64 else None


def facts_of(record: Json) -> RunFacts:
    """The facts in a run.json document of the newest version."""
    clock = _object(record, "clock")
    return RunFacts(
        run_id=_str(record, "run_id") or "unnamed",
        created_unix_ns=_int(record, "created_unix_ns") or 0,
        clock_monotonic_ns=_int(clock, "monotonic_ns") or 0,
        clock_unix_ns=_int(clock, "unix_ns") or 0,
        host=_str(record, "host"),
        framework=_framework(_object(record, "framework")),
        distribution=_str(record, "distribution"),
        replicas=_int(record, "replicas"),
        tf32_enabled=_bool(record, "tf32_enabled"),
        deterministic_ops=_bool(record, "deterministic_ops"),
        graph_rewrite=record.get("graph_rewrite"),
        devices=_each(record, "devices", _device),
        model=_model(_object(record, "model")) if isinstance(record.get("model"), dict) else None,
        fits=_each(record, "fits", _fit),
        profile_windows=_each(record, "profile_windows", _window),
        timing=_timing(_object(record, "timing")) if isinstance(record.get("timing"), dict) else None,
        absent={str(key): str(reason) for key, reason in _object(record, "absent").items()},
        graph_rewrite_result=_object(record, "graph_rewrite_result"),
    )


def _framework(record: Json) -> Json:
    """Versions and settings: texts, numbers and switches. The backend is a name."""
    kept = {key: value for key, value in record.items() if isinstance(value, str | int | float)}
    return kept if isinstance(kept.get("backend", ""), str) else {**kept, "backend": None}


def _device(record: Json) -> DeviceFacts:
    kind, vendor = _str(record, "kind"), _str(record, "vendor")
    name = _str(record, "name")
    return DeviceFacts(
        kind=cast(DeviceKind, kind) if kind in get_args(DeviceKind) else "cpu",
        name=name,
        vendor=cast(Vendor, vendor) if vendor in get_args(Vendor) else _vendor(name),
        compute_capability=_pair(record.get("compute_capability")),
        memory_bytes=_int(record, "memory_bytes"),
        sm_count=_int(record, "sm_count"),
        sm_clock_khz=_int(record, "sm_clock_khz"),
        memory_bandwidth_bytes_per_s=formats.number(record.get("memory_bandwidth_bytes_per_s")),
        power_limit_w=formats.number(record.get("power_limit_w")),
        mig=_bool(record, "mig"),
        driver=_str(record, "driver"),
    )


def _vendor(name: str | None) -> Vendor:
    """The maker as the device's own name states it."""
    lower = (name or "").lower()
    marks: tuple[tuple[str, Vendor], ...] = (
        ("nvidia", "nvidia"), ("tesla", "nvidia"), ("geforce", "nvidia"), ("quadro", "nvidia"),
        ("amd", "amd"), ("radeon", "amd"), ("instinct", "amd"), ("gfx", "amd"),
        ("tpu", "google"), ("intel", "intel"), ("apple", "apple"),
    )  # fmt: skip
    return next((vendor for mark, vendor in marks if mark in lower), "unknown")


def _model(record: Json) -> ModelFacts:
    return ModelFacts(
        name=_str(record, "name"),
        parameters=_int(record, "parameters"),
        layers=_each(record, "layers", _layer),
        outputs=_each(
            record, "outputs", lambda each: OutputFacts(_str(each, "layer") or "", _str(each, "dtype"))
        ),
        class_name=_str(record, "class"),
        train_step=_str(record, "train_step"),
    )


def _layer(record: Json) -> LayerFacts:
    return LayerFacts(
        name=_str(record, "name") or "",
        class_name=_str(record, "class") or "",
        compute_dtype=_str(record, "compute_dtype"),
        variable_dtype=_str(record, "variable_dtype"),
        output_dtype=_str(record, "output_dtype"),
        config=_object(record, "config"),
        input_shape=_shape(record.get("input_shape")),
        output_shape=_shape(record.get("output_shape")),
        parameters=_int(record, "parameters"),
        supports_jit=_bool(record, "supports_jit"),
        module=_str(record, "module"),
        dtype_policy=_str(record, "dtype_policy"),
        masked=_bool(record, "masked"),
        arguments={key: str(text) for key, text in _object(record, "arguments").items()},
        base=_str(record, "base"),
    )


def _shape(value: Any) -> Any:
    """A shape as a tuple, of several inputs as a tuple of tuples."""
    return tuple(_shape(item) for item in value) if isinstance(value, list) else value


def _fit(record: Json) -> FitFacts:
    policy, optimizer = _object(record, "policy"), _object(record, "optimizer")
    clipping = {
        key: value
        for key, item in _object(optimizer, "clipping").items()
        if (value := formats.number(item)) is not None
    }
    jit, spoiled = record.get("jit_compile"), record.get("non_finite_weights")
    return FitFacts(
        fit=_int(record, "fit") or 0,
        first_step=_int(record, "first_step") or 0,
        initial_epoch=_int(record, "initial_epoch"),
        policy=PolicyFacts(
            _str(policy, "global"), _str(policy, "compute_dtype"), _str(policy, "variable_dtype")
        ),
        optimizer=OptimizerFacts(
            class_name=_str(optimizer, "class"),
            inner=_str(optimizer, "inner"),
            dynamic=_bool(optimizer, "dynamic"),
            initial_scale=formats.number(optimizer.get("initial_scale")),
            growth_steps=_int(optimizer, "growth_steps"),
            fixed_scale=formats.number(optimizer.get("fixed_scale")),
            clipping=clipping or None,
        ),
        batch_size=_int(record, "batch_size"),
        jit_compile=jit if isinstance(jit, bool | str) else None,
        run_eagerly=_bool(record, "run_eagerly"),
        steps_per_execution=_int(record, "steps_per_execution"),
        gradient_accumulation_steps=_int(record, "gradient_accumulation_steps"),
        non_finite_weights=tuple(map(str, spoiled)) if isinstance(spoiled, list) else None,
        loss=_str(record, "loss"),
        input=_object(record, "input"),
    )


def _window(record: Json) -> ProfileWindow:
    return ProfileWindow(
        trace=_str(record, "trace"),
        host=_str(record, "host"),
        first_step=_int(record, "first_step") or 0,
        last_step=_int(record, "last_step"),
        started_unix_ns=_int(record, "started_unix_ns"),
        start_cost_ns=_int(record, "start_cost_ns"),
        stop_cost_ns=_int(record, "stop_cost_ns"),
        status=_str(record, "status") or "unknown",
    )


def _timing(record: Json) -> Timing:
    return Timing(
        basis=_str(record, "basis") or "unknown",
        read_every=_int(record, "read_every") or 0,
        note=_str(record, "note") or "",
    )


def _object(record: Json, key: str) -> Json:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _each(record: Json, key: str, build: Callable[[Json], T]) -> tuple[T, ...]:
    value = record.get(key)
    return tuple(build(item) for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _str(record: Json, key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None


def _int(record: Json, key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _bool(record: Json, key: str) -> bool | None:
    value = record.get(key)
    return value if isinstance(value, bool) else None


def _pair(value: Any) -> tuple[int, int] | None:
    match value:
        case [int(major), int(minor)]:
            return major, minor
    return None
