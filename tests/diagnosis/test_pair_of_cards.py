"""One workload on two cards, recorded by others: an A100 and a V100, float32, without records of ours."""

from __future__ import annotations

from typing import Any

import pytest

from mpprof.api import ladder, workflows
from mpprof.report import json as documents
from tests.builders.read_back import text
from tests.paths import NO_TRACES, SHARED

PAIR = SHARED / "a100-v100-torch"
pytestmark = pytest.mark.skipif(not PAIR.exists(), reason=NO_TRACES)


@pytest.fixture(scope="module")
def compared() -> Any:
    runs = [workflows.load(PAIR / name) for name in ("control_a100.json.gz", "test_v100.json.gz")]
    return documents.compare_document(ladder.compare(runs))


def test_the_cards_are_told_apart_and_nothing_is_expected_of_the_other(compared) -> None:
    (step,) = compared["steps"]
    assert "device: NVIDIA A100-PG509-200 against Tesla V100-SXM2-16GB" in step["labels"]
    assert any(
        "not known to have the same batch, model, settings and versions" in said for said in step["labels"]
    )
    assert (step["expected"], step["ceiling"]) == (None, None)
    assert "cards differ" in step["absent"]["expected"]
    assert step["observed"] == pytest.approx(0.66, abs=0.01)  # six whole steps a side are just enough
    assert step["interval"] == pytest.approx([0.61, 0.71], abs=0.01)
    assert "TF32 on matrix units 156 TFLOP/s -> none" in step["cards"]
    assert "1,555 -> 900 GB/s" in step["cards"]


def test_neither_is_called_what_nobody_recorded(compared) -> None:
    for report in compared["runs"]:
        assert report["run"]["policy"] is None
        assert "over float32" not in report["verdict"]  # parts of it may stay in float32: names tell that
    verdict = compared["runs"][1]["verdict"]
    assert verdict.startswith("These two runs cannot be compared: device")
    assert "attainable" not in verdict


def test_what_grew_and_what_ran_where(compared) -> None:
    (step,) = compared["steps"]
    shown = text.render_comparison(compared)
    assert "on Tensor Cores (tf32) →" in shown
    assert "0 % on Tensor Cores" in shown
    grew = {}
    for part in step["slices"]:
        grew[part["class"]] = grew.get(part["class"], 0.0) + part["ns_per_step"]
    assert sorted(grew, key=lambda name: -grew[name])[:3] == ["matmul", "copy", "gather_scatter"]
    assert sum(grew.values()) == pytest.approx(step["gap_ns"], abs=1)
    assert step["answer"]["do"].startswith("record both with the same script")
    largest = max(
        compared["kernels"], key=lambda c: abs((c["to_ns"] or 0) - (c["from_ns"] or 0)) * (c["by"] == "name")
    )
    assert largest["key"] == "Memcpy DtoD (Device -> Device)"
    copies = next(found for found in step["findings"] if found["code"] == "MP310")
    assert "stay within the device" in copies["remedy"]
    assert "torch.compile" not in copies["remedy"]  # the copies are into what it compiled


def test_that_they_ran_different_programs_is_seen_from_their_ops(compared) -> None:
    (step,) = compared["steps"]
    assert any("the programs differ" in note for note in step["notes"])
    assert step["matching"]["only_to"][0]["op"].startswith("CompiledFunction")
    assert step["matching"]["by_op_ratio"]["to"] < 0.6


def test_a_float32_run_held_against_another_is_told_apart_and_how_to_switch(compared) -> None:
    report = compared["runs"][1]
    how = report["speedup"]["how_to_switch"][0]["text"]
    assert how.startswith('torch.autocast("cuda", dtype=torch.float16)')  # a V100 has no bfloat16
    assert f"to switch it on: {how}" in " ".join(text.render(report, width=400).split())
    assert report["answer"]["kind"] == "incomparable"
