"""What each author asked is answered in the first sentence: the articles' runs, played again as records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.api.ladder import compare
from mpprof.model.finding import Diagnosis
from mpprof.report import brief
from mpprof.report import json as documents
from tests.builders.gpus import T4, V100, Gpu
from tests.builders.read_back import text
from tests.builders.records import Recorded, imagenette_convnet, layer, write
from tests.paths import NO_DATA, SAMPLES
from tests.seeds.test_figures import (
    CONVNET,
    FIGURES,
    FILE,
    V100_FIGURES,
    against,
    alone,
    convnet,
    dense,
    ladder,
    pair,
)

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=NO_DATA)
GTX_1080_TI = Gpu("NVIDIA GeForce GTX 1080 Ti", (6, 1), 28, 1_582_000, 11 << 30, 484.0, {}, {})


def sentence(found: Diagnosis) -> str:
    assert found.answer is not None
    return found.answer.sentence


# --- Posit: why was there no substantial reduction of execution time?


@pytest.mark.parametrize("at", [0, 2])
def test_a_convnet_that_gains_little_at_72_to_78_percent_utilisation(tmp_path: Path, at: int) -> None:
    batch = str(CONVNET["batch"][at])
    used = CONVNET[V100_FIGURES]["gpu_utilization"][batch]
    found = pair(tmp_path, V100, V100_FIGURES, at, used)
    assert sentence(found).startswith(f"Mixed precision brings only {found.answer.figure}, ")
    assert "input or the host probably limits it: the GPU was busy 7" in sentence(found)
    assert found.answer.because[0].startswith("Two explanations remain: ")
    assert found.answer.do.startswith("record a profile window: ")
    assert found.answer.do in " ".join(brief.render(documents.report(found)).split())


def test_what_the_ladder_of_batches_tells_stands_before_its_rungs(tmp_path: Path) -> None:
    used = CONVNET[V100_FIGURES]["gpu_utilization"]["32"]
    runs = [
        workflows.load(write(convnet(V100, "float16", batch, ms, utilization=used), tmp_path))
        for batch, ms in zip(CONVNET["batch"], CONVNET[V100_FIGURES]["mixed"], strict=True)
    ]
    shown = " ".join(text.render_comparison(documents.compare_document(compare(runs))).split())
    before, _, _ = shown.partition("float16-32 → float16-64")
    for words in (
        "launches are not what limits it",
        "two explanations remain",
        "settles it: MPProfilerCallback",
    ):
        assert words in before


# --- Sicara: which card is needed, what is saved, and does a larger batch fit?


def transfer(tmp_path: Path, card: Gpu, ms: float) -> Diagnosis:
    net = imagenette_convnet
    single = Recorded("float32", card, "float32", net("float32"), 32, 100.0, peak_bytes=8_000_000_000)
    mixed = Recorded("mixed", card, "float16", net("float16"), 32, ms, peak_bytes=2_000_000_000)
    return against(tmp_path, mixed, single)


def test_a_third_less_time_and_a_quarter_of_the_memory(tmp_path: Path) -> None:
    found = transfer(tmp_path, V100, 70.0)
    assert sentence(found).startswith("Mixed precision pays: 99.9 to 70.0 ms a step")
    assert "Peak memory fell to 25.0 % of float32's." in found.answer.because
    batch = next(each for each in found.findings if each.code == "MP303")
    assert "twice the batch fits" in batch.summary
    took = documents.report(found).run_time
    assert took is not None
    assert took.wall_ns == pytest.approx(120 * 70e6, rel=0.05)


def test_below_compute_capability_7_memory_alone_is_saved(tmp_path: Path) -> None:
    said = sentence(transfer(tmp_path, GTX_1080_TI, 100.1))
    assert said == "This card (GTX 1080 Ti) has no Tensor Cores: 16 bits save memory and often cost time."


# --- S. Paul: policies by layer, an input pipeline, and a utilisation that falls in 16 bits


def test_policies_by_layer_leave_the_loss_unscaled(tmp_path: Path) -> None:
    """Keras wraps the optimizer by the model's own policy alone."""
    plain = {"policy": {"global": "float32"}, "optimizer": {"class": "Adam"}}
    found = alone(tmp_path, Recorded("r", T4, "float16", dense("float16"), 32, 229, fit=plain))
    assert sentence(found) == "The loss is not scaled: small float16 gradients become zero."


def test_a_run_that_waits_for_its_images() -> None:
    names = ("v100-input-bound-mixed-float16", "v100-input-bound-float32")
    found = workflows.diagnose(*(workflows.load(SAMPLES / name) for name in names))
    assert sentence(found) == "The GPU waits for data 25.5 of each 48.0 ms step."


def test_a_utilisation_that_falls_says_what_limits_next(tmp_path: Path) -> None:
    figures = FIGURES["resnet50_transfer_t4"]
    mixed, single = (
        Recorded(name, T4, dtype, imagenette_convnet(dtype), 32, figures[key][2], utilization=used)
        for name, dtype, key, used in (
            ("mixed", "float16", "mixed_xla", 0.55), ("float32", "float32", "float32", 0.98),
        )
    )  # fmt: skip
    said = sentence(against(tmp_path, mixed, single))
    assert said.startswith("Mixed precision pays: 770 to 229 ms a step")
    assert said.endswith("input or the host probably limits it: the GPU was busy 55.0 % of the time.")


# --- the guide: outputs in float32 (its custom loop is trained in `test_guide`)


def test_an_output_in_16_bits_is_said_first_where_no_time_is_known(tmp_path: Path) -> None:
    layers = (
        *dense("float16")[:2],
        layer("softmax", "Activation", "float16", [None, 10], 0, activation="softmax"),
    )
    found = alone(tmp_path, Recorded("r", V100, "float16", layers, 64, 20))
    assert (
        sentence(found) == "The last layer, softmax, gives float16: the loss is computed from rounded values."
    )
    assert "float32" in found.answer.do
    assert found.answer.because[0].startswith("No trace was recorded: ")


# --- NVIDIA: what does each rung bring?


def test_each_rung_of_the_ladder_says_what_it_brings(tmp_path: Path) -> None:
    document = documents.compare_document(
        compare([workflows.load(write(rung, tmp_path)) for rung in ladder(tmp_path)])
    )
    answers = [step["answer"] for step in document["steps"]]
    assert [each["figure"] for each in answers] == ["2.14x", "1.29x", "1.19x"]
    assert answers[0]["sentence"] == "Mixed precision pays: 350 to 164 ms a step."
    assert all(re.search(each["figure"], each["sentence"]) for each in answers[1:])
