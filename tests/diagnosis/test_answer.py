"""The one answer: its rules over every sample and pair (tests/planted holds it to them, too), and the situations that
it has to tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.wording import LONGEST, fit
from mpprof.model.account import Limit
from mpprof.model.answer import Answer
from mpprof.model.finding import Diagnosis
from mpprof.model.run import Ended
from mpprof.report import brief
from mpprof.report import json as documents
from tests import samples
from tests.builders import cases as c
from tests.builders import records, unmarked, windows
from tests.diagnosis.saying import assert_answer, diagnosed
from tests.frozen.outputs import pairs
from tests.traces.kineto import Kineto


def of_sample(name: str, base: str | None = None) -> Answer:
    found = samples.diagnosed(name, base).answer
    assert found is not None
    return found


@pytest.mark.parametrize("name", samples.NAMES)
def test_a_sample_keeps_the_rules(name: str) -> None:
    assert_answer(samples.diagnosed(name))


@pytest.mark.parametrize(("name", "base"), list(pairs()))
def test_a_pair_keeps_the_rules(name: str, base: str) -> None:
    assert_answer(samples.diagnosed(name, base))


# --- situations: what leads, the figure, and the words that must be there ------------------------------------


def ended(reason: str, error: str, text: str | None = None) -> Diagnosis:
    table = c.steps(60)
    return diagnosed(c.case(run=c.run(c.facts(ended=Ended(reason, error, text)), table), table=table))


def test_of_an_error_below_an_errors_type_the_words_are_said() -> None:
    words = "TypeError: `generator` yielded an element that could not be converted to the expected type, which was"
    found = ended("error", "InvalidArgumentError", f"{words} float32 and not a text of so many letters")
    (said,) = [each.said for each in found.findings if each.code == "MP913"]
    assert "TypeError: `generator` yielded an element that could not be converted" in fit(said, LONGEST - 1)


def alone(*cells: c.Cell, **facts) -> Diagnosis:
    return diagnosed(c.case(account=c.account(*cells), **facts))


def against(*cells: c.Cell, observed: float = 1.5, slices: tuple = (), **facts) -> Diagnosis:
    speedup = c.speedup(
        *slices, baseline_ms=100 * observed, interval=(0.99 * observed, 1.01 * observed), **facts
    )
    baseline = c.case(records=c.facts("float32"))
    return diagnosed(c.case(account=c.account(*cells), speedup=speedup, baseline=baseline))


def situations() -> Iterator[tuple[str, Diagnosis, tuple[str, str], str, str]]:
    """Yield a name, the run, its kind and what leads, its figure and label, and its sentence."""
    oom = "ResourceExhaustedError: OOM when allocating tensor with shape[8] and type float on /device:GPU:0"
    yield (
        "out of memory",
        ended("out_of_memory", oom),
        ("records", "error"),
        "",
        "ran out of memory after step 60",
    )
    yield (
        "crash", ended("error", "RuntimeError", "loss service went away"), ("records", "error"), "",
        "Training stopped after step 60 with RuntimeError: loss service went away.",
    )  # fmt: skip
    yield (
        "waits for input", alone(c.cell("idle_input", 30)), ("estimated", "time"),
        "100 ms · a step; about 70.0 ms once the input keeps up",
        "The GPU waits for data 30 of each 100 ms step.",
    )  # fmt: skip
    waits = c.gap_slice("idle_input", 0, 30)
    yield (
        "waits for input, with a baseline", against(c.cell("idle_input", 30), slices=(waits,)), ("measured", "time"),
        "1.50x · about 2.14x once the input keeps up", "The GPU waits for data 30 of each 100 ms step.",
    )  # fmt: skip
    yield (
        "healthy", against(observed=2.0, expected=2.0), ("measured", "nothing"), "2.00x · ",
        "Mixed precision pays: 200 to 100 ms a step, about all that precision alone can give.",
    )  # fmt: skip
    yield (
        "beats the estimate", against(observed=2.5, expected=2.0), ("measured", "nothing"), "2.50x · ",
        "Mixed precision pays: 250 to 100 ms a step.",
    )  # fmt: skip
    yield (
        "less than precision can give", against(observed=2.0, expected=3.0), ("measured", "nothing"), "2.00x · ",
        "Mixed precision pays: 200 to 100 ms a step, less than precision alone can give, and no cause of that was "
        "found.",
    )  # fmt: skip
    yield (
        "no gain", against(observed=1.01, expected=1.02), ("measured", "nothing"), "1.01x · (1.00x to 1.02x)",
        "Mixed precision brings nothing here: both steps take 100 ms.",
    )  # fmt: skip
    yield (
        "slower", against(observed=0.8, expected=1.0), ("measured", "nothing"), "0.80x · ",
        "Mixed precision is slower here: 80 to 100 ms a step, and no cause of it was found.",
    )  # fmt: skip
    yield (
        "16 bits alone", alone(), ("estimated", "nothing"), "100 % · of matrix time on Tensor Cores",
        "Mixed precision is in effect; whether it pays is not known without a float32 run.",
    )  # fmt: skip
    yield (
        "half off the Tensor Cores, no cause", alone(c.cell("idle_other", 30)), ("estimated", "nothing"),
        "100 % · of matrix time on Tensor Cores",
        "The GPU idles 30.0 % of the step, and the trace does not show what for.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found", "leading", "figure", "sentence"), list(situations()), ids=lambda each: each if isinstance(each, str) and len(each) < 40 else ""
)  # fmt: skip
def test_a_situation_has_its_answer(name, found, leading, figure, sentence) -> None:
    answer = compose(found)
    assert_answer(found)
    assert (answer.kind, answer.leads) == leading
    assert f"{answer.figure} · {answer.label}" == (figure or " · ")
    assert sentence in answer.sentence


def idling(idle_ms: float) -> Kineto:
    """Six steps of 10 ms with float32 products, and nothing on either side for the rest."""
    k = Kineto()
    for step in range(6):
        at, each = 10_000.0 * step, (10_000 - 1_000 * idle_ms) / 4
        k.host("user_annotation", f"ProfilerStep#{step}", at, 10_000)
        for row in range(4):
            k.op("aten::mm", at + 10 + 30 * row, 20)
            k.launch("ampere_sgemm_128x64_nn", at + 15 + 30 * row, at + 40 + (each + 1) * row, each)
    return k


@pytest.mark.parametrize(("idle_ms", "first"), [(0.5, True), (6.4, False)])
def test_a_float32_run_that_idles_is_not_told_of_16_bits_first(
    tmp_path: Path, idle_ms: float, first: bool
) -> None:
    """A public trace idled 64 % in a blocking copy, and the first thing to do was autocast, at 1.00x to 1.06x."""
    answer = workflows.diagnose(workflows.load(idling(idle_ms).write(tmp_path / "a.pt.trace.json"))).answer
    assert (answer.kind, answer.leads) == ("float32", "nothing")
    assert ("autocast" in answer.do) is first
    assert ("idles" in answer.sentence) is not first


SAMPLE_ANSWERS = [
    ("v100-input-bound-mixed-float16", "v100-input-bound-float32", "1.02x", "The GPU waits for data 25.5 of each 48.0 ms step."),
    ("v100-float32-island", "v100-convnet-float32", "1.14x", "`conv2d_2` and `conv2d_3` compute in float32, which costs 15.0 of each 37.6 ms step."),
    ("recorded-h100-transformer-mixed-float16", "recorded-h100-transformer-float32", "1.21x",
     "The vocabulary, 33,709, is not a multiple of 8: 2.38 of each 8.79 ms step are lost to slow matrix work and reductions."),
    ("a100-launch-bound-mixed-float16", "a100-launch-bound-float32", "0.74x", "The host launches too slowly: the GPU idles 1.31 of each 1.93 ms step."),
    ("v100-convnet-mixed-float16", "v100-convnet-float32", "1.89x", "Mixed precision pays: 42.8 to 22.6 ms a step, about all that precision alone can give."),
    ("v100-loss-scale-thrash", None, "", "50 of 160 updates were skipped and the loss scale fell to 2^-35: the gradients overflow by themselves."),
    ("gtx1080ti-mixed-float16", None, "", "This card (GTX 1080 Ti) has no Tensor Cores: 16 bits save memory and often cost time."),
    ("v100-convnet-float32", None, "off", "Mixed precision is off; 65.2 % of the GPU's time could run on Tensor Cores in 16 bits."),
    ("recorded-cpu-mixed-float16", None, "CPU", "On a CPU mixed precision says nothing about a GPU: this one emulates float16, 7.07 ms a step."),
    ("recorded-h100-transformer-padded-mixed-float16", "recorded-h100-transformer-float32", "",
     "These two runs cannot be compared: model parameters 47161261 against 47180736."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "base", "figure", "sentence"), SAMPLE_ANSWERS)
def test_the_answer_of_a_sample(name: str, base: str | None, figure: str, sentence: str) -> None:
    answer = of_sample(name, base)
    assert (answer.figure, answer.sentence) == (figure, sentence)


def test_two_sentences_prove_the_cause_and_say_what_limits() -> None:
    answer = of_sample("v100-input-bound-mixed-float16", "v100-input-bound-float32")
    assert answer.because == (
        "Matrix work became 5.5x as fast (27.7 to 5.0 ms); waiting for input grew by 19.6 ms.",
        "Precision alone gives about 1.74x: 16.6 % of the float32 step (normalisation) stays in float32.",
    )
    assert answer.do == "parallelise the pipeline: data.map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
    assert answer.label == "about 2.17x once the input keeps up"
    launching = of_sample("a100-launch-bound-mixed-float16", "a100-launch-bound-float32")
    assert "16 bits added 82 launches a step (54 for loss scaling)" in launching.because[0]


def of_unchanged_step(idle: float, was: float, now: float, observed: float = 1.0) -> Diagnosis:
    waits = c.gap_slice("idle_launch", 100 * observed - was, 100 - now)
    work = c.gap_slice("matmul", was, now, ratio=was / now)
    return against(c.cell("idle_launch", idle), observed=observed, slices=(waits, work))


def test_the_first_screen_says_what_the_pair_shows() -> None:
    """Kernels that got faster in a step that did not: the device waits for the host."""
    found = of_unchanged_step(96, 5.24, 4)
    said = "Kernels became 1.31x as fast (5.24 to 4.00 ms), and the step did not: the GPU idles 96.0 % of it."
    assert said in compose(found).because
    assert said in " ".join(brief.render(documents.report(found)).split())
    for other in (of_unchanged_step(96, 4.4, 4), of_unchanged_step(96, 5.24, 4, observed=1.2)):
        assert not any("kernels became" in each.lower() for each in compose(other).because)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit("optimizer", "float32", 61 * c.MS, 61 * c.MS, 0.61), "61.0 % of the float32 step (the optimizer) stays in float32."),
        (Limit("matmul", "tf32", 90 * c.MS, 45 * c.MS, 0.9), "TF32 already runs 90.0 % of the float32 step on Tensor Cores."),
        (Limit("elementwise", "memory", 80 * c.MS, 40 * c.MS, 0.8), "(elementwise work) is bound by memory."),
        (Limit("idle_input", "wait", 80 * c.MS, 80 * c.MS, 0.8), "is a wait, which precision does not shorten."),
        (Limit("matmul", "short", 80 * c.MS, 80 * c.MS, 0.8), "(matrix work) is kernels too short to gain."),
        (Limit("matmul", "compute", 80 * c.MS, 40 * c.MS, 0.8), "(matrix work) gets about 2.00x as fast."),
        (Limit("idle_launch", "host", 90 * c.MS, 90 * c.MS, 0.9), "Precision alone gives about 1.30x."),
    ],
)  # fmt: skip
def test_each_limit_of_precision_has_its_words(limit: Limit, said: str) -> None:
    answer = compose(against(observed=1.3, expected=1.3, limits=(limit,)))
    assert any(each.endswith(said) for each in answer.because)


def test_a_host_that_needs_the_whole_step_leaves_precision_nothing() -> None:
    host = Limit("idle_launch", "host", 100 * c.MS, 100 * c.MS, 1.0)
    answer = compose(against(c.cell("idle_launch", 30), observed=0.9, expected=0.9, limits=(host,)))
    assert answer.because[-1] == "Precision alone gives nothing here: the host needs 100 ms a step."
    assert answer.label == "about 1.29x with fewer launches"


def test_of_timings_that_show_nothing_no_speedup_is_made() -> None:
    wide = c.speedup(baseline_ms=110, interval=(0.8, 1.5), expected=2.0)
    answer = compose(
        diagnosed(c.case(account=c.account(), speedup=wide, baseline=c.case(records=c.facts("float32"))))
    )
    assert answer.label == "(0.80x to 1.50x)"
    assert answer.sentence.startswith(
        "The timings do not show whether mixed precision is faster than float32"
    )
    assert answer.do == "train both runs for longer"


def test_what_rests_on_one_step_says_so() -> None:
    account = replace(c.account(c.cell("idle_input", 30)), steps=(7,))
    answer = compose(diagnosed(c.case(account=account)))
    assert answer.because[0] == "Only one step was profiled, and it may not be typical."
    assert answer.sentence == "The GPU waits for data about 30 of each 100 ms step."


@pytest.mark.parametrize(("usual_ms", "said"), [(300, "shorter"), (30, "longer")])
def test_the_profiler_is_not_blamed_for_steps_that_are_not_known_to_be_longer_by_it(
    usual_ms: int, said: str
) -> None:
    account = c.account(c.cell("idle_input", 60), usual_ns=usual_ms * c.MS)
    answer = compose(replace(diagnosed(c.case(account=account)), unlike="the window is not representative"))
    assert answer.leads == "time"
    assert answer.because[0] == f"The profiled steps are {said} than the others, so that all parts are about."


def test_what_is_dismissed_is_not_the_answer() -> None:
    case = c.case(account=c.account(c.cell("idle_input", 30), c.cell("idle_launch", 20)))
    first = diagnosed(case)
    assert compose(first).code == "MP301"
    assert compose(replace(first, dismissed=frozenset({"MP301"}))).code == "MP302"


def test_a_window_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "serving.pt.trace.json"
    path.write_bytes(windows.serving().text())
    found = workflows.diagnose(path)
    assert_answer(found)
    assert found.answer.kind == "window"
    assert "step" not in found.answer.sentence.replace("where a step begins", "")


def test_a_pass_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "pass.pt.trace.json"
    path.write_bytes(unmarked.layers().text())
    answer = documents.document(workflows.diagnose(path))["answer"]
    assert (
        answer["sentence"] == "The host launches too slowly: the GPU idles about 1.66 of each 4.16 ms pass."
    )
    assert "step" not in answer["label"]


def test_where_nothing_leads_on_a_cpu_the_sentence_says_that_the_wait_for_input_is_not_known(
    tmp_path: Path,
) -> None:
    layers = records.imagenette_convnet("float32")
    made = records.Recorded("run", None, "float32", layers, batch=64, step_ms=20.0)
    answer = workflows.diagnose(records.write(made, tmp_path)).answer
    assert answer is not None
    assert (answer.kind, answer.leads) == ("cpu", "nothing")
    assert answer.sentence.endswith("20.0 ms a step; how much of it waits for input is not known.")


@pytest.mark.parametrize(
    ("waits_ms", "said"),
    [
        (0, "how much of it waits for input is not known"),
        (2, "whether it waits over 2.00 ms for input is not known"),
    ],
)
def test_what_the_account_has_of_the_wait_for_input_is_not_called_unknown(waits_ms: int, said: str) -> None:
    account = c.account(c.cell("idle_input", waits_ms), c.cell("idle_other", 20), trace_basis="host_op")
    answer = compose(diagnosed(c.case(records=c.facts(device=c.CPU), account=account)))
    assert (answer.kind, answer.sentence.partition("a step; ")[2]) == ("cpu", f"{said}.")
