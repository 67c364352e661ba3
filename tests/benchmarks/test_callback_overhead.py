"""What the callback adds to a step, beside an empty one, a naive reader and Keras' own TensorBoard.

make bench, or: pytest -m benchmark -s tests/benchmarks/test_callback_overhead.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

MOST_US = 15.0
ATTEMPTS = 3
STEPS = 200_000
OTHERS = ("empty", "naive", "tensorboard-epoch", "tensorboard-batch")

pytestmark = [pytest.mark.benchmark, pytest.mark.framework]


def measure(backend: str, out: Path, steps: int, *names: str) -> dict[str, Any]:
    environment = {
        **os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-m", "tools.benchmarks.callback_overhead", str(out), str(steps), *names]
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    read: dict[str, Any] = json.loads(out.read_text())
    return read


def row(backend: str, name: str, measured: dict[str, Any]) -> str:
    added, cpu = measured["added_us"][name], measured["added_cpu_us"][name]
    return (
        f"{backend:<11} {name:<18} {measured['bare_us']:8.0f} {added['mean']:8.1f} "
        f"[{added['low']:6.1f}, {added['high']:6.1f}] {cpu['mean']:8.1f} [{cpu['low']:6.1f}, {cpu['high']:6.1f}]"
        f" {added['mean'] / measured['bare_us']:6.1%} {added['pairs']:6}"
    )


def width(measured: dict[str, Any]) -> float:
    added = measured["added_us"]["mpprof"]
    return float(added["high"] - added["low"])


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_what_callbacks_add_to_a_step(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow" if backend == "tensorflow" else "jax")
    head = f"{'backend':<11} {'callback':<18} {'bare us':>8} {'added us':>8} {'95 %':>16}"
    head += f" {'CPU us':>8} {'95 %':>16} {'share':>6} {'pairs':>6}"
    print(f"\n{head}")
    tries: list[dict[str, Any]] = []
    # Others use this machine, too: the quietest counts.
    while len(tries) < ATTEMPTS and (not tries or width(tries[-1]) > MOST_US / 2):
        tries.append(measure(backend, tmp_path / f"{len(tries)}.json", STEPS, "mpprof"))
        print(row(backend, "mpprof", tries[-1]))
    ours = min(tries, key=width)
    # On JAX a hook at the batch's end makes Keras wait for each step, bare blocks included: one fit each.
    for names in [OTHERS] if backend == "tensorflow" else [(name,) for name in OTHERS]:
        others = measure(backend, tmp_path / "others.json", 12_000, *names)
        for name in names:
            print(row(backend, name, others))
    own = measure(backend, tmp_path / "self.json", 12_000, "self")["self_us"]
    print(
        f"{backend}: self time of mpprof's hooks {own['median']:.1f} us median, {own['mean']:.1f} mean, "
        f"{own['p95']:.1f} p95; {ours['bytes_per_step']:.0f} bytes on disk per step"
    )
    # The time of the training's own thread is what a busy machine leaves of the measurement.
    assert ours["added_cpu_us"]["mpprof"]["high"] <= MOST_US
    if width(ours) > MOST_US:
        pytest.fail(  # not shown is not met
            f"this machine is too busy: the 95 % interval of the wall time is {width(ours):.0f} us wide"
        )
    assert ours["added_us"]["mpprof"]["high"] <= MOST_US
