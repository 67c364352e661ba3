"""What skipped updates and the loss scale are taken for: the start, growth, or skips that do not end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpprof.diagnosis.leading import leads
from mpprof.diagnosis.signals import Case
from mpprof.model.run import Ended, FirstBreak, ModelFacts, NumbersLook, OptimizerFacts
from tests.builders import cases as c
from tests.diagnosis.saying import assert_answer, diagnosed, finding, says

SKIPS = ("MP201", "MP204", "MP205")


def scaled(
    overflows: str | tuple[int, ...], steps: int, *, initial: float = 2.0**15, growth: int = 2000, **facts
):
    """A run whose dynamic scale halves with each step of `overflows` and doubles after `growth` others; "above
    N": a step overflows where its scale is above N. Read every step for 32, then every 16."""
    scale, good, lost, skipped, scales = initial, 0, 0, {}, {}
    for step in range(1, steps + 1):
        limit = float(overflows.removeprefix("above ")) if isinstance(overflows, str) else None
        if scale > limit if limit is not None else step in overflows:
            scale, good, lost = scale / 2, 0, lost + 1
        else:
            good += 1
            if good >= growth:
                scale, good = scale * 2, 0
        if step <= 32 or step % 16 == 0 or step == steps:
            skipped[step], scales[step], lost = lost, scale, 0
    optimizer = OptimizerFacts("LossScaleOptimizer", "Adam", True, initial, growth)
    columns = facts.pop("columns", {})
    table = c.steps(steps, skipped=skipped, scales=scales, **columns)
    return c.case(table=table, records=c.facts(fit={"optimizer": optimizer, **facts.pop("fit", {})}, **facts))


def told(case):
    return tuple(says(code, case).split(":")[0] for code in SKIPS)


@pytest.mark.parametrize("growth", [15, 20, 30])
@pytest.mark.parametrize("initial", [2.0**8, 2.0**15, 2.0**20])
def test_a_skip_that_takes_a_doubling_back_is_growth_however_often_it_comes(growth, initial) -> None:
    case = scaled(f"above {2.0**15}", 480, initial=initial, growth=growth)
    endless, _, periodic = told(case)
    assert (endless, periodic) == ("clear", "info")
    got = finding("MP205", case)
    assert f"after the loss scale had doubled, which it does every {growth} steps: normal" in got.summary
    assert "dynamic_growth_steps=2000" in got.remedy


def test_a_scale_that_grows_every_few_steps_wastes_updates() -> None:
    assert says("MP205", scaled(f"above {2.0**15}", 240, growth=4)) == "warning"


def test_skips_of_the_start_that_lead_below_one_are_no_search() -> None:
    """22 of 80 updates, the scale at 2^-7: neither a rate nor the start hides them."""
    case = scaled(tuple(range(1, 23)), 80)
    assert told(case) == ("error", "clear", "clear")
    assert (
        "22 of 80 updates were skipped (27.5 %), and the loss scale fell to 2^-7"
        in finding("MP201", case).summary
    )


def test_twenty_skips_in_a_row_are_seen_wherever_they_are() -> None:
    for first in (21, 60, 180):
        assert told(scaled(tuple(range(first, first + 20)), 240))[0] == "error"
    high = scaled(tuple(range(60, 80)), 240, initial=2.0**40)
    assert told(high)[0] == "error"  # 20 of 220 updates, though the scale stays above 1


def test_a_search_from_far_above_is_the_start() -> None:
    assert told(scaled(f"above {2.0**15}", 240, initial=2.0**40)) == ("clear", "info", "clear")
    assert says("MP203", scaled(f"above {2.0**29}", 240, initial=2.0**40)) == "clear"


