"""Why no more is to be gained: one sentence, the same in the terminal, in Markdown and on the page, with the figures
of the picture."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from mpprof_dashboards.drawings import flow
from mpprof_dashboards.pages import why

from mpprof.analysis.breakdown.roofline import model_flops
from mpprof.api import workflows
from mpprof.diagnosis.answer import compose
from mpprof.model.run import Ended
from mpprof.report import brief, markdown, text
from mpprof.report.json import report
from mpprof.report.to_json import to_json
from tests import samples
from tests.builders import cases as c
from tests.dashboards.test_compare_page import find, texts
from tests.diagnosis import saying
from tests.paths import SAMPLES, SHARED
from tests.real import truth
from tests.traces.conftest import needs_shared

REASONS = (
    "on Tensor Cores already", "then on Tensor Cores", "limited by memory", "mostly moving memory", "mostly in kernels",
    "then in 16 bits, limited by memory", "of the loss, in float32", "in float32", "in kernels so short", "in 16 bits already",
    "usually limited by memory", "mostly of the loss, in float32", "mostly in float32", "mostly in 16 bits already",
)  # fmt: skip
"""A rate alone is none."""
PAIRS = [
    ("v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"),
    ("v100-input-bound-mixed-float16", "v100-input-bound-float32"),
    ("a100-launch-bound-mixed-float16", "a100-launch-bound-float32"),
    ("recorded-h200-transformer-mixed-float16", "recorded-h200-transformer-float32"),
    ("h100-mixed-bfloat16", None),
    ("recorded-h100-transformer-mixed-float16", "recorded-h100-transformer-float32"),
]
V100_FP16_FLOPS_PER_S = 125e12
"""NVIDIA's data sheet of the V100 SXM2."""
H100_BYTES_PER_S = 3.352e12
"""NVIDIA's data sheet of the H100 SXM5: 3.35 TB/s, of 5 stacks at 5.24 Gbit/s a pin."""


def _words(said: str) -> str:
    return re.sub(r"[\s\\*]+", "", said)


@pytest.mark.parametrize(("name", "base"), PAIRS)
def test_every_place_says_it_in_the_same_words(name: str, base: str | None) -> None:
    document = report(samples.diagnosed(name, base))
    said = _words(document.answer.floor)
    assert said
    for shown in (
        brief.render(document),
        text.render(document),
        markdown.render(document),
        texts(why.content(document)),
        texts(why.card(document)),
    ):
        assert said in _words(shown)


@pytest.mark.parametrize(("name", "base"), PAIRS)
def test_its_figures_are_those_of_the_bar_after_the_changes(name: str, base: str | None) -> None:
    document = report(samples.diagnosed(name, base))
    bar = next(bar for bar in flow.flow_of(document).bars if bar.key == "after")
    step, *parts = re.findall(r"(?:about |: |, |; )([\d.]+ (?:ms|µs))(?= of| a step)", document.answer.floor)
    drawn = [flow.words.duration(part.ns) for part in bar.segments]
    assert step == flow.words.duration(bar.ns)
    assert set(parts[:2]) <= set(drawn)


def test_the_rate_is_that_of_the_models_products_in_the_time_that_is_left() -> None:
    """The operations by the shapes of the recorded layers; those of the sentence are by the kernels'."""
    found = samples.diagnosed(*PAIRS[0])
    left, percent = re.search(
        r"([\d.]+) ms of matrix work then on Tensor Cores, the fastest units \(([\d.]+) % of peak",
        found.answer.floor,
    ).groups()
    flops = model_flops(found.run.model).training * found.run.last_fit.batch_size
    assert float(percent) == pytest.approx(
        100 * flops / V100_FP16_FLOPS_PER_S / (float(left) * 1e-3), rel=0.05
    )


