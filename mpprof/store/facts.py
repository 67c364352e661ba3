"""run.json as the types of `model.run`. A field that is missing or of the wrong type becomes None."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.device import DeviceFacts, DeviceKind, Vendor
from mpprof.model.run import (
    Ended,
    FitFacts,
    FunctionFacts,
    LayerFacts,
    ModelFacts,
    OptimizerFacts,
    OutputFacts,
    PolicyFacts,
    ProfilePlan,
    ProfileWindow,
    RunFacts,
    Timing,
)
from mpprof.regular import read_regular
from mpprof.store import bounded, formats
from mpprof.store.formats import upgrade, version_of

Json = dict[str, Any]
T = TypeVar("T")

INT64 = 1 << 63
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
    """Return a whole number as an int; None where it does not fit into 64 bits: mpprof never measured such a
    number."""
    number = int(text) if len(text) <= 20 else INT64
    return number if -INT64 <= number < INT64 else None


def facts_of(record: Json) -> RunFacts:
    """Return the facts in a run.json document of the newest version."""
    clock = _object(record, "clock")
    return RunFacts(
        run_id=bounded.name(record, "run_id") or "unnamed",
        created_unix_ns=bounded.whole(record, "created_unix_ns", limits.LATEST_UNIX_NS) or 0,
        clock_monotonic_ns=bounded.whole(clock, "monotonic_ns") or 0,
        clock_unix_ns=bounded.whole(clock, "unix_ns", limits.LATEST_UNIX_NS) or 0,
        host=bounded.name(record, "host"),
        framework=_framework(bounded.mapping(record, "framework")),
        distribution=bounded.name(record, "distribution"),
        replicas=bounded.whole(record, "replicas"),
        tf32_enabled=_bool(record, "tf32_enabled"),
        deterministic_ops=_bool(record, "deterministic_ops"),
        graph_rewrite=bounded.any_value(record.get("graph_rewrite")),
        devices=_each(record, "devices", _device, limits.MOST_GPUS),
        model=_model(_object(record, "model")) if isinstance(record.get("model"), dict) else None,
        fits=_each(record, "fits", fit_of, limits.MOST_FITS),
        profile_windows=_each(record, "profile_windows", _window, limits.MOST_WINDOWS),
        timing=_timing(_object(record, "timing")) if isinstance(record.get("timing"), dict) else None,
        absent=bounded.texts(bounded.mapping(record, "absent")) | _cut(record),
        graph_rewrite_result=bounded.mapping(record, "graph_rewrite_result"),
        ended=_ended(_object(record, "ended")),
        profile_plan=_plan(_object(record, "profile_plan")),
        script=bounded.path(record, "script"),
        launched=_bool(record, "launched") is True,
    )


def _ended(record: Json) -> Ended | None:
    reason = bounded.name(record, "reason")
    if reason is None:
        return None
    return Ended(reason, bounded.text(record, "error"), bounded.text(record, "text"))


def _framework(record: Json) -> Json:
    """Return versions and settings that are texts, numbers or switches. The backend is a name, else None."""
    kept = {key: value for key, value in record.items() if isinstance(value, str | int | float)}
    return kept if isinstance(kept.get("backend", ""), str) else {**kept, "backend": None}


def _device(record: Json) -> DeviceFacts:
    kind, vendor = bounded.name(record, "kind"), bounded.name(record, "vendor")
    name = bounded.name(record, "name")
    return DeviceFacts(
        kind=cast(DeviceKind, kind) if kind in get_args(DeviceKind) else "cpu",
        name=name,
        vendor=cast(Vendor, vendor) if vendor in get_args(Vendor) else _vendor(name),
        compute_capability=_pair(record.get("compute_capability")),
        memory_bytes=bounded.whole(record, "memory_bytes"),
        sm_count=bounded.whole(record, "sm_count"),
        sm_clock_khz=bounded.whole(record, "sm_clock_khz"),
        memory_bandwidth_bytes_per_s=formats.number(record.get("memory_bandwidth_bytes_per_s")),
        power_limit_w=formats.number(record.get("power_limit_w")),
        mig=_bool(record, "mig"),
        driver=bounded.name(record, "driver"),
    )


def _vendor(name: str | None) -> Vendor:
    """Return the maker that the device's name states."""
    lower = (name or "").lower()
    marks: tuple[tuple[str, Vendor], ...] = (
        ("nvidia", "nvidia"), ("tesla", "nvidia"), ("geforce", "nvidia"), ("quadro", "nvidia"),
        ("amd", "amd"), ("radeon", "amd"), ("instinct", "amd"), ("gfx", "amd"),
        ("tpu", "google"), ("intel", "intel"), ("apple", "apple"),
    )  # fmt: skip
    return next((vendor for mark, vendor in marks if mark in lower), "unknown")


