"""The engine: whose cost is whose, what adds up, and that no order of rules matters."""

from __future__ import annotations

import random
import types
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mpprof.diagnosis import claims as ledger
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.evidence import ratio
from mpprof.diagnosis.outcomes import Absent, Claim, Clear, Found, Scale, Unable, need
from mpprof.diagnosis.rules import ALL
from mpprof.model.account import CLASSES
from tests.builders import cases as c
from tests.diagnosis.saying import diagnosed

MS = c.MS


def rule(code: str, outcome, specificity: int = 0, bound: str | None = None):
    """A rule that says `outcome`, or raises it."""

    def judge(signals):
        if isinstance(outcome, Exception):
            raise outcome
        return need(outcome) if isinstance(outcome, Absent) else outcome

    module = types.ModuleType(code)
    module.CODE, module.SLUG, module.TITLE, module.SPECIFICITY = code, code.lower(), code, specificity
    module.BOUND = bound or ("host" if code.startswith("MP3") else "device")
    module.judge = judge
    return module


def found(*rows: int, severity=None, **facts):
    scale = None if severity else Scale(0.01, 0.05, 0.2)
    given = {"summary": "{cost} a step ({share})", "remedy": "r", "evidence": (ratio("x", 0.5, 0.1),)}
    return Found(
        **{**given, **facts}, severity=severity, scale=scale, claims=tuple(Claim(row) for row in rows)
    )


THREE = c.account(c.cell("cast", 10), c.cell("idle_input", 30), c.cell("norm", 2))


def test_a_cost_is_the_claimed_cells_and_the_whatif_is_the_step_without_it() -> None:
    judgement = judge(c.case(account=THREE), [rule("MP301", found(1))], strict=True)
    (finding,) = judgement.findings
    assert finding.cost_ns_per_step == pytest.approx(30 * MS)
    assert finding.whatif_step_ns == pytest.approx(70 * MS)
    assert finding.summary == "30.0 ms a step (30.0 %)"
    assert finding.severity == "error"


def test_a_reachable_value_stays_in_the_whatif() -> None:
    outcome = Found("s", (), scale=Scale(0.01, 0.05, 0.2), claims=(Claim(0, attainable_ns=4 * MS),))
    (finding,) = judge(c.case(account=THREE), [rule("MP503", outcome)], strict=True).findings
    assert finding.cost_ns_per_step == pytest.approx(6 * MS)
    assert finding.whatif_step_ns == pytest.approx(94 * MS)


def test_the_more_specific_rule_has_the_cell_and_the_other_says_whose_it_is() -> None:
    # By the order of judgement alone MP401 would come first.
    rules = [rule("MP401", found(0), specificity=1), rule("MP402", found(0), specificity=2)]
    judgement = judge(c.case(account=THREE), rules, strict=True)
    assert [f.code for f in judgement.findings] == ["MP402"]
    (unable,) = judgement.unable
    assert unable.code == "MP401"
    assert "MP402" in unable.reason
    assert judgement.clear == ()


def test_among_equals_the_first_in_the_order_of_judgement_has_the_cell() -> None:
    judgement = judge(c.case(account=THREE), [rule("MP501", found(0)), rule("MP301", found(0))], strict=True)
    assert [f.code for f in judgement.findings] == ["MP301"]


def test_a_displaced_rule_gives_back_what_it_held() -> None:
    account = c.account(
        c.cell("cast", 10), c.cell("idle_input", 30), c.cell("norm", 0.9), c.cell("norm", 0.9)
    )
    rules = [
        rule("MP101", found(0), specificity=3),
        rule("MP402", found(0, 2), specificity=2),  # loses the 10 ms, and 0.9 ms are not worth saying
        rule("MP503", found(2, 3), specificity=0),  # has 1.8 ms once those 0.9 are back
    ]
    judgement = judge(c.case(account=account), rules, strict=True)
    assert {f.code: round(f.cost_ns_per_step / MS, 3) for f in judgement.findings} == {
        "MP101": 10,
        "MP503": 1.8,
    }
    (unable,) = judgement.unable
    assert (unable.code, "MP101" in unable.reason) == ("MP402", True)


