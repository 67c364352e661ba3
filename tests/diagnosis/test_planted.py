"""Planted causes: the right code comes first, and its cost is what the healthy twin does not have.

The runs are played by the simulator of tests/builders, which takes its kernel rates from its own file and
imports nothing of the analysis.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.builders.gpus import A100, T4, V100
from tests.builders.numerics import FLOAT32, MIXED_FLOAT16, TF32
from tests.builders.simulate import Host, Training, write
from tests.builders.workloads import Model, convnet, transformer

WINDOW = (60, 64)
ON_CUDA_CORES = replace(MIXED_FLOAT16, matrix="fp16_cuda")
TEXT = {"blocks": 3, "length": 128, "batch": 32}


def played(directory: Path, name: str, gpu, numerics, model, **facts) -> Path:
    write(
        Training(name=name, gpu=gpu, numerics=numerics, model=model, profile=WINDOW, **facts),
        directory / name,
    )
    return directory / name


def images_of_bytes(model: Model) -> Model:
    """The same on images of a byte a channel, moved while the step before runs, as in the recorded trainings."""
    return replace(model, input_bytes=600_000)


def step_ns(diagnosis: Diagnosis) -> float:
    assert diagnosis.steps.median_ns is not None
    return diagnosis.steps.median_ns


def diagnosed(planted: Path, baseline: Path | None = None) -> Diagnosis:
    return workflows.diagnose(workflows.load(planted), workflows.load(baseline) if baseline else None)


def costs(diagnosis: Diagnosis) -> dict[str, float]:
    found = [f for f in diagnosis.findings if f.severity != "info"]
    return {f.code: f.cost_ns_per_step or 0.0 for f in found}


@pytest.mark.parametrize(
    ("gpu", "base"), [(V100, FLOAT32), (T4, FLOAT32), (A100, TF32)], ids=["V100", "T4", "A100"]
)
def test_a_float32_island_with_a_baseline(tmp_path, gpu, base) -> None:
    kept = {"conv2d_1": base, "conv2d_2": base}
    healthy = played(tmp_path, "healthy", gpu, MIXED_FLOAT16, images_of_bytes(convnet(gpu, MIXED_FLOAT16)))
    fallen = images_of_bytes(convnet(gpu, MIXED_FLOAT16, overrides=kept))
    planted = played(tmp_path, "planted", gpu, MIXED_FLOAT16, fallen)
    baseline = played(tmp_path, "float32", gpu, base, images_of_bytes(convnet(gpu, base)))
    found = diagnosed(planted, baseline)
    truth = step_ns(found) - step_ns(diagnosed(healthy))
    assert list(costs(found)) == ["MP104"]
    assert found.findings[0].code == "MP104"
    assert costs(found)["MP104"] == pytest.approx(truth, rel=0.10)


@pytest.mark.parametrize("gpu", [V100, A100], ids=["V100", "A100"])
def test_an_odd_vocabulary_with_a_baseline(tmp_path, gpu) -> None:
    base = FLOAT32 if gpu is V100 else TF32
    healthy = played(
        tmp_path, "healthy", gpu, MIXED_FLOAT16, transformer(gpu, MIXED_FLOAT16, vocabulary=33709, **TEXT)
    )
    fallen = transformer(gpu, MIXED_FLOAT16, vocabulary=33709, logits=ON_CUDA_CORES, **TEXT)
    planted = played(tmp_path, "planted", gpu, MIXED_FLOAT16, fallen)
    baseline = played(tmp_path, "float32", gpu, base, transformer(gpu, base, vocabulary=33709, **TEXT))
    found = diagnosed(planted, baseline)
    truth = step_ns(found) - step_ns(diagnosed(healthy))
    assert list(costs(found)) == ["MP402"]
    assert costs(found)["MP402"] == pytest.approx(truth, rel=0.10)


def test_waiting_for_input_and_an_island_at_once(tmp_path) -> None:
    kept, host = {"conv2d_3": FLOAT32}, Host(input_us=14_000.0)
    both = convnet(V100, MIXED_FLOAT16, overrides=kept)
    fast = played(tmp_path, "fast", V100, MIXED_FLOAT16, both)
    planted = played(tmp_path, "planted", V100, MIXED_FLOAT16, both, host=host)
    baseline = played(tmp_path, "float32", V100, FLOAT32, convnet(V100, FLOAT32))
    found = diagnosed(planted, baseline)
    assert set(costs(found)) == {"MP301", "MP104"}
    assert costs(found)["MP301"] == pytest.approx(step_ns(found) - step_ns(diagnosed(fast)), rel=0.10)


def test_a_model_built_before_its_policy(tmp_path) -> None:
    late = played(tmp_path, "late", V100, FLOAT32, convnet(V100, FLOAT32), global_policy="mixed_float16")
    found = diagnosed(late)
    assert next(iter(costs(found))) == "MP101"
    assert found.cause == "MP101"


@pytest.mark.parametrize(
    ("gpu", "base", "model"),
    [
        (V100, FLOAT32, convnet),
        (T4, FLOAT32, convnet),
        (A100, TF32, transformer),
        (V100, FLOAT32, transformer),
    ],
)
def test_healthy_runs_have_nothing_above_info(tmp_path, gpu, base, model) -> None:
    healthy = played(tmp_path, "healthy", gpu, MIXED_FLOAT16, model(gpu, MIXED_FLOAT16))
    baseline = played(tmp_path, "float32", gpu, base, model(gpu, base))
    assert costs(diagnosed(healthy, baseline)) == {}
    assert costs(diagnosed(baseline)) == {}