def _model(record: Json) -> ModelFacts:
    return ModelFacts(
        name=bounded.name(record, "name"),
        parameters=bounded.whole(record, "parameters"),
        layers=_each(record, "layers", _layer, limits.MOST_LAYERS),
        outputs=_each(record, "outputs", _output, limits.MOST_LAYERS),
        class_name=bounded.name(record, "class"),
        train_step=bounded.name(record, "train_step"),
        trainable_parameters=bounded.whole(record, "trainable_parameters"),
        functions=_functions(record),
    )


def _functions(record: Json) -> tuple[FunctionFacts, ...] | None:
    """Return the functions between layers; None where the model may have some that were not recorded: it
    states its outputs, and is no chain of layers."""
    may = "functions" not in record and record.get("outputs") and record.get("class") != "Sequential"
    return None if may else _each(record, "functions", _function, limits.MOST_LAYERS)


def _function(record: Json) -> FunctionFacts:
    return FunctionFacts(
        name="/".join((bounded.name(record, "name") or "").split("/")[: limits.DEEPEST_LAYER]),
        class_name=bounded.name(record, "class") or "",
        module=bounded.name(record, "module"),
        takes=_names(record.get("takes")) or (),
        output_shape=bounded.shape(record.get("output_shape")),
        output_dtype=bounded.name(record, "output_dtype"),
    )


def _output(record: Json) -> OutputFacts:
    return OutputFacts(bounded.name(record, "layer") or "", bounded.name(record, "dtype"))


def _layer(record: Json) -> LayerFacts:
    return LayerFacts(
        name="/".join((bounded.name(record, "name") or "").split("/")[: limits.DEEPEST_LAYER]),
        class_name=bounded.name(record, "class") or "",
        compute_dtype=bounded.name(record, "compute_dtype"),
        variable_dtype=bounded.name(record, "variable_dtype"),
        output_dtype=bounded.name(record, "output_dtype"),
        config=bounded.mapping(record, "config"),
        input_shape=bounded.shape(record.get("input_shape")),
        output_shape=bounded.shape(record.get("output_shape")),
        parameters=bounded.whole(record, "parameters"),
        parameter_bytes=bounded.whole(record, "parameter_bytes"),
        supports_jit=_bool(record, "supports_jit"),
        module=bounded.name(record, "module"),
        dtype_policy=bounded.name(record, "dtype_policy"),
        dtype_given=_bool(record, "dtype_given"),
        masked=_bool(record, "masked"),
        arguments=bounded.texts(bounded.mapping(record, "arguments")),
        base=bounded.name(record, "base"),
        trainable=_bool(record, "trainable"),
        inbound=_names(record.get("inbound")),
        takes=_names(record.get("takes")),
    )


