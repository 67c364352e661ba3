"""What is said first: of a step that is mostly idle, of dismissed causes, of an unlike baseline."""

from __future__ import annotations

import json
import statistics
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mpprof import diagnose
from mpprof.api.source import LogDirectory
from mpprof.report import words
from mpprof.report.headline import (
    MOST_WORDS,
    beside,
    first_cause,
    headline,
    hero,
    lost_per_update,
    more_launches,
    speedup_after,
    to_change,
)
from mpprof.report.to_json import to_json
from tests.builders.read_back import brief, reading, text
from tests.cli.conftest import FLOAT32
from tests.paths import SAMPLES

beside = reading(beside)
first_cause = reading(first_cause)
headline = reading(headline)
hero = reading(hero)
lost_per_update = reading(lost_per_update)
more_launches = reading(more_launches)
speedup_after = reading(speedup_after)
to_change = reading(to_change)

ALLOCATED = "memory allocated by the driver"


@pytest.mark.parametrize(
    ("known_ratio", "says"),
    [
        (0.8, f"The device idles 80.0 % of the step: {ALLOCATED}."),
        (0.1, "The device idles 80.0 % of the step; the trace does not show what for."),
    ],
)
def test_the_larger_part_of_the_idling_is_said_where_no_cause_was_found(
    known_ratio: float, says: str
) -> None:
    document = deepcopy(diagnose(FLOAT32).document())
    document.pop("cause", None)
    time = document["time"]
    assert time is not None
    step_ns = sum(part["ns_per_step"] for part in time["slices"])
    idle = next(part for part in time["slices"] if part["class"] == "idle_other")
    idle |= {
        "ns_per_step": 0.9 * step_ns,
        "ratio": 0.9,
        "causes": [{"cause": ALLOCATED, "ns_per_step": known_ratio * step_ns}],
    }
    assert headline(document) == says


def test_where_a_cpu_makes_16_bits_slow_its_remedy_is_the_first() -> None:
    mixed, wide = SAMPLES / "recorded-cpu-mixed-float16", SAMPLES / "recorded-cpu-float32"
    document = diagnose(mixed, wide).document()
    assert not document["facts"]["causes"]
    assert to_change(document) == ["MP806"]
    assert "MP806" not in to_change(diagnose(wide).document())


INPUT_BOUND, VOCABULARY = "v100-input-bound-mixed-float16", "v100-odd-vocabulary-mixed-float16"


@pytest.mark.parametrize(
    ("run", "ignore", "cause", "said", "verdict"),
    [
        (INPUT_BOUND, "MP301", "MP501", "Norm layers compute in float32: 7.27 ms", "(MP501 norm-float32)"),
        (
            VOCABULARY, "MP402", None, "No cause of lost time was found beside 1 dismissed one.",
            "No cause of lost time was found beside those dismissed (MP402).",
        ),
    ],
)  # fmt: skip
def test_a_dismissed_cause_is_neither_the_headline_s_nor_the_verdict_s(
    run: str, ignore: str, cause: str | None, said: str, verdict: str
) -> None:
    baseline = run.replace("mixed-float16", "float32")
    before = to_json(LogDirectory(SAMPLES).report(run, baseline))
    document = to_json(LogDirectory(SAMPLES, ignore={ignore: "known"}).report(run, baseline))
    first = first_cause(document)
    assert before["facts"]["causes"][0]["code"] == document["facts"]["causes"][-1]["code"] == ignore
    assert (document["cause"], first.code if first else None) == (cause, cause)
    assert headline(document).startswith(said)
    assert verdict in document["verdict"]
    assert not [line for line in document["explanation"] if ignore in line]
    assert sum(c["gain_ns_per_step"] or 0 for c in document["facts"]["causes"]) == pytest.approx(
        sum(c["gain_ns_per_step"] or 0 for c in before["facts"]["causes"])
    )


@pytest.mark.parametrize(
    ("run", "baseline", "said"),
    [
        (
            "v100-convnet-mixed-float16",
            "a100-tf32-baseline-float32",
            "The two runs differ in device and TF32",
        ),
        ("v100-convnet-float32", "v100-convnet-mixed-float16", "The two are swapped"),
        (
            "v100-convnet-mixed-float16",
            "v100-input-bound-mixed-float16",
            "The baseline computes in float16 itself",
        ),
    ],
)
def test_no_sentence_states_a_speedup_over_an_unlike_baseline(run: str, baseline: str, said: str) -> None:
    document = to_json(LogDirectory(SAMPLES).report(run, baseline))
    assert headline(document) == f"{said}: no speedup of mixed precision."
    told = f"No speedup over the baseline is stated ({said[0].lower()}{said[1:]})".replace(
        "the two runs", "the runs"
    )
    assert told in document["verdict"]
    assert document["facts"]["observed"] is not None
    assert (
        words.speedup(document["facts"]["observed"]) not in f"{document['verdict']} {document['explanation']}"
    )
    assert "than in the baseline" not in " ".join(document["explanation"])