@pytest.mark.parametrize("steps", [1, 12])
def test_where_no_update_was_made_the_scale_has_not_settled(steps) -> None:
    case = scaled("above 0.03125", steps)
    got = finding("MP204", case)
    assert got.severity == "warning"
    assert got.summary == f"{steps} of {steps} updates were skipped, and the loss scale has not settled"
    assert "none needed" not in got.remedy
    advice = "The gradients overflow even unscaled: divide the loss by 2^5."
    broken = FirstBreak(
        "price", "gradient", "it overflows at a loss scale of 2^15", "loss scale", None, advice, "loss / 32"
    )
    look = NumbersLook("skipped", 1, None, broken, now=2.0**15, low=2.0**-24, high=2.0**-5, banded=True)
    looked = replace(case, run=replace(case.run, looks=(look,)))
    assert leads(diagnosed(looked)) == ("learning", "MP204")
    got = finding("MP204", looked)
    assert "the gradient of price overflows above a loss scale of 2^-5" in got.summary
    assert got.remedies[0].snippet == "loss / 32"
    assert {each.name: each.value for each in got.evidence}["good loss scales"] == "up to 2^-5"


def test_a_few_late_halvings_are_gradients_that_grow() -> None:
    case = scaled((30, 50, 51, 90), 120)
    assert told(case) == ("clear", "clear", "info")
    assert "fell to 2^11" in finding("MP205", case).summary


def test_many_late_halvings_are_endless_without_one_long_run() -> None:
    assert told(scaled(tuple(range(22, 81, 4)), 80))[0] == "error"


def test_every_skip_is_in_one_finding_or_says_what_is_missing() -> None:
    """Two rules never hand a case to each other."""
    for overflows, steps in (((3, 30, 40), 48), (tuple(range(1, 26)), 30), ((10, 11), 25), ((40,), 60)):
        for known in (True, False):
            case = scaled(overflows, steps)
            if not known:
                table = case.run.steps
                nothing = np.zeros(len(table), dtype=bool)
                readings = {int(s): int(n) for s, n in zip(table.step, table.skipped, strict=True) if n >= 0}
                case = c.case(table=c.steps(steps, skipped=readings, loss_scale_known=nothing))
            assert {"info", "warning", "error", "unable"} & set(told(case)), (overflows, known)


def test_skips_of_a_loss_that_is_not_finite_are_of_the_loss() -> None:
    loss = np.where(np.arange(1, 121) >= 40, np.nan, 1.0)
    columns = {"loss": loss, "loss_known": np.ones(120, dtype=bool)}
    case = scaled(tuple(range(40, 121)), 120, columns=columns)
    assert says("MP201", case).startswith("not applicable: updates were skipped where the loss is not finite")
    assert "not finite from step 40 on: all 81 updates since were skipped" in finding("MP206", case).summary
    last = columns["loss_known"] & (
        np.arange(1, 121) < 120
    )  # on JAX and torch the last step has none of its own
    case = scaled(tuple(range(40, 121)), 120, columns=columns | {"loss_known": last})
    assert says("MP201", case).startswith("not applicable: updates were skipped where the loss is not finite")
    seldom = columns["loss_known"] & (np.arange(1, 121) % 16 == 0)  # as read on JAX
    case = scaled(tuple(range(40, 121)), 120, columns=columns | {"loss_known": seldom})
    assert "not finite by step 48: all 73 updates since were skipped" in finding("MP206", case).summary
    before = scaled(tuple(range(10, 121)), 120, columns=columns)
    assert says("MP201", before) == "error"  # these began with a finite loss


def test_an_infinite_scale_is_one_cause() -> None:
    table = c.steps(80, skipped=dict.fromkeys(range(1, 81), 0) | dict.fromkeys(range(60, 81), 1),
                    scales={1: 2.0**100, 59: np.inf, 80: np.inf})  # fmt: skip
    case = c.case(table=table)
    assert says("MP203", case) == "error"
    assert says("MP201", case) == "not applicable: the loss scale is infinite (MP203)"


# --- the scale


def falling(low: float, *, skipped: dict[int, int] | None, high: float = 2.0**15, **facts: Any) -> Case:
    """A dynamic scale that halves from step 40 on. `skipped`: None: not counted."""
    scales = {1: high, 39: high}
    for k in range(1, round(np.log2(high / low)) + 1):
        scales[39 + k] = high / 2.0**k
    table = c.steps(200, scales=scales | {200: low}, skipped={} if skipped is None else skipped)
    optimizer = OptimizerFacts("LossScaleOptimizer", "Adam", True, high, 2000)
    return c.case(table=table, records=c.facts(**({"fit": {"optimizer": optimizer}} | facts)))