def test_costs_by_the_records_alone_come_to_no_more_than_what_others_leave_of_the_step() -> None:
    rules = [
        rule("MP807", found(cost_ns=80.0 * MS)),  # all steps grew: by whatever else is found, too
        rule("MP305", found(cost_ns=50.0 * MS)),
        rule("MP206", found(cost_ns=90.0 * MS)),  # updates thrown away
        rule("MP301", found(1)),
    ]
    judgement = judge(c.case(account=THREE), rules, strict=True)
    assert {f.code: round(f.cost_ns_per_step / MS, 3) for f in judgement.findings} == {
        "MP206": 90, "MP301": 30, "MP305": 50, "MP807": 20,
    }  # fmt: skip
    whole = judge(c.case(account=THREE), [rules[0], rule("MP305", found(cost_ns=100.0 * MS))], strict=True)
    assert {f.code: f.cost_ns_per_step for f in whole.findings} == {"MP305": 100 * MS, "MP807": None}


def test_what_was_lost_lowers_the_severity() -> None:
    account = c.account(c.cell("cast", 25), c.cell("norm", 6))
    rules = [rule("MP104", found(0), specificity=1), rule("MP503", found(0, 1))]
    judgement = judge(c.case(account=account), rules, strict=True)
    assert {f.code: f.severity for f in judgement.findings} == {"MP104": "error", "MP503": "warning"}


def test_findings_come_worst_first_and_questions_of_principle_before_costs() -> None:
    account = c.account(c.cell("cast", 10), c.cell("idle_input", 30), c.cell("norm", 40))
    rules = [
        rule("MP503", found(0)),
        rule("MP501", found(2)),
        rule("MP301", found(1)),
        rule("MP908", found(severity="error")),
        rule("MP803", found(severity="info")),
        rule("MP101", found(severity="error")),
        rule("MP905", found(severity="warning")),
    ]
    judgement = judge(c.case(account=account), rules, strict=True)
    assert [f.code for f in judgement.findings] == [
        "MP101", "MP908", "MP501", "MP301", "MP905", "MP503", "MP803",
    ]  # fmt: skip


def test_the_list_the_plan_and_the_verdict_rank_by_one_gain() -> None:
    """A rule whose scale calls 25 % an error does not come before one that gains 30 %; what every run of this kind
    has comes after what was lost, however large."""
    account = c.account(c.cell("layout", 30), c.cell("cast", 25), c.cell("optimizer", 35))
    mild, normal = Scale(0.01, 0.05, 0.9), Scale(0.01, 0.5, 0.9, normal=True)
    rules = [
        rule("MP504", replace(found(2), scale=normal)),
        rule("MP503", found(1)),
        rule("MP405", replace(found(0), scale=mild)),
    ]
    case = c.case(account=account)
    judgement = judge(case, rules, strict=True)
    assert [(f.code, f.severity) for f in judgement.findings] == [
        ("MP405", "warning"), ("MP503", "error"), ("MP504", "info"),
    ]  # fmt: skip
    assert [f.gain_ns_per_step for f in judgement.findings] == pytest.approx([30 * MS, 25 * MS, 35 * MS])
    assert [step.code for step in judgement.whatif.order] == [f.code for f in judgement.findings]
    answer = compose(diagnosed(case, rules))
    assert (answer.code, answer.do, answer.label) == (
        "MP405",
        "r",
        "a step; about 70.0 ms after the first remedy",
    )


