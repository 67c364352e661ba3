"""What the account is of has its own name everywhere: a pass or a part that repeats is never called a step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.api.ladder import compare
from mpprof.report import json as documents
from mpprof.report import units
from tests.builders import unmarked
from tests.builders.read_back import brief, comparing, markdown, reading, text
from tests.builders.xspace import Space
from tests.traces.kineto import Kineto

units = reading(units)

A_STEP = re.compile(r"(?<![\w'\"`#/.|=\-])steps?\b(?! log| marker| times|-range|\.)")


def written(path: Path, built: Kineto | Space) -> Path:
    path.write_bytes(built.text() if isinstance(built, Kineto) else built.to_bytes())
    return path


def report(path: Path) -> Any:
    return documents.document(workflows.diagnose(path))


@pytest.fixture
def one_pass(tmp_path: Path) -> Path:
    return written(tmp_path / "pass.pt.trace.json", unmarked.layers())


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return written(tmp_path / "part.pt.trace.json", unmarked.layers(modules=False, kernels=24))


def test_the_document_says_what_the_account_is_of(one_pass: Path, part: Path, tmp_path: Path) -> None:
    time = report(one_pass)["time"]
    assert (time["unit"], time["unit_name"], time["step_ns"]) == ("pass", "Net_0", 4_160_000)
    other = report(part)["time"]
    assert (other["unit"], "unit_name" in other) == ("part", False)
    trained = report(written(tmp_path / "w.pt.trace.json", unmarked.trained()))["time"]
    assert trained is not None
    assert "unit" not in trained


def test_the_first_words_name_the_pass(one_pass: Path) -> None:
    found = report(one_pass)
    said = "the GPU idles about 1.66 of each 4.16 ms pass."
    assert found["verdict"].endswith(said)
    assert "pass of Net_0 4.16 ms" in brief.render(found)
    for each in (brief, text, markdown):
        assert said in " ".join(each.render(found).split())
    assert "step" not in found["answer"]["label"]


def sentences(found: Any, within: bool = False) -> list[str]:
    """All texts under keys that hold sentences."""
    if isinstance(found, dict):
        keys = ("verdict", "explanation", "summary", "remedy", "text")
        return [each for key, value in found.items() for each in sentences(value, within or key in keys)]
    if isinstance(found, list):
        return [each for value in found for each in sentences(value, within)]
    return [found] if within and isinstance(found, str) else []


def test_no_sentence_calls_a_pass_or_a_part_a_step(one_pass: Path, part: Path) -> None:
    for path in (one_pass, part):
        found = report(path)
        said = sentences(found)
        assert len(said) > 5
        assert not [each for each in said if A_STEP.search(each)]
        lines = brief.render(found).splitlines()
        assert not [line for line in lines if A_STEP.search(line) and "step-range" not in line]
        assert max(map(len, lines)) <= 80 or "mpprof" in max(lines, key=len)


def test_names_options_and_logs_keep_the_word() -> None:
    time: Any = {"unit": "pass", "unit_name": "Net_0"}
    kept = "no step log; --step-range 'step 1'; train_step; profiler.step(); no step markers; Optimizer.step#SGD.step"
    assert units.worded(kept, time) == kept
    assert units.worded("in each step, of 3 steps.", time) == "in each pass, of 3 passes."
    assert units.worded("A step takes 1 ms", time) == "One pass of Net_0 takes 1 ms"
    assert units.worded("a step", None) == "a step"


def test_two_parts_are_not_compared_as_steps(part: Path, tmp_path: Path) -> None:
    """Layers of two models that took 17.9 and 20.0 ms were "observed 0.89x"."""
    other = written(tmp_path / "other.pt.trace.json", unmarked.layers(modules=False, kernels=20))
    found = documents.document(workflows.diagnose(part, other))
    assert found["speedup"] is not None
    assert found["speedup"]["observed"] is None
    assert found["absent"]["speedup.observed"].startswith(
        "not compared: other.pt.trace.json shows a part that"
    )
    compared = documents.compare_document(compare(other, part))
    (rung,) = compared["steps"]
    assert rung["observed"] is None
    assert "windows" in rung
    assert comparing.heading(compared, rung).endswith("not steps")
    assert any(
        "a part that repeats, which may be a layer" in line for line in comparing.lines(compared, rung)
    )


def test_a_pass_is_compared_with_a_pass_of_the_same_module_alone(one_pass: Path, tmp_path: Path) -> None:
    same = written(tmp_path / "same.pt.trace.json", unmarked.layers(7))
    again = written(tmp_path / "again.pt.trace.json", unmarked.layers(8))
    alike = documents.document(workflows.diagnose(same, again))["speedup"]
    assert alike["observed"] == pytest.approx(1.0, abs=0.01)
    trained = written(tmp_path / "w.pt.trace.json", unmarked.trained(20))
    unlike = documents.document(workflows.diagnose(same, trained))
    assert unlike["speedup"] is not None
    assert unlike["speedup"]["observed"] is None
    assert "shows passes of Net_0" in unlike["absent"]["speedup.observed"]


def test_ranges_that_may_be_steps_come_with_the_command(tmp_path: Path) -> None:
    k = unmarked.layers(3, modules=False)
    for call in range(3):
        k.host("user_annotation", "training_step", 10_000.0 * call, 4_200)
    found = report(written(tmp_path / "w.pt.trace.json", k))
    assert "--step-range training_step (3 ranges" in text.render(found)
    assert "mpprof report W.json --step-range training_step" in text.render(found, path="W.json")


def test_waits_for_copies_and_collectives_are_exposed(tmp_path: Path) -> None:
    """96.9 % of a TPU's recorded trace was "unknown": the waits for copies to the host's memory."""
    found = report(written(tmp_path / "t.xplane.pb", unmarked.tpu_programs()))
    time = found["time"]
    by_class = {part["class"]: part["ns_per_step"] for part in time["slices"]}
    assert by_class["copy"] == pytest.approx(720_000, abs=20)
    assert by_class["comm"] == pytest.approx(30_000)
    assert (
        "unknown" not in by_class or by_class["unknown"] < 31_000
    )  # the fusion, whose body is not in the file
    assert found["verdict"] == (
        "The TPU does nothing but copy tensors to and from the host's memory for 720 µs of the pass; other work "
        "could hide 30.0 µs of that."
    )


def test_what_is_parked_in_the_hosts_memory_is_no_input_and_takes_what_its_copy_takes(tmp_path: Path) -> None:
    """One copy of 750 µs in each pass, beside 60 µs of other work: a report told a TPU's user to send uint8, and that
    23.8 of 784 ms would be left where the copies alone take 760."""
    found = report(written(tmp_path / "t.xplane.pb", unmarked.tpu_programs()))
    (copies,) = (each for each in found["findings"] if each["code"] == "MP310")
    assert {e["name"]: e["value"] for e in copies["evidence"]}["copies per pass"] == 1
    assert copies["remedy"].startswith("offload less")
    assert "uint8" not in copies["remedy"]
    assert "device_put" not in copies["remedy"]
    assert found["whatif"]["best_step_ns"] >= 750_000