@pytest.mark.parametrize(("name", "base"), PAIRS)
def test_the_picture_says_what_limits_each_part_of_the_last_bar(name: str, base: str | None) -> None:
    document = report(samples.diagnosed(name, base))
    bar = next(bar for bar in flow.flow_of(document).bars if bar.key == "after")
    first, *items = [" ".join(texts(item).split()) for item in find(why.content(document), "limits").children]
    assert first == "Why no shorter:"
    if document.facts.limited_by == "host":
        told = "the host needs that long for the launches that are left"
        assert items == [f"all of it {flow.words.duration(bar.ns)}: {told}"]
        return
    drawn = {flow.words.duration(part.ns): part.ns for part in bar.segments}
    larger = sorted((each for each, ns in drawn.items() if ns >= 0.1 * bar.ns), key=drawn.get, reverse=True)
    said = dict(re.search(r"([\d.]+ (?:ms|µs)): (\S.*)", item).groups() for item in items)
    assert list(said) == larger
    for length, reason in said.items():
        assert reason.startswith(REASONS), reason
        told = re.search(rf"{length} of (?:[^,(]*?) {re.escape(reason)}", document.answer.floor)
        assert told or length != larger[0]  # the sentence names the longest alone


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_helpers_of_products_do_not_count_their_operations_again(dtype: str) -> None:
    """Split-K reductions and zero fills bear the op of a convolution, which another kernel computes: seen as 48.9 % of
    a rate of which no kernel reached more than 39 %. The operations are those of the recorded layers; 989.4 TFLOP/s is
    the H100 SXM5's data sheet."""
    found = samples.diagnosed(f"recorded-h100-convnet-mixed-{dtype}")
    left, percent = re.search(
        r"([\d.]+) ms of matrix work .*?([\d.]+) % of peak", found.answer.floor
    ).groups()
    flops = model_flops(found.run.model).training * found.run.last_fit.batch_size
    assert float(percent) == pytest.approx(100 * flops / 989.4e12 / (float(left) * 1e-3), rel=0.02)


def test_where_the_host_limits_it_is_named_and_float32_has_the_same_change() -> None:
    said = samples.diagnosed(*PAIRS[2]).answer.floor
    assert "2.33x over float32 (0.72x with the same change)" in said
    assert "the host needs that long" in said


def test_a_step_without_a_change_says_so() -> None:
    said = samples.diagnosed("gtx1080ti-mixed-float16", "gtx1080ti-float32").answer.floor
    assert said.startswith("float32 takes 63.1 ms, as measured; this run's 67.4 ms: ")
    assert "38.9 ms of matrix work on a card without Tensor Cores (62.5 % of the float32 peak)" in said


def test_casts_move_their_bytes_at_the_memorys_rate() -> None:
    """Bytes by the sizes of the tensors that are cast: 16 bits to float32 or back, so 6 of each value."""
    found = samples.diagnosed("h100-mixed-bfloat16")
    said, percent = re.search(
        r"([\d.]+) µs of casts limited by memory \(([\d.]+) % of bandwidth", found.answer.floor
    ).groups()
    cells = [cell for cell in found.account.main.cells if cell.category == "cast"]
    moved = sum(6 * math.prod(map(int, re.findall(r"\d+", cell.shapes.partition("[")[2]))) * cell.calls_per_step
                for cell in cells)  # fmt: skip
    assert float(percent) == pytest.approx(100 * moved / H100_BYTES_PER_S / (float(said) * 1e-6), rel=0.01)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # Each of its three largest products ends in `_align1`, 67 % of its matrix time.
        (
            "recorded-h200-transformer-float32",
            "matrix work mostly of an odd size, which loads slowly (24.6 %",
        ),
        # cuDNN's `sm80_xmma` and CUTLASS' `s16816`, of Ampere, take 83 % of its matrix time.
        ("recorded-h100-convnet-mixed-float16", "matrix work mostly in kernels made for older cards (24.7 %"),
        ("recorded-h200-transformer-float32", "7.09 ms of elementwise work mostly of the loss, in float32"),
        ("recorded-cpu-float32", "are matrix work on a CPU, which has no Tensor Cores"),
    ],
)
def test_a_part_says_what_its_kernels_show_of_why_it_stays(name: str, said: str) -> None:
    assert said in samples.diagnosed(name).answer.floor


def test_what_holds_for_most_of_a_part_is_not_said_of_all_of_it() -> None:
    """In the raw events 0.93 ms a step add biases in float16, which is none of the loss."""
    folder = SAMPLES / "recorded-h200-transformer-mixed-float16"
    (file,) = folder.rglob("*.xplane.pb.gz")
    half = [each for each in truth.device_events(file) if "BiasNHWCKernel<Eigen::half>" in each.name]
    found = samples.diagnosed(folder.name)
    steps = len(found.account.steps)
    (said,) = re.findall(r"([\d.]+) ms of elementwise work (.*?) of the loss, in float32", found.answer.floor)
    assert sum(each.duration_ns for each in half) / steps > 0.1 * float(said[0]) * 1e6
    assert said[1] == "mostly"