def test_what_leads_no_answer_comes_behind_what_may_however_much_it_gains() -> None:
    """Copies that a float32 run has, too, lead the answer and the list; an optimizer that is as usual gains more."""
    account = c.account(c.cell("copy", 25), c.cell("optimizer", 35))
    rules = [
        rule("MP310", replace(found(0), scale=Scale(0.01, 0.2, 0.9, normal=True))),
        rule("MP504", replace(found(1), scale=Scale(0.01, 0.5, 0.9, normal=True))),
    ]
    case = c.case(account=account)
    judgement = judge(case, rules, strict=True)
    assert [(f.code, f.severity) for f in judgement.findings] == [("MP310", "warning"), ("MP504", "info")]
    assert [step.code for step in judgement.whatif.order] == ["MP310", "MP504"]
    assert compose(diagnosed(case, rules)).code == "MP310"


def test_a_gain_that_the_host_hides_counts_where_the_host_is_relieved() -> None:
    case = c.case(account=c.account(c.cell("cast", 40), c.cell("idle_input", 20), host_ns=95 * MS))
    judgement = judge(case, [rule("MP503", found(0)), rule("MP301", found(1))], strict=True)
    gains = {f.code: f.gain_ns_per_step for f in judgement.findings}
    assert gains == {"MP301": pytest.approx(20 * MS), "MP503": pytest.approx(5 * MS)}
    assert [f.code for f in judgement.findings] == ["MP301", "MP503"]


def test_what_remedies_recover_and_what_nothing_explains_is_the_way_to_the_attainable_step() -> None:
    """15 ms of the wait are lost against the attainable step; the 15 ms that the baseline waited, too, go beyond."""
    speedup = c.speedup(c.gap_slice("idle_input", 15, 30), c.gap_slice("norm", 2, 6), baseline_ms=150)
    judgement = judge(c.case(account=THREE, speedup=speedup), [rule("MP301", found(1))], strict=True)
    (finding,) = judgement.findings
    assert finding.gain_ns_per_step == pytest.approx(30 * MS)
    assert finding.recovers_ns_per_step == pytest.approx(15 * MS)
    assert judgement.speedup.above_attainable_ns == pytest.approx(19 * MS)
    assert judgement.speedup.attainable_step_ns == pytest.approx(81 * MS)
    assert judgement.speedup.unexplained_ns == pytest.approx(4 * MS)


def test_with_the_host_as_it_is_the_way_to_the_attainable_step_is_shorter() -> None:
    """The device could do it in 80 ms, and the host needs 90: nobody recovers more than 10."""
    account = c.account(c.cell("cast", 20), host_ns=90 * MS)
    parts = c.gap_slice("cast", 0, 20)
    speedup = c.speedup(parts, baseline_ms=160, expected_with_host=160 / 90)
    judgement = judge(c.case(account=account, speedup=speedup), [rule("MP503", found(0))], strict=True)
    (finding,) = judgement.findings
    assert (finding.gain_ns_per_step, finding.recovers_ns_per_step) == pytest.approx((10 * MS, 10 * MS))
    assert judgement.speedup.unexplained_ns == pytest.approx(0, abs=1.0)


def test_what_relieves_the_host_goes_beyond_the_attainable_step_of_a_host_that_needs_all_of_it() -> None:
    """The run is as fast as its host allows: launching less would gain 30 ms, of which none was lost."""
    account = c.account(c.cell("idle_launch", 40), host_ns=100 * MS)
    speedup = c.speedup(c.gap_slice("idle_launch", 10, 40), baseline_ms=90, expected_with_host=0.9)
    judgement = judge(c.case(account=account, speedup=speedup), [rule("MP302", found(0))], strict=True)
    (finding,) = judgement.findings
    assert finding.gain_ns_per_step == pytest.approx(40 * MS)
    assert finding.recovers_ns_per_step == pytest.approx(0, abs=1.0)
    assert judgement.speedup.unexplained_ns == pytest.approx(0, abs=1.0)


