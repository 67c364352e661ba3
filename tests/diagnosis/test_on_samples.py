"""The judgement of the sample traces, through the whole of mpprof: the planted cause is the one that is named."""

from __future__ import annotations

import pytest

from mpprof.model.finding import Diagnosis
from tests import samples
from tests.paths import SAMPLES

PAIRS = (
    "v100-convnet", "v100-input-bound", "v100-odd-vocabulary", "a100-launch-bound", "a100-tf32-baseline",
    "gtx1080ti",
)  # fmt: skip
"""The runs in which what every run of this kind has gains more than the planted cause."""


def diagnosed(name: str, baseline: str | None = None) -> Diagnosis:
    if not (SAMPLES / name).exists():
        pytest.skip(f"sample_traces/{name} is not there: run sample_traces/make.py")
    return samples.diagnosed(name, baseline)


def serious(diagnosis: Diagnosis) -> list[str]:
    return [f.code for f in diagnosis.findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("name", "baseline", "causes"),
    [
        ("v100-convnet-mixed-float16", "v100-convnet-float32", []),
        ("h100-mixed-bfloat16", None, []),
        ("v100-convnet-float32", None, []),
        ("v100-input-bound-mixed-float16", "v100-input-bound-float32", ["MP301"]),
        ("a100-launch-bound-mixed-float16", "a100-launch-bound-float32", ["MP302"]),
        ("a100-tf32-baseline-mixed-float16", "a100-tf32-baseline-float32", ["MP310"]),
        ("v100-float32-island", None, ["MP104"]),
        ("v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32", ["MP402"]),
        ("v100-loss-scale-thrash", None, ["MP201"]),
        ("gtx1080ti-mixed-float16", "gtx1080ti-float32", ["MP801", "MP604"]),
        ("v100-truncated", None, ["MP909"]),
    ],
)
def test_the_planted_cause_and_no_other_is_above_info(name, baseline, causes) -> None:
    diagnosis = diagnosed(name, baseline)
    assert serious(diagnosis) == causes
    for code in causes[:1]:
        assert diagnosis.cause == code


def test_the_tf32_baseline_is_named_for_what_it_is() -> None:
    diagnosis = diagnosed("a100-tf32-baseline-mixed-float16", "a100-tf32-baseline-float32")
    assert "MP803" in [f.code for f in diagnosis.findings]


@pytest.mark.parametrize(
    "name", ["v100-convnet", "v100-input-bound", "a100-launch-bound", "v100-odd-vocabulary"]
)
def test_what_findings_explain_and_what_they_do_not_make_the_gap(name) -> None:
    diagnosis = diagnosed(f"{name}-mixed-float16", f"{name}-float32")
    speedup = diagnosis.speedup
    assert speedup.gap_ns is not None
    assert speedup.gap_ns > 0
    assert speedup.lost_ns is not None
    assert speedup.gained_ns is not None
    assert speedup.lost_ns - speedup.gained_ns == pytest.approx(speedup.gap_ns, abs=1.0)
    assert speedup.above_attainable_ns is not None
    recovered = sum(f.recovers_ns_per_step or 0.0 for f in diagnosis.findings)
    assert recovered + speedup.unexplained_ns == pytest.approx(speedup.above_attainable_ns, abs=1.0)
    shares = [f.lost_ratio or 0.0 for f in diagnosis.findings]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert sum(shares) <= 1.0 + 1e-9
    assert abs(speedup.unexplained_ns) < max(0.15 * speedup.gap_ns, 0.05 * diagnosis.account.step_ns)


def test_a_recorded_run_on_a_cpu_gives_a_short_list() -> None:
    diagnosis = diagnosed("recorded-cpu-mixed-float16", "recorded-cpu-float32")
    assert "MP806" in [f.code for f in diagnosis.findings]
    assert "this one emulates float16" in diagnosis.verdict
    gpu_only = {"MP302", "MP401", "MP405", "MP501", "MP801", "MP802", "MP907", "MP908", "MP912"}
    assert gpu_only <= {each.code for each in diagnosis.not_applicable}  # what was not asked is not clear


@pytest.mark.parametrize("name", PAIRS)
def test_what_was_measured_lies_within_what_would_have_been_estimated(name) -> None:
    measured = diagnosed(f"{name}-mixed-float16", f"{name}-float32").speedup
    estimated = diagnosed(f"{name}-mixed-float16").speedup
    assert estimated.estimated.low <= measured.observed <= estimated.estimated.high


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_expected_keeps_its_order_and_every_sum_closes(name) -> None:
    found = diagnosed(f"{name}-mixed-float16", f"{name}-float32")
    speedup, account, plan = found.speedup, found.account, found.whatif
    assert sum(part.ns_per_step for part in account.main.slices) == pytest.approx(account.step_ns, abs=1.0)
    assert sum(part.ns_per_step for part in speedup.slices) == pytest.approx(speedup.gap_ns, abs=1.0)
    assert sum(part.mixed_ns for part in speedup.slices) == pytest.approx(account.step_ns, abs=1.0)
    assert sum(part.baseline_ns for part in speedup.slices) == pytest.approx(
        speedup.baseline_step_ns, abs=1.0
    )
    assert speedup.ceiling >= speedup.expected * (1 - 1e-9)
    assert speedup.expected_with_host is None or speedup.expected_with_host <= speedup.expected
    alone = {f.code: f.whatif_step_ns for f in found.findings if f.whatif_step_ns is not None}
    assert all(plan.best_step_ns <= step_ns * (1 + 1e-9) for step_ns in alone.values())
    assert all(step_ns <= account.step_ns * (1 + 1e-9) for step_ns in alone.values())
    steps = [account.step_ns, *(step.step_ns for step in plan.order), plan.best_step_ns]
    assert steps == sorted(steps, reverse=True)


def test_what_16_bits_bring_to_a_cause_stands_apart_from_what_float32_loses_too() -> None:
    """Without what profiling added the device waits 1.31 ms a step for launches, and 0.98 ms in float32."""
    launch_bound = diagnosed("a100-launch-bound-mixed-float16", "a100-launch-bound-float32")
    (waits,) = [found for found in launch_bound.findings if found.code == "MP302"]
    assert waits.gain_ns_per_step == pytest.approx(1_314_893, abs=1)
    assert waits.recovers_ns_per_step == 0
    assert waits.added_ns_per_step == pytest.approx(333_317, abs=1)
    alone = diagnosed("v100-loss-scale-thrash")
    assert {found.added_ns_per_step for found in alone.findings} == {None}
