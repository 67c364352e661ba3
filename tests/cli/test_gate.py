"""`--fail-on` and `--min-speedup`: what fails a command, and what cannot be judged."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import FLOAT32, MIXED, Mpprof
from tests.paths import SAMPLES

ISLAND = SAMPLES / "v100-float32-island"
CPU, CPU_MIXED = SAMPLES / "recorded-cpu-float32", SAMPLES / "recorded-cpu-mixed-float16"


def failures(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("mpprof: failed: ")]


# --- findings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["MP104", "mp104", "float32-island", "error", "warning", "MP105,MP104"])
def test_a_forbidden_finding_fails_by_code_name_or_severity(named: str, mpprof: Mpprof) -> None:
    done = mpprof("report", ISLAND, "--fail-on", named, "--allow-unable")
    assert done.code == 1
    (line,) = failures(done.err)
    assert "MP104 float32-island (error)" in line
    assert ISLAND.name in done.out  # the report is written all the same


def test_an_unknown_name_is_repeated_as_it_was_typed(mpprof: Mpprof) -> None:
    done = mpprof("report", MIXED, "--fail-on", "Error,MP999")
    assert done.code == 2
    assert "--fail-on MP999: neither a cause nor a severity" in done.err


def test_a_severity_stands_for_the_worse_ones_and_not_for_the_milder(mpprof: Mpprof) -> None:
    assert mpprof("report", MIXED, "--fail-on", "warning").code == 0  # it has findings, all of them info
    found = mpprof("report", MIXED, "--format", "json", "--fail-on", "info")
    assert found.code == 1
    assert len(failures(found.err)) == len(json.loads(found.out)["findings"])


def test_a_finding_that_two_names_forbid_is_one_line(mpprof: Mpprof) -> None:
    assert len(failures(mpprof("report", ISLAND, "--fail-on", "MP104,error,float32-island").err)) == 1


def test_a_named_cause_that_cannot_be_judged_fails_unless_that_is_allowed(mpprof: Mpprof) -> None:
    done = mpprof("report", MIXED, "--fail-on", "MP105")
    assert done.code == 1
    (line,) = failures(done.err)
    assert "MP105" in line
    assert "cannot be judged" in line
    assert mpprof("report", MIXED, "--fail-on", "MP105", "--allow-unable").code == 0


def test_a_cause_that_is_clear_or_not_applicable_passes(mpprof: Mpprof) -> None:
    document = json.loads(mpprof("report", MIXED, "--format", "json").out)
    passes = [*document["clear"], *(each["code"] for each in document["not_applicable"])]
    done = mpprof("report", MIXED, "--fail-on", ",".join(passes))
    assert (done.code, done.err) == (0, "")


def test_a_severity_says_how_many_causes_it_does_not_know_of(mpprof: Mpprof) -> None:
    unable = len(json.loads(mpprof("report", MIXED, "--format", "json").out)["unable"])
    assert f"without {unable} causes" in mpprof("report", MIXED, "--fail-on", "error").err
    assert mpprof("--quiet", "report", MIXED, "--fail-on", "error").err == ""
    assert failures(mpprof("--quiet", "report", ISLAND, "--fail-on", "error").err)  # a failure is no note


@pytest.mark.parametrize(
    ("named", "nearest"),
    [("float32-iland", "MP104"), ("MP999", "MP912"), ("eror", "error"), ("", "warning"),
     ("diverged-loss", "mpprof compare")],
)  # fmt: skip
def test_an_unknown_name_is_a_usage_error_with_the_nearest(named: str, nearest: str, mpprof: Mpprof) -> None:
    done = mpprof("report", "nowhere", "--fail-on", named)
    assert (done.code, done.out) == (2, "")
    assert "--fail-on" in done.err
    assert nearest in done.err


def test_compare_judges_the_runs_and_not_their_baseline(mpprof: Mpprof) -> None:
    assert mpprof("compare", FLOAT32, ISLAND, "--fail-on", "MP104").code == 1
    assert mpprof("compare", ISLAND, MIXED, "--fail-on", "MP104").code == 0
    (line,) = failures(mpprof("compare", FLOAT32, MIXED, ISLAND, "--fail-on", "MP104").err)
    assert ISLAND.name in line


# --- the loss ----------------------------------------------------------------------------------------------


@pytest.fixture
def not_learning(tmp_path: Path) -> Path:
    """The sample whose loss becomes NaN halfway."""
    run = tmp_path / "not-learning"
    shutil.copytree(MIXED, run)
    log = run / "mpprof" / "steps.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines[len(lines) // 2 :]:
        if "loss" in line:
            line["loss"] = "NaN"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return run


@pytest.mark.parametrize("named", ["diverged-loss", "error"])
def test_a_loss_that_diverged_fails(named: str, mpprof: Mpprof, not_learning: Path) -> None:
    assert mpprof("compare", FLOAT32, MIXED, "--fail-on", named).code == 0
    done = mpprof("compare", FLOAT32, not_learning, "--fail-on", named)
    assert done.code == 1
    assert [line for line in failures(done.err) if "diverged-loss (error)" in line]


def test_a_loss_that_is_not_compared_cannot_be_judged(mpprof: Mpprof) -> None:
    done = mpprof("compare", CPU, MIXED, "--fail-on", "diverged-loss")
    assert done.code == 1
    assert "different models" in failures(done.err)[0]
    assert mpprof("compare", CPU, MIXED, "--fail-on", "diverged-loss", "--allow-unable").code == 0


# --- the speedup -------------------------------------------------------------------------------------------


def test_the_least_speedup_is_held_against_the_whole_interval(mpprof: Mpprof) -> None:
    document = json.loads(mpprof("compare", FLOAT32, MIXED, "--format", "json").out)
    (step,) = document["steps"]
    low, high = step["interval"]
    assert mpprof("compare", FLOAT32, MIXED, "--min-speedup", low).code == 0
    below = mpprof("compare", FLOAT32, MIXED, "--min-speedup", high * 1.01, "--allow-unable")
    assert below.code == 1
    assert f"{step['observed']:.3g}x" in failures(below.err)[0]
    inside = (low + step["observed"]) / 2  # what was observed is above it, and yet it is not sure
    within = mpprof("compare", FLOAT32, MIXED, "--min-speedup", inside)
    assert within.code == 1
    assert "within the interval" in failures(within.err)[0]
    assert mpprof("compare", FLOAT32, MIXED, "--min-speedup", inside, "--allow-unable").code == 0


def test_a_speedup_that_is_not_known_fails_with_the_reason(mpprof: Mpprof) -> None:
    done = mpprof("compare", CPU, MIXED, "--min-speedup", "1.1")
    assert done.code == 1
    (line,) = failures(done.err)
    assert "different models" in line
    assert mpprof("compare", CPU, MIXED, "--min-speedup", "1.1", "--allow-unable").code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("devices", 0, "name"), "the device is NVIDIA A100-SXM4-40GB, and Tesla V100-SXM2-16GB in the baseline"),
        (("fits", -1, "batch_size"), "the batch size is 128, and 64 in the baseline"),
        (("model", "parameters"), "the model's number of parameters is 7, and 2067816 in the baseline"),
    ],
    ids=["card", "batch", "model"],
)  # fmt: skip
@pytest.mark.parametrize("ladder", [(), (ISLAND,)], ids=["two", "ladder"])
def test_a_speedup_over_a_run_under_other_conditions_is_not_judged(
    change: tuple[str | int, ...], said: str, ladder: tuple[Path, ...], mpprof: Mpprof, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(MIXED, other)
    facts = json.loads((other / "mpprof" / "run.json").read_text())
    *way, last = change
    inner = facts
    for key in way:
        inner = inner[key]
    inner[last] = {"name": "NVIDIA A100-SXM4-40GB", "batch_size": 128, "parameters": 7}[str(last)]
    (other / "mpprof" / "run.json").write_text(json.dumps(facts))
    if last == "name":
        shutil.rmtree(other / "plugins")  # a trace names the card that it is of
    command = ("compare", FLOAT32, *ladder, other, "--min-speedup", "1.1" if not ladder else "0.1")
    done = mpprof(*command)
    assert done.code == 1
    assert [line for line in failures(done.err) if f"other: cannot be judged: {said}" in line]
    assert mpprof(*command, "--allow-unable").code == 0
    stored = tmp_path / "baseline.json"  # `check` refuses by the same rule
    assert mpprof("report", FLOAT32, "--format", "json", "-o", stored).code == 0
    (tmp_path / "b.toml").write_text(
        '[bounds]\nmax_step_regression_ratio = 0.05\nbaseline = "baseline.json"\n'
    )
    checked = mpprof("check", other, "--bounds", tmp_path / "b.toml")
    assert checked.code == 1
    assert f"cannot be judged: {said}" in failures(checked.err)[0]


def test_every_run_of_a_ladder_is_held_against_the_first(mpprof: Mpprof) -> None:
    done = mpprof("compare", FLOAT32, MIXED, ISLAND, "--min-speedup", "1.5")
    (line,) = failures(done.err)
    assert ISLAND.name in line
    assert f"as fast as {FLOAT32.name}" in line


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "fast"])
def test_a_speedup_is_a_number_above_0(given: str, mpprof: Mpprof) -> None:
    done = mpprof("compare", FLOAT32, MIXED, f"--min-speedup={given}")
    assert done.code == 2
    assert "--min-speedup" in done.err
