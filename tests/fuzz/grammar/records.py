"""Draws records of a run: what the callback writes, what it may write, and each value replaced by a wrong one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.fuzz.grammar import words

Json = dict[str, Any]
Change = Callable[[random.Random, "Records"], None]

WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 10**30, 0.5, 1e308, -1e-320, "NaN", "Infinity", "", "x", "5",
    "\u202e\x00\n", "a/" * 2000, [], [[]], [None] * 40, [2**63 - 1, -1], {}, {"": {"a": [1]}}, [{}] * 3,
)  # fmt: skip
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16", "float16", "my_policy")


@dataclass
class Records:
    """The three files of a run; `wrong` says which values are none that a callback writes."""

    run: Json
    steps: list[Json]
    hardware: list[Json]
    spaces: str = ""
    indent: int | None = None
    blank: list[int] = field(default_factory=list)


def made(dice: random.Random) -> Records:
    """The records of a run as a callback writes them."""
    steps, hardware = _steps(dice), _hardware(dice)
    return Records(_facts(dice, full=dice.random() < 0.3), steps, hardware)


def with_wrong_facts(number: int, dice: random.Random) -> Records:
    """Input `number` of all that replace one value of run.json: every key path by every wrong value, each path
    once before one comes again; beyond those several at once."""
    found = made(random.Random("the same but for one value"))
    found.run = _facts(random.Random("all keys"), full=True)
    paths = list(_paths(found.run))
    turn, at = divmod(number, len(paths))
    for _ in range(1 if number < variants() else dice.choice((1, 2, 5))):
        owner, key = paths[at] if number < variants() else dice.choice(paths)
        owner[key] = json.loads(json.dumps(WRONG[(turn + at) % len(WRONG)]))
    return found


@cache
def key_paths() -> int:
    """How many key paths run.json has."""
    return len(list(_paths(_facts(random.Random("all keys"), full=True))))


def variants() -> int:
    """How many inputs of `with_wrong_facts` replace one value."""
    return key_paths() * len(WRONG)


def with_wrong_lines(dice: random.Random, *, hardware: bool) -> Records:
    """Some lines of a log hold values that no callback writes."""
    found = made(dice)
    lines = found.hardware if hardware else found.steps
    for line in lines:
        if dice.random() < 0.1:
            owner, key = dice.choice(list(_paths(line)))
            owner[key] = json.loads(json.dumps(dice.choice(WRONG)))
    if dice.random() < 0.3 and lines:
        at = dice.randrange(len(lines))
        # Each is a line of its own: one object in many places would be changed as often as it stands there.
        lines[at:at] = [deepcopy(lines[at]) for _ in range(dice.choice((1, 50)))]
    return found


def _paths(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _paths(value[key])


def _facts(dice: random.Random, *, full: bool) -> Json:
    policy = "mixed_float16" if full else dice.choice(POLICIES)
    compute = policy.removeprefix("mixed_")
    layers = [_layer(dice, n, compute, full) for n in range(2 if full else dice.choice((0, 1, 5)))]
    facts: Json = {
        "schema": "mpprof.run/1", "run_id": "a-run", "created_unix_ns": 1_760_000_000_000_000_000,
        "clock": {"monotonic_ns": 5, "unix_ns": 1_760_000_000_000_000_000}, "host": "here",
        "framework": {"keras": "3.15.1", "backend": "tensorflow", "backend_version": "2.21.0", "python": "3.11.7", "cuda": "12.5",
                      "xla_flags": "", "matmul_precision": "default", "command_buffers": False, "autotune_level": 4},
        "distribution": None, "replicas": 1, "tf32_enabled": False, "deterministic_ops": False, "graph_rewrite": None,
        "devices": [{"kind": "gpu", "name": "Tesla V100-SXM2-16GB", "compute_capability": [7, 0], "memory_bytes": 16945512448,
                     "sm_count": 80, "sm_clock_khz": 1530000, "memory_bandwidth_bytes_per_s": 898e9, "power_limit_w": 300, "mig": False,
                     "driver": "535.1"}],
        "model": {"name": "model", "class": "Functional", "parameters": 1000, "layers": layers,
                  "outputs": [{"layer": "layer_0", "dtype": "float32"}], "train_step": "keras"},
        "fits": [{"fit": 1, "first_step": 1, "initial_epoch": 0,
                  "policy": {"global": policy, "compute_dtype": compute, "variable_dtype": "float32"},
                  "optimizer": {"class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 32768.0,
                                "growth_steps": 2000, "fixed_scale": None, "clipping": {"clipnorm": 1.0}},
                  "batch_size": dice.choice((1, 32, 250)), "jit_compile": dice.choice((True, False, "auto")), "run_eagerly": False,
                  "steps_per_execution": 1, "gradient_accumulation_steps": None, "non_finite_weights": ["a"] if full else None,
                  "input": {"kind": "tf.data", "transformations": ["map", "batch"]}}],
        "profile_windows": [{"trace": "plugins/profile/1", "host": "here", "first_step": 10, "last_step": 12, "start_cost_ns": 5,
                             "started_unix_ns": 1_760_000_000_000_000_001, "stop_cost_ns": 5, "status": "done"}] if full else [],
        "timing": {"basis": "synchronous", "read_every": 16, "note": ""},
        "absent": {"input_wait_ns": "not measured"},
        "graph_rewrite_result": {"graphs": 1, "nodes": 9, "converted_nodes": 4, "casts": 2},
    }  # fmt: skip
    return facts


def _layer(dice: random.Random, number: int, compute: str, full: bool) -> Json:
    kind = (
        "Dense"
        if full
        else dice.choice(("Dense", "Conv2D", "BatchNormalization", "LSTM", "Embedding", "MyLayer"))
    )
    config = {
        "units": dice.choice((8, 10, 1000)),
        "filters": 64,
        "kernel_size": [3, 3],
        "groups": 1,
        "strides": [1, 1],
    }
    name = f"layer_{number}" if full or dice.random() < 0.9 else words.name(dice)
    return {
        "name": name, "class": kind, "compute_dtype": compute, "variable_dtype": "float32", "output_dtype": compute,
        "config": config, "input_shape": [None, 28, 28, 3], "output_shape": [None, 26, 26, 64], "parameters": 640,
        "supports_jit": True, "module": "keras", "dtype_policy": "mixed_float16", "masked": False, "base": "Layer",
        "arguments": {"units": "10"},
    }  # fmt: skip


def _steps(dice: random.Random) -> list[Json]:
    lines: list[Json] = []
    now, number, usual = dice.choice((0, 10**9)), 0, dice.choice((1, 10**6, 10**9))
    for fit in range(1, dice.choice((1, 2, 2, 3)) + 1):
        lines.append({"kind": "fit", "fit": fit, "t_ns": now})
        for at in range(dice.choice((0, 1, 12, 40, 80))):
            number += 1
            took = max(1, int(usual * dice.lognormvariate(0, 0.05))) if at else usual * 20
            now += took
            line: Json = {"kind": "step", "step": number, "fit": fit, "epoch": at // 30, "batch": at % 30, "covers": 1, "t_ns": now,
                          "interval_ns": took, "duration_ns": took - took // 9, "gap_ns": took // 9, "synced": False,
                          "profiled": at in (10, 11)}  # fmt: skip
            if dice.random() < 0.8:
                line["loss"] = dice.choice((0.5, 0.25, "NaN", "Infinity"))
            if at % 16 == 0:
                line |= {"loss_scale": 2.0 ** dice.choice((0, 15, 40)), "skipped": dice.choice((0, 0, 3))}
                line["memory"] = [{"device": "GPU:0", "peak_bytes": 3 << 30, "live_bytes": 1 << 30}]
            lines.append(line)
        lines.append({"kind": "validation", "t_ns": now + 5, "duration_ns": 5})
        if dice.random() < 0.8:
            lines.append({"kind": "fit_end", "reason": "done"})
    return lines


def _hardware(dice: random.Random) -> list[Json]:
    cards = dice.choice((0, 1, 1, 8))
    return [
        {"t_ns": 10**9 * n, "gpu": gpu, "utilization_ratio": 0.8, "memory_used_bytes": 4e9, "power_w": 180.0, "sm_clock_hz": 1.53e9,
         "temperature_c": 61, "throttle": dice.choice(([], ["sw_power_cap"])), "cpu_ratio": 0.1, "rss_bytes": 3_100_000_000}
        for n in range(dice.choice((0, 1, 30)))
        for gpu in range(cards)
    ]  # fmt: skip


def written(records: Records) -> dict[str, bytes]:
    def lines(schema: str, rows: list[Json]) -> bytes:
        texts = [json.dumps(row, separators=("," + records.spaces, ":" + records.spaces)) for row in rows]
        for at in records.blank:
            texts.insert(at % (len(texts) + 1), "")
        return "\n".join([json.dumps({"schema": schema}), *texts, ""]).encode()

    return {
        "run/mpprof/run.json": json.dumps(records.run, indent=records.indent).encode(),
        "run/mpprof/steps.jsonl": lines("mpprof.steps/1", records.steps),
        "run/mpprof/hardware.jsonl": lines("mpprof.hardware/1", records.hardware),
    }


# --- changes after which they say the same -----------------------------------------------------------------


def keys_shuffled(dice: random.Random, records: Records) -> None:
    for owner in (records.run, *records.steps, *records.hardware):
        _reordered(dice, owner)


def _reordered(dice: random.Random, owner: Any) -> None:
    if isinstance(owner, list):
        for each in owner:
            _reordered(dice, each)
    elif isinstance(owner, dict):
        items = list(owner.items())
        dice.shuffle(items)
        owner.clear()
        owner.update(items)
        for each in owner.values():
            _reordered(dice, each)


def keys_unknown(dice: random.Random, records: Records) -> None:
    """A newer mpprof's additions, wherever keys are ours."""
    owners: list[Any] = [records.run, *records.steps, *records.hardware]
    for key in ("devices", "fits", "profile_windows"):
        owners += records.run[key] if isinstance(records.run.get(key), list) else []
    for owner in owners:
        if isinstance(owner, dict) and dice.random() < 0.5:
            owner["_unknown"] = json.loads(json.dumps(dice.choice(WRONG[:25])))


