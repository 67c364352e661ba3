"""Which float32 run a run is compared with where nobody names one: one rule for survey, page and report."""

from __future__ import annotations

from typing import Any

from mpprof.model.source import RunEntry
from mpprof.report.runs.baselines import default_baselines


def entry(name: str, policy: str | None, created: int = 0, **more: Any) -> RunEntry:
    known = {"parameters": 100, "device": "V100", "batch_size": 32} | more
    return RunEntry(name, name, policy, "tensorflow", created, False, **known)


def baseline(run: RunEntry, *others: RunEntry) -> str | None:
    return default_baselines((*others, run))[run.id]


def test_its_own_experiment_comes_before_a_newer_one_of_the_same_model() -> None:
    own, newer = entry("convnet-float32", "float32", 1), entry("input-bound-float32", "float32", 9)
    assert baseline(entry("convnet-mixed-float16", "mixed_float16"), newer, own) == own.id
    assert baseline(entry("island", "mixed_float16"), newer, own) is None  # which one is a guess
    assert baseline(entry("island", "mixed_float16"), newer) == newer.id


def test_another_model_card_or_batch_is_no_baseline() -> None:
    mixed = entry("a-mixed", "mixed_float16")
    for unlike in ({"parameters": 7}, {"device": "A100"}, {"batch_size": 64}):
        assert baseline(mixed, entry("a-float32", "float32", **unlike)) is None
    unknown = entry("a-float32", "float32", parameters=None, device=None, batch_size=None)
    assert baseline(mixed, unknown) == unknown.id


def test_of_several_runs_of_one_name_the_newest_counts_and_none_that_is_broken() -> None:
    old, new = entry("a-float32", "float32", 1), entry("a-fp32", "float32", 2)
    broken = entry("a-base", "float32", 3, problem="cut off")
    assert baseline(entry("a-mixed", "mixed_float16"), new, old, broken) == new.id


def test_a_float32_run_has_none() -> None:
    assert baseline(entry("b-float32", "float32"), entry("a-float32", "float32")) is None