def sample(run: str) -> Any:
    """The report of a sample, against its float32 run where there is one."""
    baseline = run.replace("mixed-float16", "float32")
    return to_json(LogDirectory(SAMPLES).report(run, baseline if baseline != run else None))


@pytest.mark.parametrize(
    ("run", "said", "figure"),
    [
        (
            "a100-launch-bound-mixed-float16",
            "The device waits for launches: 1.31 ms to gain in each",
            "0.74x",
        ),
        ("a100-tf32-baseline-mixed-float16", "Mixed precision works: little to gain, since float32", "1.01x"),
        (
            "gtx1080ti-mixed-float16",
            "This GPU has no Tensor Cores: float32 saves 4.30 ms of each 67.4 ms step.",
            "0.94x",
        ),
        ("h100-mixed-bfloat16", "Mixed precision is in effect: 100 % of matrix time ran on", "100 %"),
        ("v100-convnet-mixed-float16", "Mixed precision works: 1.89x of 1.94x attainable.", "1.89x"),
        ("v100-float32-island", "A layer stays in float32 (conv2d_2, conv2d_3): 15.0 ms of", "10.1 %"),
        ("v100-input-bound-mixed-float16", "The device waits for input: 25.5 ms to gain in each", "1.02x"),
        ("v100-loss-scale-thrash", "Optimizer updates are skipped again and again: 10.1 ms lost", "31.2 %"),
        ("v100-odd-vocabulary-mixed-float16", "The vocabulary is not a multiple of 8: 31.6 ms of", "1.36x"),
        ("v100-truncated", "The trace is incomplete; 100 % of its matrix time ran on", "100 %"),
        ("v100-xla-convnet-mixed-float16", "Mixed precision works: 3.48x of 3.51x attainable;", "3.48x"),
    ],
)
def test_the_first_sentence_names_what_was_planted(run: str, said: str, figure: str) -> None:
    document = sample(run)
    assert headline(document).startswith(said)
    assert len(headline(document).split()) <= MOST_WORDS
    assert hero(document).figure == figure


def test_a_run_that_waits_as_float32_does_is_not_called_fine() -> None:
    """Precision alone attains no more than was observed, because the host needs as long: 0.74x of 0.74x."""
    document = deepcopy(sample("a100-launch-bound-mixed-float16"))
    facts = document["facts"]
    facts |= {"observed": 1.05, "observed_per_update": 1.05, "attainable": 1.05}
    assert headline(document).startswith("The device waits for launches")
    facts |= {"observed": 2.05, "observed_per_update": 2.05, "attainable": 2.1}
    assert headline(document).startswith("Mixed precision works: 2.05x of 2.10x attainable; the device waits")
    facts |= {"observed": 1.9, "observed_per_update": 1.9}
    assert headline(document).startswith("The device waits for launches")


def test_a_run_as_fast_as_can_be_that_does_not_learn_is_not_called_fine() -> None:
    """1.92x of 1.94x, but only 1.32x per applied update; and a loss that is not finite has no speed."""
    document = to_json(LogDirectory(SAMPLES).report("v100-loss-scale-thrash", "v100-convnet-float32"))
    assert document["facts"]["observed"] == pytest.approx(1.916, abs=0.001)
    assert headline(document).startswith("Optimizer updates are skipped again and again: 10.1 ms lost")
    document = deepcopy(document)
    document["facts"]["observed_per_update"] = document["facts"]["observed"]
    document["findings"][0] |= {"code": "MP206", "title": "The loss is not finite"}
    document["facts"]["causes"][0] |= {"code": "MP206", "slug": "non-finite-loss"}
    document["cause"] = "MP206"
    assert headline(document).startswith("The loss is not finite")


def test_a_cause_that_costs_memory_is_no_answer_to_what_the_time_went_for() -> None:
    document = deepcopy(sample("v100-convnet-mixed-float16"))
    held = deepcopy(document["findings"][0])
    held |= {"code": "MP604", "title": "Float32 activations are kept for backward", "severity": "warning"}
    held |= {"gain_ns_per_step": None, "cost_ns_per_step": None, "cost_bytes": 3 * 2**30}
    document["findings"] = [held]
    facts = document["facts"]
    facts["causes"] = [{**facts["causes"][0], "code": "MP604", "gain_ns_per_step": None}]
    document["cause"] = "MP604"
    said = "Mixed precision works: 1.89x of 1.94x attainable; float32 activations are kept for backward."
    assert headline(document) == said
    facts |= {"observed": 1.2, "observed_per_update": 1.2}
    assert headline(document) == "Float32 activations are kept for backward: 3.00 GiB of memory."