def lines_unknown(dice: random.Random, records: Records) -> None:
    for _ in range(dice.choice((1, 4))):
        records.steps.insert(
            dice.randrange(len(records.steps) + 1),
            {"kind": "_unknown", "step": 1, "t_ns": dice.choice((0, 2**70))},
        )


def nulls_spelled(dice: random.Random, records: Records) -> None:
    """What was not measured is left out; null says the same."""
    for line in records.steps:
        if line.get("kind") == "step":
            line.update({key: None for key in ("input_wait_ns", "dispatch_ns", "loss") if key not in line})


def spaced(dice: random.Random, records: Records) -> None:
    records.spaces, records.indent = " " * dice.choice((0, 1, 9)), dice.choice((None, 0, 4))


def blank_lines(dice: random.Random, records: Records) -> None:
    records.blank = [dice.randrange(1 << 10) for _ in range(dice.choice((1, 9)))]


def clock_shifted(dice: random.Random, records: Records) -> None:
    """The process' clock began elsewhere; where each time is one."""
    timed = [line for line in (*records.steps, *records.hardware) if "t_ns" in line]
    if not all(type(line["t_ns"]) is int and 0 <= line["t_ns"] < 1 << 60 for line in timed):
        return
    by = dice.randrange(1, 1 << 50)
    for line in timed:
        line["t_ns"] += by


def samples_shuffled(dice: random.Random, records: Records) -> None:
    """Cards that are asked at one time, in any order."""
    place: dict[str, float] = {}
    order = {id(line): number for number, line in enumerate(records.hardware)}
    if all(type(line.get("t_ns")) is int and type(line.get("gpu")) is int for line in records.hardware):
        records.hardware.sort(
            key=lambda line: (line["t_ns"], place.setdefault(str(order[id(line)]), dice.random()))
        )


CHANGES: tuple[Change, ...] = (
    keys_shuffled, keys_unknown, lines_unknown, nulls_spelled, spaced, blank_lines, clock_shifted, samples_shuffled,
)  # fmt: skip
