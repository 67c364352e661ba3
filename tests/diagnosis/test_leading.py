"""What leads a report: one function, in the order of the design."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.diagnosis.leading import BEFORE_COSTS, LEADS, leads
from mpprof.diagnosis.rules import ALL
from tests.builders import cases as c
from tests.diagnosis.saying import diagnosed, finding

STEP = 100 * c.MS
HEALTHY = diagnosed(c.case(account=c.account(), table=c.steps()))
A_FINDING = finding("MP301", c.case(account=c.account(c.cell("idle_input", 30))))


def found(code, severity="warning", gain_ms=None, **facts):
    gain = None if gain_ms is None else gain_ms * c.MS
    return replace(
        A_FINDING, code=code, severity=severity, gain_ns_per_step=gain, cost_ns_per_step=gain, **facts
    )


def of(*findings, **facts):
    return leads(replace(HEALTHY, findings=findings, **facts))


def test_a_run_without_a_fault_leads_nothing() -> None:
    assert leads(replace(HEALTHY, findings=())) == ("nothing", None)
    assert of(found("MP501", "info", 20)) == ("nothing", None)  # only a ceiling


def test_the_order_is_that_of_the_design() -> None:
    every = [
        found("MP601", cost_bytes=1 << 30), found("MP301", "error", 40), found("MP906"), found("MP101", "error"),
        found("MP206", "error"), found("MP913", "error"),
    ]  # fmt: skip
    expected = [
        ("error", "MP913"), ("learning", "MP206"), ("inactive", "MP101"), ("invalid", "MP906"), ("time", "MP301"),
        ("memory", "MP601"), ("nothing", None),
    ]  # fmt: skip
    assert [of(*every[: len(every) - n]) for n in range(len(every) + 1)] == expected


def test_of_time_the_largest_gain_and_of_memory_the_largest_size() -> None:
    assert of(found("MP302", gain_ms=5), found("MP301", gain_ms=9)) == ("time", "MP301")
    hidden = replace(found("MP502", gain_ms=0), cost_ns_per_step=50 * c.MS)
    assert of(hidden, found("MP301", gain_ms=9)) == ("time", "MP301")
    assert of(found("MP602", cost_bytes=1), found("MP604", cost_bytes=5)) == ("memory", "MP604")


def test_a_cost_of_the_run_is_weighed_as_its_part_of_each_step() -> None:
    steps = c.summary(c.steps())
    outside = replace(found("MP305"), cost_ns_per_step=None, cost_ns_of_run=10.0 * c.MS * steps.count)
    assert of(outside, found("MP301", gain_ms=9), steps=steps) == ("time", "MP305")
    assert of(outside, found("MP301", gain_ms=11), steps=steps) == ("time", "MP301")
    assert of(outside, found("MP301", gain_ms=9), steps=None) == ("time", "MP301")


def test_what_is_dismissed_leads_nothing() -> None:
    assert of(found("MP301", gain_ms=9), dismissed=frozenset({"MP301"})) == ("nothing", None)


@pytest.mark.parametrize(("gain_ms", "said"), [(10, "invalid"), (60, "time")])
def test_a_doubt_leads_where_it_could_hide_a_larger_cause(gain_ms, said) -> None:
    assert of(found("MP909"), found("MP301", gain_ms=gain_ms))[0] == said


def test_an_unlike_baseline_leads_whatever_is_found() -> None:
    assert of(found("MP906"), found("MP301", "error", 90)) == ("invalid", "MP906")


def test_steps_that_never_settle_can_turn_a_comparison_alone() -> None:
    unsettled = c.summary(c.steps(), first_steady=None)
    assert of(found("MP901"), steps=unsettled) == ("nothing", None)
    assert of(found("MP901"), steps=unsettled, speedup=c.speedup()) == ("invalid", "MP901")


def test_a_window_within_warm_up_hides_no_cause_of_a_run_that_is_known_to_be_faster() -> None:
    run = placed(False)
    assert of(found("MP901"), run=run) == ("invalid", "MP901")
    assert of(found("MP901"), run=run, speedup=c.speedup(interval=(1.8, 2.2))) == ("nothing", None)
    assert of(found("MP901"), run=run, speedup=c.speedup(interval=(0.8, 1.3))) == ("invalid", "MP901")


def placed(automatic, status="done"):
    """A run of one window, whose steps mpprof or the user chose."""
    facts = c.facts()
    return c.run(
        replace(
            facts, profile_windows=(replace(facts.profile_windows[0], automatic=automatic, status=status),)
        )
    )


def test_a_window_leads_only_where_the_user_is_known_to_have_chosen_its_steps() -> None:
    def said(run):
        return of(found("MP901"), run=run)

    assert said(placed(True)) == ("nothing", None)
    assert said(placed(None)) == ("nothing", None)  # an older log does not tell
    assert said(placed(None, "foreign")) == ("invalid", "MP901")  # of Keras' TensorBoard callback
    assert said(c.run(c.facts(profile_windows=()))) == ("invalid", "MP901")  # a trace of the user's own


def test_the_profilers_own_time_hides_nothing() -> None:
    slow = c.account(c.cell("profiling", -20), step_ms=100)
    assert of(found("MP905"), account=slow) == ("nothing", None)
    assert of(found("MP905"), found("MP302", gain_ms=15), account=slow) == ("invalid", "MP905")
    assert of(found("MP905"), found("MP302", gain_ms=25), account=slow) == ("time", "MP302")


@pytest.mark.parametrize(
    ("unsure_ms", "gain_ms", "said"),
    [(4, 5, "time"), (6, 5, "invalid"), (None, 10, "invalid"), (None, 60, "time")],
)
def test_few_steps_lead_where_the_first_cause_gains_less_than_they_leave_open(
    unsure_ms, gain_ms, said
) -> None:
    between = None if unsure_ms is None else (STEP, STEP + unsure_ms * c.MS)
    few = c.summary(mean_interval_ns=between)
    assert of(found("MP911"), found("MP301", gain_ms=gain_ms), steps=few)[0] == said


def test_few_steps_lead_where_the_sign_of_a_comparison_is_not_known() -> None:
    few = c.summary(mean_interval_ns=(STEP, STEP + c.MS))
    found_of = (found("MP911"), found("MP301", gain_ms=60))
    assert of(*found_of, steps=few, speedup=c.speedup(interval=(1.8, 2.2))) == ("time", "MP301")
    assert of(*found_of, steps=few, speedup=c.speedup(interval=(0.8, 1.3))) == ("invalid", "MP911")
    assert of(found("MP911"), steps=few) == ("invalid", "MP911")


def test_a_missing_trace_leads_where_it_was_asked_for() -> None:
    without = {"account": None, "window": None}
    asked = c.run(c.facts(profile_windows=(), absent={"profile_windows": "training ended at step 9"}))
    assert of(found("MP910"), run=asked, **without) == ("invalid", "MP910")
    not_asked = c.run(c.facts(profile_windows=(), absent={"profile_windows": "no window was asked for"}))
    assert of(found("MP910"), run=not_asked, **without) == ("nothing", None)
    slow = found("MP305", gain_ms=80)
    assert of(found("MP910"), slow, run=asked, **without) == ("time", "MP305")


def test_a_rule_states_what_it_leads() -> None:
    assert set(LEADS.values()) == set(BEFORE_COSTS)
    assert {code for code, kind in LEADS.items() if kind == "error"} == {"MP913"}
    assert all(hasattr(rule, "LEADS") == (rule.CODE in LEADS) for rule in ALL)