def test_a_single_profiled_step_gives_ranges_of_low_confidence() -> None:
    account = replace(THREE, steps=(7,))
    case = c.case(account=account)
    rules = [rule("MP301", found(1))]
    assert judge(case, rules, strict=True).findings[0].confidence == "low"
    answer = compose(diagnosed(case, rules))
    assert answer.because[0] == "Only one step was profiled, and it may not be typical."
    assert "about 30 of each 100 ms step" in answer.sentence


def test_every_rule_is_in_exactly_one_of_the_three_lists() -> None:
    rules = [
        rule("MP301", found(1)),
        rule("MP302", Clear()),
        rule("MP401", Unable("no shapes")),
        rule("MP503", Absent("no trace", "record one")),
    ]
    judgement = judge(c.case(account=THREE), rules, strict=True)
    assert [f.code for f in judgement.findings] == ["MP301"]
    assert judgement.clear == ("MP302",)
    assert [(u.code, u.reason) for u in judgement.unable] == [
        ("MP401", "no shapes"),
        ("MP503", "no trace; record one"),
    ]


def test_a_rule_that_raises_costs_only_its_own_answer() -> None:
    rules = [rule("MP301", found(1)), rule("MP302", ZeroDivisionError("bug"))]
    judgement = judge(c.case(account=THREE), rules)
    assert [f.code for f in judgement.findings] == ["MP301"]
    assert "internal error" in judgement.unable[0].reason
    assert "MP302" in judgement.warnings[0]
    with pytest.raises(ZeroDivisionError):
        judge(c.case(account=THREE), rules, strict=True)


def test_braces_in_names_are_left_alone() -> None:
    (finding,) = judge(c.case(account=THREE), [rule("MP301", found(1, summary="layer {0} {cost}"))]).findings
    assert finding.summary == "layer {0} 30.0 ms"


def test_a_cost_out_of_a_distorted_window_is_its_share_of_the_step_without_the_profiler() -> None:
    def finding(wall_ms):
        account = c.account(c.cell("idle_input", 30), step_ms=wall_ms, wall_ms=wall_ms, window_ns=100 * MS)
        return judge(c.case(account=account), [rule("MP301", found(0))], strict=True).findings[0]

    assert (finding(67).confidence, finding(67).summary) == ("high", "30.0 ms a step (44.8 %)")
    low = finding(66)  # 30 of 100 profiled ms: 30 % of the 66 ms that a step takes
    assert (low.confidence, low.summary) == ("low", "19.8 ms a step (30.0 %)")
    assert low.cost_ns_per_step == pytest.approx(19.8 * MS)
    assert low.whatif_step_ns == pytest.approx(66 * MS - 19.8 * MS)


def test_what_is_notable_only_after_all_remedies_is_named_with_its_gain() -> None:
    """Copies of 8 ms are less than a tenth of 100 ms, and more than one of the 40 ms that are left of them."""
    account = c.account(c.cell("idle_input", 60), c.cell("copy", 8), c.healthy(32))
    judgement = judge(c.case(account=account), strict=True)
    assert {"MP310"} <= set(judgement.clear)
    assert [step.code for step in judgement.whatif.order] == ["MP301"]
    assert judgement.whatif.best_step_ns == pytest.approx(40 * MS)
    (surfacing,) = judgement.whatif.surfacing
    assert (surfacing.code, surfacing.gain_ns) == ("MP310", pytest.approx(8 * MS))


def test_nothing_surfaces_that_is_small_still_or_hidden_behind_the_host() -> None:
    small = c.account(c.cell("idle_input", 60), c.cell("copy", 3), c.healthy(37))
    judged = judge(c.case(account=small), strict=True).whatif
    assert judged.surfacing == ()
    work = c.cell("elementwise", 40, layer="norm"), c.cell("copy", 8), c.healthy(52)
    of_host = replace(c.account(*work), host_ns=95 * MS)
    layers = (c.layer("norm", "LayerNormalization"), *c.HEALTHY_LAYERS)
    judged = judge(c.case(records=c.facts(layers=layers), account=of_host), strict=True).whatif
    assert (judged.floor.by, judged.surfacing) == ("host", ())