def test_a_scale_that_falls_below_one_is_found_without_a_skip_on_record() -> None:
    none_skipped = dict.fromkeys(range(1, 201), 0)
    loop = {"fit": {"optimizer": None}}  # which tells its scale alone, as that of PyTorch's GradScaler
    for case, severity in (
        (falling(2.0**-3, skipped=none_skipped), "warning"),
        (falling(2.0**-3, skipped=none_skipped | {10: 1, 42: 1}), "warning"),
        (falling(2.0**-3, skipped=None), "error"),
        (falling(2.0**-3, skipped=None, **loop), "error"),
    ):
        assert says("MP201", case) == severity
        assert "fell from 2^15 to 2^-3" in finding("MP201", case).summary
        found = diagnosed(case)
        assert leads(found) == ("learning", "MP201")
        assert_answer(found)
        assert not {"info", "warning", "error"} & set(told(case)[1:])
    # In these nothing overflows at a scale of 1.
    assert says("MP201", falling(1.0, skipped=none_skipped)) == "clear"
    assert says("MP201", falling(1.0, skipped=None)).startswith("unable")
    assert says("MP201", falling(2.0**-3, high=2.0**-3, skipped=none_skipped)) == "clear"
    fixed = {"fit": {"optimizer": OptimizerFacts("LossScaleOptimizer", "Adam", False, fixed_scale=0.125)}}
    assert says("MP201", falling(2.0**-3, high=2.0**-3, skipped=none_skipped, **fixed)) != "error"


def test_mp203_a_scale_that_an_overflow_stopped_does_not_run_away() -> None:
    fell = {1: 2.0**39, 10: 2.0**30, 11: 2.0**29, 200: 2.0**29}
    assert says("MP203", c.case(table=c.steps(scales=fell))) == "clear"
    assert says("MP203", c.case(table=c.steps(scales=fell | {200: 2.0**30}))) == "clear"
    assert says("MP203", c.case(table=c.steps(scales=fell | {200: 2.0**31}))) == "warning"


def own(called, scales=None, optimizer=None):
    model = ModelFacts("model", 1000, c.HEALTHY_LAYERS, train_step="own")
    fit = {"scale_loss_called": called} | ({"optimizer": optimizer} if optimizer else {})
    return c.case(
        table=c.steps(scales=scales or {1: 2.0**15, 200: 2.0**30}), records=c.facts(model=model, fit=fit)
    )


def test_mp103_takes_a_loss_that_is_known_never_to_be_scaled() -> None:
    case = own(called=False)
    assert (says("MP103", case), finding("MP103", case).confidence) == ("error", "high")
    assert (
        says("MP203", case)
        == "not applicable: the loss is never scaled, so that its scale says nothing (MP103)"
    )
    fixed = OptimizerFacts("Adam", fixed_scale=1024.0)
    assert says("MP103", own(called=False, optimizer=fixed)) == "error"
    assert says("MP103", own(called=False, optimizer=OptimizerFacts("Adam", dynamic=False))).startswith(
        "not app"
    )
    assert says("MP103", own(called=True)) == "clear"
    assert says("MP103", own(called=None)).startswith("unable")


def test_mp203_advises_no_fixed_scale_where_the_loss_may_never_be_scaled() -> None:
    remedy = finding("MP203", own(called=None)).remedy
    assert "optimizer.scale_loss(loss)" in remedy
    assert "fixed scale" not in remedy
    assert "fixed scale" in finding("MP203", c.case(table=c.steps(scales={200: 2.0**30}))).remedy


def test_remedies_name_the_recorded_optimizer() -> None:
    sgd = OptimizerFacts("LossScaleOptimizer", "SGD", True, 2.0**15, 20)
    case = c.case(table=c.steps(scales={200: 2.0**30}), records=c.facts(fit={"optimizer": sgd}))
    assert "optimizers.SGD(" in finding("MP203", case).remedy
    mine = OptimizerFacts("LossScaleOptimizer", "MyOwn", True, 2.0**15, 20)
    case = c.case(table=c.steps(scales={200: 2.0**30}), records=c.facts(fit={"optimizer": mine}))
    assert "optimizers.Adam(" in finding("MP203", case).remedy


