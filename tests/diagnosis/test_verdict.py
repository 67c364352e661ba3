"""The one sentence: its numbers are those of the diagnosis, and what is missing is said."""

from __future__ import annotations

from mpprof.diagnosis import Case, judge, verdict
from mpprof.model.finding import Diagnosis
from tests.builders import cases as c


def sentence(case: Case) -> str:
    judgement = judge(case, strict=True)
    return verdict(
        Diagnosis(
            run=case.run, steps=case.steps, account=case.account, tensor_core=case.tensor_core,
            speedup=judgement.speedup, bounds=(), memory=None, findings=judgement.findings,
            unable=judgement.unable, clear=judgement.clear, warnings=(),
            absent={} if case.account else {"time": case.trace_problem or "no profiler window was recorded"},
        )
    )  # fmt: skip


def test_expected_observed_and_the_cause_with_its_cost() -> None:
    account = c.account(c.cell("idle_input", 30))
    speedup = c.speedup(c.gap_slice("idle_input", 0, 30), baseline_ms=150, interval=(1.48, 1.52))
    said = sentence(c.case(account=account, speedup=speedup, baseline=c.case(records=c.facts("float32"))))
    assert said.startswith(
        "With mixed_float16 the step is 1.50x as fast as in float32, where 2.14x could be expected"
    )
    assert "waits 30.0 ms a step for input (30.0 %)" in said
    assert "MP301 input-bound" in said
    assert "70.0 ms" in said
    assert said.endswith(".")


def test_no_measurable_difference_and_slower_are_said_so() -> None:
    same = c.speedup(baseline_ms=101, interval=(0.98, 1.04), expected=1.0)
    assert "no measurable difference" in sentence(c.case(account=c.account(), speedup=same))
    slower = c.speedup(baseline_ms=50, interval=(0.49, 0.51), expected=None)
    said = sentence(c.case(account=c.account(), speedup=slower))
    assert "longer than in float32 (0.50x)" in said
    assert "ceiling of 8.00x" in said


def test_without_a_baseline_where_the_matrix_work_ran_and_how_to_know_more() -> None:
    said = sentence(c.case(account=c.account(c.fallback(1.0), c.healthy(98.5)), unknown_ratio=0.015))
    assert "99.0 % of the matrix time ran on Tensor Cores in fp16" in said
    assert "1.5 % of the kernel time is not recognised" in said
    assert "--baseline FLOAT32_RUN" in said


def test_matrix_cores_of_other_vendors_have_their_own_name() -> None:
    amd = c.DeviceFacts("gpu", "MI300X", "amd")
    account = c.account(c.healthy(100, placement="matrix_core"))
    assert "ran on matrix cores" in sentence(c.case(records=c.facts(device=amd), account=account))


def test_idle_time_without_a_cause_is_not_passed_over() -> None:
    hidden = c.account(c.cell("idle_other", 55), c.cell("idle_launch", 11))
    said = sentence(c.case(account=hidden))
    assert "idles 55.0 % of the step, and the trace does not show what for" in said
    assert "MP302" not in said
    more = c.account(c.cell("idle_other", 21), c.cell("idle_launch", 40))
    assert "MP302" in sentence(c.case(account=more))


def test_a_trace_without_matrix_work_is_said_to_be_one() -> None:
    said = sentence(c.case(account=c.account(c.cell("elementwise", 100))))
    assert "a step takes 100 ms" in said.lower()
    assert "no matrix work" in said


def test_what_is_missing_is_said() -> None:
    said = sentence(c.case(table=c.steps()))
    assert "100 ms" in said
    assert "not known where its matrix work ran" in said
    assert "no profiler window was recorded" in said
    assert "neither step times nor a usable trace" in sentence(c.bare())


def test_a_cpu_is_called_one() -> None:
    account = c.account(c.cell("cast", 20), trace_basis="host")
    case = c.case(records=c.facts(device=c.CPU), account=account, table=c.steps(), tensor_core=None,
                  trace=c.trace(c.CPU, basis="host"))  # fmt: skip
    assert sentence(case) == (
        "This mixed_float16 run was on a CPU, which emulates float16 and has no Tensor Cores; a step takes 100 ms."
    )


def test_what_no_finding_explains_is_not_called_nothing_lost() -> None:
    """The two sides of a tenth of the step."""
    for lost_ms, said in ((11, "no finding explains what was lost"), (9, "no cause of lost time was found")):
        lost = c.speedup(c.gap_slice("reduce", 0, lost_ms), baseline_ms=150, interval=(1.48, 1.52))
        case = c.case(
            account=c.account(c.cell("reduce", lost_ms)), speedup=lost,
            baseline=c.case(records=c.facts("float32")),
        )  # fmt: skip
        assert said in sentence(case)


def test_a_baseline_and_a_run_that_are_swapped_are_told_apart() -> None:
    slower = c.speedup(baseline_ms=50, interval=(0.49, 0.51), expected=1.0)
    mixed, plain = c.case(), c.case(records=c.facts("float32"))
    swapped = c.case(records=c.facts("float32"), account=c.account(), speedup=slower, baseline=mixed)
    assert "swapped" in sentence(swapped)
    right = c.case(account=c.account(), speedup=slower, baseline=plain)
    assert "swapped" not in sentence(right)