def test_a_part_of_two_kinds_of_work_names_both() -> None:
    """Seen: "3.67 ms of casts" of 2.75 ms of casts and 0.92 ms of transposes."""
    turned = c.account(
        c.cell("cast", 40.0), c.cell("layout", 20.0), c.cell("comm", 15.0), c.cell("copy", 10.0)
    )
    bare = replace(saying.diagnosed(c.case(account=turned)), findings=(), whatif=None)
    assert "60.0 ms of casts, transposes and concatenations" in compose(bare).floor
    assert "25.0 ms of communication and copies" in compose(bare).floor
    casts = c.account(c.cell("cast", 60.0), c.cell("layout", 0.5))
    bare = replace(saying.diagnosed(c.case(account=casts)), findings=(), whatif=None)
    assert "60.5 ms of casts" in compose(bare).floor
    assert "transposes" not in compose(bare).floor


def test_idling_that_no_cause_takes_says_what_the_host_does_meanwhile() -> None:
    """Of what is not launching, 10.9 of 13.1 ms are while `GatherV2` and its like run on the host. Seen: "ops on the
    CPU" at what is left once they do not."""
    found = samples.diagnosed("recorded-h200-transformer-mixed-float16")
    without = replace(found, findings=tuple(each for each in found.findings if each.code != "MP306"))
    assert " ms of idling while ops run on the CPU" in compose(without).floor
    assert "ops run on the CPU" not in found.answer.floor
    assert dict(compose(without).limits)["idle_other"] == "while ops run on the CPU"


@pytest.mark.parametrize("name", samples.NAMES)
def test_no_part_is_left_without_a_reason(name: str) -> None:
    said = samples.diagnosed(name).answer.floor
    assert said
    parts = re.findall(r"(?:: |, |; )([\d.]+ (?:ms|µs) of [^;]*?)(?=, [\d.]+ (?:ms|µs) of |; |\.$)", said)
    for part in parts:
        assert re.search(
            r" (?:in|on|of the loss|of an odd size|mostly|limited|then|while|usually|longer|off|for|as) ",
            part,
        ), part


def test_the_sentence_has_a_key_of_its_own() -> None:
    document = report(samples.diagnosed(*PAIRS[0]))
    assert to_json(document)["answer"]["floor"] == document.answer.floor


def test_matrix_work_on_the_fastest_units_says_so_with_its_rate() -> None:
    said = samples.diagnosed(*PAIRS[1]).answer.floor
    assert "on Tensor Cores already, the fastest units (43.9 % of peak)" in said


def test_what_fused_norms_leave_is_in_16_bits() -> None:
    said = samples.diagnosed(*PAIRS[1]).answer.floor
    assert said.endswith("4.05 ms of normalisation then in 16 bits, limited by memory (84.6 % of bandwidth).")


def test_matrix_work_that_a_change_brings_onto_tensor_cores_is_not_there_already() -> None:
    """Of the island's matrix time 10 % is on Tensor Cores."""
    assert (
        " of matrix work then on Tensor Cores, the fastest units ("
        in samples.diagnosed("v100-float32-island").answer.floor
    )


@pytest.mark.parametrize("name", ["a100-tf32-baseline", "v100-convnet", "v100-input-bound"])
def test_two_parts_leave_room_for_float32_with_the_same_changes(name: str) -> None:
    said = samples.diagnosed(f"{name}-mixed-float16", f"{name}-float32").answer.floor
    assert "x with the same changes): " in said
    assert len(re.findall(r" (?:ms|µs) of ", said)) == 2


@needs_shared()
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tpu-v6e-jax/inference.xplane.pb", "737 ms of copies longer than the work that could hide them"),
        (
            "rtx2080ti-torch/resnet_training.json.gz",
            "27.4 ms of helpers of matrix work and other work",
        ),
    ],
)
def test_a_trace_alone_says_why_its_parts_stay(name: str, said: str) -> None:
    assert said in workflows.diagnose(workflows.load(SHARED / name), None).answer.floor


def test_memory_that_no_record_shows_is_why_no_more_fits() -> None:
    """A GTX 1080 Ti has 11,718,230,016 bytes, and 758 MiB were recorded at the peak."""
    found = samples.diagnosed("gtx1080ti-mixed-float16")
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes."
    run = replace(found.run, facts=replace(found.run.facts, ended=Ended("out_of_memory", error, None)))
    assert compose(replace(found, run=run)).floor == (
        "758 MiB recorded and 3.00 GiB asked fit into 10.9 GiB: 7.16 GiB were taken by something that no record "
        "shows."
    )
