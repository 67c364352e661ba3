"""The verdict: its numbers are those of the diagnosis, and what is missing is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.breakdown.tensor_cores import tensor_core_share
from mpprof.analysis.comparison.estimate import estimate
from mpprof.diagnosis import Case, verdict, wording
from mpprof.model.account import Limit, ProfiledSpeedup
from tests.builders import cases as c
from tests.diagnosis.saying import diagnosed


def sentence(case: Case) -> str:
    return verdict(diagnosed(case))


def test_expected_observed_and_the_cause_with_its_cost() -> None:
    account = c.account(c.cell("idle_input", 30))
    speedup = c.speedup(c.gap_slice("idle_input", 0, 30), baseline_ms=150, interval=(1.48, 1.52))
    said = sentence(c.case(account=account, speedup=speedup, baseline=c.case(records=c.facts("float32"))))
    assert said.startswith(
        "With mixed_float16 the step is 1.50x as fast as in float32, where 2.14x is attainable"
    )
    assert "waits 30.0 ms a step for input (30.0 %)" in said
    assert "MP301 input-bound" in said
    assert said.endswith("With its remedy a step takes 70.0 ms at best.")


def test_what_keeps_the_expectation_low_comes_first() -> None:
    """ "1.30x, where 1.30x could be expected" answers nothing."""
    optimizer = Limit("optimizer", "float32", 61 * c.MS, 61 * c.MS, 0.61)
    rest = Limit("matmul", "compute", 39 * c.MS, 16 * c.MS, 0.39)
    met = c.speedup(baseline_ms=130, interval=(1.29, 1.31), expected=1.3, limits=(optimizer, rest))
    case = c.case(account=c.account(), speedup=met, baseline=c.case(records=c.facts("float32")))
    assert sentence(case).startswith(
        "No more than 1.30x is attainable, because 61.0 % of the float32 step is the optimizer, which stays in "
        "float32. With mixed_float16 the step is 1.30x as fast as in float32"
    )
    high = c.speedup(baseline_ms=290, interval=(2.8, 3.0), expected=2.9, limits=(rest,))
    assert sentence(replace(case, speedup=high)).startswith("With mixed_float16 the step is 2.90x as fast")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            Limit("matmul", "tf32", 90 * c.MS, 45 * c.MS, 0.9),
            "90.0 % of the float32 step is matrix work that runs on Tensor Cores in TF32 already, at most 2.00x as "
            "fast in 16 bits",
        ),
        (
            Limit("elementwise", "memory", 80 * c.MS, 40 * c.MS, 0.8),
            "is elementwise work, which is bound by memory and at most twice as fast in 16 bits",
        ),
        (Limit("idle_input", "wait", 80 * c.MS, 80 * c.MS, 0.8), "waiting for input, which precision does not"),
        (Limit("idle_launch", "host", 90 * c.MS, 90 * c.MS, 0.9), "because the host needs 90.0 ms for each step"),
        (Limit("matmul", "short", 80 * c.MS, 80 * c.MS, 0.8), "matrix work, of kernels under 5 µs"),
    ],
)  # fmt: skip
def test_each_kind_of_limit_has_its_words(limit, said) -> None:
    met = c.speedup(baseline_ms=130, interval=(1.29, 1.31), expected=1.3, limits=(limit,))
    assert said in sentence(c.case(account=c.account(), speedup=met))


def test_of_a_float32_run_what_mixed_precision_could_make_of_it() -> None:
    account = replace(c.account(c.fallback(40), c.cell("optimizer", 60)), steps=(7,))
    speedup = estimate(account, c.run(c.facts("float32")), c.V100_PEAKS, matrix_units=True)
    said = sentence(c.case(records=c.facts("float32"), account=account, speedup=speedup))
    assert (
        "Mixed precision is off: 40.0 % of the device's time could use Tensor Cores. 1.25 to 1.54x is attainable "
        "(estimated from one profiled step). More is not attainable, because 60.0 % of the step is the optimizer, "
        "which stays in float32."
    ) in said


def test_no_measurable_difference_and_slower_are_said_so() -> None:
    same = c.speedup(baseline_ms=101, interval=(0.98, 1.04), expected=1.0)
    assert "no measurable difference" in sentence(c.case(account=c.account(), speedup=same))
    wide = c.speedup(baseline_ms=101, interval=(0.9, 1.04), expected=1.0)
    said = sentence(c.case(account=c.account(), speedup=wide))
    assert "no measurable difference" not in said
    assert (
        "the timings do not show whether the step is shorter than in float32 (95 % within this pair of runs: 0.90x "
        "to 1.04x), where 1.00x is attainable"
    ) in said
    seen = replace(wide, profiled=ProfiledSpeedup(1.02, 102 * c.MS, 100 * c.MS, 5, 5))
    assert (
        "(95 % within this pair of runs: 0.90x to 1.04x); the profiled steps were 1.02x as fast"
        in sentence(c.case(account=c.account(), speedup=seen))
    )
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


def test_a_share_of_products_is_not_called_one_of_the_matrix_time() -> None:
    """Split-K reductions multiply nothing: 40 of 50 ms of products are 80 %, of 55 ms in all 73 %."""
    helper = c.healthy(5, placement="not_matmul", precision="fp32")
    cells = (c.healthy(40, precision="tf32"), c.fallback(10), helper, c.cell("optimizer", 45))
    case = c.case(records=c.facts("float32"), account=c.account(*cells))
    said = sentence(replace(case, tensor_core=tensor_core_share(cells)))
    assert "80.0 % of the time in matrix products ran on Tensor Cores in tf32" in said


def test_every_type_of_a_twentieth_is_named() -> None:
    cells = (c.healthy(80, precision="mixed"), c.healthy(12), c.healthy(7, precision="fp8"))
    said = sentence(c.case(account=c.account(*cells, c.healthy(1, precision="tf32"))))
    assert "in pairs of narrow types, fp16 and fp8" in said


def test_copies_that_a_rule_found_small_are_not_called_unexplained() -> None:
    said = sentence(c.case(account=c.account(c.cell("copy", 5), c.cell("comm", 19))))
    assert "communication" in said
    assert "copies" not in said


def test_exposed_communication_without_a_rule_is_named() -> None:
    said = sentence(c.case(account=c.account(c.cell("comm", 19), c.cell("copy", 2.9))))
    assert "No finding explains 19.0 ms (19.0 %) of exposed communication (one rank does not show" in said
    assert "cause of lost time" not in said
    assert "copies" not in said
    little = sentence(c.case(account=c.account(c.cell("comm", 2.9))))
    assert "No cause of lost time was found." in little


def test_a_trace_without_matrix_work_is_said_to_be_one() -> None:
    said = sentence(c.case(account=c.account(c.cell("elementwise", 100))))
    assert "a step takes 100 ms" in said.lower()
    assert "no matrix work" in said.lower()


def test_what_is_missing_is_said() -> None:
    said = sentence(c.case(table=c.steps()))
    assert "100 ms" in said
    assert "not known where its matrix work ran" in said
    assert "No profiler window was recorded" in said
    assert "neither step times nor a usable trace" in sentence(c.bare())


def test_a_cpu_is_called_one() -> None:
    account = c.account(c.cell("cast", 20), trace_basis="host")
    case = c.case(records=c.facts(device=c.CPU), account=account, table=c.steps(), tensor_core=None,
                  trace=c.trace(c.CPU, basis="host"))  # fmt: skip
    assert sentence(case) == (
        "This mixed_float16 run was on a CPU, which emulates float16 and has no Tensor Cores. A step takes 100 ms."
    )


def test_what_no_finding_explains_is_not_called_nothing_lost() -> None:
    """The two sides of a tenth of the step."""
    for lost_ms, said in (
        (11, "No finding explains what was lost."),
        (9, "No cause of lost time was found."),
    ):
        lost = c.speedup(c.gap_slice("reduce", 0, lost_ms), baseline_ms=150, interval=(1.48, 1.52))
        case = c.case(
            account=c.account(c.cell("reduce", lost_ms)), speedup=lost,
            baseline=c.case(records=c.facts("float32")),
        )  # fmt: skip
        assert said in sentence(case)


def test_the_verdict_is_sentences_and_a_name_keeps_its_letters() -> None:
    assert wording.sentence("a step takes 1 ms") == "A step takes 1 ms."
    assert wording.sentence("conv2d_2 stays in float32") == "conv2d_2 stays in float32."
    account = c.account(c.cell("idle_launch", 40), c.healthy(60, calls_per_step=5000))
    said = sentence(c.case(account=account))
    assert ";" not in said
    assert max(len(each.split()) for each in said.split(". ")) <= 30


def test_a_baseline_and_a_run_that_are_swapped_are_told_apart() -> None:
    slower = c.speedup(baseline_ms=50, interval=(0.49, 0.51), expected=1.0)
    mixed, plain = c.case(), c.case(records=c.facts("float32"))
    swapped = c.case(records=c.facts("float32"), account=c.account(), speedup=slower, baseline=mixed)
    assert "swapped" in sentence(swapped)
    right = c.case(account=c.account(), speedup=slower, baseline=plain)
    assert "swapped" not in sentence(right)