# --- the gap -----------------------------------------------------------------------------------------------


def test_a_wait_that_the_baseline_had_too_explains_only_the_rest_of_the_gap() -> None:
    speedup = c.speedup(
        c.gap_slice("idle_input", 24, 30), c.gap_slice("norm", 2, 2, 1.0), c.gap_slice("cast", 0, 10)
    )
    case = c.case(account=THREE, speedup=speedup)
    judgement = judge(case, [rule("MP301", found(1))], strict=True)
    (finding,) = judgement.findings
    assert finding.cost_ns_per_step == pytest.approx(30 * MS)
    assert finding.gap_ratio == pytest.approx(6 / 16)
    assert judgement.speedup.unexplained_ns == pytest.approx(10 * MS)


def test_without_a_measured_baseline_there_is_no_share_of_a_gap() -> None:
    case = c.case(account=THREE, speedup=c.speedup(c.gap_slice("cast", 0, 10), baseline="estimated"))
    judgement = judge(case, [rule("MP503", found(0))], strict=True)
    assert judgement.findings[0].gap_ratio is None
    assert judgement.speedup.unexplained_ns is None


def test_every_rule_says_whose_work_its_remedy_shortens() -> None:
    bound = {rule.CODE: getattr(rule, "BOUND", "device") for rule in ALL}
    assert set(bound.values()) == {"host", "device"}
    of_the_host = {"MP301", "MP302", "MP305", "MP306", "MP308"}
    assert {code for code in of_the_host if bound[code] != "host"} == set()
    assert {
        code for code in ("MP304", "MP307", "MP309", "MP401", "MP501") if bound[code] != "device"
    } == set()


def test_the_rule_and_not_its_number_says_whether_the_host_is_relieved() -> None:
    account = replace(c.account(c.cell("cast", 60), step_ms=100), host_ns=90 * MS)
    case = c.case(account=account)
    for bound, step_ms in (("device", 90), ("host", 40)):
        said = judge(case, [rule("MP503", found(0, severity="warning"), bound=bound)])
        assert said.findings[0].whatif_step_ns == pytest.approx(step_ms * MS)


def test_the_host_is_a_floor_for_what_a_remedy_on_the_device_gains() -> None:
    case = c.case(account=c.account(c.cell("cast", 30), host_ns=90 * MS))
    (finding,) = judge(case, [rule("MP503", found(0))], strict=True).findings
    assert finding.cost_ns_per_step == pytest.approx(30 * MS)
    assert finding.whatif_step_ns == pytest.approx(90 * MS)


ROLES = [category for category in CLASSES if category != "profiling"]
LAYERS = [None, "a", "b"]


