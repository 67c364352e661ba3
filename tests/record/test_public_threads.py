"""Three public threads, rebuilt: the cause that was settled there is what leads.

What was reported: tensorflow/tensorflow#44191 (the guide's model, two to four times slower in mixed_float16 on a GTX
1660 Ti), NVIDIA/apex#297 (ResNet-20 on CIFAR-10 slower with AMP: the network is too small for the card), and
jax-ml/jax#21212 (a product of 4,096 x 4,096 in bfloat16 slower than in float32 on a T4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis import audit as judging
from mpprof.diagnosis.leading import leads
from mpprof.model.audit import AuditReport
from mpprof.record.facts import untrained
from tests.builders.gpus import V100
from tests.builders.numerics import FLOAT32, MIXED_FLOAT16
from tests.builders.simulate import Host
from tests.planted.cases import convnet
from tests.planted.generator import run
from tests.planted.matrix import diagnosed
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework


def audited(policy: str, layers: Callable[[], list[Any]], card: str, batch: int) -> AuditReport:
    keras.config.set_dtype_policy(policy)
    try:
        made = keras.Sequential(layers())
        made.compile("rmsprop", "sparse_categorical_crossentropy")
    finally:
        keras.config.set_dtype_policy("float32")
    return judging.audit(untrained.run_of(made, batch), device_peaks.find(card))


def test_a_gtx_1660_ti_has_no_tensor_cores_although_it_reports_7_5() -> None:
    def of_the_guide() -> list[Any]:
        dense = [keras.layers.Dense(4096, activation="relu") for _ in range(2)]
        end = [keras.layers.Dense(10), keras.layers.Activation("softmax", dtype="float32")]
        return [keras.Input((784,)), *dense, *end]

    report = audited("mixed_float16", of_the_guide, "GTX 1660 Ti", 8192)
    assert report.notes[0].code == "MP802"
    assert {(each.unit, each.precision) for each in report.work} == {("cuda_core", "fp16")}
    beside = audited("mixed_float16", of_the_guide, "RTX 2080", 8192)
    assert {each.unit for each in beside.work} == {"tensor_core"}
    assert "MP802" not in {note.code for note in beside.notes}


def test_bfloat16_on_a_t4_is_turned_into_float32() -> None:
    def model() -> list[Any]:
        return [keras.Input((4096,)), keras.layers.Dense(4096, use_bias=False)]

    report = audited("mixed_bfloat16", model, "T4", 65_536)
    assert report.notes[0].code == "MP804"
    assert [(each.unit, each.precision) for each in report.work] == [("cuda_core", "fp32")]
    assert "mixed_float16" in report.notes[0].remedy
    assert "MP804" not in {note.code for note in audited("mixed_bfloat16", model, "A100", 65_536).notes}


def test_resnet_20_on_cifar_is_too_small_for_its_card(tmp_path: Path) -> None:
    widths, sizes = (16,) * 7 + (32,) * 6 + (64,) * 6, (32,) * 7 + (16,) * 6 + (8,) * 6
    shape = {"widths": widths, "sizes": sizes, "classes": 10}
    host = Host(dispatch_us=7.0)  # what a framework takes for an op beside its launch

    mixed = run("amp", V100, MIXED_FLOAT16, convnet(V100, MIXED_FLOAT16, batch=64, **shape), host=host)
    wide = run("float32", V100, FLOAT32, convnet(V100, FLOAT32, batch=64, **shape), host=host)
    found = diagnosed(mixed, wide, tmp_path)
    assert leads(found) == ("time", "MP302")
    assert found.speedup is not None
    assert found.speedup.observed is not None
    assert found.speedup.observed < 1.0