def fit_of(record: Json) -> FitFacts:
    """Return the facts of one `fit`, as run.json and the step log hold them."""
    policy, optimizer = _object(record, "policy"), _object(record, "optimizer")
    clipping = {
        key: value
        for key, item in bounded.mapping(optimizer, "clipping").items()
        if (value := formats.number(item)) is not None
    }
    jit, spoiled = record.get("jit_compile"), record.get("non_finite_weights")
    return FitFacts(
        fit=bounded.whole(record, "fit") or 0,
        first_step=bounded.whole(record, "first_step") or 0,
        initial_epoch=bounded.whole(record, "initial_epoch"),
        policy=PolicyFacts(
            bounded.name(policy, "global"),
            bounded.name(policy, "compute_dtype"),
            bounded.name(policy, "variable_dtype"),
        ),
        optimizer=OptimizerFacts(
            class_name=bounded.name(optimizer, "class"),
            inner=bounded.name(optimizer, "inner"),
            dynamic=_bool(optimizer, "dynamic"),
            initial_scale=formats.number(optimizer.get("initial_scale")),
            growth_steps=bounded.whole(optimizer, "growth_steps"),
            fixed_scale=formats.number(optimizer.get("fixed_scale")),
            clipping=clipping or None,
            slots=bounded.whole(optimizer, "slots"),
        ),
        batch_size=bounded.whole(record, "batch_size"),
        jit_compile=jit if isinstance(jit, bool | str) else None,
        run_eagerly=_bool(record, "run_eagerly"),
        steps_per_execution=bounded.whole(record, "steps_per_execution"),
        gradient_accumulation_steps=bounded.whole(record, "gradient_accumulation_steps"),
        non_finite_weights=_names(spoiled),
        loss=bounded.name(record, "loss"),
        scale_loss_called=_bool(record, "scale_loss_called"),
        input=bounded.mapping(record, "input"),
    )


def _window(record: Json) -> ProfileWindow:
    return ProfileWindow(
        trace=bounded.path(record, "trace"),
        host=bounded.name(record, "host"),
        first_step=bounded.whole(record, "first_step") or 0,
        last_step=bounded.whole(record, "last_step"),
        started_unix_ns=bounded.whole(record, "started_unix_ns", limits.LATEST_UNIX_NS),
        start_cost_ns=bounded.whole(record, "start_cost_ns"),
        stop_cost_ns=bounded.whole(record, "stop_cost_ns"),
        status=bounded.name(record, "status") or "unknown",
        automatic=_bool(record, "automatic"),
    )


def _plan(record: Json) -> ProfilePlan | None:
    first, automatic = bounded.whole(record, "first_step"), _bool(record, "automatic")
    if first is None or first < 1 or automatic is None:
        return None
    return ProfilePlan(first, bounded.whole(record, "last_step"), automatic)


def _timing(record: Json) -> Timing:
    return Timing(
        basis=bounded.name(record, "basis") or "unknown",
        read_every=bounded.whole(record, "read_every") or 0,
        note=bounded.text(record, "note") or "",
    )


def _object(record: Json, key: str) -> Json:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


_LISTS = (("devices", limits.MOST_GPUS), ("fits", limits.MOST_FITS), ("profile_windows", limits.MOST_WINDOWS))


def _cut(record: Json) -> dict[str, str]:
    """Return for each list that is longer than any training's why its rest is missing."""
    model = _object(record, "model")
    lists = [(key, record.get(key), most) for key, most in _LISTS]
    lists += [(f"model.{key}", model.get(key), limits.MOST_LAYERS) for key in ("layers", "outputs")]
    return {
        key: f"the first {most} of {len(value)} were read"
        for key, value, most in lists
        if isinstance(value, list) and len(value) > most
    }


def _each(record: Json, key: str, build: Callable[[Json], T], most: int) -> tuple[T, ...]:
    """Return what `build` makes of the objects in a list, of its first `most` entries."""
    value = record.get(key)
    if not isinstance(value, list):
        return ()
    return tuple(build(item) for item in value[:most] if isinstance(item, dict))


def _names(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(each[: limits.LONGEST_NAME] for each in value[: limits.MOST_LAYERS] if isinstance(each, str))


def _bool(record: Json, key: str) -> bool | None:
    value = record.get(key)
    return value if isinstance(value, bool) else None


def _pair(value: Any) -> tuple[int, int] | None:
    match value:
        case [int(major), int(minor)]:
            return major, minor
    return None
