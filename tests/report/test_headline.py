"""What is said first: of a step that is mostly idle, of dismissed causes, of an unlike baseline."""

from __future__ import annotations

from copy import deepcopy

import pytest

from mpprof import diagnose
from mpprof.api.source import LogDirectory
from mpprof.report import words
from mpprof.report.headline import first_cause, headline, to_change
from tests.cli.conftest import FLOAT32, SAMPLES

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
            "no cause of lost time was found beside those dismissed (MP402).",
        ),
    ],
)  # fmt: skip
def test_a_dismissed_cause_is_neither_the_headline_s_nor_the_verdict_s(
    run: str, ignore: str, cause: str | None, said: str, verdict: str
) -> None:
    baseline = run.replace("mixed-float16", "float32")
    before = LogDirectory(SAMPLES).report(run, baseline)
    document = LogDirectory(SAMPLES, ignore={ignore: "known"}).report(run, baseline)
    first = first_cause(document)
    assert before["facts"]["causes"][0]["code"] == document["facts"]["causes"][-1]["code"] == ignore
    assert (document["cause"], first["code"] if first else None) == (cause, cause)
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
    document = LogDirectory(SAMPLES).report(run, baseline)
    assert headline(document) == f"{said}: no speedup of mixed precision."
    told = f"no speedup over the baseline is stated ({said[0].lower()}{said[1:]})".replace(
        "the two runs", "the runs"
    )
    assert told in document["verdict"]
    assert document["facts"]["observed"] is not None
    assert (
        words.speedup(document["facts"]["observed"]) not in f"{document['verdict']} {document['explanation']}"
    )
    assert "than in the baseline" not in " ".join(document["explanation"])
