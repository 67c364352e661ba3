"""Published experiments as records: what can be said of them, and what must be left open.

Figures: ../shared/data/seed_figures.json, from a convnet on three cards (posit AI blog), a ResNet-50 ladder on a
V100, a ResNet-50 transfer on a T4, a transfer learning article, and TensorFlow's mixed precision guide.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpprof.analysis.comparison import batch_scaling
from mpprof.api import workflows
from mpprof.api.ladder import compare
from mpprof.model.finding import Diagnosis
from mpprof.report import json as documents
from tests.builders.gpus import H100, T4, V100, Gpu
from tests.builders.read_back import text
from tests.builders.records import Recorded, imagenette_convnet, layer, write
from tests.paths import NO_DATA, SHARED_DATA

FILE = SHARED_DATA / "seed_figures.json"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=NO_DATA)
FIGURES = json.loads(FILE.read_text()) if FILE.exists() else {"imagenette_convnet": {"batch": []}}
CONVNET = FIGURES["imagenette_convnet"]
V100_FIGURES = "Tesla V100 16GB (cc 7.0)"
TITAN = Gpu("NVIDIA TITAN Xp", (6, 1), 30, 1_582_000, 12 << 30, 547.0, {}, {})
QUADRO = Gpu("Quadro M2200", (5, 2), 8, 1_036_000, 4 << 30, 88.0, {}, {})


def against(tmp_path: Path, mixed: Recorded, baseline: Recorded) -> Diagnosis:
    one, other = (workflows.load(write(run, tmp_path)) for run in (mixed, baseline))
    return workflows.diagnose(one, other)


def convnet(gpu: Gpu, dtype: str, batch: int, step_ms: float, **facts) -> Recorded:  # type: ignore[no-untyped-def]
    return Recorded(f"{dtype}-{batch}", gpu, dtype, imagenette_convnet(dtype), batch, step_ms, **facts)


def pair(tmp_path: Path, gpu: Gpu, card: str, at: int, utilization: float | None = None) -> Diagnosis:
    batch, figures = CONVNET["batch"][at], CONVNET[card]
    mixed, single = (
        convnet(gpu, dtype, batch, figures[key][at], utilization=utilization)
        for dtype, key in (("float16", "mixed"), ("float32", "float32"))
    )
    return against(tmp_path, mixed, single)


# --- the convnet on three cards


@pytest.mark.parametrize("at", range(len(CONVNET["batch"])))
def test_the_speedup_is_the_same_at_every_batch(tmp_path, at) -> None:
    found = pair(tmp_path, V100, V100_FIGURES, at)
    assert found.speedup.observed == pytest.approx(1.09, abs=0.03)
    assert found.speedup.expected is None  # nothing shows what its kernels were


def test_two_explanations_remain_with_the_likelier_first_and_what_settles_it(tmp_path) -> None:
    found = pair(tmp_path, V100, V100_FIGURES, 0, CONVNET[V100_FIGURES]["gpu_utilization"]["32"])
    said = found.absent["bounds"]
    assert "two explanations remain" in found.explanation[0].lower()
    for words in ("two explanations remain", "input or host limits both runs", "the likelier", "72.0 %"):
        assert words in said
    assert "nothing to do for 28.0 % of the time" in said
    assert "14.2 % of the matrix units' peak" in said
    assert ". A profile window of a few steps settles it: MPProfilerCallback(logdir)" in said
    assert found.answer.figure == "1.07x"
    by_unit = {bound.statement: bound.value for bound in found.bounds}
    assert by_unit["the baseline's average rate of matrix work, at least"] / 1e12 == pytest.approx(
        9.3, abs=0.05
    )
    most = by_unit["average rate of the mixed run's matrix kernels, at most"]
    assert most / 1e12 == pytest.approx(18, abs=0.5)


def test_a_busy_gpu_leaves_one_explanation(tmp_path) -> None:
    found = pair(tmp_path, V100, V100_FIGURES, 0, 0.99)
    assert "bounds" not in found.absent
    assert found.bounds


def test_what_is_open_is_unable_and_never_clear(tmp_path) -> None:
    found = pair(tmp_path, V100, V100_FIGURES, 0)
    unable = {each.code for each in found.unable}
    assert {"MP301", "MP302", "MP409", "MP403", "MP501"} <= unable
    assert not unable & set(found.clear)


def test_the_first_convolution_and_batch_norms_need_the_trace(tmp_path) -> None:
    found = pair(tmp_path, V100, V100_FIGURES, 4)
    reasons = {each.code: each.reason for each in found.unable}
    assert "profiler window" in reasons["MP501"]
    assert "profiler window" in reasons["MP403"]


def test_the_same_time_for_each_image_at_every_batch_is_evidence_and_said(tmp_path) -> None:
    """All ten runs of the article, by their records alone, in one comparison."""
    used = CONVNET[V100_FIGURES]["gpu_utilization"]
    runs = []
    for dtype, key in (("float32", "float32"), ("float16", "mixed")):
        for batch, ms in zip(CONVNET["batch"], CONVNET[V100_FIGURES][key], strict=True):
            known = used.get(str(batch))
            known = known if isinstance(known, float) else None  # "fluctuating, up to 1.0"
            runs.append(workflows.load(write(convnet(V100, dtype, batch, ms, utilization=known), tmp_path)))
    compared = compare(runs)
    single, mixed = compared.batches
    assert mixed.batch_sizes == tuple(CONVNET["batch"])
    assert mixed.ns_per_example == pytest.approx(
        [ms * 1e6 for ms in (0.875, 0.8125, 0.758, 0.734, 0.736)], rel=0.01
    )
    assert max(mixed.spread_ratio, single.spread_ratio) < batch_scaling.CONSTANT_RATIO
    times, fixed, explained, against = mixed.statements
    assert "over 16 times the batch" in times
    assert "launches are not what limits it" in fixed
    for words in (
        "input or host work for each example limits it (the likelier: at a utilisation of 72.0 % to 78.0 %",
        "nothing to do for 22.0 % of the time or more",
        "1.28x at most",
        "settles it: MPProfilerCallback(logdir)",
    ):
        assert words in explained
    assert "1.07x to 1.10x" in against
    assert "part of each step is the device's own work" in against
    shown = text.render_comparison(documents.compare_document(compared))
    assert "Over the batch sizes" in shown
    assert "two explanations remain" in shown


@pytest.mark.parametrize(
    ("gpu", "card", "at"),
    [(TITAN, "Titan XP 12GB (cc 6.1)", i) for i in range(5)]
    + [(QUADRO, "Quadro M2200 4GB (cc 5.2)", i) for i in range(3)],
)
def test_cards_without_tensor_cores(tmp_path, gpu, card, at) -> None:
    found = pair(tmp_path, gpu, card, at)
    assert "MP801" in [f.code for f in found.findings]
    assert "has no Tensor Cores" in found.verdict
    assert "bounds" not in found.absent  # nothing is open: there is nothing to use


# --- the ladder


def ladder(tmp_path: Path) -> list[Recorded]:
    rungs = FIGURES["resnet50_ladder_v100"]["rungs"]
    layers = {dtype: imagenette_convnet(dtype) for dtype in ("float32", "float16")}
    return [
        Recorded(
            f"rung-{i}", V100, "float16" if i else "float32", layers["float16" if i else "float32"], rung["batch"],
            rung["batch"] / rung["value"] * 1e3, fit={"jit_compile": "XLA" in rung["name"]},
        )
        for i, rung in enumerate(rungs)
    ]  # fmt: skip


def test_the_ladder_of_resnet_50(tmp_path) -> None:
    runs = [workflows.load(write(rung, tmp_path)) for rung in ladder(tmp_path)]
    compared = compare(runs)
    document = documents.compare_document(compared)
    rates = [step["examples_per_s"] for step in document["steps"]]
    assert [round(rates[0]["from"]), *(round(rate["to"]) for rate in rates)] == pytest.approx(
        [365, 780, 1010, 1205], rel=0.01
    )
    observed = [step["observed"] for step in document["steps"]]
    assert observed == pytest.approx([780 / 365, 1010 / 780, 1205 / 1010], rel=0.01)
    assert [step["per_example"] for step in document["steps"]] == [False, False, True]
    assert "batch size: 128 against 256" in document["steps"][2]["labels"]
    assert any("XLA" in label for label in document["steps"][1]["labels"])
    # Rungs differ by design: nobody is accused of it.
    assert all(
        f["severity"] == "info" for s in document["steps"] for f in s["findings"] if f["code"] == "MP906"
    )
    whole = document["runs"][-1]["speedup"]
    assert whole["observed"] == pytest.approx(1205 / 365, rel=0.01)
    assert document["runs"][-1]["answer"]["figure"] == "3.30x"
    shown = text.render_comparison(document)
    assert "per example" in shown
    assert "1,206 examples/s" in shown or "1,205 examples/s" in shown


# --- the transfer run


def test_the_transfer_run_on_a_t4(tmp_path) -> None:
    figures = FIGURES["resnet50_transfer_t4"]
    layers = {dtype: imagenette_convnet(dtype) for dtype in ("float32", "float16")}
    per_epoch = figures["steps_per_epoch"]
    mixed, single = (
        Recorded(
            name, T4, dtype, layers[dtype], 32, figures[key][2], steps=5 * per_epoch, steps_per_epoch=per_epoch,
            first_step_s=figures[epochs][0] - figures[epochs][2],
        )
        for name, dtype, key, epochs in (
            ("mixed", "float16", "mixed_xla", "epoch_s_mixed"), ("float32", "float32", "float32", "epoch_s_float32"),
        )
    )  # fmt: skip
    found = against(tmp_path, mixed, single)
    assert found.speedup.observed == pytest.approx(770 / 229, rel=0.01)  # and not 80 s against 71 s
    warm_up = next(f for f in found.findings if f.code == "MP901")
    assert "of the first epoch" in warm_up.summary
    assert warm_up.severity == "info"


# --- the guide


def dense(dtype: str, *, units: int = 64, output: str = "float32") -> tuple:  # type: ignore[type-arg]
    return (
        layer("dense", "Dense", dtype, [None, units], 784 * units, units=units)
        | {"input_shape": [None, 784]},
        layer("logits", "Dense", dtype, [None, 10], units * 10, units=10) | {"input_shape": [None, units]},
        layer("softmax", "Activation", output, [None, 10], 0, activation="softmax"),
    )


def alone(tmp_path: Path, run: Recorded) -> Diagnosis:
    return workflows.diagnose(workflows.load(write(run, tmp_path)))


def codes(found: Diagnosis) -> set[str]:
    return {f.code for f in found.findings}


def test_the_guide_outputs_in_float32(tmp_path) -> None:
    bad = alone(tmp_path / "bad", Recorded("r", V100, "float16", dense("float16", output="float16"), 64, 20))
    good = alone(tmp_path / "good", Recorded("r", V100, "float16", dense("float16"), 64, 20))
    assert "MP106" in codes(bad)
    assert "MP106" not in codes(good)


def test_the_guide_twice_the_batch(tmp_path) -> None:
    bad = Recorded("r", V100, "float16", dense("float16"), 64, 20, peak_bytes=5_000_000_000)
    good = Recorded("r", V100, "float16", dense("float16"), 64, 20, peak_bytes=12_000_000_000)
    assert "MP303" in codes(alone(tmp_path / "bad", bad))
    assert "MP303" not in codes(alone(tmp_path / "good", good))


def test_the_guide_multiples_of_eight(tmp_path) -> None:
    vocabulary = (
        *dense("float16")[:1],
        layer("logits", "Dense", "float16", [None, 33709], 64 * 33709, units=33709),
    )
    assert "MP402" in codes(alone(tmp_path, Recorded("r", V100, "float16", vocabulary, 64, 20)))


@pytest.mark.parametrize(("units", "found"), [(100, True), (128, False)])
def test_the_guide_multiples_of_128_on_a_tpu(tmp_path, units, found) -> None:
    tpu = {"devices": [{"kind": "tpu", "name": "TPU v3"}]}
    layers = (
        layer("dense", "Dense", "bfloat16", [None, units], 784 * units, units=units),
        layer("logits", "Dense", "bfloat16", [None, 128], units * 128, units=128),
    )
    run = Recorded("r", H100, "bfloat16", layers, 128, 20, facts=tpu)
    assert ("MP401" in codes(alone(tmp_path, run))) is found


def test_the_guide_start_up_skips(tmp_path) -> None:
    run = Recorded("r", V100, "float16", dense("float16"), 64, 20, skipped={2: 1, 3: 1, 5: 1})
    found = alone(tmp_path, run)
    start_up = next(f for f in found.findings if f.code == "MP204")
    assert start_up.severity == "info"
    assert "MP201" not in codes(found)


# --- memory


def test_a_quarter_of_the_memory_and_30_percent_less_time(tmp_path) -> None:
    figures = FIGURES["transfer_learning_sicara"]
    net = imagenette_convnet
    single = Recorded("float32", V100, "float32", net("float32"), 32, 100.0, peak_bytes=8_000_000_000)
    mixed = Recorded(
        "mixed", V100, "float16", net("float16"), 32, 100.0 * figures["training_time_ratio"],
        peak_bytes=int(8_000_000_000 * figures["gpu_memory_ratio"]),
    )  # fmt: skip
    found = against(tmp_path, mixed, single)
    assert found.speedup.observed == pytest.approx(1 / 0.7, rel=0.01)
    assert found.memory.saved_bytes == 6_000_000_000
    assert found.answer.figure == "1.43x"
    assert "Peak memory fell to 25.0 % of float32's." in found.explanation
    assert "saved against the baseline" in text.render(documents.document(found))


def test_a_card_without_tensor_cores_saves_memory_and_no_time(tmp_path) -> None:
    card = Gpu("NVIDIA GeForce GTX 1080 Ti", (6, 1), 28, 1_582_000, 11 << 30, 484.0, {}, {})
    net = imagenette_convnet
    single = Recorded("float32", card, "float32", net("float32"), 32, 100.0, peak_bytes=8_000_000_000)
    mixed = Recorded("mixed", card, "float16", net("float16"), 32, 100.1, peak_bytes=2_000_000_000)
    found = against(tmp_path, mixed, single)
    assert "save memory and often cost time" in found.verdict
    assert found.explanation[0] == "A step takes 100 ms, and 99.9 ms in float32."
    assert "MP801" in codes(found)