# --- MP913 ended-by-error


def ended(reason, error=None, text=None, *, steps=60, finished=True):
    table = c.steps(steps) if steps else None
    records = c.facts(ended=Ended(reason, error, text) if reason else None)
    return c.case(table=table, run=c.run(records, table, finished=finished))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (ended("error", "RuntimeError", "gone"), "error"),
        (ended("out_of_memory", "OOM when allocating"), "error"),
        (ended("interrupted", "KeyboardInterrupt"), "clear"),
        (ended("exit", "SystemExit"), "clear"),
        (ended(None), "clear"),
        (ended(None, finished=False), "unable"),
        (ended("unknown"), "unable"),
        (c.case(records=None), "not applicable"),
    ],
    ids=["error", "memory", "keyboard", "exit", "finished", "killed", "unseen", "trace"],
)
def test_mp913_is_for_errors_alone(case, said) -> None:
    assert says("MP913", case).split(":")[0] == said


def test_mp913_says_where_and_with_what() -> None:
    got = finding("MP913", ended("error", "RuntimeError", "gone"))
    assert got.summary == "training stopped after step 60 with RuntimeError: gone"
    bare = finding("MP913", ended("error", "KeyError", steps=0))
    assert bare.summary == "training stopped before its first step with KeyError"
    assert "train longer" not in got.remedy
    oom = finding("MP913", ended("out_of_memory", "ResourceExhaustedError: OOM when allocating\nmore"))
    assert (
        oom.summary == "training ran out of memory after step 60: ResourceExhaustedError: OOM when allocating"
    )


@pytest.mark.parametrize("code", ["MP910", "MP911"])
def test_a_run_that_an_error_ended_is_not_told_to_train_longer(code) -> None:
    records = c.facts(
        ended=Ended("error", "ValueError"), profile_windows=(), absent={"profile_windows": "too early"}
    )
    table = c.steps(8)
    case = c.case(records=records, table=table, steps=c.summary(table, steady=2))
    assert says(code, case) == "not applicable: an error ended the training"


def test_a_scale_that_stays_at_its_floor_has_found_nothing() -> None:
    """Keras 2 halves its scale down to 1 and no further: updates that are skipped there are endless, too."""
    halved = {step: max(2.0 ** (15 - step), 1.0) for step in range(1, 81)}
    table = c.steps(80, skipped=dict.fromkeys(halved, 1), scales=halved)
    optimizer = OptimizerFacts("LossScaleOptimizer", "Adam", True, 2.0**15, 2000)
    case = c.case(table=table, records=c.facts(fit={"optimizer": optimizer}))
    assert told(case) == ("error", "clear", "clear")
    assert "the gradients are not finite even unscaled" in finding("MP201", case).summary
    began = OptimizerFacts("LossScaleOptimizer", "Adam", True, 1.0, 2000)
    table = c.steps(80, skipped=dict.fromkeys(halved, 1), scales=dict.fromkeys(halved, 1.0))
    case = c.case(table=table, records=c.facts(fit={"optimizer": began}))
    assert "and the loss scale stays at 2^0: the" in finding("MP201", case).summary
    held = {step: max(2.0 ** (15 - step), 1.0) for step in range(1, 16)} | dict.fromkeys(range(16, 81), 1.0)
    found = c.steps(
        80, skipped={**dict.fromkeys(range(1, 16), 1), **dict.fromkeys(range(16, 81), 0)}, scales=held
    )
    assert says("MP201", c.case(table=found, records=c.facts(fit={"optimizer": optimizer}))) == "clear"


def test_a_scale_that_a_loop_records_grows_whatever_its_optimizer_is() -> None:
    """As a GradScaler's: torch's own optimizers know of no loss scale."""
    records = c.facts(fit={"optimizer": OptimizerFacts("Adam")})
    assert says("MP203", c.case(table=c.steps(scales={200: 2.0**30}), records=records)) == "warning"
    fixed = c.facts(fit={"optimizer": OptimizerFacts("Adam", fixed_scale=2.0**30)})
    assert says("MP203", c.case(table=c.steps(scales={200: 2.0**30}), records=fixed)).startswith(
        "not applicable"
    )