@st.composite
def cases(draw):
    """A random account of named cells, a comparison that may or may not know their slices, and layers."""
    cells = []
    for _ in range(draw(st.integers(1, 12))):
        category, layer = draw(st.sampled_from(ROLES)), draw(st.sampled_from(LAYERS))
        facts = {"layer": layer, "op": draw(st.sampled_from([None, "op", "gradient_tape/op"]))}
        if category == "matmul":
            facts |= {
                "family": draw(st.sampled_from(["gemm", "conv_fprop", "depthwise"])),
                "placement": draw(st.sampled_from(["tensor_core", "cuda_core", "unknown"])),
                "precision": draw(st.sampled_from(["fp16", "fp32", "tf32", "unknown"])),
                "shapes": draw(st.sampled_from([None, "(half[8,7];half[7,9])", "(float[8,8];float[8,16])"])),
            }
        facts |= {"calls_per_step": draw(st.sampled_from([1.0, 400.0]))}
        cells.append(c.cell(category, draw(st.floats(0.001, 50)), **facts))
    account = c.account(*cells, step_ms=draw(st.floats(1, 120)))
    keys = st.tuples(st.sampled_from(ROLES), st.sampled_from(LAYERS))
    parts = [
        c.gap_slice(category, draw(st.floats(0, 40)), draw(st.floats(0, 40)), 2.0, layer)
        for category, layer in draw(st.lists(keys, max_size=8, unique=True))
    ]
    assume(sum(part.ns_per_step for part in parts) < account.step_ns)  # what is attainable takes time
    layers = (
        c.layer("a", dtype=draw(st.sampled_from(["float16", "float32"]))),
        *c.HEALTHY_LAYERS,
        c.layer("b"),
    )
    return c.case(
        account=account,
        records=c.facts(layers=layers),
        table=c.steps(skipped={40: draw(st.integers(0, 40)), 200: draw(st.integers(0, 160))}),
        unknown_ratio=draw(st.sampled_from([0.0, 0.3])),
        speedup=c.speedup(*parts, mixed_ms=account.step_ns / MS) if parts else None,
    )


@settings(max_examples=60)
@given(case=cases(), seed=st.integers(0, 1000))
def test_of_all_rules_costs_never_overlap_and_everything_adds_up(case, seed) -> None:
    judgement = judge(case, strict=True)
    account = case.account
    total = sum(f.cost_ns_per_step or 0.0 for f in judgement.findings if f.whatif_step_ns is not None)
    assert total <= account.step_ns * (1 + 1e-9)
    gaining = [f.code for f in judgement.findings if f.gain_ns_per_step is not None]
    assert gaining == [step.code for step in judgement.whatif.order]
    if judgement.speedup is not None:
        gap, lost = judgement.speedup.gap_ns, judgement.speedup.lost_ns
        recovered = sum(f.recovers_ns_per_step or 0.0 for f in judgement.findings)
        lag = account.step_ns - judgement.speedup.attainable_step_ns
        assert recovered + judgement.speedup.unexplained_ns == pytest.approx(lag, abs=1.0)
        gains = sum(f.gain_ns_per_step or 0.0 for f in judgement.findings)
        assert account.step_ns - gains == pytest.approx(judgement.whatif.best_step_ns, abs=1.0)
        assert all(
            (f.recovers_ns_per_step or 0.0) <= (f.gain_ns_per_step or 0.0) + 1.0 for f in judgement.findings
        )
        shares = [f.lost_ratio or 0.0 for f in judgement.findings]
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert sum(shares) <= 1.0 + 1e-9
        assert lost - judgement.speedup.gained_ns == pytest.approx(gap, abs=1.0)
    others = [*judgement.unable, *judgement.not_applicable]
    told = [f.code for f in judgement.findings] + [each.code for each in others] + list(judgement.clear)
    assert sorted(told) == sorted(r.CODE for r in ALL)
    shuffled = list(ALL)
    random.Random(seed).shuffle(shuffled)
    assert judge(case, shuffled, strict=True) == judgement


@given(
    wishes=st.dictionaries(
        st.sampled_from([r.CODE for r in ALL]),
        st.tuples(st.integers(0, 3), st.lists(st.builds(Claim, st.integers(0, 9)), max_size=6)),
        max_size=8,
    )
)
def test_no_cell_is_granted_twice_and_none_is_lost(wishes) -> None:
    granted = ledger.settle(wishes)
    cells = [claim.cell for claims in granted.values() for claim in claims]
    assert len(cells) == len(set(cells))
    assert set(cells) == {claim.cell for _, claims in wishes.values() for claim in claims}


def test_the_order_of_judgement_is_that_of_the_manual() -> None:
    codes = ["MP901", "MP803", "MP101", "MP201", "MP301", "MP401", "MP501", "MP601", "MP701"]
    assert all(ledger.order(a) < ledger.order(b) for a, b in pairwise(codes))