def test_skipped_updates_cost_what_the_log_says() -> None:
    document = sample("v100-loss-scale-thrash")
    log = (Path(SAMPLES) / "v100-loss-scale-thrash" / "mpprof" / "steps.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, log) if line.get("kind") == "step"]
    skipped = sum(line.get("skipped", 0) for line in lines)
    profiled = {line["step"] for line in lines if line["profiled"]}
    steady = statistics.mean(
        line["interval_ns"]
        for line in lines[10:]
        if "interval_ns" in line and not profiled & {line["step"] + k for k in (-1, 0, 1)}
    )
    each = steady * len(lines) / (len(lines) - skipped)
    assert document["facts"]["step_ns_per_update"] == pytest.approx(each, rel=0.01)
    assert lost_per_update(document, "MP201") == pytest.approx(each - steady, rel=0.01)
    assert lost_per_update(document, "MP501") is None
    assert (
        beside(document)
        == "An applied update takes 32.5 ms: 50 of 160 steps changed no weight, because their scaled gradients were not finite (overflow)."
    )
    document = deepcopy(document)
    document["facts"]["step_ns_per_update"] = None
    assert headline(document).endswith("again and again: 32.9 % (skipped updates after the start).")


def test_the_figure_of_a_run_alone_is_of_its_loss() -> None:
    """All matrix work on Tensor Cores is no figure for a run that waits for half of its step."""
    alone = to_json(LogDirectory(SAMPLES).report("v100-input-bound-mixed-float16", None))
    assert (hero(alone).figure, hero(alone).estimated) == ("53.2 %", True)
    assert hero(sample("v100-float32-island")).under == "of matrix time on Tensor Cores"


def test_a_speedup_after_remedies_is_never_beyond_the_attainable_one() -> None:
    waits, vocabulary = sample(INPUT_BOUND), sample(VOCABULARY)
    assert speedup_after(waits, waits["facts"]["after_remedies_ns"] or 0.0) is None
    assert speedup_after(vocabulary, vocabulary["facts"]["after_remedies_ns"] or 0.0) == pytest.approx(
        3.3725, abs=0.001
    )


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            "gtx1080ti-mixed-float16",
            "A step takes 4.30 ms longer than in float32. Precision alone can give no more: 61.2 % of",
        ),
        (
            "a100-launch-bound-mixed-float16",
            "A step takes 501 µs longer than in float32: 267 launches a step instead of 185 (54 more for loss "
            "scaling, 27 for casts), and the host limits both. Precision alone can give no more: the host",
        ),
        (
            "v100-odd-vocabulary-mixed-float16",
            "31.8 ms of each 52.9 ms step are lost; the causes below explain",
        ),
        ("h100-mixed-bfloat16", "No loss was found. Beyond precision, the changes below gain up to 1.55 ms"),
        ("v100-xla-convnet-mixed-float16", "The changes below would shorten float32, too."),
        (
            "a100-tf32-baseline-mixed-float16",
            "412 µs of each 14.0 ms step are lost. The changes below gain 8.22 ms, of which float32 would gain "
            "5.87 ms, too.",
        ),
        ("v100-float32-island", ""),
    ],
)
def test_the_second_sentence_states_the_size(run: str, said: str) -> None:
    assert beside(sample(run)).startswith(said)
    assert bool(said) == bool(beside(sample(run)))


def test_a_speedup_that_is_none_never_reads_as_a_full_score() -> None:
    bound, old_card = sample("a100-launch-bound-mixed-float16"), sample("gtx1080ti-mixed-float16")
    assert hero(bound).under == "slower than float32; precision alone can give no more while the host limits"
    assert hero(old_card).under == "slower than float32; precision alone can give no more"
    slow = deepcopy(sample("v100-input-bound-mixed-float16"))
    slow["facts"]["observed"] = 0.9
    assert hero(slow).under == "slower than float32; 1.74x attainable"


def test_why_a_run_is_slower_is_said_only_where_launching_limits_both_runs() -> None:
    """Both traces have the same 185 launches a step; one adds 54 for loss scaling, 27 casts and a copy."""
    bound = sample("a100-launch-bound-mixed-float16")
    found = bound["speedup"]["launches"]
    assert (found["baseline"], found["mixed"]) == (185, 267)
    assert found["mixed_host_ns"] - found["baseline_host_ns"] == pytest.approx(501_164, rel=1e-4)
    said = "267 launches a step instead of 185 (54 more for loss scaling, 27 for casts)"
    assert more_launches(bound) == said
    assert said in " ".join(brief.render(bound).split())
    assert f"(0.74x). There are {said}." in bound["verdict"]
    told = " ".join(text.render(bound).split())
    assert "1.93 ms for 267 launches a step, in the baseline 1.42 ms for 185: loss scaling 54 (was 0)" in told
    for other in ("v100-input-bound-mixed-float16", "a100-tf32-baseline-mixed-float16"):
        assert "launches" not in sample(other)["speedup"]
        assert not more_launches(sample(other))
